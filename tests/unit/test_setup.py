"""Set-up: one clear line for what is missing, one place for versions, help for every target."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import sparse_fairseq

ROOT = Path(__file__).parents[2]


def preflight(
    python: str, cxx: str = "c++", path: str | None = None
) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHON": python, "CXX": cxx}
    return subprocess.run(
        ["sh", str(ROOT / ".ci/preflight")],
        env=environment if path is None else {**environment, "PATH": path},
        capture_output=True,
        text=True,
    )


def python_that_fails(folder: Path, word: str, version: str = "3.11") -> str:
    """A python3 whose -c code fails if it contains ``word``, and that says it is ``version``."""
    script = folder / "python"
    script.write_text(
        f'#!/bin/sh\ncase "$2" in *print*) echo {version}; exit 0;; *{word}*) exit 1;; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def test_preflight_passes_here():
    done = preflight(sys.executable)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("word", "version", "says"),
    [
        ("version_info", "3.9", "Python 3.11 or newer is needed, .* is 3.9: install one"),
        ("ensurepip", "3.12", "no venv module: apt-get install python3.12-venv"),
        ("Python.h", "3.12", r"no headers \(Python.h\): apt-get install python3.12-dev"),
    ],
)
def test_preflight_names_what_python_lacks(tmp_path, word, version, says):
    done = preflight(python_that_fails(tmp_path, word, version))
    assert done.returncode != 0
    assert re.fullmatch(f"sparse_fairseq: .*{says}.*\n", done.stderr), done.stderr


def test_preflight_names_a_missing_python_or_compiler():
    done = preflight("/no/python3")
    assert done.returncode != 0 and re.fullmatch(
        r"sparse_fairseq: no /no/python3: .*\n", done.stderr
    )
    done = preflight(sys.executable, cxx="/no/g++")
    assert done.returncode != 0
    assert re.fullmatch(
        r"sparse_fairseq: no C\+\+ compiler .*apt-get install g\+\+.*\n", done.stderr
    )


def test_every_dependency_is_pinned_once():
    pins = re.findall(
        r"^([\w.-]+)==([^\s;]+)(?:;.*)?$", (ROOT / "requirements.txt").read_text(), re.M
    )
    names = [name.lower().replace("_", "-") for name, _ in pins]
    assert len(names) == len(set(names))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    for requirement in [*project["dependencies"], *extras]:
        name = re.match(r"[\w-]+", requirement).group()
        if name == "sparse_fairseq":  # an extra that includes others
            continue
        assert name.lower().replace("_", "-") in names, f"{name}: no pin in requirements.txt"
        if requirement in extras:
            assert requirement.partition(";")[0] == name, (
                f"{requirement}: versions belong into requirements.txt"
            )
    assert ("torch", "2.13.0") in pins and ("fairseq-fixed", "0.12.3.1") in pins


def test_the_one_line_command_for_fairseq_takes_torch_within_our_bounds():
    found = set()
    for page in ("README.md", "docs/install.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        found |= set(re.findall(r"`(pip install [^`]*'\.\[fairseq\]')`", text))
    (command,) = found  # both pages say the same
    first, second = command.split(" && ")
    # `pip install torch` would fetch the newest one, and the second half another one then.
    assert first.split()[2:] == [".", "cython", "setuptools", "wheel"]
    assert second == "pip install --no-build-isolation '.[fairseq]'"


def test_the_library_needs_torch_and_numpy_alone():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.match(r"[\w-]+", name).group() for name in project["dependencies"]]
    assert names == ["numpy", "torch"]
    assert {"fairseq", "experiments", "explore", "dev"} <= {*project["optional-dependencies"]}


def test_every_file_that_says_a_version_says_the_same():
    version = sparse_fairseq.__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## \[(\d[\w.]*)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest and newest.group(1) == version


def test_the_workflow_runs_the_targets_of_a_developer():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == [f"make {name}" for name in ("setup", "lint", "test", "wheel", "docs")]
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()
    assert {command.split()[1] for command in commands} <= {*phony}
    oldest, *_ = job["strategy"]["matrix"]["python"]  # text: a number would make 3.10 of 3.1
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={oldest}"


def test_help_lists_every_target():
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = re.findall(r"^  make (\S+) +\S", done.stdout, re.M)
    patterns = [name for name in listed if "<" in name]  # <dataset>, <dataset>/<system>/seed<N> …
    assert sorted({*listed} - {*patterns}) == sorted({*phony} - {"FORCE"})
    assert "<dataset>/<system>/seed<N>" in patterns
