"""SparseSequenceGenerator: fairseq's SequenceGenerator for scores that may be exactly zero and
need not sum to one. Settings and interface; the search is in `batch_search`.
"""

from dataclasses import dataclass

import torch
from fairseq import search
from fairseq.modules import FairseqDropout
from fairseq.sequence_generator import EnsembleModel
from torch import Tensor, nn

from . import decision, strategies
from .batch_search import BatchSearch
from .decision import DECISIONS, UTILITIES
from .errors import GenerationError
from .sentence import Ranking
from .shortlist import can_shortlist, is_sparse, sums_to_one
from .token_rules import TokenRules

SCORE_NORMALIZATIONS = ("none", "renormalize")
# When beam search ends a sentence of which `beam` hypotheses have ended: at once, as fairseq does
# ("full"), or when no unfinished one is ahead of them ("ahead").
END_SEARCH = ("auto", "full", "ahead")
MAX_LENPEN = 100.0  # powers of lengths are numbers up to there


@dataclass
class Output:
    """What is known about the scores of the models as they are now."""

    sums_to_one: bool
    renormalize: bool
    can_shortlist: bool
    is_probability: bool  # totals are logarithms of probabilities
    only_falls: bool  # a longer hypothesis never has a larger total
    outlasts_a_full_list: bool  # see END_SEARCH


