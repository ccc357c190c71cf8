"""A run's model and data, as the analyses need them: batches of a split, given or found targets,
scores at every position, cross-attention. One model is in memory at a time.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import torch
from fairseq import checkpoint_utils, utils
from fairseq.data import data_utils
from torch import Tensor, nn

import sparse_fairseq.register  # noqa: F401
from data_prep.progress import Progress
from data_prep.segmentation import RECORD
from sparse_fairseq.criterions.sparse_criterion import uncounted_symbols
from sparse_fairseq.generation.decoder_states import attention_of
from sparse_fairseq.output_transform import OutputTransform

from ...run_folder import Run
from .analysis import NotMeasured, need

TOKENS = 1024  # of a batch, so that the scores of 40k words at all of them fit into memory
ROWS = 256  # positions whose scores are looked at together


@dataclass
class Loaded:
    """A trained model with its task."""

    model: nn.Module
    task: object

    @property
    def transform(self) -> OutputTransform:
        return self.model.decoder.output_transform

    @property
    def dictionary(self):
        return self.task.target_dictionary

    @cached_property
    def counted(self) -> Tensor:
        """Indices of the entries that are words: no padding, no `madeupword`."""
        left_out = set(uncounted_symbols(self.dictionary))
        return torch.tensor([i for i in range(len(self.dictionary)) if i not in left_out])

    def dataset(self, split: str):
        if split not in self.task.datasets:
            self.task.load_dataset(split)
        return self.task.dataset(split)

    def batches(
        self,
        split: str,
        label: str | None,
        only: Sequence[int] | None = None,
        targets: Sequence[Tensor] | None = None,
    ) -> Iterator[dict]:
        """All sentences (or `only` these) in batches of similar length, with progress under a
        label; with `targets` of the split's sentences in the place of the references."""
        dataset = self.dataset(split)

        def length(i: int) -> int:
            return max(dataset.num_tokens(i), 0 if targets is None else len(targets[i]))

        order = sorted(range(len(dataset)) if only is None else only, key=lambda i: (length(i), i))
        with Progress(label, len(order), "sentences") if label else nullcontext() as progress:
            for indices in _by_tokens(order, length):
                sample = dataset.collater([dataset[i] for i in indices])
                if targets is not None:
                    wanted = [targets[i] for i in sample["id"].tolist()]
                    sample = self.with_targets(sample, wanted)
                yield utils.move_to_cuda(sample) if _cuda() else sample
                if progress:
                    progress.advance(len(indices))

    def encode(self, words: str) -> Tensor:
        """Tokens of a line that fairseq-generate printed."""
        index = [self.dictionary.index(word) for word in words.split(" ") if word]
        return torch.tensor([*index, self.dictionary.eos()])

    def symbols(self, tokens: Tensor) -> list[str]:
        return [self.dictionary[int(token)] for token in tokens]

    def source_symbols(self, tokens: Tensor) -> list[str]:
        source = self.task.source_dictionary
        return [source[int(token)] for token in tokens if token != source.pad()]

    def with_targets(self, sample: dict, targets: list[Tensor]) -> dict:
        """The batch with other targets, as a decoder that is told them sees it."""
        pad, eos = self.dictionary.pad(), self.dictionary.eos()
        previous, target = (
            data_utils.collate_tokens(targets, pad, eos, move_eos_to_beginning=move).to(
                sample["net_input"]["src_tokens"]
            )
            for move in (True, False)
        )
        net_input = {**sample["net_input"], "prev_output_tokens": previous}
        return {**sample, "net_input": net_input, "target": target}

    @torch.no_grad()
    def forced(self, sample: dict) -> tuple[Tensor, Tensor]:
        """(logits [positions, vocabulary], real [sentences, length]) of a batch's targets."""
        out = self.model(**sample["net_input"])
        real = sample["target"] != self.dictionary.pad()
        return out[0][real], real

    def supports(self, logits: Tensor) -> Iterator[Tensor]:
        """How many words have a non-zero score; softmax underflows, but excludes none."""
        for block in logits.split(ROWS):
            if self.transform.alpha == 1:
                yield torch.full((len(block),), len(self.counted))
            else:
                words = self.transform.scores(block)[:, self.counted.to(block.device)]
                yield (words > 0).sum(1).cpu()

    @contextmanager
    def cross_attention(self) -> Iterator[list[Tensor]]:
        """While this lasts, every call of the model leaves the weights of each cross-attention
        layer, [heads, sentences, target, source], in the list."""
        layers = [m for m in self.model.modules() if getattr(m, "encoder_decoder_attention", False)]
        found: list[Tensor] = []
        if layers:
            hooks = [hook for layer in layers for hook in _watch(layer, found)]
        else:  # one attention, which the decoder returns
            hooks = [self.model.register_forward_hook(_take_attention(found))]
        try:
            yield found
        finally:
            for hook in hooks:
                hook.remove()


def _watch(layer: nn.Module, found: list[Tensor]) -> list:
    def ask(module, args, kwargs):
        return args, {**kwargs, "need_weights": True, "need_head_weights": True}

    def take(module, args, kwargs, output):
        found.append(output[1].detach())

    return [
        layer.register_forward_pre_hook(ask, with_kwargs=True),
        layer.register_forward_hook(take, with_kwargs=True),
    ]


def _take_attention(found: list[Tensor]):
    def take(module, args, output):
        attention = attention_of(output)
        if attention is not None:
            found.append(attention.detach().unsqueeze(0))

    return take


def _by_tokens(order: list[int], length) -> Iterator[list[int]]:
    """Neighbours in `order`, whose lengths grow, in batches of at most TOKENS padded tokens; a
    longer sentence is a batch of its own."""
    batch: list[int] = []
    for index in order:
        if batch and (len(batch) + 1) * length(index) > TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _cuda() -> bool:
    return torch.cuda.is_available()


def load(run: Run) -> Loaded:
    """The model with which a run translates; the same object while nothing else is loaded."""
    if run.seed is None:
        raise NotMeasured("an ensemble has no model of its own")
    checkpoint = run.decoded_checkpoint()
    need(checkpoint)
    return _load(checkpoint, checkpoint.stat().st_mtime_ns, run.bin)


@lru_cache(maxsize=1)
def _load(checkpoint: Path, changed: int, data: Path) -> Loaded:
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides={"data": str(data)}
    )
    model.eval()
    return Loaded(model.cuda() if _cuda() else model, task)


def data_files(run: Run, *splits: str) -> list[Path]:
    """What is read of the binarised data to load some splits."""
    kinds = [f"{split}.*" for split in splits]
    return [path for kind in ("dict.*.txt", RECORD, *kinds) for path in sorted(run.bin.glob(kind))]


def model_inputs(run: Run, settings: dict) -> list[Path]:
    """Inputs of analyses that force-decode references and the beam's hypotheses."""
    split = settings["split"]
    return [run.decoded_checkpoint(), run.generated(split), *data_files(run, split)]
