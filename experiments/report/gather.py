"""Collects what is there: runs, scores, analyses, published numbers; and why something is not.

Nothing is measured or laid out here. A file that cannot be read costs only what it holds.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from data_prep.inflection import spelled
from sparse_fairseq.errors import UsageError

from ..config import CONFIGS, Config, load_config, name_of_part, recorded_config
from ..papers import Number, published
from ..paths import readable
from ..quantities import Quantity, certificate, measured, shown
from ..run_folder import Run, find_runs
from ..spread import Spread, spread
from ..systems import describe, in_order, system_flags

# Whose published numbers stand beside a dataset that no paper has, if it has them.
STAND_IN = "iwslt14_de_en"
END = "</s>"


@dataclass
class Material:
    """Everything that a report on one dataset can show."""

    dataset: str
    root: Path
    config: Config | None
    runs: list[Run]
    broken: dict[str, str]  # name of a run or file -> what is wrong with it
    documents: dict[tuple[str, str | None], dict] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return self.config.title if self.config else self.dataset

    @property
    def folder(self) -> Path:
        return self.root / self.dataset

    @property
    def languages(self) -> list[str]:
        """Those to which LANGUAGES= restricted the data."""
        return list(self.config.data["languages"]) if self.target != self.dataset else []

    @cached_property
    def target(self) -> str:
        """The dataset as make knows it: without the languages that are a part of its name."""
        names = (self.config.data.get("languages") or ()) if self.config else ()
        whole = [self.dataset.removesuffix("_".join(["", *names])), *_config_names()]
        return next((x for x in whole if name_of_part(x, names) == self.dataset), self.dataset)

    def make(self, *parts: str) -> str:
        """The command of a target, as it can be typed."""
        option = f' LANGUAGES="{" ".join(self.languages)}"' if self.languages else ""
        return f"make {'/'.join([self.target, *parts])}{option}"

    @cached_property
    def systems(self) -> list[str]:
        """Those of the config, and others that were run, but not as a part of a sweep."""
        planned = self.config.systems if self.config else ()
        others = [name for name in self.all_systems if not describe(name).sweep]
        return in_order([*planned, *others]) or self.all_systems

    @cached_property
    def all_systems(self) -> list[str]:
        planned = self.config.systems if self.config else ()
        return in_order([*planned, *(run.system for run in self.runs)])

    @property
    def baseline(self) -> str | None:
        """The system with softmax in output and attention that others are compared with."""
        dense = [system for system in map(describe, self.systems) if system.dense]
        return next((s.name for s in dense if s.attention_alpha in (None, 1)), None)

    @property
    def inflects(self) -> bool:
        return self.config is not None and self.config.metric == "inflection"

    @property
    def outputs(self) -> str:
        """What the models write ..."""
        return "words" if self.inflects else "sentences"

    @property
    def tokens(self) -> str:
        """... and what it is made of."""
        return "characters" if self.inflects else "words"

    def in_words(self, text: str) -> str:
        """A heading with the names of what is written here in the place of its brackets."""
        return text.format(tokens=self.tokens, outputs=self.outputs)

    @property
    def certificate(self) -> str:
        """By which score the search was exact, if it was: that by which it ranked."""
        return certificate(self.runs[0]) if self.runs else "normalized"

    def runs_of(self, system: str) -> list[Run]:
        return [run for run in self.runs if run.system == system and run.seed is not None]

    def scores(self, run: Run) -> dict[str, Any]:
        try:
            return run.scores or {}
        except ValueError as error:
            self.broken.setdefault(f"{run.name}/scores.json", str(error))
            return {}

    def mean(self, system: str, *keys: str) -> Spread | None:
        """Mean, deviation and number over seeds of an entry of scores.json."""
        values = []
        for run in self.runs_of(system):
            value: Any = self.scores(run)
            for key in keys:
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, int | float):
                values.append(value)
        return spread(values)

    def result(self, analysis: str, run: Run | None = None) -> dict | None:
        document = self.documents.get((analysis, run.name if run else None), {})
        result = document.get("result")
        return result if isinstance(result, dict) else None

    def results(self, analysis: str) -> Iterator[tuple[Run, dict]]:
        """The results of an analysis that looks at one run at a time, systems in order."""
        for system in self.systems:
            for run in self.runs_of(system):
                if (result := self.result(analysis, run)) is not None:
                    yield run, result

    def first_results(self, analysis: str) -> dict[str, dict]:
        """One result for each system: of its first seed that has one."""
        found: dict[str, dict] = {}
        for run, result in self.results(analysis):
            found.setdefault(run.system, result)
        return found

    def why(self, analysis: str, system: str | None = None) -> str:
        """Why there is no result: not run, not analysed, failed, or cannot be measured."""
        runs = self.runs_of(system) if system else []
        if system and not runs and not self.can_run(system):
            return "of the paper only"
        if system and not runs:
            return f"not run: {self.make(system)}"
        if not self.runs:
            return f"not run: {self.make()}"
        for name in [*(run.name for run in runs), None]:
            document = self.documents.get((analysis, name), {})
            if "missing" in document:
                return str(document["missing"])
            if "error" in document:
                return f"failed: {document['error']}"
        if system and (analysis, None) in self.documents:  # it compares those that are there
            return f"not finished: {self.make(system)}"
        return f"not analysed: {self.command(analysis)}"

    def can_run(self, system: str) -> bool:
        try:
            return self.config is None or bool(system_flags(self.config, system))
        except SystemExit:
            return False

    def command(self, analysis: str) -> str:
        return f"python -m experiments.analysis.{analysis} {readable(self.folder)}"

    def sources(self, analysis: str) -> list[str]:
        """Which files a section shows, and what made them."""
        lines = []
        for (name, run), document in self.documents.items():
            if name == analysis:
                place = f"{run}/analysis" if run else f"{self.dataset}/analysis"
                made = document.get("made") or {}
                parts = [f"{place}/{name}.json", str(made.get("date", ""))]
                settings = made.get("settings") or {}
                parts += [f"{key}={value}" for key, value in settings.items()]
                lines.append(" ".join(part for part in parts if part))
        return lines

    def published(self, metric: str) -> list[Number]:
        """What is printed for this dataset; if nothing, for all of its languages; if nothing, for
        another one of the same paper."""
        found = [number for number in published(metric=metric) if number.dataset is not None]
        own = self.config.paper if self.config else None
        if own:
            found = [number for number in found if number.place.startswith(f"{own} ")]
        names = list(dict.fromkeys(number.dataset for number in found))
        for name in (self.dataset, self.target, STAND_IN, *names):
            if name in names:
                return [number for number in found if number.dataset == name]
        return []

    def paper(self, metric: str, system: str | None = None) -> Number | None:
        return next((n for n in self.published(metric) if n.system == system), None)

    def comparable(self, number: Number) -> bool:
        if number.value is None or (number.dataset == self.dataset and self.lacks_languages):
            return False
        return number.dataset in (None, self.dataset)

    @property
    def language_count(self) -> int:
        """Of how many languages the words are; 0 if this is not inflection, or not known yet."""
        found = [self.scores(run).get("test") or {} for run in self.runs]
        return max((len(test.get("languages") or ()) for test in found), default=0)

    @cached_property
    def lacks_languages(self) -> bool:
        """Whether the files at hand were of fewer languages than the paper's."""
        printed = self.paper("languages")
        return bool(printed and self.language_count and self.language_count < printed.value)

    def of_seeds(
        self, analysis: str, value: Callable[[dict], float | None]
    ) -> dict[str, Spread | None]:
        """Mean over seeds of something in an analysis's result."""
        found: dict[str, list[float]] = {}
        for run, result in self.results(analysis):
            measured = dig(value, result)
            if measured is not None:
                found.setdefault(run.system, []).append(measured)
        return {system: spread(values) for system, values in found.items()}

    def test_scores(self, score: str) -> dict[str, Spread]:
        """Of the analysis if it was made; else as they were when the runs finished."""
        result = (self.result("bleu") or {}).get("test") or {}
        found = {
            system: Spread(own[score]["mean"], own[score]["std"], own[score]["n"])
            for system, own in (result.get("systems") or {}).items()
            if own.get(score)
        }
        for system in self.systems:
            found.setdefault(system, self.mean(system, "test", score))
        return {system: value for system, value in found.items() if value}

    @cached_property
    def _measured(self) -> dict[str, list[dict[str, float]]]:
        """What is known of the runs of each system."""
        return {
            system: [measured(run) for run in self.runs_of(system)] for system in self.all_systems
        }

    @property
    def quantities(self) -> list[Quantity]:
        """Those that were measured here."""
        return shown([{*keys} for runs in self._measured.values() for keys in runs])

    def quantity(self, key: str) -> dict[str, Spread]:
        """Mean over seeds of each system that has it."""
        found = {
            system: spread([values[key] for values in runs if key in values])
            for system, runs in self._measured.items()
        }
        return {system: value for system, value in found.items() if value}

    @property
    def training_speed(self) -> Quantity | None:
        """By which clock training was timed."""
        return next((q for q in self.quantities if q.split == "train"), None)

    @cached_property
    def data(self) -> dict[str, Any]:
        """data.json of the data that the runs were trained on."""
        for run in self.runs:
            try:
                path = Path(run.manifest["data"]["bin"]).parent / "data.json"
                return json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return {}

    def source_text(self, tokens: list[str]) -> str:
        """What was translated; of an inflection the tags, and the lemma as one word."""
        tokens = [token for token in tokens if token != END]
        if not self.inflects:
            return " ".join(tokens)
        tags = [token for token in tokens if len(token) > 2 and token[0] + token[-1] == "[]"]
        return " ".join([*tags, spelled(" ".join(token for token in tokens if token not in tags))])

    def nothing(self, analysis: str) -> list[str]:
        """The lines of a section that has nothing to show."""
        reasons = {self.why(analysis, system) for system in self.systems}
        reasons |= {self.why(analysis)} if not reasons else set()
        return sorted(reasons)

    def lacking(self, analysis: str, found: Iterable[str]) -> list[str]:
        """One line for each system without a result of this analysis."""
        return [
            f"{describe(system).label}: {self.why(analysis, system)}"
            for system in self.systems
            if system not in {*found}
        ]


