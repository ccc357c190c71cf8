"""Where a run keeps its files, and how to read them. Nothing is made here."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"


class Run:
    """One trained system: runs/<dataset>/<system>/seed<N> (or /ensemble)."""

    def __init__(self, path: Path):
        self.path = path
        self.dataset, self.system, self.member = path.parts[-3:]
        self.checkpoints = path / "checkpoints"
        self.checkpoint = self.checkpoints / "checkpoint_best.pt"
        self.train_log = path / "train.log"
        self.analysis_dir = path / "analysis"
        self._manifest: dict[str, Any] | None = None

    @property
    def seed(self) -> int | None:
        """None for an ensemble."""
        number = self.member.removeprefix("seed")
        return int(number) if number.isdigit() else None

    @property
    def name(self) -> str:
        return f"{self.dataset}/{self.system}/{self.member}"

    @property
    def manifest(self) -> dict[str, Any]:
        """Read once; whoever writes another one says so with `wrote`."""
        if self._manifest is None:
            self._manifest = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        return self._manifest

    def wrote(self, manifest: dict[str, Any]) -> None:
        """This is what its file holds now."""
        self._manifest = manifest

    @property
    def config(self) -> dict[str, Any]:
        return self.manifest["config"]

    @property
    def source_lang(self) -> str:
        return self.config["data"]["source"]

    @property
    def target_lang(self) -> str:
        return self.config["data"]["target"]

    @property
    def inflects(self) -> bool:
        """Whether it writes words, and not sentences."""
        return self.config.get("metric") == "inflection"

    def decoded_checkpoint(self, train: Mapping[str, Any] | None = None) -> Path:
        """The checkpoint that translates: the moving average, where the flags of training (those
        of the manifest if none are given) ask for one."""
        train = self.config.get("train", {}) if train is None else train
        averaged = train.get("store-ema")
        return self.checkpoint.with_name("checkpoint_ema.pt") if averaged else self.checkpoint

    @property
    def bin(self) -> Path:
        return Path(self.manifest["data"]["bin"])

    @property
    def text(self) -> Path:
        return Path(self.manifest["data"]["text"])

    @property
    def scores(self) -> dict[str, Any] | None:
        path = self.path / "scores.json"
        return read_json(path) if path.is_file() else None

    def generated(self, split: str) -> Path:
        """What fairseq-generate printed."""
        return self.path / f"generate-{split}.txt"

    def hypotheses(self, split: str) -> list[str]:
        return read_lines(self.path / f"hypotheses-{split}.txt")

    def references(self, split: str) -> list[str]:
        return read_lines(self.text / f"{split}.{self.target_lang}")

    @property
    def problem(self) -> str | None:
        """Why this run cannot be read, in one line."""
        try:
            stages = self.manifest["stages"]
            for key in ("config", "data", "commands"):
                _ = self.manifest[key]
            if "train" in stages and not self.checkpoint.is_file():
                return f"{self.checkpoint} is missing"
        except FileNotFoundError:
            return f"{self.path / MANIFEST} is missing"
        except (ValueError, KeyError, TypeError) as error:
            return f"{self.path / MANIFEST} is broken: {type(error).__name__} {error}"
        return None


def find_runs(runs_root: Path, dataset: str) -> list[Run]:
    """All runs of a dataset, also broken ones."""
    found = (runs_root / dataset).glob("*/*/")
    return [Run(path) for path in sorted(found) if _is_run(path)]


def _is_run(path: Path) -> bool:
    named = path.name == "ensemble" or path.name.removeprefix("seed").isdigit()
    # A call that was refused leaves nothing but its lock.
    return named and any(child.name != ".lock" for child in path.iterdir())


def read_lines(path: Path) -> list[str]:
    """Lines end at \\n only; other separators of Unicode are part of a sentence."""
    try:
        return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except ValueError as error:
        raise ValueError(f"{path} is broken: {error}") from error


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is broken: {error}") from error
