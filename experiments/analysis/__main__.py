"""All analyses of some runs: `python -m experiments.analysis runs/<dataset> [--only NAME …]`.

A run's model is loaded once for all modules. What has been found before is not computed again.
"""

import argparse
from importlib import import_module

from data_prep.progress import track

from .common import Analysis, add_runs, expand, finish

# Cheap ones first; those that compare runs last, when each run has been looked at.
MODULES = (
    *("dynamics", "energy", "exactness"),
    *("empty_string", "support", "self_normalization", "lattice", "attention"),
    *("bleu", "examples", "alpha_sweep", "tau", "inference_time"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m experiments.analysis", description=__doc__)
    add_runs(parser)
    parser.add_argument("--only", nargs="+", choices=MODULES, default=list(MODULES), metavar="NAME")
    options = parser.parse_args()
    runs = expand(options.runs)
    chosen = [name for name in MODULES if name in options.only]
    analyses: list[Analysis] = [import_module(f".{name}", __package__).ANALYSIS for name in chosen]
    alone = [analysis for analysis in analyses if not analysis.together]
    together = [analysis for analysis in analyses if analysis.together]
    problems = []
    for run in track(runs, "analyses of runs", len(runs), "runs"):
        for analysis in alone:
            problems += analysis.perform([run])
    for analysis in track(together, "comparisons of runs", len(together), "analyses"):
        problems += analysis.perform(runs)
    finish(list(dict.fromkeys(problems)))


if __name__ == "__main__":
    main()
