"""The stages of one run: train, generate, score. Each leaves whole files or none.

A stage is done again only if what it was made from has changed; training goes on from its last
checkpoint.
"""

import re
import shutil
import socket
import time
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from data_prep.files import atomic_output, write_json
from sparse_fairseq.errors import UsageError

from .commands import Workers, meeting_port, train_command
from .energy_meter import Meter
from .fairseq_output import find_tau, read_generated, training_summary
from .manifest import Manifest, finish_time
from .metrics import score_split
from .plan import SPLITS, Plan
from .processes import Processes
from .run_folder import Run


def is_finished(plan: Plan, run: Run) -> bool:
    manifest = Manifest(plan, run)
    return all(manifest.is_finished(stage) for stage in plan.stages if stage != "data")


class RunStages:
    """Does the stages of one run; whoever uses it holds the run's lock."""

    def __init__(
        self, plan: Plan, run: Run, workers: Workers, threads: int, processes: Processes, lock: IO
    ):
        self.plan, self.run, self.workers = plan, run, workers
        self.threads, self.processes, self.lock = threads, processes, lock
        self.manifest = Manifest(plan, run)

    def perform(self, stage: str, on_line: Callable[[str], None]) -> None:
        """Does a stage unless it is finished; its commands' output goes to ``on_line``, too."""
        if not self.manifest.is_finished(stage):
            getattr(self, f"_{stage}")(on_line)

    def _train(self, on_line: Callable[[str], None]) -> None:
        if not self.manifest.has_trained_to_the_end():
            self._call_fairseq_train(on_line)
        if not self.run.checkpoint.is_file():
            why = "no validation took place: see validate-interval and save-interval"
            raise UsageError(f"{self.run.name} has no {self.run.checkpoint.name}, {why}")
        summary = training_summary(self.run.train_log, self.plan.config.train)
        self.manifest.entries["tau"] = find_tau(self.run.train_log)
        self.manifest.finish("train", seconds=summary.get("train_seconds"))

    def _call_fairseq_train(self, on_line: Callable[[str], None]) -> None:
        repair_last_checkpoint(self.run.checkpoints)
        settings, bin_dir = self.manifest.settings, self.plan.data / "bin"
        command = train_command(settings, bin_dir, self.run.checkpoints, self.workers)
        self.manifest.begin("train", [command])
        with Meter(self.run.path):
            self.processes.run(command, self.run.train_log, self.lock, self.threads, on_line)

    def _generate(self, on_line: Callable[[str], None]) -> None:
        for member in self.plan.members(self.run):
            if not member.checkpoint.is_file() or not finish_time(member, "train"):
                how = self.plan.make(member.system, member.member, "train")
                raise UsageError(f"{member.name} has not been trained: {how}")
        averages = self.plan.average_commands(self.run)
        commands = [self.plan.generate_command(self.run, split, self.workers) for split in SPLITS]
        self.manifest.begin("generate", averages + commands)
        start = time.monotonic()
        for command in averages:
            log = self.run.path / "average.log"
            self.processes.run(command, log, self.lock, self.threads, mode="w")
        for split, command in zip(SPLITS, commands, strict=True):
            log = self.run.path / f".generate-{split}.txt.tmp"
            self.processes.run(command, log, self.lock, self.threads, on_line, mode="w")
            self._write_hypotheses(split, log)
            log.replace(self.run.generated(split))
        self.manifest.finish("generate", seconds=round(time.monotonic() - start, 1))

    def _write_hypotheses(self, split: str, generated: Path) -> None:
        with atomic_output(self.run.path / f"hypotheses-{split}.txt") as file:
            for sentence in read_generated(generated):
                text = sentence.hypothesis if sentence.detokenised is None else sentence.detokenised
                file.write(f"{text}\n")

    def _score(self, on_line: Callable[[str], None]) -> None:
        if "generate" not in self.manifest.stages:
            how = self.plan.make(self.run.system, self.run.member, "generate")
            raise UsageError(f"{self.run.name} has not been decoded: {how}")
        scores: dict[str, Any] = {}
        if self.run.seed is not None:
            scores |= training_summary(self.run.train_log, self.plan.config.train)
        for split in SPLITS:
            scores[split] = score_split(self.run, split, self.plan.config.metric)
        write_json(self.run.path / "scores.json", scores)
        self.manifest.finish("score")


def join_training(
    plan: Plan, run: Run, workers: Workers, threads: int, processes: Processes
) -> None:
    """Trains as one of the workers that do not keep the books, once the first one does."""
    bin_dir, meeting = plan.data / "bin", (workers.master, meeting_port(run.checkpoints))
    while not (manifest := Manifest(plan, Run(run.path))).is_finished("train"):
        if manifest.has_trained_to_the_end():
            return
        if workers.master is None or _is_open(meeting):
            command = train_command(manifest.settings, bin_dir, run.checkpoints, workers)
            processes.run(command, run.path / f"train.rank{workers.rank}.log", None, threads)
            return
        time.sleep(1)  # worker 0 may be decoding the run before


def _is_open(address: tuple[str | None, int]) -> bool:
    with suppress(OSError), socket.create_connection(address, timeout=5):
        return True
    return False


def repair_last_checkpoint(folder: Path) -> None:
    """Puts a whole checkpoint in the place of one that a kill cut short.

    fairseq writes one checkpoint under a temporary name, and then copies it to
    checkpoint_last.pt in place. So if the last one is broken, it should be what the newest is:
    checkpoint_<epoch>_<updates>.pt where it saves by updates, or checkpoint_best.pt.
    """
    last = folder / "checkpoint_last.pt"
    if not last.is_file() or zipfile.is_zipfile(last):
        return
    name = re.compile(r"checkpoint(_best|\d+|_\d+_\d+)\.pt")
    others = [path for path in folder.iterdir() if name.fullmatch(path.name)]
    others = [path for path in others if zipfile.is_zipfile(path)]
    if not others:
        last.unlink()
        return
    newest = max(others, key=lambda path: path.stat().st_mtime_ns)
    with atomic_output(last, "wb") as output, newest.open("rb") as source:
        shutil.copyfileobj(source, output)
