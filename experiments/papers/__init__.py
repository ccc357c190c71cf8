"""Reads experiments/papers/*.yaml: every published number, and what makes each table and figure.

`make papers` lists the tables and figures: which target makes them, and what is published.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import yaml

PAPERS = Path(__file__).parent


@dataclass(frozen=True)
class Number:
    """One number as printed. `value` is None where it could not be read; `why` says so then."""

    id: str
    place: str  # "SE Table 1"
    metric: str
    unit: str
    value: float | None
    deviation: float | None = None
    dataset: str | None = None  # None: all datasets of the paper
    system: str | None = None  # None: it is about no system, or all of them
    split: str | None = None
    bound: str | None = None  # "above": the paper says only "> value"
    also: str | None = None  # the table or figure that a number of the text is about
    note: str | None = None
    why: str | None = None

    def __str__(self) -> str:
        value = "unreadable" if self.value is None else f"{self.value:,}"
        above = "> " if self.bound == "above" else ""
        deviation = "" if self.deviation is None else f" ± {self.deviation:g}"
        return f"{above}{value}{deviation} {self.unit}"


@dataclass(frozen=True)
class Exhibit:
    """A table, a figure or a passage, and the analysis module that makes it."""

    place: str
    what: str
    module: str | None  # None: `why` says why nothing makes it
    datasets: tuple[str, ...] = ()
    needs: str | None = None  # beside the systems that `make <dataset>` trains
    why: str | None = None

    @property
    def targets(self) -> list[str]:
        return [f"make {dataset}/report" for dataset in self.datasets]


def published(
    dataset: str | None = None,
    metric: str | None = None,
    system: str | None = None,
    place: str | None = None,
    split: str | None = None,
    folder: Path = PAPERS,
) -> list[Number]:
    """The numbers that agree with everything that is asked for, in the papers' order."""
    wanted = {
        "dataset": dataset,
        "metric": metric,
        "system": system,
        "place": place,
        "split": split,
    }
    wanted = {name: value for name, value in wanted.items() if value is not None}
    return [
        number
        for paper in _papers(folder)
        for number in paper["numbers"]
        if all(getattr(number, name) == value for name, value in wanted.items())
    ]


def exhibits(folder: Path = PAPERS) -> list[Exhibit]:
    return [exhibit for paper in _papers(folder) for exhibit in paper["exhibits"]]


def flag_of(metric: str, folder: Path = PAPERS) -> str | None:
    """The flag of fairseq that a published setting is, if it is one."""
    found = (paper.get("flags", {}).get(metric) for paper in _papers(folder))
    return next(filter(None, found), None)


@cache
def _papers(folder: Path) -> list[dict]:
    return [_read(path) for path in sorted(folder.glob("*.yaml"), reverse=True)]


def _read(path: Path) -> dict:
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or not {"paper", "title", "exhibits", "numbers"} <= data.keys():
        raise ValueError(f"{path}: needs the keys paper, title, exhibits and numbers")
    numbers = _build(Number, data["numbers"], path, "id")
    _check_numbers(numbers, path)
    places = _build(Exhibit, data["exhibits"], path, "place")
    for exhibit in places:
        if exhibit.module is None and exhibit.why is None:
            raise ValueError(f"{path}: {exhibit.place}: no module, and no why")
    return {**data, "numbers": numbers, "exhibits": places}


def _build(kind: type, entries: Iterable[dict], path: Path, name: str) -> list:
    known = {field.name for field in fields(kind)}
    built = []
    for entry in entries:
        where = f"{path}: {entry.get(name, entry)}"
        if unknown := entry.keys() - known:
            raise ValueError(f"{where}: unknown key {min(unknown)}")
        entry = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
        try:
            built.append(kind(**entry))
        except TypeError as error:
            raise ValueError(f"{where}: {error}") from None
    return built


def _check_numbers(numbers: list[Number], path: Path) -> None:
    seen = set()
    for number in numbers:
        where = f"{path}: {number.id}"
        if number.id in seen:
            raise ValueError(f"{where}: the id is there twice")
        seen.add(number.id)
        for value in (number.value, number.deviation):
            if value is not None and type(value) not in (int, float):
                raise ValueError(f"{where}: {value!r} is not a number")
        if number.value is None and not number.why:
            raise ValueError(f"{where}: a value that is null needs a why")


def listing() -> str:
    lines = []
    for exhibit in exhibits():
        made_by = f"experiments.analysis.{exhibit.module}" if exhibit.module else "nothing"
        lines += [f"{exhibit.place}: {exhibit.what}", f"  made by    {made_by}"]
        lines += [f"  target     {target}" for target in exhibit.targets]
        lines += [f"  needs      {exhibit.needs}"] if exhibit.needs else []
        lines += [f"  but        {exhibit.why}"] if exhibit.why else []
        about = [n for n in published() if exhibit.place in (n.place, n.also)]
        lines += _published_lines(about)
    shown = {exhibit.place for exhibit in exhibits()}
    places = dict.fromkeys(n.place for n in published() if n.place not in shown)
    for place in places:
        lines += [f"{place}: stated in the text", *_published_lines(published(place=place))]
    return "\n".join(lines)


def _published_lines(numbers: list[Number]) -> list[str]:
    """One line per dataset and metric, the systems side by side."""
    rows: dict[tuple, list[str]] = {}
    for number in numbers:
        value = str(number).removesuffix(number.unit).strip()
        named = f"{number.system} {value}" if number.system else value
        row = (number.dataset or "all datasets", number.metric, number.unit)
        rows.setdefault(row, []).append(named)
    return [
        f"  published  {dataset}: {metric} [{unit}]: {', '.join(values)}"
        for (dataset, metric, unit), values in rows.items()
    ] or ["  published  no number"]
