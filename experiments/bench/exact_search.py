"""Exact search beside plain beam search: proved translations, and what they cost.

    python -m experiments.bench.exact_search runs/<dataset> [--budgets 400 1000] [--rounds 3]
        [--json FILE] [--figure FILE]

Batch by batch, plain beam search and exact search with each budget take turns on the same
sentences; one thread, CPU time of the process, the median of some rounds. Ranked by the sum of
log-scores; α-ReLU's scores are divided by their sum.
"""

import argparse
import gc
import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import torch

from data_prep.files import write_json
from sparse_fairseq.generation.exact_search import EXACT_BUDGET

from ..analysis.exact_search import BEAM, CLOSE, search_generator
from ..analysis.shared.models import load
from ..provenance import now, provenance
from ..run_folder import Run, find_runs
from .common import RESULTS

SYSTEMS = ("softmax", "sparsemax", "entmax15", "relu15")
BATCH = 64  # sentences
GROUPS = 4  # of sentences, by length


def batches_of(dataset, sentences: int) -> Iterator[dict]:
    """Of the first sentences, in order of length."""
    order = sorted(range(min(sentences, len(dataset))), key=dataset.num_tokens)
    for start in range(0, len(order), BATCH):
        yield dataset.collater([dataset[i] for i in order[start : start + BATCH]])


def measure(run: Run, split: str, sentences: int, budgets: list[int], rounds: int) -> list[dict]:
    loaded = load(run)
    dataset = loaded.dataset(split)
    generators = {b: search_generator(loaded, run, BEAM, b) for b in (0, *budgets)}
    for generator in generators.values():
        generator.min_len = generator.rules.min_len = 1
    count = min(sentences, len(dataset))
    tally = {b: {"seconds": 0.0, "proved": 0, "better": 0, "batches": []} for b in generators}
    for turn, sample in enumerate(batches_of(dataset, sentences)):
        words = float(sample["net_input"]["src_lengths"].double().mean()) - 1
        found = {}
        if turn == 0:
            for generator in generators.values():
                generator.generate(None, sample)  # warm up
            gc.freeze()  # else walks over all that was loaded hit now one search, now another
        clocks: dict[int, list[float]] = {budget: [] for budget in generators}
        for number in range(turn, turn + rounds):
            for budget in list(generators)[:: -1 if number % 2 else 1]:
                began = time.process_time()
                found[budget] = generators[budget].generate(None, sample)
                clocks[budget].append(time.process_time() - began)
        for budget, seconds in clocks.items():
            tally[budget]["seconds"] += median(seconds)
            tally[budget]["batches"].append({"words": words, "seconds": median(seconds)})
        for budget, lists in found.items():
            proved = sum(best["proved"] for best, *_ in lists)
            tally[budget]["proved"] += proved
            tally[budget]["batches"][-1].update(sentences=len(lists), proved=proved)
            tally[budget]["better"] += sum(
                float(a[0]["score"]) > float(b[0]["score"]) + CLOSE
                for a, b in zip(lists, found[0], strict=True)
            )
    return [_row(run, budget, known, tally[0], count) for budget, known in tally.items()]


def _row(run: Run, budget: int, known: dict, plain: dict, sentences: int) -> dict:
    row = {
        "system": run.system,
        "budget": budget,
        "sentences": sentences,
        "proved": round(100 * known["proved"] / sentences, 1),
        "better_than_beam": round(100 * known["better"] / sentences, 1),
        "seconds": round(known["seconds"], 3),
        "time": round(known["seconds"] / plain["seconds"], 3),
        "by_length": _by_length(known["batches"], plain["batches"]),
    }
    print(json.dumps(row), flush=True)
    return row


def _by_length(batches: list[dict], plain: list[dict]) -> list[dict]:
    """Of the sentences in order of length, in GROUPS parts of about the same number."""
    groups = []
    for part in range(GROUPS):
        places = slice(part * len(batches) // GROUPS, (part + 1) * len(batches) // GROUPS)
        here, beam = batches[places], plain[places]
        if here:
            count = sum(b["sentences"] for b in here)
            groups.append(
                {
                    "words": round(sum(b["words"] * b["sentences"] for b in here) / count, 1),
                    "proved": round(100 * sum(b["proved"] for b in here) / count, 1),
                    "time": round(
                        sum(b["seconds"] for b in here) / sum(b["seconds"] for b in beam), 2
                    ),
                }
            )
    return groups


def draw(rows: list[dict], path: Path) -> None:
    """Proved translations and time by length, a line for each budget, a column for each system."""
    import matplotlib

    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # fairseq lets all speak
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    systems = list(dict.fromkeys(row["system"] for row in rows))
    figure, axes = plt.subplots(
        2, len(systems), figsize=(2.6 * len(systems), 4.2), sharey="row", squeeze=False
    )
    for column, system in zip(axes.T, systems, strict=True):
        for row in (row for row in rows if row["system"] == system):
            words = [group["words"] for group in row["by_length"]]
            label = f"budget {row['budget']:,}" if row["budget"] else "beam alone"
            for place, key in zip(column, ("proved", "time"), strict=True):
                values = [group[key] for group in row["by_length"]]
                place.plot(words, values, "o-", markersize=3, label=label)
        column[0].set_title(system, fontsize=9)
        column[1].set_xlabel("words of the source", fontsize=8)
    axes[0, 0].set_ylabel("proved, %", fontsize=8)
    axes[1, 0].set_ylabel("CPU time, beam 5 = 1", fontsize=8)
    axes[0, 0].legend(fontsize=6)
    for place in axes.flat:
        place.grid(alpha=0.3)
        place.set_ylim(bottom=0)
        place.tick_params(labelsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def add_arguments(parser: argparse.ArgumentParser, rounds: int) -> None:
    parser.add_argument("runs", type=Path, help="runs/<dataset>")
    parser.add_argument("--split", default="test")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=rounds)


def runs_of(parser: argparse.ArgumentParser, folder: Path) -> list[Run]:
    """Finished ones of seed 1, in the order of SYSTEMS."""
    runs = [
        run
        for run in find_runs(folder.parent, folder.name)
        if run.system in SYSTEMS and run.seed == 1 and run.generated("test").exists()
    ]
    if not runs:
        parser.error(f"no finished runs of {', '.join(SYSTEMS)} in {folder}")
    return sorted(runs, key=lambda run: SYSTEMS.index(run.system))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_arguments(parser, rounds=3)
    parser.add_argument("--budgets", type=int, nargs="+", default=[400, 1000, 1400, EXACT_BUDGET])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--figure", type=Path, help="default: beside the JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        row
        for run in runs_of(parser, options.runs)
        for row in measure(run, options.split, options.sentences, options.budgets, options.rounds)
    ]
    path = options.json or RESULTS / f"exact_search_{options.runs.name}.json"
    made = {"beam": BEAM, "batch": BATCH, "split": options.split, "clock": "cpu", "threads": 1}
    made["rounds"] = options.rounds
    write_json(path, {**made, **provenance(), "date": now(), "rows": rows})
    figure = options.figure or path.with_suffix(".png")
    draw(rows, figure)
    print(f"written: {path}, {figure}")


if __name__ == "__main__":
    main()
