"""Writes the report on a dataset: `python -m experiments.report DATASET [--runs-root runs]`."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from data_prep.files import atomic_output
from sparse_fairseq.errors import UsageError

from ..paths import ROOT, readable
from ..provenance import now
from .gather import gather
from .page import render


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.report", description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("--runs-root", type=Path, default=ROOT / "runs")
    args = parser.parse_args(arguments)
    material = gather(args.runs_root, args.dataset)
    if not material.folder.is_dir():
        raise UsageError(
            f"{readable(material.folder)} is not there: run make {args.dataset} first, or give "
            "--runs-root"
        )
    date = now()[:16].replace("T", " ") + " UTC"
    path = material.folder / "report.html"
    with atomic_output(path) as file:
        file.write(render(material, date, _command(args.dataset, args.runs_root)))
    for name, problem in material.broken.items():
        print(f"left out: {name}: {problem}", file=sys.stderr)
    print(f"report: {readable(path)}")


def _command(dataset: str, runs_root: Path) -> str:
    """What made the page, whoever called it: nobody knows by which target that was."""
    elsewhere = (
        [] if runs_root.absolute() == ROOT / "runs" else [f"--runs-root={readable(runs_root)}"]
    )
    return shlex.join(["python", "-m", "experiments.report", dataset, *elsewhere])


if __name__ == "__main__":
    main()
