"""DataSpec: checked, filled in from the recipe, and back to a command line."""

import shlex

import pytest

from data_prep import recipes
from data_prep.__main__ import parser
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError


def test_a_recipe_fills_what_a_config_leaves_out():
    spec = DataSpec.from_mapping({"recipe": "wmt16_ro_en", "source": "en", "target": "ro"})
    assert (spec.source, spec.target) == ("en", "ro")
    # S2S §4.2: separate segmentations with 25k merges per language.
    assert (spec.operations, spec.joint_bpe, spec.joint_dictionary) == (25_000, False, False)


@pytest.mark.parametrize("name", recipes.NAMES)
def test_every_recipe_has_a_complete_spec_that_survives_json_and_a_command_line(name):
    own = (
        {"source": "de", "target": "en", "train": "my files/train"} if name == "plain_text" else {}
    )
    spec = DataSpec.from_mapping({"recipe": name, "seed": 7, "lowercase": True, **own})
    assert DataSpec.from_mapping(spec.to_mapping()) == spec
    command = spec.command("data/x", raw="somewhere", jobs=3)
    assert command[:3] == ["python", "-m", "data_prep"]
    given = vars(parser().parse_args(shlex.split(shlex.join(command))[3:]))
    assert [str(given.pop(key)) for key in ("out", "raw", "jobs")] == ["data/x", "somewhere", "3"]
    assert (given.pop("max_damaged"), given.pop("any_size")) == (0.01, False)
    assert DataSpec.from_mapping(given) == spec


def test_flags_of_every_kind_reach_the_command_line():
    spec = DataSpec.from_mapping(
        {
            "recipe": "sigmorphon2018",
            "languages": "english german",
            "setting": "medium",
            "joint_bpe": True,
            "max_ratio": 3,
        }
    )
    assert spec.languages == ("english", "german")
    given = vars(parser().parse_args(spec.command("x")[3:]))
    assert given.pop("out").name == "x"
    for name in ("raw", "jobs", "max_damaged", "any_size"):
        del given[name]
    assert DataSpec.from_mapping(given) == spec


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            {"recipe": "iwslt14", "operation": 1},
            "unknown key 'operation'; did you mean 'operations'",
        ),
        ({"recipe": "iwslt2014"}, "unknown recipe 'iwslt2014'; did you mean 'iwslt14'"),
        ({}, "unknown recipe 'None'; there are home_assistant, "),
        ({"recipe": "iwslt14", "operations": "10k"}, "operations must be a int, not '10k'"),
        ({"recipe": "iwslt14", "operations": -1}, "operations must be a int, not -1"),
        ({"recipe": "iwslt14", "joint_bpe": "yes"}, "joint_bpe must be a bool, not 'yes'"),
        ({"recipe": "iwslt14", "joint_dict": True}, "did you mean 'joint_dictionary'"),
        ({"recipe": "iwslt14", "tokenizer": "spacy"}, "tokenizer is moses or none, not 'spacy'"),
        ({"recipe": "iwslt14", "source": "en"}, "must be two languages, not 'en' and 'en'"),
        ({"recipe": "iwslt14", "operations": 0}, "segmentation bpe needs operations"),
    ],
)
def test_mistakes_are_named(mapping, message):
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        DataSpec.from_mapping(mapping)


def test_the_older_key_joint_meant_one_segmentation_and_one_dictionary():
    """As in data.json and in manifests of earlier versions."""
    for joint in (True, False):
        spec = DataSpec.from_mapping({"recipe": "iwslt17", "joint": joint})
        assert (spec.joint_bpe, spec.joint_dictionary) == (joint, joint)
        record = spec.to_mapping()
        del record["joint_bpe"], record["joint_dictionary"]
        assert DataSpec.from_record({**record, "joint": joint}) == spec
