"""The benchmark of training looks inside of the fused layer: what it looks for must be there. The
tables of the pages are those of the committed results."""

import csv
from argparse import Namespace

import pytest

from experiments.bench import tables
from experiments.bench.train_speed import PARTS, SYSTEMS, Bench, Stopwatch, profile
from sparse_fairseq.errors import UsageError


@pytest.mark.filterwarnings("ignore")
def test_the_profile_finds_every_part_of_an_update(tmp_path):
    sizes = {"vocab": 2000, "dim": 64, "ffn": 0, "layers": 1, "tokens": 480, "support": 10}
    bench = Bench(Namespace(**sizes, not_fused=False), tmp_path)
    rows = profile(bench)
    assert [row["system"] for row in rows] == list(SYSTEMS)
    for system in SYSTEMS:  # what no wrapped function was called for has no entry
        bench.choose(system)
        watch = Stopwatch()
        with bench.watched(watch, system):
            bench.update()
        assert {*watch.seconds} == {*PARTS[:-1]}, system


def test_the_pages_have_what_was_measured(capsys):
    tables.main(["--check"])
    assert capsys.readouterr().out.count("nothing has changed") == len(tables.PAGES)


def test_a_new_measurement_changes_the_page(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("Before\n\n<!-- bench: losses -->\n<!-- end of table -->\nAfter\n")
    tables.main(["--page", str(page)])
    assert "| sparsemax | " in page.read_text() and page.read_text().endswith("-->\nAfter\n")
    with (tables.RESULTS / "losses.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["ratio"] = "7.123" if row["loss"] == "sparsemax" else row["ratio"]
    with (tmp_path / "losses.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    tables.read.cache_clear()
    with pytest.raises(UsageError, match="is not what experiments/bench/results has"):
        tables.main(["--page", str(page), "--check"])
    tables.main(["--page", str(page)])
    tables.read.cache_clear()
    assert "| sparsemax | 7.12 | 7.12 | 7.12 | 7.12 | 7.12 | 7.12 |" in page.read_text()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("<!-- bench: loses -->\n<!-- end of table -->", "did you mean 'losses'"),
        ("<!-- bench: losses -->\n<!-- more -->", "has no <!-- end of table --> after it"),
    ],
)
def test_a_comment_that_is_no_table(tmp_path, text, complaint):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(UsageError, match=complaint):
        tables.main(["--page", str(page)])
    assert page.read_text() == text
