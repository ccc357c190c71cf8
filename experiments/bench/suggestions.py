"""How long a suggestion of the page takes: CPU time of one thread, per keystroke.

References of the validation set are typed letter by letter, as a translator would without ever
accepting anything; each letter is one request, answered as `experiments.explore` answers it.
"""

import argparse
import statistics
import time

import torch

from ..analysis.shared.analysis import add_runs, expand
from ..explore.answers import suggestions, translation
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
    keys, translations = [], []
    for source, reference in pairs:
        translations.append(_milliseconds(translation, predictor, source, []))
        predictor.forget()  # who types at once waits for the encoder, too
        keys += [
            _milliseconds(suggestions, predictor, source, [], reference[:typed])
            for typed in range(len(reference) + 1)
        ]
    return {
        "run": run.name,
        "sentences": len(pairs),
        "keystrokes": len(keys),
        **_summary("suggestion", keys),
        **_summary("translation", translations),
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
