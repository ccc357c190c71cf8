"""Tokens per second of decoding for each output, beside stock fairseq on the same softmax.

One model is trained for a moment on sentences whose translation is a word-by-word code, with a
vocabulary of 32k, so that its predictions are peaked; the other outputs share its weights, so that
all systems decode sentences alike. They are loaded as fairseq-generate does it, and take turns,
round after round, in CPU time of one thread; ratios are within a round, and the median over the
rounds counts.

    python -m experiments.bench.generation_speed [--rounds 3] [--beams 1 5 10 20] [--csv NAME]
"""

import argparse
import contextlib
import io
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
from fairseq import checkpoint_utils, tasks
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

import experiments.bench.package_decoding  # noqa: F401
from experiments.bench.common import clock, summary, write_csv

ROOT = Path(__file__).resolve().parents[2]
CRITERIA = {
    "softmax": ["--criterion=cross_entropy"],
    "relu15": ["--criterion=alpha_relu_loss", "--alpha=1.5"],
    "entmax15": ["--criterion=entmax_loss", "--alpha=1.5"],
    "sparsemax": ["--criterion=sparsemax_loss"],
}
STOCK = "softmax (stock fairseq)"
OURS = ["--task=sparse_translation"]
# What decodes, with whose checkpoint.
SYSTEMS = {
    STOCK: ("softmax", ["--task=translation"]),
    **{system: (system, OURS) for system in CRITERIA},
    "entmax15_sort": ("entmax15", [*OURS, "--decoding-solver=sort"]),  # what SE timed
    "entmax package": ("entmax15", ["--task=package_translation"]),
}
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


class Decoder:
    """A system with its data, as fairseq-generate sets it up."""

    def __init__(self, folder: Path, system: str, options: argparse.Namespace) -> None:
        model, flags = SYSTEMS[system]
        path = folder / model / "checkpoint_last.pt"
        run = [str(folder / "bin"), *flags, "--cpu", f"--path={path}", "--num-workers=0"]
        run += [f"--batch-size={options.batch}", "--max-len-a=1", "--max-len-b=10"]
        parser = fairseq_options.get_generation_parser()
        args = fairseq_options.parse_args_and_arch(parser, run)
        self.cfg = convert_namespace_to_omegaconf(args)
        self.task = tasks.setup_task(self.cfg.task)
        self.models, saved = checkpoint_utils.load_model_ensemble([str(path)], task=self.task)
        self.task.load_dataset("test", task_cfg=saved.task)
        self.batches = list(
            self.task.get_batch_iterator(
                self.task.dataset("test"), max_sentences=options.batch
            ).next_epoch_itr(shuffle=False)
        )
        for model in self.models:
            model.prepare_for_inference_(self.cfg)

    def tokens_per_second(self, beam: int) -> float:
        self.cfg.generation.beam = beam
        generator = self.task.build_generator(self.models, self.cfg.generation)
        start, tokens = clock(), 0
        with contextlib.redirect_stdout(io.StringIO()):  # E- lines
            for batch in self.batches:
                found = self.task.inference_step(generator, self.models, batch)
                tokens += sum(len(best["tokens"]) for best, *_ in found)
        return tokens / (clock() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5, 10, 20])
    others = [system for system in SYSTEMS if system != STOCK]
    parser.add_argument("--systems", nargs="+", choices=others, default=others)
    parser.add_argument("--updates", type=int, default=120, help="of training")
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--words", type=int, default=200, help="of the vocabulary that are used")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=32)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--folder", type=Path, help="keeps the models, and finds them there")
    parser.add_argument("--csv", default="generation_speed", help="its name among the results")
    options = parser.parse_args()

    torch.set_num_threads(1)
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")  # of hydra and torch, about fairseq

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "bin").exists():
            folder.mkdir(parents=True, exist_ok=True)
            make_data(folder, options)
        for system in dict.fromkeys(["softmax", *(SYSTEMS[name][0] for name in options.systems)]):
            if not (folder / system / "checkpoint_last.pt").exists():
                train(folder, folder / "bin", system, options)
        decoders = {name: Decoder(folder, name, options) for name in [STOCK, *options.systems]}
        rows = [row for beam in options.beams for row in measure(decoders, beam, options.rounds)]
    names = ("rounds", "updates", "vocab", "dim", "layers", "sentences", "batch")
    settings = {name: getattr(options, name) for name in names}
    write_csv(options.csv, [row | settings for row in rows])


def measure(decoders: dict[str, Decoder], beam: int, rounds: int) -> list[dict]:
    speed: dict[str, list[float]] = {system: [] for system in decoders}
    for number in range(rounds + 1):  # the first warms up
        for system, decoder in decoders.items():
            found = decoder.tokens_per_second(beam)
            if number:
                speed[system].append(found)
    rows = []
    for system, found in speed.items():
        # Ratios within a round, which saw the same machine.
        ratios = [a / b for a, b in zip(found, speed[STOCK], strict=True)]
        row = {"beam": beam, "system": system}
        row |= {"tokens_per_second": round(statistics.median(found), 1), **summary(ratios)}
        bar = BARS.get(system)
        verdict = "" if bar is None else ("ok" if row["ratio"] >= bar else "below")
        print(
            f"beam {beam:>2}  {system:<24}{row['tokens_per_second']:>9.1f} tokens/s"
            f"{row['ratio']:>8.3f} x stock [{row['lowest']:.2f}, {row['highest']:.2f}]  {verdict}",
            flush=True,
        )
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
