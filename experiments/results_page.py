"""Fills the tables of docs/results.md from experiments/results: no number is typed there.

A table stands between two comments, and says after it how it was made:

    <!-- table: demo_de_en -->                                   one row per system
    <!-- table: demo_de_en columns=bleu,chrf -->                 these columns only
    <!-- table: demo_taus curve=accuracy -->                     a validation score by updates
    <!-- table: sigmorphon2018_medium grid=word_accuracy -->     output α × attention α
    <!-- table: sigmorphon2018_high languages=word_accuracy -->  a test score by language
    <!-- table: multi30k_de_en_tied multi30k_de_en_tied_slow system=sparsemax -->  rows of several
                                                                  datasets, of one system here
    <!-- end of table -->

`experiments.evidence` writes what is read here.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sparse_fairseq.errors import UsageError

from . import page_tables
from .config import unknown
from .evidence import RESULTS, RESULTS_FILE, read_evidence
from .number_text import signed_text
from .paths import ROOT
from .quantities import QUANTITIES, Quantity, shown
from .results import system_of
from .spread import Spread, spread
from .systems import describe, in_order

PAGE = ROOT / "docs" / "results.md"
KIND = "table"  # of tables on pages
# Closed, as it is longer than most tables; the attribute is for mkdocs.
MADE = '<details markdown="1"><summary>How this was made</summary>'
# Said of the beam alone, where the results of exact search say more.
NOT_SHOWN = {"certified", "single_hypothesis"}
SPLIT_NAMES = {"test": "test data", "valid": "validation data", "train": "training"}
Rows = list[list[str]]


class Table(NamedTuple):
    rows: Rows  # with the head
    notes: list[str]  # said below it
    quantities: Sequence[Quantity] = ()  # that it shows


@dataclass(frozen=True)
class Evidence:
    """What was kept of a dataset's runs."""

    results: dict[str, Any]
    manifests: list[dict[str, Any]]
    alone: bool = True  # in its table: only then has it a column for what was compared within it
    list_seeds: bool = False  # as not all systems of the table have the same
    runs: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        runs = [run for run in self.results["runs"] if run.get("measured")]
        object.__setattr__(self, "runs", runs)

    @property
    def dataset(self) -> str:
        return self.results["dataset"]

    @property
    def systems(self) -> list[str]:
        return in_order(system_of(run) for run in self.runs)

    def of(self, system: str) -> list[dict[str, Any]]:
        return [run for run in self.runs if system_of(run) == system]

    def seeds(self, system: str) -> list[int]:
        return sorted(run["seed"] for run in self.of(system) if run["seed"] is not None)

    def machines(self, system: str | None = None) -> list[str]:
        own = [m for m in self.manifests if system is None or m["system"] == system.split()[0]]
        return _values(own, _hardware)


def fill(text: str, results: Path = RESULTS) -> str:
    """The page with its tables as the evidence has them now."""
    return page_tables.fill(text, KIND, partial(_block, results=results))


def _block(what: str, results: Path) -> str:
    words = what.split()
    names = [word for word in words if "=" not in word]
    options = dict(word.split("=", 1) for word in words if "=" in word)
    system = options.pop("system", "")
    kind, chosen = next(iter(options.items()), ("columns", ""))
    if kind not in KINDS:
        raise UsageError(f"table {what}: {unknown('kind of table', kind, KINDS)}")
    if len(options) > 1:
        raise UsageError(f"table {what}: {' and '.join(options)} are two tables")
    if not names:
        raise UsageError(f"table {what}: of which dataset?")
    found = [_read(results, name, system) for name in names]
    alone, list_seeds = len(found) == 1, any(_seeds_vary(one) for one in found)
    found = [replace(one, alone=alone, list_seeds=list_seeds) for one in found]
    tables = [KINDS[kind](evidence, chosen) for evidence in found]
    for evidence, table in zip(found, tables, strict=True):
        if len(table.rows) < 2:
            raise UsageError(f"table {evidence.dataset}: {chosen} was not measured")
    table = tables[0] if alone else _stacked(names, tables)
    notes = [*table.notes, *_machines_note(found, table.quantities)]
    facts = [_facts(one, table.quantities, kind != "curve") for one in found]
    made = [MADE, "", *_provenance(found, facts), "", "</details>"]
    return "\n".join([page_tables.markdown(table.rows), "", *notes, "", *made])


