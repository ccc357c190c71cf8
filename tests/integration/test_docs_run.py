"""Runs the code blocks of README and docs, with smaller models and less data.

Python blocks are run unless a comment says why not; shell blocks are run if a comment says so.
All of them run in one folder, README first: other pages use what it has made.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import PAGES, ROOT, Block, blocks
from fairseq_runs import environment

# What makes a block quick; every pair must be found somewhere.
SMALLER = {
    "--arch transformer_iwslt_de_en": "--arch transformer --encoder-layers 1 --decoder-layers 1 "
    "--encoder-embed-dim 16 --decoder-embed-dim 16 --encoder-ffn-embed-dim 32 "
    "--decoder-ffn-embed-dim 32 --encoder-attention-heads 2 --decoder-attention-heads 2",
    "--max-epoch 40": "--max-epoch 1 --num-workers 0",
    "--operations 10000": "--operations 60",
}
NOUNS = {"Hund": "dog", "Katze": "cat", "Vogel": "bird", "Fisch": "fish", "Mann": "man"}
VERBS = {"läuft": "runs", "schläft": "sleeps", "singt": "sings", "lacht": "laughs"}
PLACES = {f"in {x}": f"in {x}" for x in ("Rom", "Bern", "Wien", "Paris", "Prag", "Riga")}


def write_corpus(folder: Path) -> None:
    folder.mkdir()
    rows = [(n, v, p) for n in NOUNS for v in VERBS for p in PLACES]
    german = [f"Ein {n} {v} {p}.\n" for n, v, p in rows]
    english = [f"A {NOUNS[n]} {VERBS[v]} {PLACES[p]}.\n" for n, v, p in rows]
    (folder / "train.de").write_text("".join(german), encoding="utf-8")
    (folder / "train.en").write_text("".join(english), encoding="utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Looks like a clone in which somebody has put two text files."""
    place = tmp_path_factory.mktemp("clone")
    for name in ("sparse_fairseq", "data_prep", "experiments"):
        (place / name).symlink_to(ROOT / name)
    write_corpus(place / "path")
    return place


def run(block: Block, folder: Path, before: str = "") -> None:
    code = block.code
    for usual, smaller in SMALLER.items():
        code = code.replace(usual, smaller)
    if block.language == "python":
        command = [sys.executable, "-W", "ignore", "-c", before + code]
    else:
        command = ["bash", "-euo", "pipefail", "-c", code]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {**environment(), "PATH": path}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, (
        f"{block.page}:{block.line}\n{done.stdout[-1500:]}{done.stderr[-2500:]}"
    )


def test_the_pages_do_what_they_say(folder):
    """One test: the order matters, and the examples of a page build on each other."""
    pages = [page for page in PAGES if page.name != "extending.md"]  # see test_extending.py
    found = [block for page in pages for block in blocks(page) if block.runs]
    everything = "".join(block.code for block in found)
    assert all(usual in everything for usual in SMALLER), "SMALLER has what no page says"
    for page in dict.fromkeys(block.page for block in found):
        ours = [block for block in found if block.page == page]
        for block in ours:
            if block.language == "sh":
                run(block, folder)
        # The Python of a page is one program.
        python = "".join(block.code for block in ours if block.language == "python")
        if python:
            run(Block(page, 0, "python", python, ""), folder)
    assert (folder / "support.png").is_file()
