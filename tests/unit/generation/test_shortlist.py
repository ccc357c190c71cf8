"""The shortlist is the top of the whole vocabulary's log-scores, exactly."""

import math
from types import SimpleNamespace

import pytest
import torch

from sparse_fairseq.generation.shortlist import can_shortlist, renormalize, shortlist, top_k
from sparse_fairseq.output_transform import OutputSettings, OutputTransform

OUTPUTS = [
    OutputSettings(),
    OutputSettings("entmax", 1.0),
    OutputSettings("entmax", 1.2),
    OutputSettings("entmax", 1.5),
    OutputSettings("entmax", 2.0),
    OutputSettings("alpha_relu", 1.5, 0.8),
    OutputSettings("alpha_relu", 2.0, 1.5),
]


@pytest.mark.parametrize("output", OUTPUTS, ids=str)
@pytest.mark.parametrize("scale", [0.01, 1.0, 20.0])  # supports from the whole vocabulary to one
@pytest.mark.parametrize("k", [1, 12, 200])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_equals_the_transform_of_everything(output, scale, k, temperature):
    torch.manual_seed(0)
    logits = scale * torch.randn(9, 1000)
    transform = OutputTransform(output)
    scores, tokens = shortlist(logits, transform, k, temperature)
    everything = transform.log_scores(logits / temperature)
    torch.testing.assert_close(scores, everything.topk(k).values, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(scores, everything.gather(1, tokens), atol=1e-5, rtol=1e-5)
    assert ((scores == -math.inf) == (everything.gather(1, tokens) == -math.inf)).all()


@pytest.mark.parametrize("tau", [-1.0, 0.5, 1.5, 9.0])  # support: wider than the list … none
@pytest.mark.parametrize("size", [20, 4000])
def test_shortlist_of_renormalized_scores(size, tau):
    logits = 1.5 * torch.randn(6, size, generator=torch.Generator().manual_seed(size))
    transform = OutputTransform(OutputSettings("alpha_relu", 1.5, tau))
    scores, tokens = shortlist(logits, transform, 10, 0.9, renormalized=True)
    everything = renormalize(transform.log_scores(logits / 0.9))
    torch.testing.assert_close(scores, everything.topk(10).values, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(scores, everything.gather(1, tokens), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("size", [5, 64, 640, 641, 5000, 5001, 32000])
@pytest.mark.parametrize("k", [1, 5, 42])
def test_top_k(size, k):
    torch.manual_seed(size)
    x = torch.randn(3, size)
    x[0, ::3] = -math.inf
    k = min(k, size)
    values, where = top_k(x, k)
    assert torch.equal(values, x.topk(k).values)
    assert torch.equal(x.gather(1, where), values)
    assert all(len(set(row.tolist())) == k for row in where)


@pytest.mark.parametrize("solver", ["sort", "topk", "bisect"])
def test_a_solver_that_somebody_names_sees_the_whole_vocabulary(solver):
    """As SE timed decoding: the same scores, without the shortlist."""
    transform = OutputTransform(OutputSettings("entmax", 1.5))
    model = SimpleNamespace(decoder=SimpleNamespace(output_transform=transform))
    assert can_shortlist(model)
    logits = 3 * torch.randn(4, 500, generator=torch.Generator().manual_seed(1))
    usual = transform.scores(logits)
    transform.solver = solver
    assert not can_shortlist(model)
    torch.testing.assert_close(transform.scores(logits), usual, atol=1e-6, rtol=0)


def test_nan_comes_first():
    x = torch.zeros(2, 9000)
    x[1, 4321] = math.nan
    assert top_k(x, 5)[0].isnan().any(1).tolist() == [False, True]


def test_renormalize():
    lprobs = torch.tensor([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0]]).log()
    assert renormalize(lprobs).exp().tolist() == [pytest.approx([0.75, 0.25, 0.0]), [0.0, 0.0, 0.0]]