def _seeds_vary(evidence: Evidence) -> bool:
    return len({tuple(evidence.seeds(system)) for system in evidence.systems}) > 1


def _read(results: Path, name: str, system: str) -> Evidence:
    """The evidence of a dataset; of one of its systems, if that is asked for."""
    names = sorted(path.parent.name for path in results.glob(f"*/{RESULTS_FILE}"))
    if name not in names:
        raise UsageError(unknown("evidence of", name, names))
    found, manifests = read_evidence(results / name)
    if system:
        systems = [run["system"] for run in found["runs"]]
        if system not in systems:
            raise UsageError(f"table {name}: {unknown('system', system, systems)}")
        found = {**found, "runs": [run for run in found["runs"] if run["system"] == system]}
        manifests = [manifest for manifest in manifests if manifest["system"] == system]
    return Evidence(found, manifests)


def _stacked(names: Sequence[str], tables: Sequence[Table]) -> Table:
    """One table of several datasets."""
    heads = [table.rows[0] for table in tables]
    if any(head != heads[0] for head in heads):
        raise UsageError(f"tables of {' and '.join(names)} have other columns: choose some")
    rows = [["dataset", *heads[0]]]
    for name, table in zip(names, tables, strict=True):
        rows += [[name, *row] for row in table.rows[1:]]
    notes = dict.fromkeys(note for table in tables for note in table.notes)
    return Table(rows, list(notes), tables[0].quantities)


# Tables


def _by_system(evidence: Evidence, chosen: str) -> Table:
    known = shown([{*run["measured"]} for run in evidence.runs])
    columns = [q for q in known if q.key not in NOT_SHOWN]
    if chosen:
        columns = [_quantity(key, evidence) for key in chosen.split(",")]
    pairs = _against(evidence) if evidence.alone and "bleu" in {q.key for q in columns} else {}
    seeds = sorted({seed for own in pairs.values() for seed in own})
    found = [{s: _spread(evidence, s, q) for s in evidence.systems} for q in columns]
    head = ["system", *(["seeds"] if evidence.list_seeds else []), *(q.title for q in columns)]
    of_seeds = f"seed{'s' * (len(seeds) > 1)} {_listed(seeds)}"
    rows = [head + ([f"BLEU − {evidence.systems[0]}, {of_seeds}"] if pairs else [])]
    for system in evidence.systems:
        row = [system]
        row += [_listed(evidence.seeds(system)) or "–"] if evidence.list_seeds else []
        row += [_cell(values[system], q.digits) for values, q in zip(found, columns, strict=True)]
        rows.append(row + ([_difference(pairs.get(system, {}), seeds)] if pairs else []))
    notes = [*_splits(columns), *_search_note(evidence, columns)]
    notes += [note for quantity in columns for note in _fewer(evidence, quantity)]
    notes += dict.fromkeys(note for quantity in columns for note in quantity.notes)
    if pairs:
        samples = sorted({pair["samples"] for own in pairs.values() for pair in own.values()})
        notes.append(f"p is by paired bootstrap with {_listed(samples)} samples.")
    return Table(rows, notes, columns)


def _by_updates(evidence: Evidence, score: str) -> Table:
    """The mean over seeds; validations at other updates than most systems have are left out."""
    curves: dict[str, dict[int, Spread | None]] = {}
    for system in evidence.systems:
        points: dict[int, list[float]] = {}
        for run in evidence.of(system):
            for point in run.get("curve") or ():
                if score in point:
                    points.setdefault(int(point["updates"]), []).append(point[score])
        curves[system] = {updates: spread(values) for updates, values in points.items()}
    updates = sorted(set().union(*curves.values()))
    updates = [u for u in updates if 2 * sum(u in curve for curve in curves.values()) > len(curves)]
    digits = 3 if score == "loss" else 1
    rows = [["system", *(f"{number:,}" for number in updates)]] if updates else []
    for system, curve in curves.items():
        if updates:
            rows.append([system, *(_cell(curve.get(number), digits) for number in updates)])
    title = {"bleu": "BLEU (greedy)"}.get(score, score)
    return Table(rows, [f"Validation {title} after so many updates, as fairseq-train logged it."])


