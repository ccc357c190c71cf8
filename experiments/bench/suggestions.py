"""How long a suggestion of the page takes: CPU time of one thread, per keystroke.

References of the validation set are typed letter by letter, as a translator would without ever
accepting anything; each letter is one request, answered as `experiments.explore` answers it.
Then each word of the reference, and its end, is clicked: how long that takes, how many lists have
beginnings of longer words, and what is in these (medians).
"""

import argparse
import statistics
import time

import torch

from ..analysis.shared.analysis import add_runs, expand
from ..explore.answers import alternatives, suggestions, translation
from ..explore.catalogue import open_predictor, settle
from ..run_folder import Run, read_lines
from .common import write_csv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_runs(parser)
    parser.add_argument("--sentences", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [measure(run, options.sentences) for run in expand(options.runs)]
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    write_csv("suggestions", rows)


def measure(run: Run, sentences: int) -> dict:
    predictor = open_predictor(run)
    sides = [
        read_lines(run.text / f"valid.{language}")
        for language in (run.source_lang, run.target_lang)
    ]
    pairs = list(zip(*sides, strict=True))
    pairs = pairs[:: max(len(pairs) // sentences, 1)][:sentences]
    suggestions(predictor, pairs[0][0], [], "")  # warm up
    settle()
    keys, translations, clicks, lists = [], [], [], []
    for source, reference in pairs:
        translations.append(_milliseconds(translation, predictor, source, []))
        predictor.forget()  # who types at once waits for the encoder, too
        keys += [
            _milliseconds(suggestions, predictor, source, [], reference[:typed])
            for typed in range(len(reference) + 1)
        ]
        names = predictor.language.words(reference)
        for place in range(len(names) + 1):
            clicks.append(_milliseconds(alternatives, predictor, source, names[:place]))
            lists.append(alternatives(predictor, source, names[:place]))
    return {
        "run": run.name,
        "sentences": len(pairs),
        "keystrokes": len(keys),
        **_summary("suggestion", keys),
        **_summary("translation", translations),
        **_summary("click", clicks),
        **_contents(lists),
    }


def _contents(lists: list[dict]) -> dict:
    """Of the lists that do not end with words alone."""
    cut = [found for found in lists if found["beginnings"]]

    def median(key: str, digits: int) -> float | str:
        return round(statistics.median(found[key] for found in cut), digits) if cut else ""

    return {
        "lists": len(lists),
        "with_beginnings": len(cut),
        "their_words": median("count", 0),
        "their_beginnings": median("beginnings", 0),
        "their_open_share": median("open_share", 4),
    }


def _milliseconds(function, *arguments) -> float:
    start = time.process_time()
    function(*arguments)
    return 1000 * (time.process_time() - start)


def _summary(name: str, times: list[float]) -> dict:
    times = sorted(times)
    return {
        f"{name}_median_ms": round(statistics.median(times), 1),
        f"{name}_p95_ms": round(times[int(0.95 * (len(times) - 1))], 1),
        f"{name}_worst_ms": round(times[-1], 1),
    }


if __name__ == "__main__":
    main()
