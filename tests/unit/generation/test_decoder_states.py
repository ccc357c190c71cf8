"""With real decoders: cached states follow their rows, and batches change nothing."""

import dataclasses

import pytest
import torch
from tiny_fairseq import make_batch, make_model, make_task

from sparse_fairseq.generation import SparseSequenceGenerator, SparseSequenceScorer
from sparse_fairseq.output_transform import OutputSettings

OUTPUTS = [OutputSettings(), OutputSettings("entmax", 1.5), OutputSettings("alpha_relu", 1.5, 0.5)]


@pytest.fixture(scope="module")
def task():
    return make_task(vocab=32)


def peaked_model(task, arch, output, **options):
    options = {"encoder_learned_pos": True, "decoder_learned_pos": True, **options}
    model = make_model(task, arch, **options).eval()
    torch.manual_seed(3)
    for parameter in model.parameters():
        parameter.data.normal_(std=2 * max(parameter.std().item(), 0.05))
    transform = model.decoder.output_transform
    transform.settings = dataclasses.replace(output)
    return model


@pytest.mark.parametrize("output", OUTPUTS, ids=str)
@pytest.mark.parametrize("arch", ["transformer", "lstm", "lightconv", "fconv"])
def test_search_agrees_with_force_decoding(task, arch, output):
    """The scorer runs the whole target at once, without cached states."""
    model, batch = peaked_model(task, arch, output), make_batch(task, sentences=6, length=9)
    generator = SparseSequenceGenerator(
        [model], task.tgt_dict, 5, max_len_b=15, normalize_scores=False
    )
    found = generator.generate([model], batch)
    scorer = SparseSequenceScorer(task.tgt_dict)
    for place in range(max(map(len, found))):
        chosen = [f[min(place, len(f) - 1)] for f in found]
        scored = scorer.score([model], batch, [h["tokens"] for h in chosen])
        for one, other in zip(chosen, scored, strict=True):
            close = {"atol": 2e-3, "rtol": 1e-3}
            torch.testing.assert_close(one["score"], other["score"], **close)
            if one["status"] == "finished":
                positions = (one["positional_scores"], other["positional_scores"])
                torch.testing.assert_close(*positions, **close)


@pytest.mark.parametrize("output", OUTPUTS, ids=str)
@pytest.mark.parametrize("arch", ["transformer", "lstm"])
def test_batches_change_nothing(task, arch, output):
    model, batch = peaked_model(task, arch, output), make_batch(task, sentences=6, length=9)
    generator = SparseSequenceGenerator([model], task.tgt_dict, 4, max_len_b=12)
    together = generator.generate([model], batch)
    for i, length in enumerate(batch["net_input"]["src_lengths"].tolist()):
        net_input = {
            "src_tokens": batch["net_input"]["src_tokens"][i : i + 1, -length:],  # left-padded
            "src_lengths": batch["net_input"]["src_lengths"][i : i + 1],
        }
        (alone,) = generator.generate([model], {"net_input": net_input})
        for one, other in zip(alone, together[i], strict=True):
            assert one["tokens"].tolist() == other["tokens"].tolist()
            torch.testing.assert_close(one["score"], other["score"], atol=1e-4, rtol=1e-4)
