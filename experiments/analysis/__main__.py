"""All analyses of some runs: `python -m experiments.analysis runs/<dataset> [--only NAME …]`.

A run's model is loaded once for all modules. What has been found before is not computed again.
"""

import argparse

import sparse_fairseq.register  # noqa: F401  first: it keeps the import of fairseq silent
from data_prep.progress import track

from . import analyses
from .shared.analysis import add_runs, expand, finish


def main() -> None:
    known = analyses()
    parser = argparse.ArgumentParser(prog="python -m experiments.analysis", description=__doc__)
    add_runs(parser)
    parser.add_argument("--only", nargs="+", choices=known, default=list(known), metavar="NAME")
    options = parser.parse_args()
    runs = expand(options.runs)
    chosen = [known[name] for name in known if name in options.only]
    # Those that compare runs come last, when each run has been looked at.
    alone = [analysis for analysis in chosen if not analysis.together]
    together = [analysis for analysis in chosen if analysis.together]
    problems = []
    for run in track(runs, "analyses of runs", len(runs), "runs"):
        for analysis in alone:
            problems += analysis.perform([run])
    for analysis in track(together, "comparisons of runs", len(together), "analyses"):
        problems += analysis.perform(runs)
    finish(list(dict.fromkeys(problems)))


if __name__ == "__main__":
    main()
