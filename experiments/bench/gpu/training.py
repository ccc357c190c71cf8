"""Words per second of fairseq-train, on sentences of random words: the output layer is as large as
a real one, and speed does not ask what a sentence says."""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from experiments.paths import ROOT

TOOLS = Path(sys.executable).parent
SYSTEMS = {
    "cross_entropy": ["--criterion", "cross_entropy"],
    "alpha_relu_loss": ["--criterion", "alpha_relu_loss", "--alpha", "1.5", "--tau", "batch"],
    "entmax_loss": ["--criterion", "entmax_loss", "--alpha", "1.5"],
    "sparsemax_loss": ["--criterion", "sparsemax_loss"],
}


def words_per_second(
    device: str,
    updates: int,
    words: int = 32_000,
    sentences: int = 20_000,
    arch: str = "transformer",
) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        data = _binarised(Path(folder), words, sentences)
        rows = []
        for name, flags in SYSTEMS.items():
            row: dict[str, Any] = {"criterion": name, "updates": updates}
            try:
                row["words_per_second"] = _train(data, flags, updates, device, arch)
            except RuntimeError as error:  # the losses are measured by then
                row["error"] = str(error)
            rows.append(row)
        return rows


def _binarised(folder: Path, words: int, sentences: int) -> Path:
    rng = random.Random(1)
    for split, size in (("train", sentences), ("valid", 100)):
        for side in ("a", "b"):
            lines = (
                " ".join(f"w{rng.randrange(words)}" for _ in range(rng.randrange(10, 40)))
                for _ in range(size)
            )
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n")
    command = [TOOLS / "fairseq-preprocess", "--source-lang", "a", "--target-lang", "b"]
    command += ["--trainpref", folder / "train", "--validpref", folder / "valid"]
    command += ["--destdir", folder / "bin", "--joined-dictionary", "--workers", "1"]
    _run("fairseq-preprocess", command)
    return folder / "bin"


def _train(data: Path, flags: list[str], updates: int, device: str, arch: str) -> float:
    command = [TOOLS / "fairseq-train", data, "--user-dir", ROOT / "sparse_fairseq"]
    command += ["--task", "sparse_translation", "--arch", arch, *flags]
    command += ["--optimizer", "adam", "--lr", "0.0005", "--max-tokens", "4096", "--seed", "1"]
    command += ["--max-update", updates, "--no-save", "--disable-validation"]
    command += ["--log-format", "json", "--log-interval", max(1, updates // 4)]
    command += ["--share-decoder-input-output-embed"]
    command += ["--cpu"] if device == "cpu" else ["--fp16"]
    said = _run("fairseq-train", command, cwd=data)
    speeds = [
        float(json.loads(line[line.index("{") :])["wps"])
        for line in said.splitlines()
        if '"wps"' in line and "{" in line
    ]
    if not speeds:
        raise RuntimeError(f"fairseq-train said no words per second: {said[-2000:]}")
    return speeds[-1]


def _run(name: str, command: list, cwd: Path | None = None) -> str:
    """What it says; a RuntimeError that names it if it fails."""
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=cwd)
    except OSError as error:
        raise RuntimeError(f"{name} did not start: {error}") from None
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr[-2000:]}")
    return done.stdout + done.stderr
