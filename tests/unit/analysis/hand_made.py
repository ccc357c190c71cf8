"""Runs and models made by hand, whose answers are known: files of a run, models from tables."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.models import FairseqEncoderDecoderModel
from table_models import EOS, IDENTITY, PAD, TableDecoder, TableEncoder

from experiments.analysis.shared.models import Loaded
from experiments.run_folder import Run
from sparse_fairseq.output_transform import attach_output_transform

A, B, C = 4, 5, 6  # the words
MADE_UP = 7
SYMBOLS = ("a", "b", "c", "madeupword0000")


def dictionary() -> Dictionary:
    symbols = Dictionary()
    for word in SYMBOLS:
        symbols.add_symbol(word)
    return symbols


def scores_table(sentences: list[dict[int, dict[int, float]]], steps: int = 6) -> torch.Tensor:
    """sentences[i][last token] = {token: score}; the start is EOS. Other scores are zero."""
    table = torch.zeros(len(sentences), steps, 8, 8)
    for number, rows in enumerate(sentences):
        for last, scores in rows.items():
            for token, score in scores.items():
                table[number, :, last, token] = score
    return table


def table_loaded(table: torch.Tensor, targets: list[list[int]], settings=IDENTITY) -> Loaded:
    """A model whose logits stand in a table (with IDENTITY they are its scores), and a dataset
    "valid" (and "test") with these targets; EOS is added."""
    symbols = dictionary()
    model = FairseqEncoderDecoderModel(TableEncoder(symbols), TableDecoder(symbols, table))
    attach_output_transform(model).settings = settings
    sources = [torch.tensor([number, EOS]) for number in range(len(targets))]
    lines = [torch.tensor([*target, EOS]) for target in targets]
    dataset = LanguagePairDataset(
        *(sources, np.array([len(x) for x in sources]), symbols),
        *(lines, np.array([len(x) for x in lines]), symbols),
        left_pad_source=False,
        shuffle=False,
    )
    datasets = {"valid": dataset, "test": dataset}
    task = SimpleNamespace(
        target_dictionary=symbols,
        source_dictionary=symbols,
        datasets=datasets,
        dataset=datasets.__getitem__,
    )
    return Loaded(model.eval(), task)


def make_run(folder: Path, system: str = "relu15", seed: int = 1, **manifest) -> Run:
    """A run directory with a manifest; its data are in <folder>/data."""
    run = Run(folder / "runs" / "toy_xx_yy" / system / f"seed{seed}")
    data = folder / "data"
    for path in (run.path, data / "bin", data / "text"):
        path.mkdir(parents=True, exist_ok=True)
    record = {"source": "xx", "target": "yy", "tokenizer": "none", "segmentation": "none"}
    (data / "bin" / "segmentation.json").write_text(json.dumps({**record, "normalise": False}))
    manifest = {
        "config": {"data": record, "generate": {"beam": 5}, "metric": "bleu"},
        "data": {"bin": str(data / "bin"), "text": str(data / "text")},
        "commands": {},
        "stages": {},
        "settings": {},
        **manifest,
    }
    (run.path / "manifest.json").write_text(json.dumps(manifest))
    return run


def write_generated(run: Run, split: str, sentences: list[dict]) -> None:
    """What fairseq-generate prints of each sentence: hypothesis, total (log-score), E- line."""
    lines = []
    for number, sentence in enumerate(sentences):
        words = sentence["hypothesis"]
        length = len(words.split()) + 1
        score = sentence.get("total", 0.0) / length / math.log(2)
        lines += [
            f"S-{number}\tx",
            f"T-{number}\t{sentence.get('target', 'a')}",
            f"H-{number}\t{score}\t{words}",
            f"D-{number}\t{score}\t{words}",
        ]
        if "exactness" in sentence:
            raw, exhaustive, count, status = sentence["exactness"]
            lines.append(
                f"E-{number}\traw={raw}\tnormalized=no\texhaustive={exhaustive}"
                f"\thypotheses={count}\tstatus={status}"
            )
    run.generated(split).write_text("\n".join(lines) + "\n")


def read_result(run: Run, name: str) -> dict:
    return json.loads((run.analysis_dir / f"{name}.json").read_text())


__all__ = ["EOS", "IDENTITY", "PAD"]
