"""Fills the tables of pages of docs/ and of the README from experiments/bench/results.

    python -m experiments.bench.tables [--check]

A new table is one function below, under the name that its comment in the page says.
"""

import argparse
import csv
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import sparse_fairseq.register  # noqa: F401  first: it keeps the import of fairseq silent
from experiments import page_tables
from experiments.config import unknown
from experiments.papers import published
from experiments.paths import ROOT
from experiments.systems import describe
from sparse_fairseq.errors import UsageError

from .fused import BASELINE
from .generation_speed import STOCK
from .proof_tables import proofs, proofs_by_length

RESULTS = Path(__file__).parent / "results"
DOCS = ROOT / "docs"
PAGES = [DOCS / "benchmarks.md", DOCS / "results.md", DOCS / "explore.md", ROOT / "README.md"]
LOSSES = {
    "α-ReLU, α = 1.5": "relu15",
    "entmax, α = 1.5": "entmax15",
    "sparsemax": "sparsemax",
    "entmax, α = 1.75": "entmax1.75",
    "entmax, α = 1.25": "entmax1.25",
    "entmax, α = 1.1": "entmax1.1",
    "softmax (α = 1)": "entmax1 (softmax)",
    "entmax, α = 1.5, by a full sort (one round)": "entmax15 sort",
    "entmax package, α = 1.5, k = 100": "entmax package: k=100",
    "entmax package, α = 1.5, by a full sort (one round)": "entmax package: sort",
}
FUSED = {
    "α-ReLU, α = 1.5": "relu15 fused",
    "entmax, α = 1.5": "entmax15 fused",
    "sparsemax": "sparsemax fused",
    "softmax (α = 1)": "softmax fused",
    "cross-entropy in chunks, as carefully: three products, one buffer": "chunked cross_entropy",
    "`F.linear_cross_entropy`, chunks of 512": "F.linear_cross_entropy, chunks of 512",
    "`F.linear_cross_entropy`, auto": "F.linear_cross_entropy, auto",
    "entmax package, α = 1.5, k = 100 (one round)": "entmax package k=100",
}
SYSTEMS = {
    "softmax_loss": "`softmax_loss`",
    "relu15": "α-ReLU",
    "entmax15": "1.5-entmax",
    "sparsemax": "sparsemax",
    "entmax15_sort": "1.5-entmax, full sort",
    "entmax package": "entmax package",
}
# Of `make bench-train`, in its order.
TRAININGS = {
    "train_fused_v32000_d512_s25": "6+6 layers, d = 512, V = 32,000",
    "train_fused_v128000_d512_s25": "the same with V = 128,000",
    "train_fused_v4000_d160_s40": "the demo's model (2+2 layers, d = 160, V = 4,000)",
    "train_fused_v4000_d160_s137": "the same",
    "train_not_fused_v32000_d256_s25": "2+2 layers, d = 256, V = 32,000, `--no-fused-output`",
}
PARTS = {
    "product": "forward product",
    "loss": "softmax or threshold, loss",
    "gradients": "gradient products",
    "optimizer": "optimizer",
    "rest of the model": "rest of the model",
}
Row = dict[str, str]
Cells = list[list[str]]


@cache
def read(name: str) -> tuple[Row, ...]:
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        return tuple(csv.DictReader(file))


def of(rows: Sequence[Row], **wanted: object) -> Row | None:
    """The row with these values, if there is one."""
    found = [row for row in rows if all(row[key] == str(value) for key, value in wanted.items())]
    return found[0] if found else None


def ratio(row: Row | None, key: str = "ratio") -> str:
    return "" if row is None else f"{float(row[key]):.2f}"


def whole(row: Row | None, key: str) -> str:
    return "" if row is None else f"{float(row[key]):,.0f}"


def spread(row: Row | None) -> str:
    if row is None:
        return ""
    return f"{ratio(row)} [{ratio(row, 'lowest')}, {ratio(row, 'highest')}]"


def made(*names: str) -> str:
    """When and where the files were written, by which code."""
    rows = [row for name in names for row in read(name)]

    def values(key: str) -> str:
        return ", ".join(dict.fromkeys(row[key] for row in rows))

    files = ", ".join(f"`experiments/bench/results/{name}.csv`" for name in names)
    return (
        f"Source: {files} ({values('date')}, commit {values('commit')}, {values('machine')}, "
        f"torch {values('torch')}, entmax {values('entmax')})."
    )


def losses() -> tuple[Cells, str]:
    rows = read("losses")
    cases = {"untrained": "untrained model", "trained": "trained", "onmt": "OpenNMT's start"}
    columns = [(threads, case) for threads in (1, 2) for case in cases]
    head = ["", *(cases[case] + (", 2 threads" if n == 2 else "") for n, case in columns)]
    cells = [head]
    for label, name in LOSSES.items():
        found = [of(rows, threads=n, case=case, loss=name) for n, case in columns]
        cells.append([label, *map(ratio, found)])
    return cells, made("losses")


