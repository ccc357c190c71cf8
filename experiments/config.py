"""Reads experiments/configs/*.yaml: the only place where hyper-parameters live.

A config says what a dataset is, which systems its paper compares, and with which fairseq flags.
What the keys mean is in `Config`; which command lines follow from them, in `experiments.commands`.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from data_prep.spec import nearest
from sparse_fairseq.errors import UsageError

CONFIGS = Path(__file__).parent / "configs"
LONGEST_NAME = 200  # of a dataset, which names directories; file systems end at 255 bytes

Flags = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Batch:
    """One update. ``accumulate`` batches make it, however many workers share them."""

    tokens: int | None = None  # --max-tokens
    sentences: int | None = None  # --batch-size
    accumulate: int = 1


@dataclasses.dataclass(frozen=True)
class Config:
    dataset: str
    about: str  # one line for people
    data: Flags  # the keys of data_prep.spec.DataSpec
    systems: tuple[str, ...]  # what `make <dataset>` trains
    batch: Batch
    train: Flags  # flags of fairseq-train
    generate: Flags  # flags of fairseq-generate
    # In headings; {source}, {target} and other keys of the data stand for their values.
    label: str | None = None
    paper: str | None = None  # SE or S2S
    seeds: tuple[int, ...] = (1,)
    softmax: Flags = dataclasses.field(default_factory=lambda: {"criterion": "softmax_loss"})
    # None: the architecture's own attention. same: the α of the output. Or a number.
    attention_alpha: str | float | None = None
    metric: str = "bleu"  # or inflection

    @property
    def title(self) -> str:
        """The dataset as people write it: IWSLT14 De→En for iwslt14_de_en."""
        if self.label is None:
            return self.dataset
        names = list(self.data.get("languages") or ())
        listed = ", ".join(names) if len(names) < 10 else f"{len(names)} languages"
        pair = {key: str(self.data.get(key, "?")) for key in ("source", "target")}
        languages = {key: name[:1].upper() + name[1:] for key, name in pair.items()}
        words = {**self.data, **languages, "languages": f": {listed}" if listed else ""}
        return self.label.format_map(words)

    def replaced(self, section: str, **flags: Any) -> "Config":
        """The same config with other flags in one section."""
        return dataclasses.replace(self, **{section: {**getattr(self, section), **flags}})


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist."""
    return f"no {what} '{name}'{nearest(name, list(known))}"


def name_of_part(dataset: str, languages: Iterable[str]) -> str:
    """The dataset that LANGUAGES= makes of another one."""
    names = sorted({*languages})
    name = "_".join([dataset, *names])
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{dataset}_{len(names)}languages_{digest}"


def load_config(dataset: str, own: Path | None = None) -> Config:
    """The config of a dataset, of a folder of one's own before ours.

    `demo_fr_en` is configs/demo.yaml with other languages.
    """
    values = read_values(dataset, own)
    if values is None and (match := re.fullmatch(r"(demo)_([\w-]+)_([\w-]+)", dataset)):
        values = read_values(match[1], own)
        if values is not None:
            data = values.get("data") or {}
            values["data"] = {**data, "source": match[2], "target": match[3]}
    if values is None:
        names = {path.stem for folder in _folders(own) for path in folder.glob("*.yaml")}
        raise UsageError(unknown("dataset", dataset, names))
    return _check(dataset, values)


def _folders(own: Path | None) -> list[Path]:
    return [CONFIGS] if own is None else [own, CONFIGS]


def read_values(name: str, own: Path | None = None) -> Flags | None:
    """What a config says, with what it extends; nothing is checked."""
    return _read(_folders(own), name)


def recorded_config(values: Flags) -> Config:
    """The config that the manifest of a run has written down, options of its call included."""
    return _check(str(values["dataset"]), values)


def _read(folders: list[Path], name: str, extended: tuple[str, ...] = ()) -> Flags | None:
    paths = [folder / f"{name}.yaml" for folder in folders]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return None
    values = read_yaml(path)
    base_name = values.pop("extends", None)
    if base_name is None:
        return values
    if base_name in (name, *extended):
        raise UsageError(f"{path}: extends {base_name}, which extends it")
    base = _read(folders, str(base_name), (name, *extended))
    if base is None:
        raise UsageError(f"{path}: extends {base_name}, which is not there")
    return merged(base, values)


def read_yaml(path: Path) -> Flags:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeError) as error:
        raise UsageError(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path}: has no keys")
    return values


def merged(base: Flags, values: Flags) -> Flags:
    """``values`` over ``base``; a flag set to null is taken out."""
    both = dict(base)
    for key, value in values.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            section = {**base[key], **value}
            both[key] = {name: x for name, x in section.items() if x is not None}
        else:
            both[key] = value
    return both


def _check(dataset: str, values: Flags) -> Config:
    config = _build(Config, {"dataset": dataset, **values}, dataset)
    for section in ("data", "batch", "train", "generate", "softmax"):
        if not isinstance(getattr(config, section), dict):
            raise UsageError(f"{dataset}: {section} must be keys with values")
    for key in ("systems", "seeds"):
        if not isinstance(getattr(config, key), (list, tuple)):
            raise UsageError(f"{dataset}: {key} must be a list, as in [a, b]")
    if not config.systems:
        raise UsageError(f"{dataset}: systems is empty")
    if config.metric not in ("bleu", "inflection"):
        raise UsageError(f"{dataset}: {unknown('metric', config.metric, ('bleu', 'inflection'))}")
    alpha = config.attention_alpha
    if isinstance(alpha, str) and alpha != "same":
        raise UsageError(f"{dataset}: {unknown('attention_alpha', alpha, ['same'])}, or numbers")
    _check_length(dataset, config.train)
    try:
        _ = config.title
    except (AttributeError, KeyError, ValueError) as error:
        raise UsageError(f"{dataset}: label: {error} is no key of data") from None
    return dataclasses.replace(
        config,
        batch=_batch(dataset, config.batch),
        systems=tuple(str(name) for name in config.systems),
        seeds=tuple(_whole(f"{dataset}: a seed", seed, least=0) for seed in config.seeds),
    )


def _batch(dataset: str, values: Any) -> Batch:
    batch = _build(Batch, values, f"{dataset}: batch")
    if (batch.tokens is None) == (batch.sentences is None):
        raise UsageError(f"{dataset}: batch needs either tokens or sentences")
    for key, value in dataclasses.asdict(batch).items():
        if value is not None or key == "accumulate":
            _whole(f"{dataset}: batch: {key}", value)
    return batch


def _check_length(dataset: str, train: Flags) -> None:
    lengths = [key for key in ("max-epoch", "max-update") if train.get(key) is not None]
    if not lengths:
        raise UsageError(f"{dataset}: train needs max-epoch or max-update")
    for key in lengths:
        _whole(f"{dataset}: train: {key}", train[key])


def _whole(what: str, value: Any, least: int = 1) -> int:
    if type(value) is not int or value < least:
        raise UsageError(f"{what} must be a whole number of at least {least}, not {value!r}")
    return value


def _build(kind: type, values: Flags, where: str):
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for key in values:
        if key not in fields:
            raise UsageError(f"{where}: {unknown('key', key, fields)}")
    missing = [
        name
        for name, field in fields.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise UsageError(f"{where}: the key {missing[0]} is missing")
    return kind(**values)
