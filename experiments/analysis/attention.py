"""Cross-attention of some sentences, with its non-zero weights marked (S2S Fig. 5).

The target is what the beam found. ``result``:

    layer, layers, heads    which layer is shown (the last, counted from 0), how many there are
    maps                    one per sentence: id, source and target (tokens), weights (mean over the
                            heads) and nonzero (whether any head has a non-zero weight), both
                            [target][source], attended (mean number of non-zeros of a head)
"""

from torch import Tensor

from ..run_folder import Run
from .lattice import short_sentences
from .shared.analysis import Analysis, NotMeasured, beam_hypotheses
from .shared.models import Loaded, load, model_inputs


def compute(run: Run, settings: dict) -> dict:
    loaded, split = load(run), settings["split"]
    generated = beam_hypotheses(run, split)
    shown = short_sentences([len(s.target.split(" ")) for s in generated], settings["sentences"])
    targets = [loaded.encode(sentence.hypothesis) for sentence in generated]
    maps, shape = [], None
    for sample in loaded.batches(split, f"{run.name}: attention", shown, targets):
        with loaded.cross_attention() as weights:
            loaded.forced(sample)
        if not weights:
            raise NotMeasured("the model has no cross-attention")
        last = weights[-1]
        shape = (len(weights), len(last))
        maps += [attention_map(loaded, sample, i, last[:, i]) for i in range(last.shape[1])]
    layers, heads = shape
    return {
        "split": split,
        "layer": layers - 1,
        "layers": layers,
        "heads": heads,
        "maps": sorted(maps, key=lambda entry: entry["id"]),
    }


def attention_map(loaded: Loaded, sample: dict, row: int, weights: Tensor) -> dict:
    """One sentence; weights [heads, target, source] without its padding."""
    tokens, source = sample["target"][row], sample["net_input"]["src_tokens"][row]
    real = tokens != loaded.dictionary.pad()
    words = source != loaded.task.source_dictionary.pad()
    weights = weights[:, real][:, :, words]
    return {
        "id": int(sample["id"][row]),
        "source": loaded.source_symbols(source),
        "target": loaded.symbols(tokens[real]),
        "weights": weights.mean(0).tolist(),
        "nonzero": (weights > 0).any(0).tolist(),
        "attended": float((weights > 0).sum(2).double().mean()),
    }


ANALYSIS = Analysis(compute, model_inputs, {"split": "valid", "sentences": 3})

if __name__ == "__main__":
    ANALYSIS.main()
