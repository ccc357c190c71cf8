"""What one call asks for: a config, its runs and stages, and where everything lies."""

import argparse
import dataclasses
import math
import re
import shlex
from pathlib import Path

from data_prep.records import read_facts
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

from .commands import (
    INTERVALS,
    Workers,
    batch_note,
    generate_command,
    train_command,
    train_settings,
)
from .config import Config, load_config, name_of_part, unknown
from .paths import ROOT, readable
from .run_folder import Run
from .systems import system_flags

STAGES = ("data", "train", "generate", "score")
SPLITS = ("valid", "test")
# Two codes; scripts and regions (pt-BR, zh-Hans, es-419) begin with a capital or a digit.
PAIR = re.compile(r"([a-z]+(?:-[A-Z0-9]\w*)*)-([a-z]+(?:-[A-Z0-9]\w*)*)")
WITH_LANGUAGES = ("sigmorphon2018",)  # recipes of which LANGUAGES= takes a part


@dataclasses.dataclass
class Plan:
    config: Config
    runs: list[Run]
    stages: tuple[str, ...]
    options: argparse.Namespace

    @property
    def data(self) -> Path:
        return self.options.data_root / self.config.dataset

    @property
    def spec(self) -> DataSpec:
        return DataSpec.from_mapping(self.config.data)

    @property
    def data_command(self) -> list[str]:
        raw = self.options.raw
        raw = None if raw is None else Path(readable(raw))
        return self.spec.command(Path(readable(self.data)), raw, None)

    def make(self, *parts: str) -> str:
        """What to type for a target of this dataset, with what decides where it lies."""
        words = ["make", "/".join([typed_dataset(self.options), *parts])]
        if self.options.languages:
            words.append(f'LANGUAGES="{self.options.languages}"')
        folders = {"DATA": "data_root", "RUNS": "runs_root", "CONFIGS": "configs"}
        for name, option in folders.items():
            if (path := getattr(self.options, option)) not in (None, ROOT / name.lower()):
                words.append(f"{name}={shlex.quote(readable(path))}")
        return " ".join(words)

    def is_prepared(self) -> bool:
        """Whether the data are there, made as the config says now."""
        try:
            return DataSpec.from_record(self._data_facts()["spec"]) == self.spec
        except FileNotFoundError:
            return False

    def data_checksums(self) -> dict[str, str]:
        return self._data_facts()["checksums"]

    def sentences(self) -> int:
        """How many sentences a run decodes."""
        return sum(self._data_facts()["sizes"][split] for split in SPLITS)

    def _data_facts(self) -> dict:
        return read_facts(self.data, "remove it and prepare the data anew")

    def members(self, run: Run) -> list[Run]:
        """The runs whose checkpoints this one decodes with: itself, or those of an ensemble."""
        if run.seed is not None:
            return [run]
        seeds = _seeds(self.config, self.options.seeds)
        return [Run(run.path.parent / f"seed{seed}") for seed in seeds]

    def all_commands(self, runs: list[Run], workers: Workers) -> list[list[str]]:
        return [command for run in runs for command in self.commands(run, workers)]

    def commands(self, run: Run, workers: Workers) -> list[list[str]]:
        """Every command of a run after its data are there, in order."""
        commands = []
        if "train" in self.stages and run.seed is not None:
            settings = train_settings(self.config, run.system, run.seed)
            commands.append(train_command(settings, self.data / "bin", run.checkpoints, workers))
        if "generate" in self.stages:
            commands += self.average_commands(run)
            commands += [self.generate_command(run, split, workers) for split in SPLITS]
        return commands

    def batch_note(self, workers: Workers) -> str | None:
        """What to tell about the batches of these workers, the same in all runs."""
        if "train" not in self.stages:
            return None
        return batch_note(train_settings(self.config, self.config.systems[0], 1), workers)

    @property
    def report_commands(self) -> list[list[str]]:
        """What analyses all runs of the dataset, and what makes a page of it."""
        dataset, root = self.config.dataset, self.options.runs_root
        program = ["python", "-m"]
        return [
            [*program, "experiments.analysis", readable(root / dataset)],
            [*program, "experiments.report", dataset, "--runs-root", readable(root)],
        ]

    def average_commands(self, run: Run) -> list[list[str]]:
        """Where the config keeps a moving average, it is what decodes."""
        if not self.config.train.get("store-ema"):
            return []
        program = ["python", "-m", "experiments.ema"]
        return [
            [*program, readable(member.checkpoint), readable(self._decoded(member))]
            for member in self.members(run)
        ]

    def generate_command(self, run: Run, split: str, workers: Workers) -> list[str]:
        checkpoints = [self._decoded(member) for member in self.members(run)]
        bin_dir = self.data / "bin"
        return generate_command(self.config, run.system, split, bin_dir, checkpoints, workers)

    def _decoded(self, run: Run) -> Path:
        return run.decoded_checkpoint(self.config.train)