def _config_names() -> list[str]:
    return [path.stem for path in sorted(CONFIGS.glob("*.yaml"))]


def dataset_label(name: str) -> str:
    """IWSLT14 De→En for iwslt14_de_en; the name itself, if it has no config any more."""
    try:
        return load_config(name).title
    except UsageError:
        return name


def dig(value: Callable[[dict], float | None], result: dict) -> float | None:
    """``value(result)``, or None where the result does not have it."""
    try:
        found = value(result)
    except (KeyError, TypeError, IndexError, statistics.StatisticsError):
        return None
    return found if isinstance(found, int | float) else None


def gather(root: Path, dataset: str) -> Material:
    found = find_runs(root, dataset)
    broken = {run.name: run.problem for run in found if run.problem}
    whole = [run for run in found if not run.problem]
    material = Material(dataset, root, _config(dataset, whole), whole, broken)
    folders: list[tuple[str | None, Path]] = [(None, material.folder / "analysis")]
    folders += [(run.name, run.analysis_dir) for run in material.runs]
    for name, folder in folders:
        for path in sorted(folder.glob("*.json")):
            _take(material, name, path)
    return material


def _config(dataset: str, runs: list[Run]) -> Config | None:
    """As it is now; if it has no file, as with LANGUAGES= or --configs, that of the runs."""
    try:
        return load_config(dataset)
    except UsageError:
        pass
    for run in runs:
        try:
            return recorded_config(run.config)
        except (UsageError, KeyError, TypeError, ValueError):
            continue  # of another version; what the runs gave can still be shown
    return None


def _take(material: Material, run: str | None, path: Path) -> None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(document, dict):
            raise ValueError("not an analysis")
    except (OSError, ValueError) as error:
        material.broken[readable(path)] = str(error)
        return
    material.documents[path.stem, run] = document
    if "error" in document:
        material.broken[readable(path)] = str(document["error"])
