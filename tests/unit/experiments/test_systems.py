"""What the project knows of a system is in one object."""

import dataclasses

import pytest

from experiments import systems
from experiments.config import load_config
from experiments.report.figures import SERIES, Looks
from experiments.systems import System, describe, find_system, in_order, system_flags
from sparse_fairseq.errors import UsageError


@pytest.mark.parametrize(
    ("name", "dense", "normalised", "sweep"),
    [
        ("softmax", True, True, False),
        ("entmax1", True, True, True),  # trains softmax, and so it is dense
        ("out1_att1.5", True, True, True),
        ("entmax15", False, True, False),
        ("entmax1.33", False, True, True),
        ("sparsemax", False, True, False),
        ("relu15", False, False, False),
        ("relu15_tau0.3", False, False, True),
        ("somebody's own", False, True, False),
    ],
)
def test_what_a_name_stands_for(name, dense, normalised, sweep):
    system = describe(name)
    assert (system.dense, system.normalised, system.sweep) == (dense, normalised, sweep)


def test_alpha_one_trains_softmax():
    config = load_config("iwslt14_de_en")
    assert system_flags(config, "entmax1") == system_flags(config, "softmax")


@pytest.mark.parametrize("name", ["reference", "somebody's own"])
def test_what_cannot_be_trained_is_refused(name):
    with pytest.raises(UsageError, match="no system"):
        find_system(name)


def test_a_new_system_is_one_entry(monkeypatch):
    """It trains, has a label, stands where the entry stands and has its colour in figures."""
    flags = {"criterion": "entmax_loss", "alpha": 1.3}
    new = System("entmax13", "1.3-entmax", flags, 1.3, colour=4)
    known = list(systems.SYSTEMS)
    known.insert(known.index(describe_entry("entmax15")), new)
    monkeypatch.setattr(systems, "SYSTEMS", tuple(known))
    systems._find.cache_clear()
    try:
        assert system_flags(load_config("iwslt14_de_en"), "entmax13") == flags
        assert in_order(["relu15", "entmax15", "entmax13"]) == ["entmax13", "entmax15", "relu15"]
        assert Looks(["entmax13"]).colour("entmax13") == SERIES[4]
        assert dataclasses.replace(describe("entmax13"), order=new.order) == new
    finally:
        systems._find.cache_clear()


def describe_entry(name: str) -> System:
    return next(entry for entry in systems.SYSTEMS if getattr(entry, "name", None) == name)
