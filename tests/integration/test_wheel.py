"""The wheel: what is in it, that the library needs torch and numpy alone, that fairseq finds it."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import fairseq
import pytest
from fairseq_runs import BASICS, TINY, environment

import sparse_fairseq

ROOT = Path(__file__).parents[2]
PACKAGES = Path(fairseq.__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a copy: setuptools leaves things in the tree that it builds
    shutil.copytree(
        ROOT / "sparse_fairseq",
        source / "sparse_fairseq",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    options = ["-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, source]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *map(str, options)], check=True)
    (built,) = folder.glob("*.whl")
    return built


def required_by(name: str) -> set[str]:
    """A distribution and everything that it needs, as the names of distributions."""
    found, open_names = set(), [name]
    while open_names:
        name = open_names.pop().lower().replace("-", "_")
        if name in found:
            continue
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # one for another platform
            continue
        found.add(name)
        open_names += [re.match(r"[\w.-]+", x).group() for x in requirements if "extra ==" not in x]
    return found


def fresh_environment(folder: Path, wheel: Path, distributions: set[str]) -> Path:
    """The Python of a new environment with the wheel and links to these distributions."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*pip, f"--target={packages}", str(wheel)], check=True)
    for name in distributions - {"sparse_fairseq"}:
        for file in metadata.files(name) or []:
            top = file.parts[0]
            if top in ("..", "__pycache__") or (packages / top).exists():
                continue
            if top == "fairseq":  # a real folder, beside which --user-dir is looked for
                shutil.copytree(PACKAGES / top, packages / top, copy_function=os.symlink)
            else:
                (packages / top).symlink_to(PACKAGES / top)
    return folder / "bin/python"


def run(python: Path, *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [str(python), *arguments], cwd=cwd, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_what_is_in_the_wheel(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {"sparse_fairseq/py.typed", "sparse_fairseq/functional/__init__.py"} <= {*names}
    assert any(name.endswith("/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"sparse_fairseq"}
    (path,) = [name for name in names if name.endswith("/METADATA")]
    about = Parser().parsestr(zipfile.ZipFile(wheel).read(path).decode())
    assert about["Version"] == sparse_fairseq.__version__
    assert about["License-Expression"] == "MIT"
    needed = [x for x in about.get_all("Requires-Dist") if "extra ==" not in x]
    assert sorted(re.match(r"\w+", x).group() for x in needed) == ["numpy", "torch"]


def test_the_library_works_with_torch_and_numpy_alone(wheel, tmp_path):
    distributions = required_by("torch") | {"numpy"}
    assert not {"scipy", "fairseq_fixed", "omegaconf"} & distributions
    python = fresh_environment(tmp_path / "venv", wheel, distributions)
    code = """
import torch, sparse_fairseq
from sparse_fairseq import functional as sf
logits = torch.randn(4, 50, requires_grad=True)
tau = sf.gaussian_tau(50, 1.0)
sf.alpha_relu_loss(logits, torch.arange(4), alpha=1.5, tau=tau).backward()
sf.linear_entmax_loss(torch.randn(4, 8), torch.randn(50, 8), torch.arange(4), alpha=1.25)
print(sparse_fairseq.__version__, sparse_fairseq.__file__)
"""
    version, path = run(python, "-c", code, cwd=tmp_path).split()
    assert version == sparse_fairseq.__version__ and path.startswith(str(tmp_path))


def test_fairseq_finds_the_installed_package_from_any_directory(wheel, reversal_data, tmp_path):
    everything = {x.metadata["Name"].lower().replace("-", "_") for x in metadata.distributions()}
    python = fresh_environment(tmp_path / "venv", wheel, everything)
    (tmp_path / "elsewhere").mkdir()
    flags = ["--user-dir=sparse_fairseq", "--task=sparse_translation", "--max-update=2"]
    flags += ["--criterion=alpha_relu_loss", "--alpha=1.5", f"--save-dir={tmp_path / 'run'}"]
    flags += [*BASICS, *TINY["transformer"].split()]
    command = ["-m", "fairseq_cli.train", str(reversal_data), *flags]
    run(python, *command, cwd=tmp_path / "elsewhere")
    assert (tmp_path / "run/checkpoint_best.pt").is_file()


@pytest.mark.slow
def test_pip_installs_the_wheel_with_torch_and_numpy_alone(wheel, tmp_path):
    """As a stranger does it. pip must find torch, on the disk or the network."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    pin = f"torch=={metadata.version('torch')}"
    done = subprocess.run([python, "-m", "pip", "install", "-q", pin], capture_output=True)
    if done.returncode:
        pytest.skip(f"pip finds no {pin}")
    run(python, "-m", "pip", "install", "-q", str(wheel), cwd=tmp_path)
    import_it = (
        "import sparse_fairseq.functional as sf; print(round(sf.xavier_tau(512, 10_000), 2))"
    )
    assert run(python, "-c", import_it, cwd=tmp_path).strip() == "0.33"
    listed = run(python, "-m", "pip", "list", "--format=freeze", cwd=tmp_path).lower()
    assert not {"scipy", "fairseq-fixed", "matplotlib"} & {*re.findall(r"^[\w-]+", listed, re.M)}