def _fused(sweep: str, by: str, head: str) -> tuple[Cells, str]:
    rows = [row for row in read("fused") if row["sweep"] == sweep]
    points = list(dict.fromkeys(row[by] for row in rows))
    cells = [[head, *(f"{int(point):,}" for point in points)]]
    for label, name in FUSED.items():
        found = [of(rows, loss=name, **{by: point}) for point in points]
        if any(found):
            cells.append([label, *map(ratio, found)])
    return cells, made("fused")


def fused_supports() -> tuple[Cells, str]:
    return _fused("supports", "support", "non-zeros in a row")


def fused_classes() -> tuple[Cells, str]:
    return _fused("classes", "classes", "V")


def fused_small_layer() -> tuple[Cells, str]:
    return _fused("small layer", "support", "non-zeros in a row of 4,000")


def fused_memory() -> tuple[Cells, str]:
    rows = read("fused_memory")
    points = list(dict.fromkeys(row["support"] for row in rows))
    cells = [["non-zeros in a row of 32,000", *(f"{int(point):,}" for point in points)]]
    for label, name in {"`F.linear` + `F.cross_entropy`": BASELINE, **FUSED}.items():
        found = [of(rows, loss=name, support=point) for point in points]
        if any(found):
            cells.append([label, *(f"{int(row['megabytes']):,}" if row else "" for row in found)])
    return cells, made("fused_memory")


def training() -> tuple[Cells, str]:
    cells = [["", "non-zeros", *SYSTEMS.values()]]
    for name, label in TRAININGS.items():
        rows = read(name)
        label += f", {int(rows[0]['tokens']):,} tokens, {rows[0]['rounds']} rounds"
        found = [spread(of(rows, system=system)) for system in SYSTEMS]
        cells.append([label, name.rpartition("_s")[2], *found])
    return cells, made(*TRAININGS)


def training_parts() -> tuple[Cells, str]:
    shown = {"train_fused_v32000_d512_s25": "d = 512, V = 32,000"}
    shown["train_fused_v4000_d160_s137"] = "demo's model, 137 non-zeros"
    cells = [["", *PARTS.values()]]
    for name, label in shown.items():
        for row in read(name):
            system = {"softmax": f"{label}: `cross_entropy`", **SYSTEMS}[row["system"]]
            cells.append([system, *(row[part] for part in PARTS)])
    return cells, made(*shown)


def attention() -> tuple[Cells, str]:
    rows = read("attention")
    lengths = list(dict.fromkeys(row["length"] for row in rows))
    cells = [["length", *lengths]]
    for name in dict.fromkeys(row["mapping"] for row in rows):
        pairs = [
            [of(rows, case=case, length=length, mapping=name) for case in ("untrained", "trained")]
            for length in lengths
        ]
        if name != "softmax":
            cells.append([name, *(" / ".join(map(ratio, pair)) for pair in pairs)])
    return cells, made("attention")


def decoding() -> tuple[Cells, str]:
    rows = read("generation_speed")
    beams = list(dict.fromkeys(row["beam"] for row in rows))
    cells = [["", *(f"beam {beam}" for beam in beams)]]
    for name, label in {"softmax": "softmax, our generator", **SYSTEMS}.items():
        found = [of(rows, beam=beam, system=name) for beam in beams]
        if any(found):
            cells.append([label, *map(spread, found)])
    return cells, made("generation_speed")


def bounds() -> tuple[Cells, str]:
    """What certificates and gaps cost plain beam search."""
    rows = read("bounds_demo_de_en")
    cells = [["", *(row["system"] for row in rows)]]
    for key in ("without", "with"):
        cells.append([f"{key} bounds, CPU s", *(f"{float(row[key]):.2f}" for row in rows)])
    cells.append(["cost", *(f"{float(row['cost_percent']):.1f}%" for row in rows)])
    return cells, made("bounds_demo_de_en")


def claims_of_se() -> tuple[Cells, str]:
    """SE's ratios beside ours: training speed (Table 5) and decoding time (Fig. 4)."""
    shown = ("relu15", "entmax15_sort", "entmax15", "sparsemax", "entmax package")
    hours = {(n.dataset, n.system): n.value for n in published(metric="training_hours")}
    datasets = list(dict.fromkeys(dataset for dataset, _ in hours))
    times = {n.system: n.value for n in published(metric="inference_time_ratio")}
    train, decode = read("train_fused_v32000_d512_s25"), read("generation_speed")
    # What a row is called here, in training, in decoding, and in the paper.
    names = [("softmax, fairseq's own", "softmax", STOCK, "softmax")]
    names += [("softmax, this plug-in", "softmax_loss", "softmax", "")]
    names += [(SYSTEMS[name], name, name, name) for name in shown]
    head = ["", "training, words/s", "× softmax", *(f"SE Table 5, {name}" for name in datasets)]
    cells = [[*head, "decoding, tokens/s", "× softmax", "SE Fig. 4"]]
    for label, in_training, in_decoding, in_paper in names:
        trained = of(train, system=in_training)
        decoded = of(decode, beam=5, system=in_decoding)
        row = [label, whole(trained, "wps"), ratio(trained)]
        for dataset in datasets:
            own = hours.get((dataset, in_paper))
            row.append(f"{hours[dataset, 'softmax'] / own:.2f}" if own else "")
        row += [whole(decoded, "tokens_per_second"), ratio(decoded)]
        row.append(f"about {1 / times[in_paper]:.1f}" if in_paper in times else "")
        cells.append(row)
    return cells, made("train_fused_v32000_d512_s25", "generation_speed")


