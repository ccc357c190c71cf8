"""`make own`: the config that it writes for files of one's own, and one line for what is wrong."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from experiments import own
from experiments.commands import Workers
from experiments.config import CONFIGS, Config, load_config
from experiments.flags import check_command
from experiments.plan import make_plan
from sparse_fairseq.errors import UsageError

ROOT = Path(__file__).parents[3]
LETTERS = "abcdefghijklmnopqrst"


@pytest.fixture
def folder(tmp_path) -> Path:
    for language, word in (("de", "Satz"), ("en", "Sentence")):
        lines = [f"{word} {a} {b}\n" for a in LETTERS for b in LETTERS]
        (tmp_path / f"train.{language}").write_text("".join(lines))
    return tmp_path


def values(folder: Path, *arguments: str) -> dict:
    places = [f"--configs={folder / 'configs'}", f"--data-root={folder / 'data'}"]
    usual = ["--name=mine", "--pair=de-en", f"--train={folder / 'train'}"]
    return own.config_values(own.parse([*usual, *places, *arguments])[0])


@pytest.mark.parametrize(
    ("pairs", "preset"),
    [(0, "tiny"), (9_999, "tiny"), (10_000, "small"), (60_000, "medium"), (2_000_000, "base")],
)
def test_the_size_of_the_data_chooses_the_model(folder, pairs, preset, capsys):
    options, _ = own.parse(["--name=mine"])
    settings = own.base_settings(options, pairs)
    assert f"{pairs:,} training pairs, settings of" in capsys.readouterr().err
    assert settings == own.read_values(f"presets/{preset}")


def test_every_preset_is_there_and_documented():
    presets = {path.stem for path in (CONFIGS / "presets").glob("*.yaml")}
    assert presets == {*own.PRESETS}
    page = (ROOT / "docs/own-data.md").read_text()
    for name, least in own.PRESETS.items():
        assert f"| `{name}` |" in page
        assert f"{least:,}" in page


@pytest.mark.parametrize("preset", own.PRESETS)
def test_flags_of_every_preset_are_known_to_fairseq(preset, folder):
    (folder / "settings.yaml").write_text(f"extends: presets/{preset}\n")
    options, _ = own.parse(["--name=mine", "--pair=de-en", f"--train={folder / 'train'}"])
    options.config = folder / "settings.yaml"
    configs = own.write_config(options, own.config_values(options), folder / "configs")
    plan = make_plan(own.run.parse(["mine", "relu15", "1", f"--configs={configs}"]))
    commands = plan.commands(plan.runs[0], Workers(1, {"cpu": True}))
    assert [command[0] for command in commands] == ["fairseq-train", *["fairseq-generate"] * 2]
    for command in commands:
        check_command(command, "mine")


def test_a_dry_run_writes_nothing(folder, monkeypatch):
    called = []
    monkeypatch.setattr(own.run, "main", called.extend)
    places = [f"--configs={folder / 'configs'}", f"--data-root={folder / 'data'}"]
    usual = ["--name=mine", "--pair=de-en", f"--train={folder / 'train'}", *places]
    own.main([*usual, "--dry-run", "--gpus=0"])
    assert called[0] == "mine" and {"--report", "--dry-run", "--gpus=0"} <= {*called}
    assert not (folder / "configs").exists()
    own.main(usual)
    assert (folder / "configs/mine.yaml").is_file()


def test_segmentation_decides_how_validation_reads_the_output(folder):
    bpe = values(folder)
    assert bpe["data"]["segmentation"] == "bpe" and "tokenizer" not in bpe["data"]
    assert bpe["train"]["eval-bleu-detok-args"] == '{"target_lang": "en"}'
    pieces = values(folder, "--segmentation=sentencepiece", "--operations=50")
    assert pieces["data"]["operations"] == 50 and pieces["data"]["tokenizer"] == "none"
    assert pieces["train"]["eval-bleu-remove-bpe"] == "sentencepiece"
    assert pieces["train"]["eval-bleu-detok"] == "space"
    words = values(folder, "--segmentation=none")
    assert "eval-bleu-remove-bpe" not in words["train"]
    assert words["data"]["tokenizer"] == "none"


def test_settings_of_ones_own_and_systems(folder):
    config = folder / "my.yaml"
    config.write_text("extends: presets/tiny\nsystems: [entmax15]\ntrain: {lr: 0.001}\n")
    found = values(folder, f"--config={config}")
    assert (found["systems"], found["train"]["lr"]) == (["entmax15"], 0.001)
    assert values(folder, f"--config={config}", "--systems=softmax relu15")["systems"] == [
        "softmax",
        "relu15",
    ]


def test_the_config_that_is_written_is_the_one_that_runs(folder):
    options, _ = own.parse(
        ["--name=mine", "--pair=pt-BR-en", f"--train={folder / 'all.tsv'}", "--systems=relu15"]
    )
    (folder / "all.tsv").write_text("".join(f"a {x}\tb {x}\n" for x in LETTERS * 2))
    made = own.write_config(options, own.config_values(options), folder / "configs")
    config = load_config("mine", made)
    assert config.systems == ("relu15",)
    assert config.data["train"] == str(folder / "all.tsv")
    assert (config.data["source"], config.data["target"]) == ("pt-BR", "en")
    text = (made / "mine.yaml").read_text()
    assert "docs/own-data.md" in text and yaml.safe_load(text)["data"]["recipe"] == "plain_text"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--name="], "own data needs NAME="),
        (["--pair="], "own data needs PAIR="),
        (["--train="], "own data needs TRAIN="),
        (["--name=a/b"], "NAME=a/b: letters, digits"),
        (["--name=demo"], "NAME=demo: there is a target of that name"),
        (["--name=iwslt14_de_en"], "NAME=iwslt14_de_en: there is a target of that name"),
        (["--pair=german"], "PAIR=german: two languages are needed"),
        (["--segmentation=bpee"], "SEGMENTATION=bpee is unknown; did you mean 'bpe'"),
        (["--operations=0"], "OPERATIONS=0: at least 1"),
        (["--config=/no/file.yaml"], "CONFIG=/no/file.yaml: there is no such file"),
        (["--valid=/no/valid"], "valid: there is no /no/valid.de and no /no/valid.en"),
    ],
)
def test_what_is_wrong_is_one_line(folder, arguments, says):
    with pytest.raises(UsageError) as error:
        values(folder, *arguments)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_files_that_changed_since_the_data_were_made_are_refused(folder):
    made = folder / "data/mine"
    made.mkdir(parents=True)
    path = folder / "train.de"
    source = {"name": str(path), "size": path.stat().st_size, "sha256": own.sha256(path)}
    facts = {"spec": {}, "sizes": {}, "checksums": {}, "sources": [source]}
    (made / "data.json").write_text(json.dumps(facts))
    values(folder)
    path.write_text(path.read_text().replace("Satz", "Sätz", 1))
    with pytest.raises(UsageError, match="train.de has changed since .*: give it another NAME"):
        values(folder)


def test_every_key_of_a_config_is_documented():
    page = (ROOT / "docs/own-data.md").read_text()
    keys = {field.name for field in dataclasses.fields(Config)} - {"dataset"}
    assert not {key for key in keys if f"| `{key}` |" not in page}
