"""The runs that the page offers, loaded once; those that cannot be used say why."""

import gc
from dataclasses import dataclass
from pathlib import Path

from data_prep.records import read_record
from data_prep.segmentation import RECORD

from ..analysis.shared.analysis import expand
from ..analysis.shared.decoding import generator_settings
from ..analysis.shared.models import load
from ..fairseq_output import training_ended
from ..run_folder import Run, read_lines
from ..systems import describe
from .predictor import Predictor
from .units import Language

EXAMPLES = 3  # sentences that the page offers
EXAMPLE_WORDS = range(4, 15)


@dataclass
class Entry:
    """A run on the page: with a predictor, or with the problem that it has none."""

    name: str
    label: str
    source: str = ""  # languages
    target: str = ""
    predictor: Predictor | None = None
    problem: str | None = None
    note: str | None = None
    examples: tuple[str, ...] = ()

    def public(self, number: int) -> dict:
        """What the page is told."""
        predictor = self.predictor
        return {
            "run": number,
            "name": self.name,
            "label": self.label,
            "source": self.source,
            "target": self.target,
            "problem": self.problem,
            "note": self.note,
            "examples": list(self.examples),
            "sparse": predictor is not None and not predictor.dense,
            "sums_to_one": predictor is None or predictor.sums_to_one,
        }


def open_runs(paths: list[Path]) -> list[Entry]:
    """One entry for each run; a broken one costs itself only."""
    entries = [_open(run) for run in expand(paths)]
    settle()
    return entries


def settle() -> None:
    """What is loaded stays: Python need not look through it for garbage while somebody types."""
    gc.collect()
    gc.freeze()


def _open(run: Run) -> Entry:
    entry = Entry(run.name, describe(run.system).label)
    if run.problem:
        entry.problem = one_line(run.problem)
        return entry
    try:
        entry.source, entry.target = run.source_lang, run.target_lang
        entry.predictor = open_predictor(run)
        entry.examples = _examples(run, entry.predictor.source_language)
    except (Exception, SystemExit) as error:  # whatever a checkpoint or a record may hold
        entry.predictor = None
        entry.problem = one_line(str(error) or type(error).__name__)
        return entry
    if not training_ended(run.train_log):
        entry.note = "half-trained: training has not ended; this is its best checkpoint so far"
    return entry


def open_predictor(run: Run) -> Predictor:
    loaded = load(run)
    record = read_record(run.bin / RECORD, "prepare the data anew", "source", "target")
    lowercase = bool(run.config["data"].get("lowercase"))
    languages = tuple(
        Language(record, record[side], run.bin, lowercase) for side in ("source", "target")
    )
    task = loaded.task
    dictionaries = (task.source_dictionary, task.target_dictionary)
    return Predictor(loaded.model, dictionaries, languages, generator_settings(run.config))


def _examples(run: Run, language: Language) -> tuple[str, ...]:
    """Sentences of the validation set, of a length that can be looked at."""
    path = run.text / f"valid.{run.source_lang}"
    lines = read_lines(path) if path.is_file() else []
    fitting = [line for line in lines if len(line.split()) in EXAMPLE_WORDS] or lines
    step = max(len(fitting) // EXAMPLES, 1)
    return tuple(language.text_of(line) for line in fitting[::step][:EXAMPLES])


def one_line(text: str) -> str:
    text = " ".join(text.split()).removeprefix("sparse_fairseq: error: ")
    return text if len(text) <= 300 else f"{text[:299]}…"