class SparseSequenceGenerator(nn.Module):
    """Takes what fairseq's SequenceGenerator takes, and on softmax models returns what it returns.

    Each sentence gets at least one hypothesis and at most `beam_size`. Beside the stock keys a
    hypothesis has

    - ``status``: "finished", or "forced" if the models give no hypothesis a score: then this is
      the best unfinished one, closed with EOS, and its score is −inf;
    - ``exact``: {"raw", "normalized"}, whether this is provably the best of all sentences, by the
      sum of log-scores and by that sum divided by length ** len_penalty (of the sentences within
      the maximum length);
    - ``bound``, ``gap``: {"raw", "normalized"}, a proven upper bound on the best score of all, and
      its distance to this one in nats (0: proved); None where nothing is known;
    - ``proved``: whether this is provably the n-th best, if it stands in the n-th place;
    - ``mass``: (least, most) probability of all sentences together: what the list has, and what it
      may miss; None for scores that are no probabilities;
    - ``expected_utility`` and the probability that it rests on, ``utility_mass``, with
      `decision="mbr"`;
    - ``exhaustive``: whether the list holds every sentence with a non-zero score;
    - ``support``, with `return_support`: how many tokens had a non-zero score at each step.

    Parameters beyond fairseq's
    ---------------------------
    nbest
        How many hypotheses are wanted (default: `beam_size`). The search of a sentence ends as
        soon as no other hypothesis can become one of them.
    score_normalization
        "none", or "renormalize": divide the scores by their sum at each step.
    end_search
        When the search of a sentence ends whose list of finished hypotheses is full: "full": at
        once, as in fairseq; "ahead": when no unfinished one has a larger total than the n-th best
        of them; "auto": ahead for sparse models, full for softmax.
    exact_budget
        How many prefixes may be evaluated for a sentence, beside those of a greedy or a beam
        search, to find the best hypothesis and to prove that it is; 0: none.
    enumerate_mass
        Go on, within that budget, until the hypotheses have this share of the probability.
    decision, utility, to_text
        "map": best score first; "mbr": highest expected utility ("chrf", "bleu", "edit") first;
        `to_text` makes a string of a hypothesis' tokens for it.
    """

    def __init__(
        self,
        models,
        tgt_dict,
        beam_size=1,
        max_len_a=0,
        max_len_b=200,
        max_len=0,
        min_len=1,
        normalize_scores=True,
        len_penalty=1.0,
        unk_penalty=0.0,
        temperature=1.0,
        match_source_len=False,
        no_repeat_ngram_size=0,
        search_strategy=None,
        eos=None,
        symbols_to_strip_from_output=None,
        lm_model=None,
        lm_weight=1.0,
        tokens_to_suppress=(),
        *,
        nbest=None,
        score_normalization="none",
        end_search="auto",
        return_support=False,
        exact_budget=0,
        enumerate_mass=None,
        decision="map",
        utility="chrf",
        to_text=None,
    ):
        super().__init__()
        if beam_size < 1:
            raise GenerationError(f"--beam must be at least 1, got {beam_size}")
        if nbest is not None and nbest < 1:
            raise GenerationError(f"--nbest must be at least 1, got {nbest}")
        if not abs(len_penalty) <= MAX_LENPEN:
            raise GenerationError(f"--lenpen must be within ±{MAX_LENPEN}, got {len_penalty}")
        if not temperature > 0:
            raise GenerationError(f"--temperature must be greater than 0, got {temperature}")
        _check_choice("--end-search", end_search, END_SEARCH)
        _check_choice("--score-normalization", score_normalization, SCORE_NORMALIZATIONS)
        self._set_models(models, lm_model, lm_weight)
        self._set_dictionary(tgt_dict, eos, symbols_to_strip_from_output)
        self.beam_size = min(beam_size, self.vocab_size - 1)  # padding is never selected
        self.search = search.BeamSearch(tgt_dict) if search_strategy is None else search_strategy
        strategies.check(self.search, self.beam_size, self.vocab_size)
        self.max_len_a, self.max_len_b, self.min_len = max_len_a, max_len_b, min_len
        self.max_len = max_len or self.model.max_decoder_positions()
        self.temperature, self.match_source_len = temperature, match_source_len
        self.ranking = Ranking(normalize_scores, float(len_penalty))
        suppressed = _indices(tgt_dict, tokens_to_suppress)
        ids = (self.pad, self.unk, self.eos)
        self.rules = TokenRules(*ids, unk_penalty, min_len, suppressed, no_repeat_ngram_size)
        self.score_normalization, self.end_search = score_normalization, end_search
        self.return_support = return_support
        self._set_decision(decision, utility, to_text)
        self._set_exact_search(exact_budget, enumerate_mass, nbest)

    def _set_models(self, models, lm_model, lm_weight: float) -> None:
        self.model = models if isinstance(models, EnsembleModel) else EnsembleModel(models)
        self.model.eval()
        self.lm_model, self.lm_weight = lm_model, lm_weight
        if lm_model is not None:
            lm_model.eval()

    def _set_dictionary(self, tgt_dict, eos: int | None, symbols_to_strip) -> None:
        self.tgt_dict, self.vocab_size = tgt_dict, len(tgt_dict)
        self.pad, self.unk = tgt_dict.pad(), tgt_dict.unk()
        self.eos = tgt_dict.eos() if eos is None else eos
        self.symbols_to_strip_from_output = {*(symbols_to_strip or ()), self.eos}
        made_up = [i for i, s in enumerate(tgt_dict.symbols) if s.startswith("madeupword")]
        self._made_up = torch.tensor(made_up, dtype=torch.long)

    def _set_decision(self, decision: str, utility: str, to_text) -> None:
        _check_choice("--decision", decision, DECISIONS)
        _check_choice("--utility", utility, UTILITIES)
        self.decision, self.utility = decision, utility
        self.to_text = to_text or self.tgt_dict.string

    def _set_exact_search(self, budget: int, mass: float | None, nbest: int | None) -> None:
        self.exact_budget, self.enumerate_mass = budget, mass
        self.nbest = nbest or self.beam_size
        if self.decision == "mbr":  # decides between all that a beam finds
            self.nbest = max(self.nbest, self.beam_size)
        if not budget:
            self.nbest = min(self.nbest, self.beam_size)
        self._check_exact_search()

    def cuda(self):
        self.model.cuda()
        return self

    @torch.no_grad()
    def forward(self, sample: dict, prefix_tokens=None, bos_token=None):
        return self.generate(None, sample, prefix_tokens, bos_token=bos_token)

    @torch.no_grad()
    def generate(
        self,
        models,
        sample: dict,
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[dict]]:
        """Hypotheses of each sentence of a batch, best first. As in fairseq, `models` is not
        used: the generator has its own."""
        found = BatchSearch(self, sample, prefix_tokens, constraints, bos_token).run()
        if self.decision == "mbr":
            measure = decision.utility(self.utility)
            found = [decision.most_useful_first(f, self.to_text, measure) for f in found]
        return found

    def _check_exact_search(self) -> None:
        if self.exact_budget < 0:
            raise GenerationError(f"--exact-budget must not be negative, got {self.exact_budget}")
        mass = self.enumerate_mass
        if mass is not None and not 0 < mass <= 1:
            raise GenerationError(f"--enumerate must be above 0 and at most 1, got {mass}")
        if not self.exact_budget:
            if mass is not None:
                raise GenerationError("--enumerate needs an --exact-budget above 0")
            return
        flag = "--exact-search" if mass is None else "--enumerate"
        if not strategies.is_plain(self.search) or self.match_source_len:
            raise GenerationError(
                f"{flag} is for beam search: drop the flags of sampling, of diverse, constrained "
                "or length-matched search"
            )
        if self.lm_model is not None:
            raise GenerationError(f"{flag} does not work with a language model: drop --lm-path")
        if self.is_random:
            raise GenerationError(f"{flag} needs scores that stay the same: drop --retain-dropout")

    def output(self) -> Output:
        """Asked anew for each batch: a model gets its transform's settings when its checkpoint or
        its criterion does, which may be after the generator."""
        models = list(self.model.models)
        known = all(sums_to_one(model) for model in models)
        renormalize = self.score_normalization == "renormalize" and not known
        plain = self.lm_model is None and not self.return_support
        usual = self.model.has_encoder() and self.model.has_incremental_states()
        bounded = (known or renormalize) and self.lm_model is None
        is_probability = bounded and self.rules.unk_penalty == 0
        if not is_probability:
            self._check_needs_no_probabilities()
        return Output(
            sums_to_one=known or renormalize,
            renormalize=renormalize,
            can_shortlist=plain and usual and len(models) == 1 and can_shortlist(models[0]),
            is_probability=is_probability,
            only_falls=bounded and self.rules.unk_penalty >= 0,
            outlasts_a_full_list=self.end_search == "ahead"
            or (self.end_search == "auto" and any(is_sparse(model) for model in models)),
        )

    def _check_needs_no_probabilities(self) -> None:
        flags = {
            "--enumerate": self.enumerate_mass is not None,
            "--decision mbr": self.decision == "mbr",
        }
        for flag in (flag for flag, is_given in flags.items() if is_given):
            raise GenerationError(
                f"{flag} needs probabilities: use --score-normalization renormalize with "
                "α-ReLU, and neither --unkpen nor --lm-path"
            )

    @property
    def is_random(self) -> bool:
        """Whether the models' scores of a prefix differ from call to call (--retain-dropout)."""
        return any(
            isinstance(module, FairseqDropout) and module.apply_during_inference and module.p > 0
            for model in self.model.models
            for module in model.modules()
        )

    @property
    def seeks_one(self) -> bool:
        """Whether exact search is to find the best hypothesis, and no other."""
        usual = self.decision == "map" and self.enumerate_mass is None
        return self.exact_budget > 0 and self.nbest == 1 and usual

    def longest(self, source: Tensor, source_lengths: Tensor) -> int:
        """The largest number of tokens before EOS."""
        if self.match_source_len:
            longest = int(source_lengths.max())
        else:
            longest = int(self.max_len_a * source.shape[1] + self.max_len_b)
            longest = min(longest, self.max_len - 1)
        if self.min_len > longest:
            raise GenerationError(
                f"--min-len {self.min_len} is larger than the maximum length {longest}: "
                "change it or --max-len-a/--max-len-b"
            )
        return longest

    def count_made_up(self, lprobs: Tensor) -> Tensor:
        """How many tokens of each row's support only pad the dictionary's size."""
        self._made_up = self._made_up.to(lprobs.device)
        return (lprobs[:, self._made_up] > -torch.inf).sum(1)


def _check_choice(flag: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise GenerationError(f"{flag} must be one of {', '.join(choices)}, got {value!r}")


def _indices(tgt_dict, symbols) -> Tensor:
    indices = [tgt_dict.index(symbol) for symbol in symbols]
    for symbol, index in zip(symbols, indices, strict=True):
        if index == tgt_dict.unk():
            raise GenerationError(f"cannot suppress {symbol!r}: it is not in the dictionary")
    return torch.tensor(indices, dtype=torch.long)
