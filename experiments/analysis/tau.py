"""τ by batch and by formula (SE Table 3), whether the logits of an untrained model are normal (SE
§4.4), and training with other τ (SE Fig. 6).

A new model of the architecture that the runs have is made with the seed of the first of them, once
with OpenNMT's output initialisation ("xavier") and once with fairseq's. ``result``:

    architecture    {"d_model", "vocabulary", "run"}
    untrained       {"xavier": …, "fairseq": …}, each: tau_batch (mean 1.5-entmax threshold over a
                    training batch), tau_formula (SE Eq. 3 with the model's σ; null and why if
                    it does not hold for the architecture), sigma, support_share (p* of Lemma 2),
                    positions, shapiro_wilk {"median_p", "min_p", "share_above_0.05", "positions",
                    "sample"}
    equation_3      SE Eq. 3 for d_model and vocabulary: τ̂ as the paper computes it
    runs            τ of every α-ReLU run: system, seed, tau
    sweep           one per α-ReLU run: system, seed, tau, points (as in `dynamics`)
"""

import copy
import math

import torch
from fairseq import checkpoint_utils, tasks
from fairseq.data import data_utils
from torch import Tensor

from sparse_fairseq.functional import batch_tau, xavier_tau
from sparse_fairseq.functional.tau import gaussian_support
from sparse_fairseq.output_init import formula_tau
from sparse_fairseq.output_transform import output_projection_of

from ..run_folder import Run
from ..systems import describe
from . import dynamics
from .shared.analysis import Analysis, NotMeasured
from .shared.models import TOKENS, data_files

ALPHA = 1.5
POSITIONS = 20  # at which normality is tested
SAMPLE = 2000  # logits of each; the test's p-values are not accurate for many more


def compute(runs: list[Run], settings: dict) -> dict:
    trained = [run for run in runs if run.seed is not None and run.checkpoint.exists()]
    if not trained:
        raise NotMeasured("not run yet: there is no checkpoint to take the architecture from")
    first = next((run for run in trained if run.system == "relu15"), trained[0])
    relu = [run for run in runs if run.seed is not None and not describe(run.system).normalised]
    cfg = checkpoint_utils.load_checkpoint_to_cpu(str(first.checkpoint), {"data": str(first.bin)})[
        "cfg"
    ]
    untrained = {init: measure(*new_model(cfg, init)) for init in ("xavier", "fairseq")}
    d_model, vocabulary = untrained["xavier"].pop("shape")
    del untrained["fairseq"]["shape"]
    return {
        "architecture": {"d_model": d_model, "vocabulary": vocabulary, "run": first.name},
        "untrained": untrained,
        "equation_3": xavier_tau(d_model, vocabulary),
        "runs": [_run(run) for run in relu],
        "sweep": [point for run in relu if (point := _sweep(run)) is not None],
    }


def new_model(cfg, init: str):
    """An untrained model as fairseq-train would make it, its task, and a training batch."""
    cfg = copy.deepcopy(cfg)
    cfg.task.output_init = init
    cfg.task.finetune_from_model = None
    task = tasks.setup_task(cfg.task)
    torch.manual_seed(cfg.common.seed)
    model = task.build_model(cfg.model)
    task.build_criterion(cfg.criterion)
    task.load_dataset(cfg.dataset.train_subset)
    dataset = task.dataset(cfg.dataset.train_subset)
    with data_utils.numpy_seed(cfg.common.seed):
        order = dataset.ordered_indices()
    batch, tokens = [], 0
    for index in order[len(order) // 2 :]:  # sorted by length: these are of medium length
        tokens += dataset.num_tokens(index)
        if batch and tokens > TOKENS:
            break
        batch.append(dataset[index])
    return model.eval(), task, dataset.collater(batch)


@torch.no_grad()
def measure(model, task, sample: dict) -> dict:
    logits = model(**sample["net_input"])[0][sample["target"] != task.target_dictionary.pad()]
    sigma = logits.double().std(1).mean().item()
    layer = output_projection_of(model.decoder)
    result = {
        "shape": tuple(layer.weight.shape)[::-1] if layer is not None else (None, logits.shape[1]),
        "tau_batch": batch_tau(logits, ALPHA),
        "sigma": sigma,
        "support_share": gaussian_support(logits.shape[1], sigma),
        "positions": len(logits),
        "shapiro_wilk": shapiro_wilk(logits),
    }
    try:
        return {**result, "tau_formula": formula_tau(model.decoder, ALPHA)}
    except ValueError as error:
        return {**result, "tau_formula": None, "why": str(error)}


def shapiro_wilk(logits: Tensor, seed: int = 0) -> dict:
    """The test at some positions, each on a random part of the vocabulary."""
    from scipy.stats import shapiro

    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(logits), generator=generator)[:POSITIONS]
    part = torch.randperm(logits.shape[1], generator=generator)[:SAMPLE]
    p = sorted(float(shapiro(logits[row, part].double().numpy()).pvalue) for row in rows)
    return {
        "median_p": (p[(len(p) - 1) // 2] + p[len(p) // 2]) / 2,
        "min_p": p[0],
        "share_above_0.05": sum(value > 0.05 for value in p) / len(p),
        "positions": len(p),
        "sample": len(part),
    }


def _run(run: Run) -> dict:
    return {"system": run.system, "seed": run.seed, "tau": _tau(run)}


def _tau(run: Run) -> float | None:
    """As the log says it, or as the flag set it."""
    tau = run.manifest.get("tau")
    if tau is None and isinstance(run.manifest.get("settings", {}).get("tau"), int | float):
        tau = float(run.manifest["settings"]["tau"])
    return tau if tau is not None and math.isfinite(tau) else None


def _sweep(run: Run) -> dict | None:
    try:
        return {**_run(run), "points": dynamics.compute(run, {})["points"]}
    except NotMeasured:
        return None


ANALYSIS = Analysis(
    compute,
    lambda run, settings: [run.checkpoint, run.train_log, *data_files(run, "train")],
    together=True,
)

if __name__ == "__main__":
    ANALYSIS.main()
