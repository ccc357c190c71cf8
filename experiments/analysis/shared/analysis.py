"""What all analyses share: which runs, reading what is already there, writing what was found.

An analysis is a function from one run (or from the runs of a dataset) and its settings to a JSON
value. Models are not loaded here; `models` does that.
"""

import argparse
import hashlib
import inspect
import json
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.files import write_json

from ...code_digest import code_digest
from ...fairseq_output import Generated, read_generated
from ...provenance import now, provenance
from ...run_folder import MANIFEST, Run, find_runs

Settings = dict[str, Any]


class NotMeasured(Exception):
    """There is nothing to measure here; the message says why, in one line."""


@dataclass(frozen=True)
class Analysis:
    """A question and its answer.

    The file holds ``analysis``, ``made`` (runs, settings, versions …), ``fingerprint`` and one of
    ``result``, ``missing`` (why there is none) and ``error``. It is made anew only if an input, a
    setting or the code has changed, that of imported modules included, or if it is an error.
    """

    compute: Callable[..., dict]  # (run, settings), or (runs, settings) if `together`
    # Every file that is read for a run, beside its manifest.
    inputs: Callable[[Run, Settings], list[Path]]
    settings: Settings = field(default_factory=dict)  # defaults of the flags
    together: bool = False  # compares the runs of a dataset

    @property
    def name(self) -> str:
        """That of its file."""
        return Path(inspect.getfile(self.compute)).stem

    def files(self, run: Run, settings: Settings) -> list[Path]:
        """All that an answer about the run depends on; they need not be there."""
        return [run.path / MANIFEST, *self.inputs(run, settings)]

    def perform(self, runs: Sequence[Run], settings: Settings | None = None) -> list[str]:
        """Answers for these runs; returns one line for each that failed. The others go on."""
        settings = {**self.settings, **(settings or {})}
        problems = [f"{run.name}: {run.problem}" for run in runs if run.problem]
        whole = [run for run in runs if not run.problem]
        if not self.together:
            answers = [self._answer(run.analysis_dir, [run], settings) for run in whole]
        else:
            datasets = dict.fromkeys(run.path.parents[1] for run in whole)
            answers = [
                self._answer(
                    folder / "analysis", [r for r in whole if r.path.parents[1] == folder], settings
                )
                for folder in datasets
            ]
        return problems + [answer for answer in answers if answer]

    def _answer(self, folder: Path, runs: list[Run], settings: Settings) -> str | None:
        """Writes the file if it is not there yet; returns the error, if there is one."""
        path = folder / f"{self._file_name(settings)}.json"
        inputs = {
            f"{run.name}/{file.name}": _state(file)
            for run in runs
            for file in self.files(run, settings)
        }
        fingerprint = _fingerprint(self.compute, settings, inputs)
        if read_fingerprint(path) == fingerprint:
            print(f"{path}: nothing has changed")
            return None
        started = time.monotonic()
        outcome = self._outcome(runs, settings)
        made = {
            "runs": [run.name for run in runs],
            "dataset": runs[0].dataset,
            "system": None if self.together else runs[0].system,
            "seed": None if self.together else runs[0].seed,
            "settings": settings,
            "inputs": {name: state and state[0] for name, state in inputs.items()},
            **provenance(),
            "date": now(),
            "seconds": round(time.monotonic() - started, 2),
        }
        document = {"analysis": self.name, "made": made, "fingerprint": fingerprint, **outcome}
        if "error" in outcome:
            del document["fingerprint"]
        write_json(path, document)
        print(f"{path}: {outcome.get('missing') or outcome.get('error') or 'written'}")
        if "error" not in outcome:
            return None
        return f"{', '.join(run.name for run in runs)}: {self.name}: {outcome['error']}"

    def _file_name(self, settings: Settings) -> str:
        """The report shows what was made with the usual split, and says so: another one has a file
        of its own."""
        split = settings.get("split")
        return self.name if split == self.settings.get("split") else f"{self.name}-{split}"

    def _outcome(self, runs: list[Run], settings: Settings) -> dict:
        try:
            return {"result": self.compute(runs if self.together else runs[0], settings)}
        except NotMeasured as reason:
            return {"missing": str(reason)}
        except (Exception, SystemExit) as error:  # a broken run must not hide the others
            traceback.print_exc()
            text = " ".join(str(error).split()) or type(error).__name__
            return {"error": textwrap.shorten(text, 300, placeholder=" …")}

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """`python -m experiments.analysis.<name> RUN… [--setting value]`."""
        about = inspect.getdoc(sys.modules[self.compute.__module__]).splitlines()[0]
        parser = argparse.ArgumentParser(
            prog=f"python -m experiments.analysis.{self.name}", description=about
        )
        add_runs(parser)
        for name, default in self.settings.items():
            many = isinstance(default, list)
            kind = type(default[0]) if many else type(default)
            parser.add_argument(
                f"--{name}", type=kind, nargs="+" if many else None, default=default
            )
        options = vars(parser.parse_args(arguments))
        finish(self.perform(expand(options.pop("runs")), options))


def add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="runs/<dataset>/<system>/seed<N>, or runs/<dataset> for all of them",
    )


def expand(paths: Sequence[Path]) -> list[Run]:
    """Runs; the directory of a dataset stands for all of its runs."""
    runs = []
    for path in paths:
        path = path.absolute()
        found = find_runs(path.parent, path.name) if not (path / MANIFEST).exists() else []
        runs += found or [Run(path)]
    return runs


def finish(problems: list[str]) -> None:
    """Ends the command: exit code 1, and the runs that failed, if there are any."""
    for problem in problems:
        print(f"failed: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)


def read_fingerprint(path: Path) -> str | None:
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("fingerprint")
    except (OSError, ValueError):
        return None


def _state(path: Path) -> tuple[int, int] | None:
    """Size and time of a file; reading a checkpoint to hash it would take longer than to use it."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _fingerprint(compute: Callable, settings: Settings, inputs: dict) -> str:
    code = code_digest(Path(inspect.getfile(compute)))
    return hashlib.sha256(json.dumps([code, settings, inputs]).encode()).hexdigest()


def need(*files: Path) -> None:
    """Says which file of an unfinished run is not there yet."""
    for file in files:
        if not file.exists():
            raise NotMeasured(f"not run yet: {file.name} is missing")


def beam_hypotheses(run: Run, split: str) -> list[Generated]:
    """What fairseq-generate found, in corpus order."""
    need(run.generated(split))
    return read_generated(run.generated(split))


def percent(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None