def _pages(columns: dict[str, Callable[[Row], str]]) -> tuple[Cells, str]:
    """Of the page of `make explore`; a row for each system."""
    rows = read("suggestions")
    cells = [["system", *columns]]
    for row in rows:
        label = describe(row["run"].split("/")[1]).label
        cells.append([label, *(value(row) for value in columns.values())])
    count = f"{rows[0]['sentences']} validation sentences, {rows[0]['keystrokes']} keystrokes"
    return cells, f"The demo's models, {count}, {rows[0]['lists']} lists. {made('suggestions')}"


def suggestions() -> tuple[Cells, str]:
    keys = {
        "suggestion: median": "suggestion_median_ms",
        "95%": "suggestion_p95_ms",
        "longest": "suggestion_worst_ms",
        "list of a word: median": "click_median_ms",
        "translation: median": "translation_median_ms",
    }
    return _pages({head: lambda row, key=key: row[key] for head, key in keys.items()})


def lists() -> tuple[Cells, str]:
    def of_cut(key: str) -> Callable[[Row], str]:
        return lambda row: row[key].removesuffix(".0") or "–"

    def share(row: Row) -> str:
        return f"{100 * float(row['their_open_share']):.1f}%" if row["their_open_share"] else "–"

    columns: dict[str, Callable[[Row], str]] = {
        "lists with beginnings": lambda row: f"{row['with_beginnings']} of {row['lists']}",
        "words in them": of_cut("their_words"),
        "beginnings in them": of_cut("their_beginnings"),
        "share of all these beginnings": share,
    }
    cells, source = _pages(columns)
    return [row for row in cells if row[0] != "softmax"], source


def headline() -> tuple[Cells, str]:
    """The README's."""
    head = "speed on a CPU, softmax = 1 (less is better)"
    cells = [[head, "α-ReLU", "1.5-entmax", "entmax package"]]
    rows = [row for row in read("losses") if row["threads"] == "1" and row["case"] == "trained"]
    names = ("relu15", "entmax15", "entmax package: k=100")
    label = "loss, forward + backward, 1024 × 32,000, trained model"
    cells.append([label, *(ratio(of(rows, loss=name)) for name in names)])
    rows = [row for row in read("fused") if (row["classes"], row["support"]) == ("32000", "25")]
    names = ("relu15 fused", "entmax15 fused", "entmax package k=100")
    label = "output layer + loss, fused, V = 32,000, d = 512"
    cells.append([label, *(ratio(of(rows, loss=name)) for name in names)])
    update = read("train_fused_v32000_d512_s25")
    speeds = [of(update, system=name) for name in ("relu15", "entmax15", "entmax package")]
    label = "training, a whole update, 6+6 layers, d = 512, V = 32,000"
    cells.append([label, *(f"{1 / float(row['ratio']):.2f}" for row in speeds if row)])
    return cells, ""


TABLES: dict[str, Callable[[], tuple[Cells, str]]] = {
    "losses": losses,
    "fused supports": fused_supports,
    "fused classes": fused_classes,
    "fused small layer": fused_small_layer,
    "fused memory": fused_memory,
    "training": training,
    "training parts": training_parts,
    "attention": attention,
    "decoding": decoding,
    "bounds": bounds,
    "claims of SE": claims_of_se,
    "suggestions": suggestions,
    "lists": lists,
    "headline": headline,
    "proofs of the demo": lambda: proofs("demo_de_en"),
    "proofs of the demo by length": lambda: proofs_by_length("demo_de_en"),
    "proofs of Multi30k": lambda: proofs("multi30k_de_en"),
    "proofs of Multi30k by length": lambda: proofs_by_length("multi30k_de_en"),
}


def make(what: str) -> str:
    if what not in TABLES:
        raise UsageError(unknown("table", what, TABLES))
    cells, source = TABLES[what]()
    return "\n\n".join(filter(None, [page_tables.markdown(cells), source]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    page_tables.add_arguments(parser, PAGES)
    command = "python -m experiments.bench.tables"
    options = parser.parse_args(arguments)
    page_tables.write(options, "bench", make, "experiments/bench/results", command)


if __name__ == "__main__":
    main()
