"""How many words have a non-zero score, and how many source positions are attended to (SE Fig. 5,
S2S Table 3): at every position of the references ("gold") and of the beam's hypotheses ("beam").

Padding and `madeupword`s are left out. ``result``:

    vocabulary      words that could be in the support
    accuracy        % of the references' tokens that have the highest score
    output          {"gold": DISTRIBUTION, "beam": DISTRIBUTION}: non-zeros at each position
    attention       the same for cross-attention, of every head of every layer; "layers" holds the
                    mean of each layer; null if the model has none
    DISTRIBUTION    positions, mean, std, min, median, quantiles, max, counts [[number, times], …];
                    output also has zero_share, the mean share of zero components

"beam" is {"missing": why} if nothing was generated.
"""

from collections.abc import Callable, Iterator

from torch import Tensor

from ..run_folder import Run
from .shared.analysis import Analysis, NotMeasured, beam_hypotheses
from .shared.models import Loaded, load, model_inputs
from .shared.streams import Counts


def compute(run: Run, settings: dict) -> dict:
    loaded, split = load(run), settings["split"]
    found: dict[str, dict] = {"output": {}, "attention": {}}
    for way, targets in ways(loaded, run, split):
        if isinstance(targets, str):
            output = attention = {"missing": targets}
        else:
            label = f"{run.name}: support, {way}"
            output, attention = measure(loaded, targets(label))
        found["output"][way] = output
        found["attention"][way] = attention
    if found["attention"]["gold"] is None:
        found["attention"] = None
    accuracy = found["output"]["gold"].pop("best")
    found["output"]["beam"].pop("best", None)
    return {"split": split, "vocabulary": len(loaded.counted), "accuracy": accuracy, **found}


def ways(
    loaded: Loaded, run: Run, split: str
) -> Iterator[tuple[str, Callable[[str], Iterator[dict]] | str]]:
    """("gold", batches) and ("beam", batches with the beam's hypotheses as targets); or why not."""
    yield "gold", lambda label: loaded.batches(split, label)
    try:
        hypotheses = [loaded.encode(s.hypothesis) for s in beam_hypotheses(run, split)]
    except NotMeasured as reason:
        yield "beam", str(reason)
    else:
        yield "beam", lambda label: loaded.batches(split, label, targets=hypotheses)


def measure(loaded: Loaded, batches: Iterator[dict]) -> tuple[dict, dict | None]:
    """Distributions of the support of the output and of the cross-attention.

    "best" is how many of the targets (in %) are the word with the highest score.
    """
    output, layers, best = Counts(), [], 0
    for sample in batches:
        with loaded.cross_attention() as weights:
            logits, real = loaded.forced(sample)
        best += (logits.argmax(1) == sample["target"][real]).sum().item()
        for support in loaded.supports(logits):
            output.add(support)
        layers = layers or [Counts() for _ in weights]
        for counts, attention in zip(layers, weights, strict=True):
            counts.add(attended(attention, real))
    summary = output.summary()
    summary["best"] = 100 * best / summary["positions"]
    summary["zero_share"] = 1 - summary["mean"] / len(loaded.counted)
    if not layers:
        return summary, None
    total = Counts()
    for counts in layers:
        total.merge(counts)
    return summary, {**total.summary(), "layers": [counts.mean for counts in layers]}


def attended(weights: Tensor, real: Tensor) -> Tensor:
    """Non-zero weights at each real position of each head; weights [heads, sentences, target,
    source], of which padding in the source has weight 0."""
    return (weights > 0).sum(3)[:, real].cpu()


ANALYSIS = Analysis(compute, model_inputs, {"split": "valid"})

if __name__ == "__main__":
    ANALYSIS.main()
