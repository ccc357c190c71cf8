"""The manifest of a run as it grows: what it was made from, and which stages are finished."""

import dataclasses
import json
import math
from typing import Any

from data_prep.files import sha256, write_json
from sparse_fairseq.errors import UsageError

from .commands import INTERVALS, LENGTH, train_settings
from .config import Flags
from .fairseq_output import training_ended
from .paths import readable
from .plan import SPLITS, Plan
from .provenance import now, provenance
from .run_folder import MANIFEST, Run


class Manifest:
    def __init__(self, plan: Plan, run: Run):
        self.plan, self.run = plan, run
        path = run.path / MANIFEST
        if path.is_file() and run.problem:
            raise UsageError(f"{run.problem}: remove {readable(run.path)}")
        self.entries: dict[str, Any] = dict(run.manifest) if path.is_file() else {}
        self.stages: dict[str, dict[str, Any]] = self.entries.setdefault("stages", {})

    @property
    def settings(self) -> Flags:
        """What the config asks for now; an ensemble has no training of its own."""
        if self.run.seed is None:
            return {}
        return train_settings(self.plan.config, self.run.system, self.run.seed)

    def is_finished(self, stage: str) -> bool:
        if stage == "train":
            return self._is_trained()
        made_from, before = self.made_from(stage), self.stages.get(stage, {}).get("made_from")
        if made_from is None or before is None:
            return False
        if stage == "score" and "references" not in before:
            del made_from["references"]  # version 0.1 did not write them down
        return before == made_from

    def made_from(self, stage: str) -> Flags | None:
        """What the outcome of a stage depends on; None while that is not there."""
        if stage == "train":
            return None
        if stage == "generate":
            trained = [finish_time(member, "train") for member in self.plan.members(self.run)]
            return {"train": trained, **self.plan.config.generate} if all(trained) else None
        generated = self.stages.get("generate", {}).get("finished")
        if not generated:
            return None
        texts = [self.plan.data / "text" / f"{split}.{self.plan.spec.target}" for split in SPLITS]
        references = {path.name: sha256(path) for path in texts if path.is_file()}
        return {
            "generate": generated,
            "metric": self.plan.config.metric,
            "references": references,
        }

    def _is_trained(self) -> bool:
        """Whether nothing is left to train; a run that was made otherwise is an error."""
        if self.run.seed is None:
            return True
        before, settings = self.entries.get("settings"), self.settings
        if before is None:
            return False
        self._refuse_changes(before, settings)
        return before == settings and "train" in self.stages

    def _refuse_changes(self, before: Flags, settings: Flags) -> None:
        """An error if training could not go on with ``settings`` as if they had always held."""
        for key in LENGTH:
            if self._has_model() and length(before, key) > length(settings, key):
                longer = f"{key} = {before.get(key, 'unlimited')}, not {settings[key]}"
                raise UsageError(f"{self.run.name} was trained longer ({longer}): {self._afresh()}")
        # EPOCHS= may have made the intervals shorter than the config has them.
        same_length = all(length(before, key) == length(settings, key) for key in LENGTH)
        free = {*LENGTH} if same_length else {*LENGTH, *INTERVALS}
        for key in sorted({*before, *settings} - free):
            if before.get(key) != settings.get(key):
                change = f"{key} = {before.get(key)}, now it is {settings.get(key)}"
                raise UsageError(f"{self.run.name} was trained with {change}: {self._afresh()}")
        if self.entries["data"]["checksums"] != self.plan.data_checksums():
            raise UsageError(f"{self.run.name}: the data are others now: {self._afresh()}")

    def _has_model(self) -> bool:
        """Whether there is something that fairseq would go on from."""
        return "train" in self.stages or (self.run.checkpoints / "checkpoint_last.pt").exists()

    def has_trained_to_the_end(self) -> bool:
        """Whether fairseq-train ended with these settings, though nobody wrote that down.

        Called again, it would do one update beyond --max-update before it looks.
        """
        if self.entries.get("settings") != self.settings or not self.run.checkpoint.is_file():
            return False
        return training_ended(self.run.train_log, self.entries.get("train_log_start", 0))

    def _afresh(self) -> str:
        return f"remove {readable(self.run.path)}, or use another directory (RUNS=)"

    def begin(self, stage: str, commands: list[list[str]]) -> None:
        """Writes down what is about to be done; until it is, the stage is not finished."""
        self.stages.pop(stage, None)
        settings = self.settings if stage == "train" else self.entries.get("settings", {})
        if stage == "train" and self.entries.get("settings") != settings:
            # What the log says before this is about a shorter training.
            log = self.run.train_log
            self.entries["train_log_start"] = log.stat().st_size if log.is_file() else 0
        data = self.plan.data.absolute()
        self.entries |= {
            "dataset": self.run.dataset,
            "system": self.run.system,
            "seed": self.run.seed,
            "config": json.loads(json.dumps(dataclasses.asdict(self.plan.config))),
            "settings": settings,
            "data": {
                "bin": str(data / "bin"),
                "text": str(data / "text"),
                "checksums": self.plan.data_checksums(),
            },
            "commands": {**self.entries.get("commands", {}), stage: commands},
            **provenance(),
        }
        self._write()

    def finish(self, stage: str, **facts: Any) -> None:
        self.stages[stage] = {"finished": now(), "made_from": self.made_from(stage), **facts}
        self._write()

    def _write(self) -> None:
        write_json(self.run.path / MANIFEST, self.entries)
        self.run.wrote(self.entries)


def finish_time(run: Run, stage: str) -> str | None:
    try:
        return Run(run.path).manifest["stages"][stage]["finished"]
    except (OSError, ValueError, KeyError):
        return None


def length(settings: Flags, key: str) -> float:
    """How long training may last by ``key``: what is not set does not limit it."""
    return settings.get(key) or math.inf
