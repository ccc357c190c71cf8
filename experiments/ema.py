"""`python -m experiments.ema CHECKPOINT OUT`: the moving average of a run as a model of its own.

fairseq keeps the average of `--store-ema` beside the model and decodes with the model. OpenNMT-py
decodes with the average; so do the configs that ask for one. fairseq's `load_ema_from_checkpoint`
takes it out; here the optimizer's state is left behind, too.
"""

import logging
import sys
from pathlib import Path

from data_prep.files import atomic_output
from sparse_fairseq.errors import UsageError


def extract(checkpoint: Path, out: Path) -> None:
    logging.getLogger("fairseq").setLevel(logging.WARNING)  # it greets whoever imports it
    import torch
    from fairseq.checkpoint_utils import load_ema_from_checkpoint

    import sparse_fairseq.compat  # noqa: F401  lets torch load what fairseq's checkpoints contain

    try:
        state = load_ema_from_checkpoint(checkpoint)
    except KeyError:
        remedy = "train with --store-ema"
        raise UsageError(f"{checkpoint} has no moving average: {remedy}") from None
    state["extra_state"], state["last_optimizer_state"] = {}, None
    with atomic_output(out, "wb") as file:
        torch.save(state, file)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise UsageError("usage: python -m experiments.ema CHECKPOINT OUT")
    extract(Path(sys.argv[1]), Path(sys.argv[2]))
