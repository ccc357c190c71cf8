"""Flags of a config that fairseq does not have are found before the training, not after it."""

import pytest

from experiments.commands import Workers
from experiments.config import CONFIGS
from experiments.flags import check_command
from experiments.plan import make_plan
from experiments.run import parse
from sparse_fairseq.errors import UsageError
from tests.pretended_runs import CONFIG

CPU = Workers(1, {"cpu": True})


def check(arguments: list[str]) -> None:
    plan = make_plan(parse(arguments))
    for command in plan.commands(plan.runs[0], CPU):
        check_command(command, plan.config.dataset)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("lr: 0.1", "lr: 0.1, dropuot: 0.1"), "train: no flag 'dropuot'; did you mean 'dropout'"),
        (("beam: 2", "beem: 5"), "generate: no flag 'beem'; did you mean 'beam'"),
    ],
)
def test_a_wrong_flag_is_refused_with_the_nearest(place, change, message):
    check(place.arguments())
    place.configure(CONFIG.replace(*change))
    with pytest.raises(UsageError, match=f"tiny: {message}"):
        check(place.arguments())


@pytest.mark.parametrize("dataset", sorted(path.stem for path in CONFIGS.glob("*.yaml")))
def test_the_configs_have_flags_that_fairseq_knows(dataset):
    check([dataset])
