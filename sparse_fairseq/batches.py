"""Which sentence pairs get into batches: why some do not, and what to do if none does.

fairseq leaves out what is too long, and the last batch where it is no multiple of
--required-batch-size-multiple: the longest sentences of all.
"""

import os
from typing import NoReturn

import numpy as np
from fairseq import utils

from .errors import UsageError

LIMITS = "--max-source-positions, --max-target-positions, --max-tokens"


def refuse_empty_files(cfg, split: str, epoch: int) -> None:
    """fairseq-preprocess writes no byte for no sentence, and fairseq cannot read that."""
    paths = utils.split_paths(cfg.data)
    folder = paths[(epoch - 1) % len(paths)]
    languages = (cfg.source_lang, cfg.target_lang)
    for language in languages:
        file = os.path.join(folder, f"{split}.{'-'.join(languages)}.{language}.bin")
        if os.path.exists(file) and os.path.getsize(file) == 0:
            raise UsageError(f"the training set is empty: {file}")


def refuse_no_batch(which: str, dataset, max_positions, multiple: int) -> NoReturn:
    """`which`: what a user calls the set."""
    if fitting := count_fitting(dataset, max_positions):
        reason = (
            f"its {fitting} sentence pairs fill no batch of "
            f"--required-batch-size-multiple {multiple}; set that to 1, or add sentences"
        )
    else:
        reason = (
            f"none of its {len(dataset)} sentence pairs is within the size limits "
            f"{max_positions} ({LIMITS})"
        )
    raise UsageError(f"{which} is empty: {reason}")


def left_out(dataset, batches, max_positions, multiple: int) -> str:
    """How many pairs are in no batch, and why; empty if all are."""
    pairs, fitting = len(dataset), count_fitting(dataset, max_positions)
    batched = sum(map(len, batches))
    if batched == pairs:
        return ""
    reasons = []
    if fitting < pairs:
        reasons.append(f"{pairs - fitting} beyond the size limits {max_positions} ({LIMITS})")
    if batched < fitting:
        reasons.append(
            f"{fitting - batched}, of the longest, that fill no batch of "
            f"--required-batch-size-multiple {multiple}"
        )
    return f"{pairs - batched} of {pairs} sentence pairs are left out: {' and '.join(reasons)}"


def count_fitting(dataset, max_positions) -> int:
    """How many sentence pairs are not too long."""
    indices = np.arange(len(dataset))
    if max_positions is not None:
        indices, _ = dataset.filter_indices_by_size(indices, max_positions)
    return len(indices)
