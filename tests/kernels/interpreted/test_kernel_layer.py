"""The output layer with its loss: products for each chunk, or lists of non-zeros."""

import pytest
import torch
from kernel_cases import DTYPES, IGNORED, TOLERANCE, assert_near, expected, name

from experiments.bench.gpu import counts
from sparse_fairseq.functional._triton import linear
from sparse_fairseq.functional._triton._math import LOSS, SUPPORT
from sparse_fairseq.functional._triton.launch import Family, Target

FAMILIES = [Family(1.5, 1.2), Family(1.5), Family(2.0)]
ROWS, CLASSES, HIDDEN = 6, 40, 5


def layer(dtype=torch.float32, scale=1.5):
    generator = torch.Generator().manual_seed(1)
    where = {"generator": generator, "device": "cpu"}
    h, weight = torch.randn(ROWS, HIDDEN, **where), torch.randn(CLASSES, HIDDEN, **where) * scale
    bias, y = torch.randn(CLASSES, **where), torch.randint(CLASSES, (ROWS,), **where)
    h, weight, bias, y = (part.to(torch.get_default_device()) for part in (h, weight, bias, y))
    y[2] = IGNORED
    h[2] = float("nan")  # whatever an ignored row holds
    scale = torch.linspace(0.5, 2.0, ROWS) * (y != IGNORED)
    return h.to(dtype), weight.to(dtype), bias.to(dtype), y, scale


def reference(h, weight, bias, y, scale, family, smoothing):
    """Losses and gradients from the logits as the layer's dtype has them, in float64."""
    z = (h.double().nan_to_num() @ weight.double().t() + bias.double()).to(h.dtype)
    want = expected(family, z, y, smoothing)
    grad = scale[:, None].double() * want.gradient
    gradients = (grad @ weight.double(), grad.t() @ h.double().nan_to_num(), grad.sum(0))
    return want, gradients


def run(h, weight, bias, y, scale, family, smoothing=0.0, **options):
    options = {"stats": True, "counted": None, "needs": (True, True, True)} | options
    target = Target(y, IGNORED, smoothing)
    return linear.linear_rows(h, weight, bias, target, family, scale=scale, **options)


