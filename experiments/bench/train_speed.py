"""Words per second of fairseq-train with each criterion, beside cross_entropy on the same model.

The systems take turns, round after round, so that a busy machine slows all of them; ratios are
within a round, and the median over the rounds counts. Models are trained first, until their
supports are as small as those of trained models (`support` in the table says how small).

    python -m experiments.bench.train_speed [--dim 512 --layers 6] [--vocab 128000] …
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from experiments.bench.common import machine, write_csv

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = {
    "softmax": ["--criterion=cross_entropy"],
    "relu15": ["--criterion=alpha_relu_loss", "--alpha=1.5"],
    "entmax15": ["--criterion=entmax_loss", "--alpha=1.5"],
    "sparsemax": ["--criterion=sparsemax_loss"],
}
LENGTH, CHOICES = 24, 10  # words in a sentence; words to choose from at each place of it


def fairseq(name: str, *args: str, threads: int) -> str:
    command = [str(Path(sys.executable).parent / name), *args]
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def make_data(folder: Path, vocab: int, sentences: int) -> Path:
    """Sentences that a model learns in some dozen updates to narrow down to a few words: each
    place has its own ten words. Every word of the vocabulary is in the dictionary."""
    rng = np.random.default_rng(0)
    words = rng.permutation(vocab - 4)[: LENGTH * CHOICES].reshape(LENGTH, CHOICES)
    dictionary = folder / "dict.txt"
    dictionary.write_text("".join(f"w{i} {vocab - i}\n" for i in range(vocab - 4)))
    for language in ("src", "tgt"):
        chosen = words[np.arange(LENGTH), rng.integers(CHOICES, size=(sentences, LENGTH))]
        text = "".join(" ".join(f"w{word}" for word in line) + "\n" for line in chosen)
        (folder / f"train.{language}").write_text(text)
    args = ["--source-lang=src", "--target-lang=tgt", f"--trainpref={folder / 'train'}"]
    args += [f"--srcdict={dictionary}", f"--tgtdict={dictionary}", f"--destdir={folder / 'bin'}"]
    fairseq("fairseq-preprocess", *args, threads=1)
    return folder / "bin"


def train(data: Path, system: str, options: argparse.Namespace, *flags: str) -> dict:
    """The last line that fairseq-train logs about training."""
    d = options.dim
    sizes = {"layers": options.layers, "embed-dim": d, "ffn-embed-dim": options.ffn or 4 * d}
    run = [f"--{side}-{k}={v}" for side in ("encoder", "decoder") for k, v in sizes.items()]
    run += [str(data), f"--user-dir={ROOT / 'sparse_fairseq'}", "--task=sparse_translation"]
    run += ["--arch=transformer", "--optimizer=adam", "--lr=0.0005", "--cpu", "--num-workers=0"]
    run += ["--disable-validation", "--log-format=json", "--no-epoch-checkpoints"]
    out = fairseq("fairseq-train", *run, *SYSTEMS[system], *flags, threads=options.threads)
    logged = [line.split(" | ")[3] for line in out.splitlines() if "| train_inner |" in line]
    return json.loads(logged[-1])


def train_first(data: Path, folder: Path, system: str, options: argparse.Namespace) -> list[str]:
    """Flags that start a run from a model of that system with trained sparsity."""
    if not options.train_first:
        return []
    flags = [f"--max-update={options.train_first}", "--max-tokens=256", "--log-interval=1"]
    train(data, system, options, *flags, f"--save-dir={folder}")
    return [f"--finetune-from-model={folder / 'checkpoint_last.pt'}"]


def words_per_second(data: Path, system: str, start: list[str], options) -> tuple[float, str]:
    """Speed over the second half of a short run, whose first half warms up, and the support."""
    half = options.updates // 2
    flags = [f"--max-update={2 * half}", f"--log-interval={half}", "--no-save", *start]
    if options.not_fused and system != "softmax":
        flags.append("--no-fused-output")
    with tempfile.TemporaryDirectory() as nowhere:
        flags += [f"--max-tokens={options.tokens}", f"--save-dir={nowhere}"]
        log = train(data, system, options, *flags)
    return float(log["wps"]), log.get("support", "all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=8, help="of each timed run")
    parser.add_argument("--train-first", type=int, default=60, help="updates; 0: untrained models")
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--ffn", type=int, default=0, help="4 × dim if 0")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=1024, help="in a batch")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--not-fused", action="store_true", help="with --no-fused-output")
    options = parser.parse_args()

    print(f"fairseq-train, {vars(options)}; {machine()}")
    speed: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    support = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sentences = options.updates * options.tokens // LENGTH + 64
        data = make_data(folder, options.vocab, sentences)
        starts = {s: train_first(data, folder / s, s, options) for s in SYSTEMS}
        for _ in range(options.rounds):
            for system in SYSTEMS:
                wps, support[system] = words_per_second(data, system, starts[system], options)
                speed[system].append(wps)
    report(speed, support, options)


def report(speed: dict[str, list[float]], support: dict, options: argparse.Namespace) -> None:
    rows = []
    print(f"{'system':<12}{'words/s':>9}{'× softmax':>11}{'support':>10}")
    for system, rounds in speed.items():
        # Ratios within a round, which saw the same machine.
        ratios = [a / b for a, b in zip(rounds, speed["softmax"], strict=True)]
        row = {
            "system": system,
            "wps": statistics.median(rounds),
            "ratio": round(statistics.median(ratios), 3),
            "support": support[system],
        }
        print(f"{system:<12}{row['wps']:>9.0f}{row['ratio']:>11.3f}{row['support']:>10}")
        rows.append({**vars(options), **row})
    kind = "not_fused" if options.not_fused else "fused"
    write_csv(f"train_{kind}_v{options.vocab}_d{options.dim}", rows)


if __name__ == "__main__":
    main()
