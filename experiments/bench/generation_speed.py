"""Tokens per second of fairseq-generate for each output, beside stock fairseq on the same softmax.

One model is trained for a moment on sentences whose translation is a word-by-word code, with a
vocabulary of 32k, so that its predictions are peaked; the other outputs share its weights, so that
all systems decode sentences alike. The systems take turns, round after round, so that a busy
machine slows all of them; the median over the rounds counts.

    python -m experiments.bench.generation_speed [--rounds 3] [--beams 1 5 10 20] [--csv FILE]
"""

import argparse
import csv
import datetime
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "bench" / "results" / "generation_speed.csv"
CRITERIA = {
    "softmax": ["--criterion=cross_entropy"],
    "relu15": ["--criterion=alpha_relu_loss", "--alpha=1.5"],
    "entmax15": ["--criterion=entmax_loss", "--alpha=1.5"],
    "sparsemax": ["--criterion=sparsemax_loss"],
}
STOCK = "softmax (stock fairseq)"
SYSTEMS = [STOCK, *CRITERIA]
BARS = {"softmax": 1.0, "relu15": 1.0, "entmax15": 0.95, "sparsemax": 0.95}


def fairseq(name: str, *args: str) -> str:
    command = [str(Path(sys.executable).parent / name), *args]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout + done.stderr


def make_data(folder: Path, options: argparse.Namespace) -> Path:
    """Sentences of Zipfian words among the first thousand; the dictionary has all of them."""
    rng = np.random.default_rng(0)
    used = min(options.words, options.vocab - 4)
    weights = 1.0 / np.arange(1, used + 1)
    code = rng.permutation(used)
    dictionary = folder / "dict.txt"
    dictionary.write_text("".join(f"w{i} {options.vocab - i}\n" for i in range(options.vocab - 4)))
    for split, size in (("train", 4000), ("test", options.sentences)):
        lengths = rng.integers(12, 25, size)
        lines = [rng.choice(used, n, p=weights / weights.sum()) for n in lengths]
        for language, words in (("src", lines), ("tgt", [code[line] for line in lines])):
            text = "".join(" ".join(f"w{w}" for w in line) + "\n" for line in words)
            (folder / f"{split}.{language}").write_text(text)
    args = ["--source-lang=src", "--target-lang=tgt", f"--destdir={folder / 'bin'}"]
    args += [f"--srcdict={dictionary}", f"--tgtdict={dictionary}"]
    args += [f"--trainpref={folder / 'train'}", f"--testpref={folder / 'test'}"]
    fairseq("fairseq-preprocess", *args)
    return folder / "bin"


def train(folder: Path, data: Path, system: str, options: argparse.Namespace) -> None:
    n, d = options.layers, options.dim
    sides = ("encoder", "decoder")
    size = [f"--{s}-layers={n}" for s in sides] + [f"--{s}-embed-dim={d}" for s in sides]
    size += [f"--{s}-ffn-embed-dim={4 * d}" for s in sides]
    run = [str(data), f"--user-dir={ROOT / 'sparse_fairseq'}", "--task=sparse_translation", "--cpu"]
    run += ["--arch=transformer", *size, "--share-all-embeddings", "--optimizer=adam", "--seed=1"]
    run += ["--dropout=0", "--max-tokens=800", "--disable-validation", "--num-workers=0"]
    run += ["--no-epoch-checkpoints", "--clip-norm=1", "--no-save-optimizer-state"]
    run += [f"--save-dir={folder / system}", *CRITERIA[system]]
    if system == "softmax":
        run += [f"--max-update={options.updates}", "--lr=0.002", "--lr-scheduler=inverse_sqrt"]
        run += ["--warmup-updates=20"]
    else:  # one update that changes nothing but the output, and measures τ
        run += ["--max-update=1", "--lr=1e-20"]
        run += [f"--finetune-from-model={folder / 'softmax' / 'checkpoint_last.pt'}"]
    fairseq("fairseq-train", *run)


def tokens_per_second(folder: Path, data: Path, system: str, beam: int, options) -> float:
    task = "translation" if system == STOCK else "sparse_translation"
    model = "softmax" if system == STOCK else system
    # Stock fairseq cannot load its own checkpoints with newer torch; our package lets it.
    run = [str(data), f"--user-dir={ROOT / 'sparse_fairseq'}", f"--task={task}", "--cpu"]
    run += [f"--path={folder / model / 'checkpoint_last.pt'}", f"--beam={beam}"]
    run += [f"--batch-size={options.batch}", "--num-workers=0", "--max-len-a=1", "--max-len-b=10"]
    out = fairseq("fairseq-generate", *run)
    return float(re.search(r"([\d.]+) tokens/s", out).group(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5, 10, 20])
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS[1:], default=SYSTEMS[1:])
    parser.add_argument("--updates", type=int, default=120, help="of training")
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--words", type=int, default=200, help="of the vocabulary that are used")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=32)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--folder", type=Path, help="keeps the models, and finds them there")
    parser.add_argument("--csv", type=Path, default=RESULTS)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "bin").exists():
            folder.mkdir(parents=True, exist_ok=True)
            make_data(folder, options)
        for system in dict.fromkeys(["softmax", *options.systems]):
            if not (folder / system / "checkpoint_last.pt").exists():
                train(folder, folder / "bin", system, options)
        rows = [row for beam in options.beams for row in measure(folder, beam, options)]
    write(rows, options)


def measure(folder: Path, beam: int, options: argparse.Namespace) -> list[dict]:
    speed: dict[str, list[float]] = {system: [] for system in [STOCK, *options.systems]}
    for _ in range(options.rounds):
        for system, rounds in speed.items():
            rounds.append(tokens_per_second(folder, folder / "bin", system, beam, options))
    rows = []
    for system, rounds in speed.items():
        # Ratios within a round, which saw the same machine.
        ratios = [a / b for a, b in zip(rounds, speed[STOCK], strict=True)]
        row = {
            "beam": beam,
            "system": system,
            "tokens_per_second": round(statistics.median(rounds), 1),
            "ratio": round(statistics.median(ratios), 3),
            "bar": BARS.get(system, ""),
        }
        verdict = "" if system == STOCK else ("ok" if row["ratio"] >= row["bar"] else "below")
        print(
            f"beam {beam:>2}  {system:<24}{row['tokens_per_second']:>9.1f} tokens/s"
            f"{row['ratio']:>8.3f} x stock  {verdict}",
            flush=True,
        )
        rows.append(row)
    return rows


def write(rows: list[dict], options: argparse.Namespace) -> None:
    import fairseq as fairseq_package
    import torch

    where = {
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "fairseq": fairseq_package.__version__,
        "date": datetime.date.today().isoformat(),
        "threads": 1,
    }
    names = ("rounds", "updates", "vocab", "dim", "layers", "sentences", "batch")
    where |= {name: getattr(options, name) for name in names}
    options.csv.parent.mkdir(parents=True, exist_ok=True)
    with options.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *where])
        writer.writeheader()
        writer.writerows(row | where for row in rows)


if __name__ == "__main__":
    main()
