"""Words per second of fairseq-train with each criterion, beside cross_entropy on the same model.

The systems take turns, round after round, so that a busy machine slows all of them; the median
over the rounds counts. Data are random words: speed does not depend on what they say.

    python -m experiments.bench.train_speed [--rounds 3] [--vocab 32000] [--dim 256] …
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
SYSTEMS |= {
    f"{name}, not fused": [*flags, "--no-fused-output"]
    for name, flags in SYSTEMS.items()
    if name != "softmax"
}
LAYERS = "--encoder-layers={n} --decoder-layers={n} --encoder-embed-dim={d} --decoder-embed-dim={d}"
FFN = "--encoder-ffn-embed-dim={f} --decoder-ffn-embed-dim={f}"


def fairseq(name: str, *args: str, threads: int) -> str:
    command = [str(Path(sys.executable).parent / name), *args]
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def make_data(folder: Path, vocab: int, sentences: int) -> Path:
    """Sentences of 24 Zipfian words; every word of the vocabulary is in the dictionary."""
    rng = np.random.default_rng(0)
    weights = 1.0 / np.arange(1, vocab - 3)
    words = rng.choice(len(weights), (sentences, 24), p=weights / weights.sum())
    dictionary = folder / "dict.txt"
    dictionary.write_text("".join(f"w{i} {vocab - i}\n" for i in range(len(weights))))
    for language in ("src", "tgt"):
        text = "".join(" ".join(f"w{w}" for w in rng.permutation(s)) + "\n" for s in words)
        (folder / f"train.{language}").write_text(text)
    args = ["--source-lang=src", "--target-lang=tgt", f"--trainpref={folder / 'train'}"]
    args += [f"--srcdict={dictionary}", f"--tgtdict={dictionary}", f"--destdir={folder / 'bin'}"]
    fairseq("fairseq-preprocess", *args, threads=1)
    return folder / "bin"


def words_per_second(data: Path, system: str, options: argparse.Namespace) -> float:
    """Speed over the second half of a short run; the first half warms up."""
    half = options.updates // 2
    size = (LAYERS + " " + FFN).format(n=options.layers, d=options.dim, f=4 * options.dim)
    run = [str(data), f"--user-dir={ROOT / 'sparse_fairseq'}", "--task=sparse_translation"]
    run += ["--arch=transformer", *size.split(), "--optimizer=adam", "--lr=0.0005", "--cpu"]
    run += [f"--output-init={options.output_init}", f"--max-tokens={options.tokens}"]
    run += [f"--max-update={2 * half}", "--disable-validation"]
    run += ["--no-save", "--num-workers=0", "--log-format=json", f"--log-interval={half}"]
    out = fairseq("fairseq-train", *run, *SYSTEMS[system], threads=options.threads)
    logged = [line.split(" | ")[3] for line in out.splitlines() if "| train_inner |" in line]
    return float(json.loads(logged[-1])["wps"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=8, help="of each run")
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=1024, help="in a batch")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--output-init",
        default="auto",
        help="of the new models; with xavier (auto for sparse criteria) supports start large",
    )
    options = parser.parse_args()

    print(f"fairseq-train, {vars(options)}; {machine()}")
    speed: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    with tempfile.TemporaryDirectory() as folder:
        sentences = options.updates * options.tokens // 24 + 64
        data = make_data(Path(folder), options.vocab, sentences)
        for _ in range(options.rounds):
            for system in SYSTEMS:
                speed[system].append(words_per_second(data, system, options))
    report(speed, options)


def report(speed: dict[str, list[float]], options: argparse.Namespace) -> None:
    rows = []
    print(f"{'system':<20}{'words/s':>9}{'× softmax':>11}   (median of {options.rounds} rounds)")
    for system, rounds in speed.items():
        # Ratios within a round, which saw the same machine.
        ratios = [a / b for a, b in zip(rounds, speed["softmax"], strict=True)]
        row = {
            "system": system,
            "wps": statistics.median(rounds),
            "ratio": round(statistics.median(ratios), 3),
        }
        print(f"{system:<20}{row['wps']:>9.0f}{row['ratio']:>11.3f}")
        rows.append({**vars(options), **row})
    write_csv("train_speed", rows)


if __name__ == "__main__":
    main()
