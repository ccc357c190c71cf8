"""Predictors whose model is a table: all that they can say is written here."""

from pathlib import Path
from random import Random

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
# Two ways into "there" and "the"; with 0.01 the sentence ends within a word.
THERE = {
    "</s>": {"the": 0.5, "th@@": 0.3, "t@@": 0.15, "a": 0.05},
    "th@@": {"e": 0.5, "ere": 0.3, "at": 0.2},
    "t@@": {"he": 0.2, "he@@": 0.7, "</s>": 0.1},
    "he@@": {"re": 0.5, "m": 0.4, "</s>": 0.1},
    **{piece: {"</s>": 1.0} for piece in ("the", "a", "e", "ere", "at", "he", "re", "m")},
}
# Pieces of sentencepiece: a word ends where the next one begins.
SENTENCEPIECE = {
    "</s>": {"\u2581the": 1.0},
    "\u2581the": {"\u2581hou": 0.5, "se": 0.25, "</s>": 0.25},
    "\u2581hou": {"se": 0.8, "</s>": 0.2},
    "se": {"s": 0.5, "</s>": 0.5},
    "s": {"</s>": 1.0},
}


def random_words(seed: int, depth: int = 4) -> dict:
    """Words of up to so many pieces and one more, of which several spell the same; a sentence may
    end within a word."""
    random = Random(seed)
    rows: dict[str, dict[str, float]] = {}
    # No piece leads back to one before it, so there are finitely many words.
    levels = [[f"{letter * n}@@" for letter in "ab" for n in (1, 2)] for _ in range(depth)]
    levels = [[f"{piece[:-2]}{'-' * i}@@" for piece in level] for i, level in enumerate(levels)]
    ends = ["a", "ab", "b", "ba", "bb", "c"]
    for last, level in zip([["</s>"], *levels], [*levels, []], strict=True):
        for symbol in last:
            chosen = random.sample(level, min(len(level), 3)) + random.sample(ends, 3)
            chosen += ["</s>"] if random.random() < 0.3 else []
            scores = [random.random() ** 3 for _ in chosen]
            rows[symbol] = {c: x / sum(scores) for c, x in zip(chosen, scores, strict=True)}
    return {**rows, **{end: {"</s>": 1.0} for end in ends}}


def all_words_of(rows: dict, last: str = "</s>", score: float = 1.0, name: str = "") -> dict:
    """Every word that a table can begin with, by brute force; None: the end, "": no word."""
    found: dict[str | None, float] = {}
    for piece, value in rows[last].items():
        if piece == "</s>":
            key = None if last == "</s>" else ""
            found[key] = found.get(key, 0.0) + score * value
        elif piece.endswith("@@"):
            for key, more in all_words_of(rows, piece, score * value, name + piece[:-2]).items():
                found[key] = found.get(key, 0.0) + more
        else:
            found[name + piece] = found.get(name + piece, 0.0) + score * value
    return found


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
