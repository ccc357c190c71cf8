"""Runs real fairseq commands in a subprocess, on data made here."""

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sparse_fairseq.register  # tests load checkpoints in their own process, too

USER_DIR = Path(sparse_fairseq.__file__).parent

TINY = {
    "transformer": "--arch=transformer --encoder-layers=1 --decoder-layers=1 "
    "--encoder-embed-dim=32 --decoder-embed-dim=32 --encoder-ffn-embed-dim=64 "
    "--decoder-ffn-embed-dim=64 --encoder-attention-heads=2 --decoder-attention-heads=2",
    "lightconv": "--arch=lightconv --encoder-layers=1 --decoder-layers=1 --encoder-embed-dim=32 "
    "--decoder-embed-dim=32 --encoder-conv-dim=32 --decoder-conv-dim=32 "
    "--encoder-attention-heads=2 --decoder-attention-heads=2 --encoder-ffn-embed-dim=64 "
    "--decoder-ffn-embed-dim=64 --encoder-kernel-size-list=[3] --decoder-kernel-size-list=[3]",
    "lstm": "--arch=lstm --encoder-embed-dim=32 --decoder-embed-dim=32 --encoder-hidden-size=32 "
    "--decoder-hidden-size=32 --decoder-out-embed-dim=32",
    "fconv": "--arch=fconv --encoder-embed-dim=32 --decoder-embed-dim=32 "
    "--decoder-out-embed-dim=32 --encoder-layers=[(32,3)] --decoder-layers=[(32,3)]",
}
for _arch in ("transformer_align", "bart_base"):
    TINY[_arch] = TINY["transformer"].replace("--arch=transformer", f"--arch={_arch}")
BASICS = ["--optimizer=adam", "--lr=0.003", "--batch-size=16", "--seed=7", "--cpu"]
BASICS += ["--log-format=json", "--log-interval=1", "--num-workers=0", "--no-epoch-checkpoints"]


class Finished:
    """A finished command: exit code, stdout + stderr as text, and what it logged as JSON."""

    def __init__(self, code: int, out: str, err: str):
        self.code, self.out, self.err, self.text = code, out, err, out + err

    def records(self, logger: str) -> list[dict]:
        lines = (line.split(" | ") for line in self.out.splitlines())
        found = (line[3] for line in lines if len(line) == 4 and line[2] == logger)
        return [json.loads(text) for text in found if text.startswith("{")]


def command(name: str, *args, sparse: bool = True) -> list[str]:
    program = [str(Path(sys.executable).parent / name)]
    # A leading option keeps stock runs (sparse=False) free of our package.
    return program + ([f"--user-dir={USER_DIR}"] if sparse else []) + [str(a) for a in args]


def environment() -> dict:
    return {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def run(name: str, *args, sparse: bool = True, ok: bool = True, stdin: str = "") -> Finished:
    """Runs a fairseq command to its end; with ok, fails the test if the command fails."""
    done = subprocess.run(
        command(name, *args, sparse=sparse),
        input=stdin,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=900,
    )
    finished = Finished(done.returncode, done.stdout, done.stderr)
    if ok:
        assert finished.code == 0, finished.text[-4000:]
    return finished


def train(data, save_dir, *args, task="sparse_translation", arch="transformer", **options):
    common = [data, f"--task={task}", f"--save-dir={save_dir}", *BASICS, *TINY[arch].split()]
    return run("fairseq-train", *common, *args, **options)


def together(*calls) -> list:
    """Runs functions without arguments side by side; fairseq needs seconds only to start."""
    with ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def write_reversal_data(folder: Path, sizes: dict[str, int], longest: int, seed: int = 0) -> Path:
    """Binarised pairs (digits, the same digits reversed) with languages src and tgt."""
    rng = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, size in sizes.items():
        lengths = [rng.randint(1, longest) for _ in range(size)]
        lines = [[rng.choice("0123456789") for _ in range(length)] for length in lengths]
        (folder / f"{split}.src").write_text("".join(" ".join(x) + "\n" for x in lines))
        (folder / f"{split}.tgt").write_text("".join(" ".join(x[::-1]) + "\n" for x in lines))
    prefixes = [f"--{split}pref={folder / split}" for split in sizes]
    languages = ["--source-lang=src", "--target-lang=tgt", f"--destdir={folder / 'bin'}"]
    run("fairseq-preprocess", *languages, *prefixes, "--joined-dictionary", sparse=False)
    return folder / "bin"
