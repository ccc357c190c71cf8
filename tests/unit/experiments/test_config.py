"""Configs: what they may say, what the systems of the papers are, and the commands that follow."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments import commands
from experiments.commands import (
    Workers,
    batch_note,
    find_workers,
    shares,
    train_command,
    train_settings,
)
from experiments.config import CONFIGS, Batch, load_config
from experiments.systems import system_flags
from sparse_fairseq.errors import UsageError

CPU = Workers(1, {"cpu": True})
ALL = sorted(path.stem for path in CONFIGS.glob("*.yaml"))

MINIMAL = """
about: a test
data: {recipe: multi30k, source: de, target: en}
systems: [softmax]
batch: {tokens: 100}
train: {arch: transformer, lr: 0.1, max-epoch: 2}
generate: {beam: 5}
"""


def write_config(folder: Path, text: str) -> Path:
    (folder / "mine.yaml").write_text(text)
    return folder


@pytest.mark.parametrize("name", ALL)
def test_every_config_is_valid_and_its_systems_have_flags(name):
    config = load_config(name)
    for system in config.systems:
        command = train_command(train_settings(config, system, 1), Path("bin"), Path("out"), CPU)
        assert any(word.startswith("--criterion=") for word in command)


def test_datasets_of_the_issue_are_all_there():
    wanted = "iwslt14_de_en wmt14_en_de wmt13_en_ru iwslt17_de_en iwslt17_en_de kftt_ja_en"
    wanted += " kftt_en_ja wmt16_ro_en wmt16_en_ro sigmorphon2018_high sigmorphon2018_medium"
    assert set(wanted.split()) | {"multi30k_de_en", "demo"} <= set(ALL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("systems:", "sytems:"), "no key 'sytems'; did you mean 'systems'?"),
        (("tokens: 100", "token: 100"), "no key 'token'; did you mean 'tokens'?"),
        (("tokens: 100", "tokens: 100, sentences: 3"), "either tokens or sentences"),
        (("about: a test", ""), "the key about is missing"),
        (("[softmax]", "[]"), "systems is empty"),
        (("beam: 5}", "beam: 5"), "mine.yaml"),
        (("{tokens: 100}", "5"), "batch must be keys with values"),
        (("{arch: transformer, lr: 0.1, max-epoch: 2}", ""), "train must be keys with values"),
        (("{beam: 5}", ""), "generate must be keys with values"),
        (("{recipe: multi30k, source: de, target: en}", ""), "data must be keys with values"),
        (("about: a test", "about: a test\nseeds: [x]"), "a seed must be a whole number"),
        (("about: a test", "about: a test\nseeds: 3"), "seeds must be a list"),
        (("[softmax]", "softmax"), "systems must be a list"),
        (("tokens: 100", "tokens: 100, accumulate: two"), "batch: accumulate must be a whole"),
        (("tokens: 100", "tokens: 0"), "batch: tokens must be a whole number of at least 1"),
        ((", max-epoch: 2", ""), "train needs max-epoch or max-update"),
        (("max-epoch: 2", "max-epoch: many"), "train: max-epoch must be a whole number"),
        (("about: a test", "about: a test\nmetric: blue"), "'blue'; did you mean 'bleu'?"),
        (("about: a test", "about: a test\nattention_alpha: sme"), "'sme'; did you mean 'same'?"),
        (("about: a test", "extends: mine"), "extends mine, which extends it"),
    ],
)
def test_mistakes_in_a_config_are_named(tmp_path, change, message):
    folder = write_config(tmp_path, MINIMAL.replace(*change))
    with pytest.raises(UsageError, match=message.replace("?", r"\?")) as raised:
        load_config("mine", folder)
    assert "\n" not in str(raised.value)


def test_configs_that_extend_each_other_are_named(tmp_path):
    (tmp_path / "one.yaml").write_text("extends: other\n")
    (tmp_path / "other.yaml").write_text("extends: one\n")
    with pytest.raises(UsageError, match="other.yaml: extends one, which extends it"):
        load_config("one", tmp_path)


def test_unknown_dataset_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean 'iwslt14_de_en'"):
        load_config("iwslt14_de_e")


def test_extends_overrides_flag_by_flag_and_null_takes_one_out(tmp_path):
    write_config(tmp_path, MINIMAL)
    (tmp_path / "other.yaml").write_text("extends: mine\ntrain: {lr: null, dropout: 0.3}\n")
    config = load_config("other", tmp_path)
    assert config.train == {"arch": "transformer", "max-epoch": 2, "dropout": 0.3}
    assert config.batch == Batch(tokens=100)


def test_demo_takes_any_language_pair():
    data = load_config("demo_pt-BR_en").data
    assert (data["source"], data["target"]) == ("pt-BR", "en")


@pytest.mark.parametrize(
    ("system", "flags"),
    [
        ("softmax", {"criterion": "softmax_loss"}),
        ("sparsemax", {"criterion": "sparsemax_loss"}),
        ("entmax15", {"criterion": "entmax_loss", "alpha": 1.5}),
        ("entmax1.33", {"criterion": "entmax_loss", "alpha": 1.33}),
        ("entmax15_k100", {"criterion": "entmax_loss", "alpha": 1.5, "solver": "topk"}),
        ("relu15", {"criterion": "alpha_relu_loss", "alpha": 1.5, "tau": "batch"}),
        ("relu15_tau0.3", {"criterion": "alpha_relu_loss", "alpha": 1.5, "tau": 0.3}),
    ],
)
def test_systems_of_a_transformer(system, flags):
    assert system_flags(load_config("iwslt14_de_en"), system) == flags


@pytest.mark.parametrize(
    ("system", "criterion", "attention"),
    [
        ("softmax", "softmax_loss", 1.0),
        ("entmax15", "entmax_loss", 1.5),
        ("sparsemax", "sparsemax_loss", 2.0),
        ("out1_att1.5", "softmax_loss", 1.5),
        ("out2_att1", "sparsemax_loss", 1.0),
    ],
)
def test_s2s_uses_the_same_alpha_for_attention_unless_the_name_says_another(
    system, criterion, attention
):
    flags = system_flags(load_config("iwslt17_de_en"), system)
    assert (flags["criterion"], flags["attention-alpha"]) == (criterion, attention)


def test_wrong_systems_are_refused():
    config = load_config("iwslt14_de_en")
    with pytest.raises(UsageError, match="did you mean 'sparsemax'"):
        system_flags(config, "sparsmax")
    with pytest.raises(UsageError, match="at least 1"):
        system_flags(config, "entmax0.5")
    with pytest.raises(UsageError, match="has no α of the attention"):
        system_flags(config, "out1.5_att2")


@pytest.mark.parametrize(("dataset", "warmup"), [("iwslt14_de_en", 4000), ("wmt14_en_de", 8000)])
def test_the_peak_of_noam_is_the_learning_rate(dataset, warmup):
    train = load_config(dataset).train
    # SE Appendix A: noam with factor 2.0 and d = 512 peaks after the warm-up.
    assert train["lr"] == pytest.approx(2 * 512**-0.5 * warmup**-0.5, rel=1e-4)
    assert train["warmup-updates"] == warmup


@pytest.mark.parametrize(("gpus", "accumulate"), [(1, 8), (2, 4), (8, 1)])
def test_the_batch_stays_the_same_however_many_workers_share_it(gpus, accumulate):
    settings = train_settings(load_config("iwslt14_de_en"), "relu15", 1)
    workers = Workers(gpus, {"distributed-world-size": gpus})
    command = train_command(settings, Path("bin"), Path("out"), workers)
    assert f"--update-freq={accumulate}" in command
    assert f"--distributed-world-size={gpus}" in command
    assert "--max-tokens=4096" in command


def words(settings: dict, workers: Workers) -> list[str]:
    return train_command(settings, Path("bin"), Path("out"), workers)


@pytest.mark.parametrize(
    ("dataset", "gpus", "flags"),
    [
        ("demo", 2, ["--max-tokens=1024", "--update-freq=1"]),
        ("wmt14_en_de", 16, ["--max-tokens=2048", "--update-freq=1"]),
        ("iwslt17_de_en", 4, ["--batch-size=16", "--update-freq=1"]),
        ("iwslt14_de_en", 16, ["--max-tokens=2048", "--update-freq=1"]),
    ],
)
def test_more_workers_than_batches_take_smaller_ones(dataset, gpus, flags):
    settings = train_settings(load_config(dataset), "softmax", 1)
    workers = Workers(gpus, {})
    assert set(flags) <= set(words(settings, workers))
    assert batch_note(settings, workers) is None


@given(*(st.integers(1, n) for n in (5000, 12, 40)))
def test_workers_share_an_update_as_declared_or_nearly(size, accumulate, count):
    share, frequency = shares(size, accumulate, count)
    assert share <= size
    together, declared = share * frequency * count, size * accumulate
    assert abs(together - declared) <= frequency * count / 2
    if accumulate % count == 0:
        assert share == size and together == declared


def test_an_update_that_cannot_be_shared_in_whole_numbers_says_so():
    settings = train_settings(load_config("iwslt17_de_en"), "softmax", 1)
    assert batch_note(settings, Workers(3, {})) == (
        "an update of 64 (batch-size) is shared as 3 × 1 × 21 = 63"
    )
    with pytest.raises(UsageError, match="200 workers cannot share an update of 64 batch-size"):
        words(settings, Workers(200, {}))


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(commands, "_gpu_count", lambda: 2)


def test_all_gpus_are_used_unless_somebody_says_how_many(two_gpus):
    assert find_workers(None, {}).count == 2
    assert find_workers(1, {}).count == 1
    assert find_workers(0, {}) == CPU


def test_a_number_of_gpus_holds_inside_a_slurm_allocation(two_gpus):
    """fairseq takes all GPUs of a one-task allocation, unless it is told where to meet."""
    settings = train_settings(load_config("demo"), "relu15", 1)
    workers = find_workers(2, {"SLURM_NTASKS": "1", "SLURM_JOB_NODELIST": "node1"})
    (method,) = [x for x in words(settings, workers) if "init-method" in x]
    assert re.fullmatch(r"--distributed-init-method=tcp://localhost:\d{5}", method)
    one = words(settings, find_workers(1, {}))
    assert not any("init-method" in word for word in one)


def test_workers_of_torchrun_and_slurm_are_found(two_gpus):
    started = {"WORLD_SIZE": "8", "RANK": "3", "LOCAL_RANK": "1", "MASTER_ADDR": "first"}
    torchrun = find_workers(None, started)
    assert (torchrun.count, torchrun.rank, torchrun.flags["device-id"]) == (8, 3, 1)
    settings = train_settings(load_config("demo"), "relu15", 1)
    (method,) = [x for x in words(settings, torchrun) if "init-method" in x]
    assert re.fullmatch(r"--distributed-init-method=tcp://first:\d{5}", method)
    on_cpu = find_workers(0, started)
    assert on_cpu.flags["cpu"] and on_cpu.flags["distributed-backend"] == "gloo"
    assert find_workers(None, {"WORLD_SIZE": "1", "RANK": "0"}).rank == 0
    slurm = find_workers(
        None,
        {"SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_PROCID": "1", "SLURM_JOB_ID": "77"},
    )
    assert (slurm.count, slurm.rank) == (4, 1)
    assert slurm.flags == {"distributed-world-size": 4, "distributed-port": 10_077}


def test_several_slurm_tasks_without_a_gpu_are_refused(monkeypatch):
    """They would wait for each other for ever: fairseq's workers on CPUs do not meet."""
    monkeypatch.setattr(commands, "_gpu_count", lambda: 0)
    with pytest.raises(UsageError, match="4 SLURM tasks need GPUs"):
        find_workers(None, {"SLURM_NTASKS": "4"})
    assert find_workers(None, {"SLURM_NTASKS": "4"}, pretend=True).count == 4


def test_gpus_that_are_not_there_are_an_error(monkeypatch):
    monkeypatch.setattr(commands, "_gpu_count", lambda: 0)
    with pytest.raises(UsageError, match="GPUS=99, but this machine has 0"):
        find_workers(99, {})
    assert find_workers(99, {}, pretend=True).count == 99
    with pytest.raises(UsageError, match="GPUS=-1"):
        find_workers(-1, {})


@pytest.mark.parametrize(
    ("dataset", "title"),
    [
        ("iwslt14_de_en", "IWSLT14 De→En"),
        ("demo_pt-BR_en", "Demo Pt-BR→En"),
        ("iwslt17_en_de", "IWSLT17 En→De"),
        ("iwslt17_de_en_alphas", "IWSLT17 De→En, grid of α"),
        ("sigmorphon2018_medium", "SIGMORPHON 2018 (medium)"),
    ],
)
def test_a_dataset_has_a_title(dataset, title):
    assert load_config(dataset).title == title


def test_a_label_with_a_wrong_key_is_refused(tmp_path):
    text = (CONFIGS / "multi30k_de_en.yaml").read_text().replace("{source}", "{sauce}")
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(UsageError, match="x: label: 'sauce' is no key of data"):
        load_config("x", tmp_path)
