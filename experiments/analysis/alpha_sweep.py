"""Validation accuracy against α of the loss and of the attention (S2S Fig. 4), from runs of entmax
losses (softmax is α = 1, sparsemax α = 2). Runs whose attention learns its α, and those that have
not been trained to their end, are left out.

``result``:

    points      one per run: system, seed, output_alpha, attention_alpha (null: the architecture's
                own), accuracy (% of tokens at the selected checkpoint)
    means       one per pair of α: output_alpha, attention_alpha, mean, std (null for one seed), n
"""

from ..fairseq_output import training_summary
from ..run_folder import Run
from ..spread import spread
from .shared.analysis import Analysis, NotMeasured


def compute(runs: list[Run], settings: dict) -> dict:
    points = []
    for run in runs:
        alphas = alphas_of(run.manifest.get("settings", {}))
        trained = "train" in run.manifest["stages"] and run.train_log.exists()
        accuracy = _accuracy(run) if alphas and trained else None
        if accuracy is not None:
            output, attention = alphas
            points.append(
                {
                    "system": run.system,
                    "seed": run.seed,
                    "output_alpha": output,
                    "attention_alpha": attention,
                    "accuracy": accuracy,
                }
            )
    if not points:
        raise NotMeasured("not run yet: no finished run of an entmax loss has logged its accuracy")
    return {"points": points, "means": means(points)}


def alphas_of(flags: dict) -> tuple[float, float | None] | None:
    """α of the output and of the attention; None if the output is not of the entmax family, or if
    the attention has no α of its own to stand at: `learned` is another one in each head."""
    criterion = flags.get("criterion")
    if criterion == "alpha_relu_loss" or criterion is None:
        return None
    known = {"sparsemax_loss": 2.0, "entmax_loss": float(flags.get("alpha", 1.5))}
    attention = flags.get("attention-alpha", flags.get("cross-attention-alpha"))
    if attention == "learned":
        return None
    return known.get(criterion, 1.0), None if attention is None else float(attention)


def _accuracy(run: Run) -> float | None:
    return training_summary(run.train_log, run.manifest["settings"]).get("valid_accuracy")


def means(points: list[dict]) -> list[dict]:
    keys = dict.fromkeys((p["output_alpha"], p["attention_alpha"]) for p in points)
    rows = []
    for output, attention in sorted(keys, key=lambda key: (key[0], key[1] or 0.0)):
        values = [
            p["accuracy"]
            for p in points
            if (p["output_alpha"], p["attention_alpha"]) == (output, attention)
        ]
        found = spread(values)._asdict()
        rows.append({"output_alpha": output, "attention_alpha": attention, **found})
    return rows


ANALYSIS = Analysis(
    compute,
    lambda run, settings: [run.train_log],
    together=True,
)

if __name__ == "__main__":
    ANALYSIS.main()