def check(found, wanted, dtype):
    for part, want in zip(found, wanted, strict=True):
        assert part.dtype == torch.float32
        assert_near(part, want, 4 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("lists", [False, True], ids=["products", "lists"])
@pytest.mark.parametrize("family", FAMILIES, ids=name)
def test_value_and_gradients(family, lists, smoothing, dtype):
    given = layer(dtype)
    fields, sums = run(*given, family, smoothing, lists=lists)
    want, gradients = reference(*given, family, smoothing)
    live = given[3] != IGNORED
    assert_near(fields[live, LOSS.value], want.loss[live], 2e-6 if dtype == torch.float32 else 2e-2)
    assert (sums.of_h[2] == 0).all() and fields[2, LOSS.value] == 0
    check(sums, gradients, dtype)
    if dtype == torch.float32:
        assert (fields[:, SUPPORT.value] == (want.p > 0).sum(1))[live].all()


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("family", FAMILIES[:2], ids=name)
def test_rows_that_do_not_fit_into_lists(family, smoothing, dtype, monkeypatch):
    """Some go the dense way, some do not, and no row goes both."""
    monkeypatch.setattr(linear, "CAPACITY", 4 if family.tau is None else 10)
    given = layer(dtype, scale=0.7 if family.tau is None else 1.5)
    want, gradients = reference(*given, family, smoothing)
    sizes = ((want.p > 0) | (want.gradient < -0.5)).sum(1)[given[3] != IGNORED]
    assert (sizes > linear.CAPACITY).any() and (sizes <= linear.CAPACITY).any()
    _, sums = run(*given, family, smoothing, lists=True)
    check(sums, gradients, dtype)


@pytest.mark.parametrize("lists", [False, True], ids=["products", "lists"])
@pytest.mark.parametrize("family", FAMILIES[:2], ids=name)
def test_chunks_change_nothing(family, lists, monkeypatch):
    given = layer()
    fields, sums = run(*given, family, 0.1, lists=lists)
    monkeypatch.setattr(linear, "CHUNK_ROWS", 2)
    monkeypatch.setattr(linear, "CHUNK_ELEMENTS", 1)
    monkeypatch.setattr(linear, "WAITING_ENTRIES", 3 * linear.CAPACITY)
    again, others = run(*given, family, 0.1, lists=lists)
    torch.testing.assert_close(again[:, LOSS.value], fields[:, LOSS.value])
    for one, other in zip(sums, others, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("lists", [False, True], ids=["products", "lists"])
def test_a_nan_row_shows_in_all_weights(lists):
    h, weight, bias, y, scale = layer()
    h[0] = float("nan")
    fields, sums = run(h, weight, bias, y, scale, FAMILIES[0], lists=lists)
    assert fields[0, LOSS.value].isnan() and fields[1, LOSS.value].isfinite()
    assert sums.of_h[0].isnan().all() and sums.of_h[1:].isfinite().all()
    assert sums.of_weight.isnan().all() and sums.of_bias.isnan().all()


@pytest.mark.parametrize("lists", [False, True], ids=["products", "lists"])
@pytest.mark.parametrize("needs", [(1, 0, 0), (0, 1, 0), (0, 0, 1)], ids=["h", "weight", "bias"])
def test_only_what_is_needed(needs, lists):
    given = layer()
    _, everything = run(*given, FAMILIES[0], lists=lists)
    _, sums = run(*given, FAMILIES[0], lists=lists, needs=needs)
    for part, whole, needed in zip(sums, everything, needs, strict=True):
        assert (part is None) == (not needed)
        assert part is None or torch.equal(part, whole)


def test_value_alone():
    h, weight, bias, y, scale = layer()
    with_gradients, _ = run(h, weight, bias, y, scale, FAMILIES[1])
    fields, sums = run(h, weight, bias, y, None, FAMILIES[1])
    assert sums == (None, None, None)
    assert torch.equal(fields[:, LOSS.value], with_gradients[:, LOSS.value])


@pytest.mark.parametrize("lists", [False, True], ids=["products", "lists"])
def test_half_precision_sums_the_weights_gradient_in_float32(lists, monkeypatch):
    """One large summand and forty small ones, each in its own chunk. Summed in bfloat16, none of
    the forty would change the sum (Liger-Kernel's issues 512 and 827)."""
    monkeypatch.setattr(linear, "CHUNK_ROWS", 1)
    monkeypatch.setattr(linear, "CHUNK_ELEMENTS", 1)
    h = torch.ones(41, 1, dtype=torch.bfloat16)
    h[0] = 256.0
    weight = torch.tensor([[4.0], [0.0]], dtype=torch.bfloat16)  # class 0 has p = 1, 1 has p = 0
    y = torch.ones(41, dtype=torch.int64)
    scale = torch.full((41,), 0.5)
    _, sums = run(h, weight, None, y, scale, Family(2.0), needs=(False, True, False), lists=lists)
    assert sums.of_weight.flatten().tolist() == [148.0, -148.0]


@pytest.mark.parametrize("lists", [False, True], ids=["products", "lists"])
def test_float16_keeps_what_a_mean_makes_small(lists):
    """1/N of a large batch times p − q is less than float16 can hold."""
    h, weight, bias, y, scale = layer(torch.float16)
    _, sums = run(h, weight, bias, y, scale * 1e-9, FAMILIES[0], lists=lists)
    _, gradients = reference(h, weight, bias, y, scale, FAMILIES[0], 0.0)
    for part, want in zip(sums, gradients, strict=True):
        assert_near(part * 1e9, want, 1e-2)


def test_large_vocabularies_take_lists():
    """Where they are cheaper on paper, at the sparsity of trained models: in FLOPs and bytes."""
    for classes in (4_096, 16_384, linear.LISTS_FROM, 32_000, 128_000):
        for hidden in (512, 1024, 2048):
            shape = counts.Shape(4096, classes, hidden, entries=16)
            pairs = zip(counts.of_products(shape), counts.of_lists(shape), strict=True)
            cheaper = all(dense >= 1.5 * listed for dense, listed in pairs)
            assert linear.prefers_lists(classes) == cheaper, (classes, hidden)
    assert (counts.CAPACITY, counts.CHUNK_ELEMENTS) == (linear.CAPACITY, linear.CHUNK_ELEMENTS)
