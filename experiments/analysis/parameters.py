"""Number of trainable parameters (SE Table 1), counted in the model that decodes. ``result``:

parameters      all of them; weights that are shared count once
embeddings      those of embeddings and output layer
vocabulary      entries of the target dictionary, special symbols included
"""

from torch import nn

from sparse_fairseq.output_transform import output_projection_of

from ..run_folder import Run
from .shared.analysis import Analysis
from .shared.models import data_files, load


def compute(run: Run, settings: dict) -> dict:
    loaded = load(run)
    return {**count(loaded.model), "vocabulary": len(loaded.dictionary)}


def count(model: nn.Module) -> dict[str, int]:
    by_vocabulary = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    if (layer := output_projection_of(model.decoder)) is not None:
        by_vocabulary.append(layer.weight)
    return {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "embeddings": sum(weight.numel() for weight in {id(w): w for w in by_vocabulary}.values()),
    }


ANALYSIS = Analysis(compute, lambda run, settings: [run.decoded_checkpoint(), *data_files(run)])

if __name__ == "__main__":
    ANALYSIS.main()
