"""The numbers that say how a run did, and where each is found: one list for the table of the
terminal, results.json and the first table of the page.

A quantity is of one split, whatever file it comes from: what a stage wrote down (scores.json), or
what an analysis found, which is the same for all systems.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from .run_folder import Run

Source = Callable[[Run], float | None]


@dataclass(frozen=True)
class Quantity:
    key: str  # in results.json
    title: str  # of the terminal's column
    digits: int
    split: str  # of which data it is: test, valid or train
    sources: tuple[Source, ...]  # the first one that knows it counts
    heading: str | None = None  # of the page's column; None: not on the first table
    words: str | None = None  # what it is called in a sentence, if not by its heading
    detail: bool = False  # only in tables that name it
    analysis: str = ""  # that measured it, where a table says how
    notes: tuple[str, ...] = ()  # what else is said below a table
    speed: bool = False  # of the machine, too

    def of(self, run: Run) -> float | None:
        found = (source(run) for source in self.sources)
        return next((value for value in found if value is not None), None)


def scored(*way: str) -> Source:
    """An entry of scores.json."""
    return lambda run: _dig(_scores(run), way, run)


def analysed(module: str, *way: str) -> Source:
    """An entry of the result of an analysis of the run."""
    return lambda run: _dig(_result(run.analysis_dir / f"{module}.json"), way, run)


def logged_speed(run: Run) -> float | None:
    """Words per second of a run that has not been scored yet."""
    epochs = (_result(run.analysis_dir / "dynamics.json") or {}).get("training") or ()
    return statistics.median(epoch["wps"] for epoch in epochs) if epochs else None


def _scores(run: Run) -> dict[str, Any]:
    try:
        return run.scores or {}
    except ValueError:  # a broken file is told of by whoever lists the runs
        return {}


def _dig(value: Any, way: Sequence[str], run: Run) -> float | None:
    for step in way:
        name = step.format(certificate=certificate(run)) if "{" in step else step
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, (int, float)) else None


def _result(path: Path) -> Any:
    return read_answer(path).get("result")


def read_answer(path: Path) -> dict[str, Any]:
    """The file of an analysis; nothing if it is not there, or broken."""
    try:
        found = _read(path, path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@lru_cache(maxsize=256)
def _read(path: Path, changed: int) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def certificate(run: Run) -> str:
    """Which certificate is about the answer that was given: the one by the score that ranked it."""
    options = run.config.get("generate") or {}
    return "raw" if options.get("unnormalized") else "normalized"


def decoding_speed(run: Run) -> float | None:
    """Of the analysis, in which systems take turns, with the beam that translated."""
    result = _result(run.path.parents[1] / "analysis" / "inference_time.json") or {}
    if (result.get("seeds") or {}).get(run.system) != run.seed:
        return None
    beam = (run.config.get("generate") or {}).get("beam", 5)
    for entry in result.get("times") or ():
        if (entry["system"], entry["beam"]) == (run.system, beam):
            return entry["sentences_per_second"]
    return None


OF_WORDS = (
    "Of words: subwords are joined, what a tokeniser did stays; compare these scores with each "
    "other alone."
)
TWO_ENDS = "fairseq's end, ahead: `--end-search full` and `ahead`, all else the same."
ENDS = (("full", "fairseq's end"), ("ahead", "ahead"))

QUANTITIES = (
    Quantity("bleu", "BLEU", 1, "test", (scored("test", "bleu"),), "BLEU"),
    Quantity("valid_bleu", "valid. BLEU", 1, "valid", (scored("valid", "bleu"),), detail=True),
    Quantity("chrf", "chrF", 1, "test", (scored("test", "chrf"),), "chrF"),
    Quantity(
        *("word_accuracy", "word acc. %", 2, "test", (scored("test", "word_accuracy"),)),
        *("Word accuracy, %", "word accuracy"),
    ),
    Quantity(
        *("edit_distance", "edit dist.", 3, "test", (scored("test", "edit_distance"),)),
        *("Edit distance", "edit distance"),
    ),
    Quantity(
        *("accuracy", "token acc. %", 1, "valid"),
        (analysed("support", "accuracy"), scored("valid_accuracy")),
    ),
    Quantity(
        *("empty_string", "empty string %", 2, "valid"),
        *((analysed("empty_string", "raw", "percent"),), "Prefer empty, %"),
    ),
    Quantity(
        *("support", "support", 1, "valid"),
        (analysed("support", "output", "gold", "mean"), scored("valid_support")),
        "Non-zero {tokens}",
    ),
    Quantity(
        *("total_score", "Σp", 3, "test", (analysed("self_normalization", "gold", "mean"),), "Σp"),
    ),
    Quantity(
        *("certified", "certified %", 1, "valid"),
        (
            analysed("exactness", "valid", "certified_{certificate}"),
            scored("valid", "certified_{certificate}"),
            scored("valid", "exact_{certificate}"),  # as it was called until version 0.1
        ),
        "Certified, %",
    ),
    Quantity(
        *("single_hypothesis", "single hyp. %", 1, "valid"),
        (
            analysed("exactness", "valid", "single_hypothesis"),
            scored("valid", "single_hypothesis"),
        ),
    ),
    Quantity(
        *("proved", "proved %", 1, "test", (analysed("exact_search", "proved"),)),
        analysis="exact_search",
    ),
    Quantity(
        *("search_errors", "search errors %", 1, "test"),
        (analysed("exact_search", "search_errors", "5"),),
        analysis="exact_search",
    ),
    *(
        Quantity(
            *(key, title, digits, "test", (analysed("exact_search", *way),)),
            detail=True,
            analysis="exact_search",
            notes=notes,
        )
        for key, title, digits, way, notes in (
            ("missed_by_greedy", "missed by beam 1 %", 1, ("search_errors", "1"), ()),
            ("missed_by_wide_beam", "missed by beam 20 %", 1, ("search_errors", "20"), ()),
            ("bleu_of_beam", "BLEU of words, beam", 1, ("beam", "bleu"), (OF_WORDS,)),
            ("bleu_of_exact", "BLEU of words, exact", 1, ("exact", "bleu"), (OF_WORDS,)),
            ("chrf_of_beam", "chrF of words, beam", 1, ("beam", "chrf"), (OF_WORDS,)),
            ("chrf_of_exact", "chrF of words, exact", 1, ("exact", "chrf"), (OF_WORDS,)),
            ("empty_of_beam", "empty, beam %", 1, ("beam", "empty"), ()),
            ("empty_of_exact", "empty, exact %", 1, ("exact", "empty"), ()),
            ("shorter", "exact is shorter %", 1, ("exact", "shorter"), ()),
        )
    ),
    *(
        Quantity(
            *(f"{key}_{rule}", f"{title} ({name})", digits, "test"),
            (analysed("end_search", rule, key),),
            detail=True,
            analysis="end_search",
            notes=notes,
        )
        for key, title, digits, notes in (
            ("bleu", "BLEU of words", 1, (TWO_ENDS, OF_WORDS)),
            ("chrf", "chrF of words", 1, (TWO_ENDS, OF_WORDS)),
            ("word_accuracy", "word acc. %", 2, (TWO_ENDS,)),
        )
        for rule, name in ENDS
    ),
    Quantity(
        *("differ_by_end", "other output %", 1, "test", (analysed("end_search", "differ"),)),
        detail=True,
        analysis="end_search",
        notes=(TWO_ENDS,),
    ),
    Quantity(
        *("train_words_per_cpu_second", "train words/CPU s", 0, "train"),
        (scored("train_words_per_cpu_second"), analysed("dynamics", "words_per_cpu_second")),
        *("Training, {tokens}/CPU s", "training speed"),
        speed=True,
    ),
    Quantity(
        *("train_words_per_second", "train words/s", 0, "train"),
        (scored("train_words_per_second"), logged_speed),
        *("Training, {tokens}/s", "training speed"),
        speed=True,
    ),
    Quantity(
        *("sentences_per_second", "decode sent./s", 1, "test", (decoding_speed,)),
        *("Decoding, {outputs}/s", "decoding speed"),
        speed=True,
    ),
)


def measured(run: Run) -> dict[str, float]:
    """The numbers of one run; what was not measured is not there."""
    found = {quantity.key: quantity.of(run) for quantity in QUANTITIES}
    return {key: value for key, value in found.items() if value is not None}


def shown(known: Sequence[set[str]]) -> list[Quantity]:
    """Those that a table has columns for, of runs (or systems) with these quantities.

    Training is timed by one clock for all of them: by CPU time where every one has it, which other
    load does not move; else by the wall's. It is never both.
    """
    speed = "train_words_per_second"
    timed = [keys for keys in known if speed in keys]
    other = "train_words_per_cpu_second"
    left_out = speed if timed and all(other in keys for keys in timed) else other
    present = set().union(*known) - {left_out}
    return [q for q in QUANTITIES if q.key in present and not q.detail]
