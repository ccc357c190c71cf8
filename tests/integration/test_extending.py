"""docs/extending.md, followed literally in a copy of the project."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import miniature
import pytest
from tiny_experiment import ROOT, write_text

PAGE = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(?:yaml|python)\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy with what the page tells to add: files by their first line, and the system's entry."""
    project = tmp_path_factory.mktemp("extended") / "project"
    for name in ("experiments", "data_prep", "sparse_fairseq"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    write_text(project / "text")
    written = []
    for block in BLOCK.findall(PAGE):
        first, _, rest = block.partition("\n")
        if match := re.fullmatch(r"# (\S+/\S+)", first):
            text = rest.replace("TEXT/", f"{project / 'text'}/")
            (project / match[1]).write_text(text, encoding="utf-8")
            written.append(match[1])
        else:
            entry = block.strip()
    assert [Path(name).suffix for name in written] == [".yaml", ".py", ".py"]
    systems = project / "experiments/systems.py"
    text = systems.read_text(encoding="utf-8")
    before = '    System("relu15",'
    assert text.count(before) == 1
    systems.write_text(text.replace(before, f"    {entry},\n{before}"), encoding="utf-8")
    return project


def python(project: Path, *words: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(project)}
    done = subprocess.run(
        [sys.executable, *words], cwd=project, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_dataset_is_one_config_and_a_system_one_entry(project):
    dry_run = ("-m", "experiments.run", "--dry-run", "--gpus=0", "digits_de_en")
    lines = python(project, *dry_run).splitlines()
    assert lines[0].startswith("python -m data_prep") and f"{project / 'text'}/train" in lines[0]
    trained = [line for line in lines if line.startswith("fairseq-train")]
    assert ["alpha_relu_loss" in line for line in trained] == [False, True]
    lines = python(project, *dry_run, "entmax13", "1").splitlines()
    assert "--criterion=entmax_loss --alpha=1.3" in lines[1]


def test_a_recipe_is_a_file(project):
    recipes = project / "data_prep/recipes"
    shutil.copy(recipes / "multi30k.py", recipes / "another.py")
    names = python(project, "-c", "from data_prep import recipes; print(*recipes.NAMES)").split()
    assert "another" in names and names == sorted(names)
    assert "another" in python(project, "-m", "data_prep", "--help")


def test_the_data_of_the_new_dataset_are_prepared(project):
    python(project, "-m", "experiments.run", "digits_de_en", "data")
    facts = json.loads((project / "data/digits_de_en/data.json").read_text())
    assert facts["sizes"] == {"train": 600, "valid": 40, "test": 40}


def test_an_analysis_is_two_files_and_a_table_one_function(project):
    """On runs whose translations and references are known."""
    runs = miniature.write_runs(project, "iwslt14_de_en", ("softmax", "entmax15"), (1,), False)
    (runs / "iwslt14_de_en/entmax15").rename(runs / "iwslt14_de_en/entmax13")
    text = project / "data/iwslt14_de_en/text"
    text.mkdir(parents=True, exist_ok=True)
    (text / "test.en").write_text("one two three four\n")
    for system, line in (("softmax", "one two"), ("entmax13", "one two three")):
        (runs / f"iwslt14_de_en/{system}/seed1/hypotheses-test.txt").write_text(f"{line}\n")
    folder = str(runs / "iwslt14_de_en")
    out = python(project, "-m", "experiments.analysis", folder, "--only", "output_length")
    assert out.count("output_length.json: written") == 2
    out = python(project, "-m", "experiments.analysis.output_length", folder)
    assert out.count("nothing has changed") == 2
    python(project, "-m", "experiments.report", "iwslt14_de_en", "--runs-root", str(runs))
    page = (runs / "iwslt14_de_en/report.html").read_text(encoding="utf-8")
    section = page[page.index('<section id="output_length"') :]
    section = section[: section.index("</section>")]
    rows = re.findall(r'<th scope=row[^>]*data-v="(\w+)">.*?<td[^>]*data-v="([\d.]+)"', section)
    assert ("softmax", "0.5") in rows and ("entmax13", "0.75") in rows
    # The new system stands before relu15, where its entry is, under its label.
    assert "1.3-entmax" in section
    assert section.index("1.3-entmax") < section.index("1.5-ReLU")
