"""What the targets of experiments do, from the Makefile on; `make -n` only shows it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.config import name_of_part

ROOT = Path(__file__).parents[2]


def make(*words: str, answer: str = "") -> str:
    # This Python, wherever it is, so that nothing is installed.
    python = f"BIN={Path(sys.executable).parent}"
    done = subprocess.run(
        ["make", "--no-print-directory", "INSTALLED=", python, *words],
        cwd=ROOT,
        input=answer,
        env={key: value for key, value in os.environ.items() if key != "MAKEFLAGS"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown(*words: str) -> list[str]:
    """The command lines after that of experiments.run itself, which make -n shows first."""
    runner, *lines = make("-n", *words).splitlines()
    assert "-m experiments.run" in runner
    return lines


def programs(lines: list[str]) -> list[str]:
    words = [line.split() for line in lines]
    return [" ".join(x[:3]) if x[0] == "python" else x[0] for x in words]


def test_a_dataset_shows_every_run_of_the_seeds_that_were_asked_for():
    lines = shown("multi30k_de_en", "SEEDS=1 2", "GPUS=0", "EPOCHS=2")
    data, *runs = programs(lines)
    assert data == "python -m data_prep"
    one = ["fairseq-train", "fairseq-generate", "fairseq-generate"]
    assert runs and runs == one * (len(runs) // 3)
    trained = [line for line in lines if line.startswith("fairseq-train")]
    for seed in (1, 2):
        assert sum(f"--seed={seed} " in line for line in trained) == len(trained) // 2
    assert all("--max-epoch=2 " in line for line in trained)


def test_one_run_for_gpus_of_another_machine():
    lines = shown("wmt14_en_de/relu15/seed3/train", "GPUS=8")
    assert programs(lines) == ["python -m data_prep", "fairseq-train"]
    assert "--seed=3 " in lines[1] and "--distributed-world-size=8 " in lines[1]


@pytest.mark.parametrize("target", ["demo", "demo_inflection_alphas"])
def test_demos_and_sweeps_end_with_a_report(target):
    last = programs(shown(target, "GPUS=0"))[-2:]
    assert last == ["python -m experiments.analysis", "python -m experiments.report"]


def test_one_run_of_a_sweep_has_no_report():
    lines = shown("demo_inflection_alphas/out1.5_att1/seed1", "GPUS=0")
    assert programs(lines)[-1] == "fairseq-generate"


MANY = [f"language{number:02}" for number in range(30)]  # too long for a directory's name
MANY_OPTION = f"LANGUAGES={' '.join(MANY)}"


@pytest.mark.parametrize(
    ("target", "dataset", "options"),
    [
        ("clean-demo", "demo_de_en", []),
        ("clean-demo", "demo_en_zh-Hans", ["PAIR=en-zh-Hans"]),
        ("clean-demo", "demo_pt-BR_en", ["PAIR=pt-BR-en"]),
        ("clean-demo-inflection", "demo_inflection", []),
        ("clean-iwslt14_de_en", "iwslt14_de_en", []),
        (
            "clean-sigmorphon2018_high",
            "sigmorphon2018_high_english_german",
            ["LANGUAGES=german english"],
        ),
        ("clean-sigmorphon2018_high", name_of_part("sigmorphon2018_high", MANY), [MANY_OPTION]),
        ("clean-gone", "gone", []),  # its config is not there any more
    ],
)
def test_clean_removes_what_a_target_made_after_a_yes(tmp_path, target, dataset, options):
    folders = [tmp_path / "data" / dataset, tmp_path / "runs" / dataset]
    for folder in folders:
        folder.mkdir(parents=True)
    options = [*options, f"DATA={tmp_path / 'data'}", f"RUNS={tmp_path / 'runs'}"]
    for answer in ("n\n", "\n", ""):
        assert "nothing was removed" in make(target, *options, answer=answer)
        assert all(folder.is_dir() for folder in folders)
    assert str(folders[1]) in make(target, *options, answer="y\n")
    assert not any(folder.exists() for folder in folders)
    assert "nothing to remove" in make(target, *options)


def test_own_files_reach_every_command(tmp_path):
    folder = tmp_path / "my files"
    folder.mkdir()
    for language in ("de", "en"):
        (folder / f"train.{language}").write_text("".join(f"{x} {x}\n" for x in range(40)))
    places = [f"{name}={tmp_path / name.lower()}" for name in ("DATA", "RUNS", "CONFIGS")]
    words = ["NAME=mine", "PAIR=de-en", f"TRAIN={folder / 'train'}", "SYSTEMS=relu15", "GPUS=0"]
    out = make("-n", "own", *words, *places, "EPOCHS=3", "OPERATIONS=70")
    lines = [line for line in out.splitlines() if line.startswith(("python", "fairseq"))]
    assert programs(lines)[:2] == ["python -m data_prep", "fairseq-train"]
    assert f"--train '{folder / 'train'}'" in lines[0] and "--operations 70 " in lines[0]
    assert "--criterion=alpha_relu_loss" in lines[1] and "--max-epoch=3 " in lines[1]
    assert programs(lines)[-1] == "python -m experiments.report"


def test_a_folder_of_configs_of_ones_own(tmp_path):
    (tmp_path / "fast.yaml").write_text("extends: demo\nsystems: [entmax15]\n")
    lines = shown("fast", f"CONFIGS={tmp_path}", "GPUS=0")
    assert sum("--criterion=entmax_loss" in line for line in lines) == 1
    assert sum(line.startswith("fairseq-train") for line in lines) == 1