def _grid(evidence: Evidence, key: str) -> Table:
    quantity = _quantity(key, evidence)
    cells = {}
    for name in evidence.systems:
        system = describe(name)
        if system.attention_alpha is not None:
            cells[system.alpha, system.attention_alpha] = _spread(evidence, name, quantity)
    outputs, attentions = (sorted({pair[i] for pair in cells}) for i in (0, 1))
    rows = [["output α \\ attention α", *(f"{alpha:g}" for alpha in attentions)]] if cells else []
    for output in outputs:
        found = [_cell(cells.get((output, attention)), quantity.digits) for attention in attentions]
        rows.append([f"{output:g}", *found])
    return Table(rows, [f"{quantity.title}, {SPLIT_NAMES[quantity.split]}."], [quantity])


def _by_language(evidence: Evidence, key: str) -> Table:
    quantity = _quantity(key, evidence)

    def scores(run: dict[str, Any]) -> dict[str, dict[str, float]]:
        return run["scores"].get("test", {}).get("languages") or {}

    languages = sorted(set().union(*(scores(run) for run in evidence.runs)))
    rows = [["system", "mean", *languages]] if languages else []
    for system in evidence.systems if languages else ():
        cells = [_cell(_spread(evidence, system, quantity), quantity.digits)]
        for language in languages:
            own = [scores(run)[language] for run in evidence.of(system) if language in scores(run)]
            values = [entry[key] for entry in own if key in entry]
            cells.append(_cell(spread(values), quantity.digits))
        rows.append([system, *cells])
    return Table(rows, [f"{quantity.title}, {SPLIT_NAMES[quantity.split]}."], [quantity])


KINDS: dict[str, Callable[[Evidence, str], Table]] = {
    "columns": _by_system,
    "curve": _by_updates,
    "grid": _grid,
    "languages": _by_language,
}


# Cells


def _quantity(key: str, evidence: Evidence) -> Quantity:
    known = {quantity.key: quantity for quantity in QUANTITIES}
    if key not in known:
        raise UsageError(f"table {evidence.dataset}: {unknown('column', key, known)}")
    return known[key]


def _spread(evidence: Evidence, system: str, quantity: Quantity) -> Spread | None:
    if quantity.speed and len(evidence.machines(system)) > 1:
        return None  # a mean of two machines says nothing
    own = [run["measured"] for run in evidence.of(system)]
    return spread([values[quantity.key] for values in own if quantity.key in values])


def _cell(value: Spread | None, digits: int) -> str:
    if value is None:
        return "–"
    mean = f"{value.mean:,.{digits}f}"
    return mean if value.std is None else f"{mean} ± {value.std:.{digits}f}"


def _against(evidence: Evidence) -> dict[str, dict[int, dict[str, Any]]]:
    """What the bootstrap says of BLEU of each other system beside the first, by seed."""
    systems, known = evidence.systems, evidence.results.get("pairs") or ()
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for pair in known:
        names = {pair["baseline"], pair["system"]}
        if pair["metric"] == "bleu" and systems[0] in names and names <= {*systems}:
            sign = 1 if pair["baseline"] == systems[0] else -1
            (other,) = names - {systems[0]}
            compared = {**pair, "difference": sign * pair["difference"]}
            found.setdefault(other, {})[pair["seed"]] = compared
    return found


def _difference(pairs: dict[int, dict[str, Any]], seeds: Sequence[int]) -> str:
    """In the order of the seeds; a seed with which a system was not compared has a dash."""
    if not pairs:
        return "–"
    found = [pairs.get(seed) for seed in seeds]
    differences = ", ".join(signed_text(pair["difference"]) if pair else "–" for pair in found)
    p_values = ", ".join(f"{pair['p_value']:.3f}" if pair else "–" for pair in found)
    return f"{differences} (p = {p_values})"


