"""What a prepared dataset is made of: the `data:` section of a config and the flags of `data_prep`.

Nothing here touches data; a recipe's own values (its `DEFAULTS`) fill what a caller leaves out.
"""

import dataclasses
import difflib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep import recipes
from sparse_fairseq.errors import UsageError

CHOICES = {
    "tokenizer": ("moses", "none"),
    "segmentation": ("bpe", "sentencepiece", "characters", "none"),
    "setting": ("high", "medium"),
}
OWN_FILES = ("train", "valid", "test")
# With these segmentations, `operations` says how many merges or pieces there are.
LEARNT = ("bpe", "sentencepiece")


def _field(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class DataSpec:
    recipe: str = _field("", "where the data comes from: " + ", ".join(recipes.NAMES))
    source: str = _field("", "source language")
    target: str = _field("", "target language")
    tokenizer: str = _field("moses", "moses (as fairseq's --tokenizer moses does it) or none")
    normalise: bool = _field(False, "Moses punctuation normalisation of all text")
    segmentation: str = _field("bpe", "bpe, sentencepiece, characters (of split text) or none")
    operations: int | None = _field(None, "number of BPE merges, or of sentencepiece's pieces")
    joint_bpe: bool = _field(True, "one segmentation, learnt from both languages")
    joint_dictionary: bool = _field(True, "one dictionary for both languages")
    min_words: int = _field(1, "training pairs with fewer words on a side are dropped")
    max_words: int | None = _field(None, "training pairs with more words on a side are dropped")
    max_ratio: float | None = _field(
        None, "training pairs with a higher ratio of words are dropped"
    )
    lowercase: bool = _field(False, "lower-case all text")
    setting: str | None = _field(None, "sigmorphon2018: the high or medium training data")
    languages: tuple[str, ...] = _field((), "sigmorphon2018: only these languages")
    seed: int = _field(1, "seed of the split where a recipe makes its own")
    train: str | None = _field(None, "plain_text: path/train for path/train.de and .en, or a .tsv")
    valid: str | None = _field(None, "plain_text: the same for validation; default: held out")
    test: str | None = _field(None, "plain_text: the same for the test; default: held out")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> "DataSpec":
        """A checked spec; what the mapping lacks is the recipe's own value."""
        names = [f.name for f in dataclasses.fields(cls)]
        mapping = _split_joint(mapping)
        for key in mapping:
            if key not in names:
                raise UsageError(f"data: unknown key '{key}'{nearest(key, names)}")
        recipe = mapping.get("recipe")
        if recipe not in recipes.NAMES:
            hint = nearest(str(recipe), recipes.NAMES)
            raise UsageError(f"data: unknown recipe '{recipe}'{hint}")
        given = {key: value for key, value in mapping.items() if value is not None}
        values = {**recipes.load(recipe).DEFAULTS, **given}
        spec = cls(**{key: _checked(key, value) for key, value in values.items()})
        spec._check_sense()
        return spec

    @classmethod
    def from_record(cls, mapping: Mapping[str, Any]) -> "DataSpec":
        """The spec that data.json has, which may be older than some of the keys."""
        recorded = _split_joint(mapping)
        names = [f.name for f in dataclasses.fields(cls)]
        spec = cls(**{name: recorded[name] for name in names if name in recorded})
        return dataclasses.replace(spec, languages=tuple(spec.languages))

    def _check_sense(self) -> None:
        if not self.source or not self.target or self.source == self.target:
            pair = f"'{self.source}' and '{self.target}'"
            raise UsageError(f"data: source and target must be two languages, not {pair}")
        if self.segmentation in LEARNT and not self.operations:
            raise UsageError(f"data: segmentation {self.segmentation} needs operations")
        if self.segmentation == "sentencepiece" and not self.joint_bpe:
            raise UsageError("data: sentencepiece is for joint segmentation: set joint_bpe")
        if self.segmentation == "sentencepiece" and self.tokenizer != "none":
            raise UsageError("data: sentencepiece takes raw text: set tokenizer to none")

    def to_mapping(self) -> dict[str, Any]:
        """As JSON or YAML hold it; `from_mapping` takes it back."""
        values = {**dataclasses.asdict(self), "languages": list(self.languages)}
        # Data that were made before there were files of one's own stay what they are.
        return {k: v for k, v in values.items() if k not in OWN_FILES or v is not None}

    def command(self, out: Path, raw: Path | None = None, jobs: int | None = None) -> list[str]:
        """The command line that prepares this, without flags that repeat the recipe's values."""
        usual = {f.name: f.default for f in dataclasses.fields(self)}
        usual.update(recipes.load(self.recipe).DEFAULTS)
        argv = ["python", "-m", "data_prep", "--recipe", self.recipe]
        argv += ["--source", self.source, "--target", self.target]
        for f in dataclasses.fields(self)[3:]:
            value, flag = getattr(self, f.name), f"--{f.name.replace('_', '-')}"
            if value == usual[f.name]:
                continue
            if isinstance(value, bool):
                argv += [flag if value else f"--no-{flag[2:]}"]
            else:
                argv += [flag, *(value if isinstance(value, tuple) else [str(value)])]
        argv += ["--out", str(out)]
        argv += ["--raw", str(raw)] if raw is not None else []
        return argv + (["--jobs", str(jobs)] if jobs is not None else [])


def _split_joint(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """`joint`, the older key, meant one segmentation and one dictionary."""
    given = dict(mapping)
    if (joint := given.pop("joint", None)) is not None:
        given = {"joint_bpe": joint, "joint_dictionary": joint, **given}
    return given


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of an error message about an unknown name: the nearest right one, or all of them."""
    found = difflib.get_close_matches(name, names, n=1)
    if found:
        return f"; did you mean '{found[0]}'?"
    return f"; there are {', '.join(sorted(names))}"


def _checked(key: str, value: Any) -> Any:
    """The value in the type that its field declares."""
    if key in CHOICES and value not in CHOICES[key]:
        raise UsageError(f"data: {key} is {' or '.join(CHOICES[key])}, not '{value}'")
    if key == "languages":
        return tuple(value.split() if isinstance(value, str) else value)
    declared = typing.get_type_hints(DataSpec)[key]
    kinds = [kind for kind in typing.get_args(declared) or [declared] if kind is not type(None)]
    if kinds == [float] and type(value) is int:
        return float(value)
    if type(value) not in kinds or (kinds != [bool] and kinds != [str] and value < 0):
        raise UsageError(f"data: {key} must be a {kinds[0].__name__}, not {value!r}")
    return value
