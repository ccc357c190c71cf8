"""The manifest of a run as it grows: what it was made from, and which stages are finished."""

import dataclasses
import json
from typing import Any

from data_prep.files import write_json
from sparse_fairseq.errors import UsageError

from .commands import LENGTH, readable, train_settings
from .config import Flags
from .manifest import now, provenance
from .plan import Plan
from .runs import MANIFEST, Run


class Ledger:
    def __init__(self, plan: Plan, run: Run):
        self.plan, self.run = plan, run
        path = run.path / MANIFEST
        if path.is_file() and run.problem:
            raise UsageError(f"{run.problem}: remove {readable(run.path)}")
        self.manifest: dict[str, Any] = dict(run.manifest) if path.is_file() else {}
        self.stages: dict[str, dict[str, Any]] = self.manifest.setdefault("stages", {})

    @property
    def settings(self) -> Flags:
        """What the config asks for now; an ensemble has no training of its own."""
        if self.run.seed is None:
            return {}
        return train_settings(self.plan.config, self.run.system, self.run.seed)

    def is_finished(self, stage: str) -> bool:
        if stage == "train":
            return self._is_trained()
        made_from = self.made_from(stage)
        return made_from is not None and self.stages.get(stage, {}).get("made_from") == made_from

    def made_from(self, stage: str) -> Flags | None:
        """What the outcome of a stage depends on; None while that is not there."""
        if stage == "train":
            return None
        if stage == "generate":
            trained = [_finish_time(member, "train") for member in self.plan.members(self.run)]
            return {"train": trained, **self.plan.config.generate} if all(trained) else None
        generated = self.stages.get("generate", {}).get("finished")
        return {"generate": generated, "metric": self.plan.config.metric} if generated else None

    def _is_trained(self) -> bool:
        """Whether nothing is left to train; a run that was made otherwise is an error."""
        if self.run.seed is None:
            return True
        before, settings = self.manifest.get("settings"), self.settings
        if before is None:
            return False
        for key in sorted({*before, *settings} - {*LENGTH}):
            if before.get(key) != settings.get(key):
                change = f"{key} = {before.get(key)}, now it is {settings.get(key)}"
                raise UsageError(f"{self.run.name} was trained with {change}: {self._afresh()}")
        if self.manifest["data"]["checksums"] != self.plan.data_checksums():
            raise UsageError(f"{self.run.name}: the data are others now: {self._afresh()}")
        for key in LENGTH:
            if "train" in self.stages and (before.get(key) or 0) > (settings.get(key) or 0):
                longer = f"{key} = {before[key]}, not {settings.get(key)}"
                raise UsageError(f"{self.run.name} was trained longer ({longer}): {self._afresh()}")
        return before == settings and "train" in self.stages

    def _afresh(self) -> str:
        return f"remove {readable(self.run.path)}, or use another directory (RUNS=)"

    def begin(self, stage: str, commands: list[list[str]]) -> None:
        """Writes down what is about to be done; until it is, the stage is not finished."""
        self.stages.pop(stage, None)
        data = self.plan.data.absolute()
        self.manifest |= {
            "dataset": self.run.dataset,
            "system": self.run.system,
            "seed": self.run.seed,
            "config": json.loads(json.dumps(dataclasses.asdict(self.plan.config))),
            "settings": self.settings,
            "data": {
                "bin": str(data / "bin"),
                "text": str(data / "text"),
                "checksums": self.plan.data_checksums(),
            },
            "commands": {**self.manifest.get("commands", {}), stage: commands},
            **provenance(),
        }
        self._write()

    def finish(self, stage: str, **facts: Any) -> None:
        self.stages[stage] = {"finished": now(), "made_from": self.made_from(stage), **facts}
        self._write()

    def _write(self) -> None:
        write_json(self.run.path / MANIFEST, self.manifest)
        self.run.__dict__["manifest"] = self.manifest


def _finish_time(run: Run, stage: str) -> str | None:
    try:
        return Run(run.path).manifest["stages"][stage]["finished"]
    except (OSError, ValueError, KeyError):
        return None
