"""Predictors whose model is a table: all that they can say is written here."""

from pathlib import Path

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoderDecoderModel
from table_models import IDENTITY, TableDecoder, TableEncoder

from experiments.explore.catalogue import Entry
from experiments.explore.predictor import Predictor
from experiments.explore.units import Language
from sparse_fairseq.output_transform import OutputSettings, attach_output_transform

STEPS = 30
SOFTMAX = OutputSettings()

# What may follow what; the start is </s>. "house" can be spelled in two ways.
HOUSES = {
    "</s>": {"the": 0.7, "hou@@": 0.3},
    "the": {"house": 0.5, "hou@@": 0.25, "green": 0.25},
    "hou@@": {"se": 0.6, "ses": 0.4},
    "house": {"</s>": 0.8, ".": 0.2},
    "se": {"</s>": 1.0},
    "ses": {"</s>": 1.0},
    "green": {"house": 1.0},
    "<unk>": {"the": 1.0},
    ".": {"</s>": 1.0},
}
# No end is in sight of a word that begins with "ha@@".
LAUGHTER = {
    "</s>": {"ha@@": 0.5, "the": 0.5},
    "ha@@": {"ha@@": 0.5, "ha": 0.5},
    "ha": {"</s>": 1.0},
    "the": {"</s>": 1.0},
}
# Pieces of sentencepiece: a word ends where the next one begins.
SENTENCEPIECE = {
    "</s>": {"\u2581the": 1.0},
    "\u2581the": {"\u2581hou": 0.5, "se": 0.25, "</s>": 0.25},
    "\u2581hou": {"se": 0.8, "</s>": 0.2},
    "se": {"s": 0.5, "</s>": 0.5},
    "s": {"</s>": 1.0},
}


class AttendingDecoder(TableDecoder):
    """Looks at the source word in its own place."""

    def forward(self, prev_output_tokens, encoder_out=None, incremental_state=None, **kwargs):
        out, _ = super().forward(prev_output_tokens, encoder_out, incremental_state, **kwargs)
        rows, steps, length = len(out), out.shape[1], encoder_out["length"]
        step = prev_output_tokens.shape[1] - 1
        attention = torch.zeros(rows, steps, length)
        attention[:, -1, min(step, length - 1)] = 1.0
        return out, {"attn": [attention]}


class MeasuringEncoder(TableEncoder):
    def forward(self, src_tokens, src_lengths=None, **kwargs):
        return {**super().forward(src_tokens), "length": src_tokens.shape[1]}

    def reorder_encoder_out(self, encoder_out, new_order):
        return {**encoder_out, **super().reorder_encoder_out(encoder_out, new_order)}


def dictionary_of(rows: dict) -> Dictionary:
    dictionary = Dictionary()
    for symbol in dict.fromkeys([*rows, *(word for row in rows.values() for word in row)]):
        if symbol not in dictionary.indices:
            dictionary.add_symbol(symbol)
    dictionary.add_symbol("madeupword0000")
    return dictionary


def predictor_of(
    rows: dict,
    settings: OutputSettings = IDENTITY,
    segmentation: str = "bpe",
    **generator,
) -> Predictor:
    """The scores (with IDENTITY) or logits of a model, by the piece before; all others are 0."""
    dictionary = dictionary_of(rows)
    size = len(dictionary)
    table = torch.zeros(1, 1, size, size)
    for last, scores in rows.items():
        for symbol, score in scores.items():
            table[0, 0, dictionary.index(last), dictionary.index(symbol)] = score
    decoder = AttendingDecoder(dictionary, table.expand(size, STEPS, size, size))
    model = FairseqEncoderDecoderModel(MeasuringEncoder(dictionary), decoder)
    attach_output_transform(model).settings = settings
    record = {"source": "xx", "target": "yy", "tokenizer": "none", "segmentation": segmentation}
    languages = tuple(Language(record, code, Path()) for code in ("xx", "yy"))
    generator = {"beam_size": 5, "max_len_b": STEPS - 2, **generator}
    return Predictor(model.eval(), (dictionary, dictionary), languages, generator)


def houses_catalogue(rows: dict = HOUSES) -> list[Entry]:
    """A sparse run, a dense one and a broken one."""
    examples = ("the house", "the <b>green</b> house")
    common = {"source": "xx", "target": "yy", "examples": examples}
    broken = "houses/relu15/seed1/checkpoints/checkpoint_best.pt is missing"
    return [
        Entry("houses/entmax15/seed1", "1.5-entmax", predictor=predictor_of(rows), **common),
        Entry("houses/softmax/seed1", "softmax", predictor=softmax_houses(), **common),
        Entry("houses/relu15/seed1", "α-ReLU", problem=broken),
    ]


def softmax_houses(**generator) -> Predictor:
    """The same preferences, but nothing is impossible."""
    logits = {last: {w: 6 + 4 * p for w, p in row.items()} for last, row in HOUSES.items()}
    return predictor_of(logits, SOFTMAX, **generator)
