"""From what was typed to datasets, directories and what else to type."""

import pytest

from experiments.paths import ROOT
from experiments.plan import Plan, make_plan
from experiments.run import parse
from sparse_fairseq.errors import UsageError


def plan(*words: str) -> Plan:
    return make_plan(parse(list(words)))


@pytest.mark.parametrize(
    ("pair", "source", "target"),
    [
        ("de-en", "de", "en"),
        ("en-zh-Hans", "en", "zh-Hans"),
        ("pt-BR-en", "pt-BR", "en"),
        ("pt-BR-zh-Hant", "pt-BR", "zh-Hant"),
        ("es-419-sr-Latn", "es-419", "sr-Latn"),
        ("en-GB-en", "en-GB", "en"),
    ],
)
def test_a_pair_may_have_regions_on_both_sides(pair, source, target):
    made = plan("demo", "--pair", pair)
    assert (made.config.data["source"], made.config.data["target"]) == (source, target)
    assert plan(made.config.dataset).config.data == made.config.data  # as make …/train has it


@pytest.mark.parametrize("pair", ["de", "de-", "-en", "pt-BR", "de-en-fr", ""])
def test_what_is_no_pair_is_refused(pair):
    with pytest.raises(UsageError, match="two languages are needed"):
        plan("demo", f"--pair={pair}")


def test_directories_are_those_of_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = plan("demo_de_en", "--data-root=d", "--runs-root=r", "--raw=raw")
    assert made.data == tmp_path / "d/demo_de_en"
    assert made.runs[0].path.is_relative_to(tmp_path / "r")
    command = made.data_command
    assert command[command.index("--out") + 1] == str(tmp_path / "d/demo_de_en")
    assert command[command.index("--raw") + 1] == str(tmp_path / "raw")


def test_commands_have_short_paths_inside_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)
    command = plan("demo_de_en", "--data-root=data").data_command
    assert command[command.index("--out") + 1] == "data/demo_de_en"


def test_languages_are_a_dataset_of_their_own_in_any_order():
    one = plan("sigmorphon2018_high", "--languages=german english german")
    other = plan("sigmorphon2018_high", "--languages=english german")
    assert one.config == other.config
    assert one.config.dataset == "sigmorphon2018_high_english_german"
    assert one.config.data["languages"] == ["english", "german"]


def test_many_languages_have_a_name_that_a_file_system_takes():
    languages = [f"language{i}" for i in range(50)]
    names = {
        plan("sigmorphon2018_high", f"--languages={' '.join(some)}").config.dataset
        for some in (languages, languages[1:])
    }
    assert len(names) == 2
    assert all(len(name) < 200 for name in names)


def test_languages_of_a_dataset_that_has_none_are_refused():
    with pytest.raises(UsageError, match="LANGUAGES= is for sigmorphon2018; iwslt14_de_en has no"):
        plan("iwslt14_de_en", "--languages=english")


def test_hints_can_be_typed(monkeypatch, tmp_path):
    made = plan("sigmorphon2018_high", "--languages=english german")
    assert made.make("out1_att1", "seed1", "train") == (
        'make sigmorphon2018_high/out1_att1/seed1/train LANGUAGES="english german"'
    )
    assert plan("demo", "--pair=fr-en").make("data") == "make demo_fr_en/data"
    elsewhere = plan("demo_fr_en", f"--runs-root={tmp_path}").make()
    assert elsewhere == f"make demo_fr_en RUNS={tmp_path}"


def test_refusals_say_what_to_type(place):
    with pytest.raises(UsageError, match=f": make tiny/relu15/seed1/train .*{place.folder}/runs"):
        place.call("relu15", "1", "generate")
    with pytest.raises(UsageError, match=": make tiny/relu15/seed1/generate "):
        place.call("relu15", "1", "score")
    with pytest.raises(UsageError, match="no runs in .*: make tiny "):
        place.call("report")