def make_plan(options: argparse.Namespace) -> Plan:
    for name in ("configs", "data_root", "runs_root", "raw"):
        # Commands run at the project's root, whatever directory the call came from.
        if (path := getattr(options, name)) is not None:
            setattr(options, name, path.expanduser().absolute())
    if options.configs is not None and not options.configs.is_dir():
        raise UsageError(f"CONFIGS={options.configs}: there is no such directory")
    config = _with_options(load_config(typed_dataset(options), options.configs), options)
    if options.system == "data":  # make <dataset>/data
        return Plan(config, [], ("data",), options)
    if options.system == "report":  # make <dataset>/report
        options.report = True
        return Plan(config, [], (), options)
    if options.stage != "all" and options.stage not in STAGES:
        raise UsageError(unknown("stage", options.stage, STAGES))
    systems = config.systems if options.system == "all" else (options.system,)
    for system in systems:
        system_flags(config, system)  # refuses unknown names
    root = options.runs_root / config.dataset
    runs = [Run(root / system / name) for name in _names(config, options) for system in systems]
    # A stage by itself does what it needs first, except for training a model.
    stages = {
        "all": STAGES,
        "data": STAGES[:1],
        "train": STAGES[:2],
        "generate": STAGES[2:3],
        "score": STAGES[3:],
    }
    return Plan(config, runs, stages[options.stage], options)


def typed_dataset(options: argparse.Namespace) -> str:
    """The name typed, with the languages of --pair."""
    if options.pair is None:
        return options.dataset
    match = PAIR.fullmatch(options.pair)
    if not match:
        raise UsageError(f"PAIR={options.pair}: two languages are needed, as in de-en or pt-BR-en")
    return f"{options.dataset}_{match[1]}_{match[2]}"


def dataset_name(options: argparse.Namespace) -> str:
    """What data and runs of a call are called; LANGUAGES= has a dataset of its own."""
    name = typed_dataset(options)
    return name_of_part(name, options.languages.split()) if options.languages else name


def _with_options(config: Config, options: argparse.Namespace) -> Config:
    if options.epochs is not None:
        if options.epochs < 1:
            raise UsageError(f"EPOCHS={options.epochs}: at least 1 is needed")
        often = {key: _often(config.train.get(key) or 1, options.epochs) for key in INTERVALS}
        often = {key: interval for key, interval in often.items() if key in config.train}
        config = config.replaced("train", **{"max-epoch": options.epochs, **often})
    return _of_languages(config, options.languages.split()) if options.languages else config


def _often(interval: int, epochs: int) -> int:
    """How often to look at the model, so that the last epoch is looked at, too: fairseq does not
    do it by itself, and what it has not looked at is never the best checkpoint."""
    return math.gcd(interval, epochs) if interval <= epochs else 1


def _of_languages(config: Config, languages: list[str]) -> Config:
    """A dataset of its own: neither data nor runs are those of all languages."""
    if config.data.get("recipe") not in WITH_LANGUAGES:
        known = ", ".join(WITH_LANGUAGES)
        raise UsageError(f"LANGUAGES= is for {known}; {config.dataset} has no languages to choose")
    part = config.replaced("data", languages=sorted({*languages}))
    return dataclasses.replace(part, dataset=name_of_part(config.dataset, languages))


def _names(config: Config, options: argparse.Namespace) -> list[str]:
    if options.seed == "ensemble":
        return ["ensemble"]
    wanted = options.seeds if options.seed == "all" else options.seed
    return [f"seed{seed}" for seed in _seeds(config, wanted)]


def _seeds(config: Config, wanted: str | None) -> tuple[int, ...]:
    if not wanted:
        return config.seeds
    numbers = [word.removeprefix("seed") for word in wanted.split()]
    for number in numbers:
        if not number.isdigit():
            raise UsageError(f"seed {number!r}: a number is needed, as in seed1 (or ensemble)")
    return tuple(int(number) for number in numbers)
