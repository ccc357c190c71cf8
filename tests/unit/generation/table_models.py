"""Models whose logits stand in a table, and the brute-force search that knows all sentences.

Dictionary: <s> <pad> </s> <unk> and words; the logits of all but a few words are −inf, so that a
beam can be wider than the number of words that matter.
"""

import functools
import itertools
import math

import torch
from fairseq.data import Dictionary
from fairseq.models import FairseqEncoder, FairseqEncoderDecoderModel, FairseqIncrementalDecoder

from sparse_fairseq.output_transform import OutputSettings, attach_output_transform

BOS, PAD, EOS, UNK = range(4)


def words(size: int) -> Dictionary:
    dictionary = Dictionary()
    for i in range(size - dictionary.nspecial):
        dictionary.add_symbol(f"w{i}")
    return dictionary


class TableEncoder(FairseqEncoder):
    """The source is the number of the sentence."""

    def forward(self, src_tokens, src_lengths=None, **kwargs):
        return {"number": [src_tokens[:, 0]]}

    def reorder_encoder_out(self, encoder_out, new_order):
        return {"number": [encoder_out["number"][0][new_order]]}


class TableDecoder(FairseqIncrementalDecoder):
    """Logits from table [sentence, step, last token, vocabulary]."""

    def __init__(self, dictionary, table):
        super().__init__(dictionary)
        self.table = table
        self.rows = []  # how many it was asked for, at each step

    def forward(self, prev_output_tokens, encoder_out=None, incremental_state=None, **kwargs):
        number, step = encoder_out["number"][0], prev_output_tokens.shape[1] - 1
        self.rows.append(len(number))
        steps = [step] if incremental_state is not None else range(step + 1)
        out = [self.table[number, s, prev_output_tokens[:, s]] for s in steps]
        return torch.stack(out, 1), {"attn": [None]}

    def max_positions(self):
        return 1000


def table_model(table, settings: OutputSettings) -> FairseqEncoderDecoderModel:
    dictionary = words(table.shape[-1])
    decoder = TableDecoder(dictionary, table)
    model = FairseqEncoderDecoderModel(TableEncoder(dictionary), decoder)
    attach_output_transform(model).settings = settings
    return model


def random_table(sentences, steps, vocab, usable, scale, seed) -> torch.Tensor:
    """Only EOS, <unk> and the first words, `usable` tokens in all, have finite logits."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.full((sentences, steps, vocab, vocab), -math.inf)
    part = table[..., EOS : EOS + usable]
    part.copy_(scale * torch.randn(part.shape, generator=generator))
    return table


def probability_table(rows: dict, sentences=1, steps=8, vocab=12) -> torch.Tensor:
    """α-ReLU logits (α = 2, τ = 0: the scores are the logits) that are zero but for
    rows[last token] = {token: score}."""
    table = torch.zeros(sentences, steps, vocab, vocab)
    for last, scores in rows.items():
        for token, score in scores.items():
            table[:, :, last, token] = score
    return table


IDENTITY = OutputSettings("alpha_relu", 2.0, 0.0)


def sample(sentences: int, padding: int = 0) -> dict:
    numbers = torch.arange(sentences).unsqueeze(1)
    source = torch.cat([numbers, torch.full((sentences, 1 + padding), PAD)], 1)
    source[:, 1] = EOS
    net_input = {"src_tokens": source, "src_lengths": torch.full((sentences,), 2)}
    return {"id": numbers[:, 0], "net_input": net_input}


def table_followers(models, number, renormalize=False, temperature=1.0):
    """What may follow a prefix, as an `Oracle` wants it, of one table entry."""
    tables = (m.decoder.table[number] / temperature for m in models)
    scores = [m.decoder.output_transform.scores(t) for m, t in zip(models, tables, strict=True)]
    p = normalized(torch.stack(scores).double().mean(0), renormalize).numpy()

    @functools.cache
    def after(step, last):
        return [(token, math.log(p[step, last, token])) for token in p[step, last].nonzero()[0]]

    return lambda tokens: after(len(tokens), tokens[-1] if tokens else EOS)


def normalized(p: torch.Tensor, renormalize: bool) -> torch.Tensor:
    return p / p.sum(-1, keepdim=True).clamp(min=1e-300) if renormalize else p


class Oracle:
    """All sentences with a non-zero score, by exhaustion. `followers(tokens)` gives the tokens
    that the models let follow, and their log-scores; `prefix` has padding where it demands
    nothing, and is cut off after `prefix_limit` tokens."""

    def __init__(
        self,
        followers,
        max_len,
        min_len=1,
        prefix=(),
        prefix_limit=math.inf,
        unk_penalty=0.0,
        ngram_size=0,
        suppressed=(),
    ):
        self.followers, self.max_len, self.min_len = followers, max_len, min_len
        self.is_prefix_cut = any(token not in (PAD, EOS) for token in prefix[max_len : max_len + 1])
        self.prefix = prefix[: min(prefix_limit, max_len)]
        self.unk_penalty, self.ngram_size, self.suppressed = unk_penalty, ngram_size, suppressed
        self.total = {}  # sentence -> sum of log-scores
        self.widest = 0  # candidates at a step, at most
        self.cut = False  # whether the maximum length excludes something
        self._enumerate()

    def _enumerate(self):
        beam = {(): 0.0}
        for step in itertools.count():
            candidates = {}
            for tokens, total in beam.items():
                for token, score in self.followers(tokens):
                    if self._allowed(step, token) and not self._repeats((*tokens, token)):
                        penalty = self.unk_penalty if token == UNK else 0.0
                        candidates[(*tokens, token)] = total + score - penalty
            if step == self.max_len:
                goes_on = any(tokens[-1] != EOS for tokens in candidates)
                self.cut = goes_on or (self.is_prefix_cut and len(beam) > 0)
            self.widest = max(self.widest, len(candidates))
            ended = {t: s for t, s in candidates.items() if t[-1] == EOS}
            self.total.update(ended)
            beam = {t: s for t, s in candidates.items() if t[-1] != EOS}
            if not beam or step == self.max_len:
                return

    def _allowed(self, step, token):
        """As in fairseq, the rules for free tokens begin after the longest prefix of the batch."""
        if step < len(self.prefix):
            return token != PAD and self.prefix[step] in (PAD, token)
        is_too_early = token == EOS and step < self.min_len
        return token != PAD and token not in self.suppressed and not is_too_early

    def _repeats(self, tokens) -> bool:
        """Whether the last n-gram is there twice."""
        n = self.ngram_size
        last = tokens[len(tokens) - n :]
        return 0 < n < len(tokens) and last in (tokens[i : i + n] for i in range(len(tokens) - n))

    def best(self, lenpen=0.0, max_len=math.inf) -> float:
        return max(self.ranked(lenpen, max_len), default=-math.inf)

    def ranked(self, lenpen=0.0, max_len=math.inf) -> list[float]:
        """Scores of the sentences with at most `max_len` tokens before EOS, best first."""
        known = ((len(s), t) for s, t in self.total.items())
        return sorted((t / n**lenpen for n, t in known if n <= max_len + 1), reverse=True)

    def mass(self, max_len) -> float:
        return sum(math.exp(t) for t in self.ranked(0.0, max_len))