# What is said below a table


def _splits(columns: Sequence[Quantity]) -> list[str]:
    by_split: dict[str, list[str]] = {}
    for quantity in columns:
        by_split.setdefault(SPLIT_NAMES[quantity.split], []).append(quantity.title)
    listed = {split: ", ".join(titles).removesuffix(".") for split, titles in by_split.items()}
    return [f"Of {split}: {titles}." for split, titles in listed.items()]


def _fewer(evidence: Evidence, quantity: Quantity) -> Iterator[str]:
    """Said where a number is not of all the seeds that its system has."""
    systems: dict[tuple[int, ...], list[str]] = {}
    for system in evidence.systems:
        known = [run for run in evidence.of(system) if quantity.key in run["measured"]]
        seeds = tuple(sorted(run["seed"] for run in known if run["seed"] is not None))
        if seeds and len(seeds) < len(evidence.seeds(system)):
            systems.setdefault(seeds, []).append(system)
    for seeds, own in systems.items():
        whose = "" if len(own) == len(evidence.systems) else f" ({_listed(own)})"
        yield f"{quantity.title}{whose}: of seed{'s' * (len(seeds) > 1)} {_listed(seeds)} alone."


def _search_note(evidence: Evidence, columns: Sequence[Quantity]) -> list[str]:
    titles = [q.title.removesuffix(" %") for q in columns if q.analysis == "exact_search"]
    if not titles:
        return []
    used = [run.get("analyses", {}).get("exact_search") for run in evidence.runs]
    asked = {tuple((entry["settings"] or {}).items()) for entry in used if entry}
    listed = " or ".join(
        f"at most {settings['sentences']:,} sentences, {settings['budget']:,} prefixes for each"
        for settings in map(dict, sorted(asked))
    )
    what = ", ".join(titles)
    return (
        [
            f"{what[0].upper()}{what[1:]}: exact search after a beam of 5, {listed}; by the sum of "
            "log-scores, the empty sentence is allowed, scores of α-ReLU are divided by their sum."
        ]
        if asked
        else []
    )


def _machines_note(found: Sequence[Evidence], columns: Sequence[Quantity]) -> list[str]:
    by_machine: dict[str, list[str]] = {}
    for evidence in found:
        for system in evidence.systems:
            name = system if len(found) == 1 else f"{evidence.dataset}/{system}"
            by_machine.setdefault(" and ".join(evidence.machines(system)), []).append(name)
    if len(by_machine) < 2 or not any(quantity.speed for quantity in columns):
        return []
    listed = "; ".join(f"{machine}: {_listed(names)}" for machine, names in by_machine.items())
    return [f"Only speeds of the same machine can be compared: {listed}."]


def _provenance(found: Sequence[Evidence], facts: Sequence[list[str]]) -> list[str]:
    """How each dataset's numbers were made; what holds for all of several stands in a last line."""
    common = [fact for fact in facts[0] if all(fact in own for own in facts)]
    lines = []
    for evidence, own in zip(found, facts, strict=True):
        path = f"experiments/results/{evidence.dataset}/{RESULTS_FILE}"
        said = own if len(found) == 1 else [fact for fact in own if fact not in common]
        lines.append("; ".join(said) + f". Source: `{path}`.")
    if len(found) > 1:
        lines.append(f"All: {'; '.join(common)}.")
    return lines


