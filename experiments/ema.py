"""`python -m experiments.ema CHECKPOINT OUT`: the moving average of a run as a model of its own.

fairseq keeps the average of `--store-ema` beside the model and decodes with the model. OpenNMT-py
decodes with the average; so do the configs that ask for one.
"""

import sys
from pathlib import Path

from data_prep.files import atomic_output
from sparse_fairseq.errors import UsageError


def extract(checkpoint: Path, out: Path) -> None:
    import torch

    import sparse_fairseq.compat  # noqa: F401  lets torch load what fairseq's checkpoints contain

    state = torch.load(checkpoint, map_location="cpu")
    extra = state["extra_state"]
    average = extra.get("ema_fp32_params") or extra.get("ema")
    if not average:
        raise UsageError(f"{checkpoint} has no moving average: train with --store-ema")
    state["model"] = {**state["model"], **average}
    state["extra_state"], state["last_optimizer_state"] = {}, None
    with atomic_output(out, "wb") as file:
        torch.save(state, file)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise UsageError("usage: python -m experiments.ema CHECKPOINT OUT")
    extract(Path(sys.argv[1]), Path(sys.argv[2]))
