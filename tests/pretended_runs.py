"""A place with prepared data and a config, and commands that only pretend to work."""

import json
import zipfile
from pathlib import Path

from experiments.plan import Plan, make_plan
from experiments.run import main, parse

CONFIG = """
about: a test
data: {recipe: multi30k, source: de, target: en, operations: 60}
systems: [relu15]
batch: {tokens: 400}
train: {arch: transformer, lr: 0.1, max-epoch: 3}
generate: {beam: 2}
"""
BEGIN = "2026-01-01 00:00:00 | INFO | fairseq_cli.train | Start iterating over samples\n"
END = "2026-01-01 00:00:09 | INFO | fairseq_cli.train | done training in 9.0 seconds\n"
GENERATED = "S-0\ta\nT-0\tx\nH-0\t-0.5\tx\nD-0\t-0.5\tx\n"


class Commands:
    """Stands for `Processes`: leaves the files that fairseq would leave, and says what was run."""

    def __init__(self) -> None:
        self.run_commands: list[list[str]] = []
        self.interrupt = False  # training saves a checkpoint, and then Ctrl-C is pressed
        self.stopping = False
        self.fails = False  # what is run visibly, and may fail
        self.saves = ("checkpoint_last.pt", "checkpoint_best.pt")

    def run(self, command, log, lock, threads, on_line=None, mode="a"):
        self.run_commands.append(command)
        log.parent.mkdir(parents=True, exist_ok=True)
        if command[0] == "fairseq-generate":
            log.write_text(GENERATED)
            return
        with log.open("a") as file:
            file.write(BEGIN)
            folder = log.parent / "checkpoints"
            folder.mkdir(exist_ok=True)
            for name in self.saves:
                zipfile.ZipFile(folder / name, "w").close()  # as torch.save makes them, but empty
            if self.interrupt:
                raise KeyboardInterrupt
            file.write(END)

    def run_visibly(self, command, allow_failure=False):
        self.run_commands.append(command)
        return not self.fails

    def stop(self) -> None:
        pass

    @property
    def programs(self) -> list[str]:
        return [command[0] for command in self.run_commands]


class Place:
    def __init__(self, folder: Path, commands: Commands):
        self.folder, self.commands = folder, commands
        (folder / "configs").mkdir()
        self.configure(CONFIG)
        self.run = folder / "runs/tiny/relu15/seed1"

    def configure(self, text: str) -> None:
        (self.folder / "configs/tiny.yaml").write_text(text)

    def arguments(self, *words: str) -> list[str]:
        names = {"configs": "configs", "data-root": "data", "runs-root": "runs"}
        flags = [f"--{name}={self.folder / path}" for name, path in names.items()]
        return ["--gpus=0", "tiny", *words, *flags]

    def plan(self, *words: str) -> Plan:
        return make_plan(parse(self.arguments(*words)))

    def prepare(self) -> None:
        """Data as the config wants them, of one sentence."""
        plan = self.plan()
        (plan.data / "text").mkdir(parents=True, exist_ok=True)
        for split in ("valid", "test"):
            (plan.data / f"text/{split}.en").write_text("x\n")
        facts = {
            "spec": plan.spec.to_mapping(),
            "sizes": {"valid": 1, "test": 1},
            "checksums": {"bin/x": "1"},
        }
        (plan.data / "data.json").write_text(json.dumps(facts))

    def call(self, *words: str) -> list[str]:
        """Runs experiments.run; returns the programs that it called."""
        self.commands.run_commands.clear()
        main(self.arguments(*words))
        return self.commands.programs

    @property
    def manifest(self) -> dict:
        return json.loads((self.run / "manifest.json").read_text())

    def forget(self, stage: str) -> None:
        """As if a kill had come between the end of a command and the note that it ended."""
        manifest = self.manifest
        manifest["stages"].pop(stage, None)
        (self.run / "manifest.json").write_text(json.dumps(manifest))