def _facts(evidence: Evidence, columns: Sequence[Quantity], decoded: bool) -> list[str]:
    manifests, results = evidence.manifests, evidence.results
    config = manifests[0]["config"]
    seeds = sorted({seed for system in evidence.systems for seed in evidence.seeds(system)})
    tests = [run["scores"].get("test", {}) for run in evidence.runs]
    sizes = {test.get("sentences") for test in tests} - {None}
    facts = [f"Dataset {evidence.dataset} ({config['about']})"]
    if languages := config.get("data", {}).get("languages"):
        facts.append(f"of its languages {_listed(languages)}")
    if sizes and decoded:
        facts.append(f"{_listed(sorted(sizes))} test outputs")
    facts.append(f"{'seeds' if len(seeds) > 1 else 'seed'} {_listed(seeds)}")
    if len(seeds) > 1:
        facts.append("mean ± deviation (n − 1)")
    if decoded:
        facts += _decoding(manifests, {quantity.analysis for quantity in columns})
        keys = {quantity.key for quantity in columns}
        if results.get("signature") and "bleu" in keys:
            facts.append(f"BLEU is `{results['signature']}`")
        signatures = {test["chrf_signature"] for test in tests if "chrf_signature" in test}
        facts += [f"chrF is `{signature}`" for signature in sorted(signatures) if "chrf" in keys]
        facts += [f"BLEU of words is `{found}`" for found in _of_words(evidence, columns)]
    days = sorted({_day(manifest) for manifest in manifests} - {None})
    facts.append(f"trained {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else "")
    facts.append(f"commit {_listed(_values(manifests, _commit))}")
    facts.append(_listed(_values(manifests, _versions)))
    facts.append(_listed(_values(manifests, _hardware)))
    return [fact for fact in facts if fact]


def _of_words(evidence: Evidence, columns: Sequence[Quantity]) -> list[str]:
    """Signatures of BLEU that analyses computed."""
    found: set[str] = set()
    for quantity in columns:
        for run in evidence.runs if quantity.key.startswith("bleu_") else ():
            if quantity.key in run["measured"]:
                signatures = run["analyses"][quantity.analysis].get("signatures")
                if not signatures:
                    name = f"{evidence.dataset}/{run['system']}"
                    raise UsageError(
                        f"{name}: its evidence does not say how {quantity.key} was made"
                    )
                found |= {*signatures}
    return sorted(found)


def _values(manifests: list[dict], of: Callable[[dict], str]) -> list[str]:
    return sorted({of(manifest) for manifest in manifests})


def _commit(manifest: dict[str, Any]) -> str:
    """A plus says that files had been changed since."""
    whole = manifest["git_commit"] or "?"
    return whole[:7] + "+" * whole.endswith("+")


def _versions(manifest: dict[str, Any]) -> str:
    found = manifest["versions"]
    names = ("torch", "fairseq-fixed", "sacrebleu")
    return ", ".join(f"{name} {found[name]}" for name in names if name in found)


def _hardware(manifest: dict[str, Any]) -> str:
    hardware = manifest["hardware"]
    gpus = hardware.get("gpus") or []
    return f"{len(gpus)} × {gpus[0]}" if gpus else f"{hardware['cores']} cores, {hardware['cpu']}"


def _day(manifest: dict[str, Any]) -> str | None:
    finished = manifest["stages"].get("train", {}).get("finished")
    return finished and finished[:10]


def _decoding(manifests: list[dict], analyses: set[str]) -> list[str]:
    """What the flags of decoding say of a table; some analyses search with other ones."""
    if analyses == {"exact_search"}:
        return []  # its note says how
    keys = ("beam",) if analyses == {"end_search"} else ("beam", "end-search")
    found = _values(manifests, lambda manifest: _flags(manifest["config"].get("generate"), keys))
    return [f"decoded with {' or '.join(found)}"]


def _flags(generate: dict[str, Any] | None, keys: Sequence[str]) -> str:
    flags = generate or {}
    shown_flags = [f"--{key} {flags[key]}" for key in keys if key in flags]
    shown_flags += ["--unnormalized"] * bool(flags.get("unnormalized"))
    return f"`{' '.join(shown_flags)}`"


def _listed(values: Sequence) -> str:
    return ", ".join(f"{value:,}" if isinstance(value, int) else value for value in values)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.results_page", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    page_tables.add_arguments(parser, [PAGE])
    options = parser.parse_args(arguments)
    make = partial(_block, results=options.results)
    page_tables.write(options, KIND, make, "experiments/results", parser.prog)


if __name__ == "__main__":
    main()
