"""A dataset so small that whole experiments on it take seconds, and a place to run them."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFIG = """
about: digits in words, to be reversed
data:
  recipe: plain_text
  source: de
  target: en
  operations: 60
  train: FOLDER/train
  valid: FOLDER/valid
  test: FOLDER/test
systems: [relu15, softmax]
batch: {tokens: 400}
train:
  arch: transformer
  encoder-layers: 1
  decoder-layers: 1
  encoder-embed-dim: 32
  decoder-embed-dim: 32
  encoder-ffn-embed-dim: 64
  decoder-ffn-embed-dim: 64
  encoder-attention-heads: 2
  decoder-attention-heads: 2
  optimizer: adam
  lr: 0.003
  max-epoch: 3
  num-workers: 0
generate: {beam: 2, batch-size: 32}
"""
WORDS = {
    "de": ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
    "en": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
}


def write_text(folder: Path) -> None:
    """Numbers in German, and in English from the last digit to the first."""
    rng = random.Random(1)
    folder.mkdir()
    for split, size in (("train", 600), ("valid", 40), ("test", 40)):
        lines = [[rng.randrange(10) for _ in range(rng.randint(2, 6))] for _ in range(size)]
        for language, words in WORDS.items():
            order = 1 if language == "de" else -1
            text = "".join(" ".join(words[i] for i in x[::order]) + ".\n" for x in lines)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")


class Place:
    """A folder with raw files, a config and prepared data."""

    def __init__(self, folder: Path):
        self.folder = folder
        write_text(folder / "text")
        (folder / "configs").mkdir()
        self.config = CONFIG.replace("FOLDER", str(folder / "text"))
        self.configure(self.config)

    def configure(self, text: str) -> None:
        (self.folder / "configs/tiny.yaml").write_text(text)

    def arguments(self, runs: str, *words: str) -> list[str]:
        folders = {"configs": "configs", "data-root": "data", "runs-root": runs}
        flags = [f"--{name}={self.folder / path}" for name, path in folders.items()]
        return ["tiny", *words, *flags]

    def start(self, runs: str, *words: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "experiments.run", *self.arguments(runs, *words)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        # With a file, not a pipe: whoever reads until the end would wait for orphans, too.
        with (self.folder / f"{runs}.log").open("a") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def finish(self, runs: str, *words: str) -> str:
        process = self.start(runs, *words)
        code = process.wait(900)
        text = (self.folder / f"{runs}.log").read_text()
        assert code == 0, text
        return text

    def json(self, path: str) -> dict:
        return json.loads((self.folder / path).read_text())
