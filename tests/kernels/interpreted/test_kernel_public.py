"""The kernels through the public functions: SPARSE_FAIRSEQ_ROUTE=triton on CPU tensors."""

import pytest
import torch
from triton.runtime.interpreter import interpreter_builder

from sparse_fairseq import functional as sf
from sparse_fairseq.functional import _routes, losses
from sparse_fairseq.functional._problem import AlphaReLUMapping, EntmaxMapping
from sparse_fairseq.functional._triton import linear

Y = torch.tensor([[3, -100], [7, 0]])


def scores(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(dtype)


LEARNED = torch.tensor([[1.2], [1.7]])
CALLS = {
    "alpha_relu_loss": lambda z, **o: sf.alpha_relu_loss(z, Y, 1.5, 0.2, **o),
    "entmax_loss": lambda z, **o: sf.entmax_loss(z, Y, 1.5, **o),
    "entmax1.3_loss": lambda z, **o: sf.entmax_loss(z, Y, 1.3, **o),
    "sparsemax_loss": lambda z, **o: sf.sparsemax_loss(z, Y, **o),
}
MAPPINGS = {
    "entmax": lambda z: sf.entmax(z, 1.5),
    "entmax dim 0": lambda z: sf.entmax(z, 1.3, dim=0),
    "sparsemax": sf.sparsemax,
    "threshold": sf.entmax_threshold,
}


@pytest.fixture
def route(monkeypatch):
    def choose(name: str) -> None:
        monkeypatch.setenv(_routes.VARIABLE, name)

    choose("triton")
    return choose


@pytest.fixture
def loads(monkeypatch):
    """How often a kernel loaded: none, if none ran."""
    count = [0]
    load = interpreter_builder.create_masked_load

    def counted(*arguments):
        count[0] += 1
        return load(*arguments)

    monkeypatch.setattr(interpreter_builder, "create_masked_load", counted)
    return count


def value_and_gradients(function, *inputs, factor=3.0):
    leaves = [part.clone().requires_grad_() for part in inputs]
    value = function(*leaves)
    weights = torch.arange(1.0, 1 + value.numel()).view(value.shape)
    total = (value * weights).sum() if value.dim() else value
    return value.detach(), *torch.autograd.grad(total * factor, leaves)


def assert_same(route, function, *inputs):
    found = value_and_gradients(function, *inputs)
    route("device")
    for one, other in zip(found, value_and_gradients(function, *inputs), strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        largest = max(1.0, other.abs().max().item())
        tolerance = 2e-6 if one.dtype == torch.float32 else 2e-2
        assert (one - other).abs().max() <= tolerance * largest


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", CALLS)
def test_losses(route, loads, name, reduction, dtype):
    z = scores(2, 2, 30, dtype=dtype)
    options = {"reduction": reduction, "label_smoothing": 0.1 * (dtype != torch.float32)}
    assert_same(route, lambda z: CALLS[name](z, **options), z)
    assert loads[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", ["alpha_relu", "entmax"])
def test_fused_losses(route, loads, name, reduction, dtype):
    h, weight, bias = (scores(*shape, dtype=dtype) for shape in ((2, 2, 4), (30, 4), (30,)))
    options = {"reduction": reduction}

    def loss(h, weight, bias):
        if name == "entmax":
            return sf.linear_entmax_loss(h, weight, Y, 1.5, bias=bias, **options)
        return sf.linear_alpha_relu_loss(h, weight, Y, 1.5, 0.2, bias=bias, **options)

    assert_same(route, loss, h, weight, bias)
    assert loads[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", ["alpha_relu", "entmax"])
def test_fused_losses_of_a_large_vocabulary(route, loads, monkeypatch, name, reduction, dtype):
    """Lists, for one row that has room in them and one that has not."""
    monkeypatch.setattr(linear, "LISTS_FROM", 30)
    monkeypatch.setattr(linear, "CAPACITY", 8)
    ran = []
    listed = linear._listed_pass
    monkeypatch.setattr(linear, "_listed_pass", lambda *rest: ran.append(1) or listed(*rest))
    test_fused_losses(route, loads, name, reduction, dtype)
    assert ran


@pytest.mark.parametrize("name", MAPPINGS)
def test_mappings(route, loads, name):
    assert_same(route, MAPPINGS[name], scores(5, 7))
    assert loads[0]


def test_learned_alpha(route, loads):
    assert_same(route, sf.entmax, scores(2, 2, 9), LEARNED)
    assert loads[0]
    route("triton")
    outside = sf.entmax(scores(2, 9), torch.tensor([[1.5], [2.1]]).requires_grad_())
    assert outside.isnan().all(1).tolist() == [False, True]


@pytest.mark.parametrize("name", CALLS)
def test_statistics(route, name):
    z = scores(2, 2, 30)
    counted = torch.arange(30) % 4 != 0
    options = {"return_stats": True, "counted": counted}
    _, stats = CALLS[name](z, **options)
    route("device")
    _, want = CALLS[name](z, **options)
    live = Y != -100
    for one, other in zip(stats, want, strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one[live], other[live])


@pytest.mark.parametrize("name", CALLS)
def test_statistics_of_classes_that_do_not_lie_side_by_side(route, name):
    counted = (torch.arange(60) % 7 > 3)[::2]
    assert not counted.is_contiguous()
    z = scores(2, 2, 30)
    found, want = (
        CALLS[name](z, return_stats=True, counted=flags)[1].support
        for flags in (counted, counted.clone(memory_format=torch.contiguous_format))
    )
    assert torch.equal(found, want) and not torch.equal(
        want, CALLS[name](z, return_stats=True, counted=~counted.contiguous())[1].support
    )


@pytest.mark.parametrize("wrong", [-1, -2, 30, -(2**63)])
@pytest.mark.parametrize("name", [*CALLS, "linear_entmax_loss", "linear_alpha_relu_loss"])
def test_a_target_that_is_no_class_is_nan(route, monkeypatch, name, wrong):
    """As on a device, where nothing looks at targets. −1 may be one that somebody forgot."""
    monkeypatch.setattr(losses, "may_look", lambda tensor: False)
    y = torch.tensor([wrong, 3, -100])
    h, weight = scores(3, 4), scores(30, 4)
    if name in CALLS:
        leaf = scores(3, 30).requires_grad_()
        monkeypatch.setattr(f"{__name__}.Y", y)
        loss = CALLS[name](leaf, reduction="none")
    else:
        leaf, tau = h.requires_grad_(), () if "entmax" in name else (0.2,)
        loss = getattr(sf, name)(h, weight, y, 1.5, *tau, reduction="none")
    (grad,) = torch.autograd.grad(loss.sum(), leaf)
    assert loss.isnan().tolist() == [True, False, False] and loss[2] == 0
    assert grad.isnan().all(1).tolist() == [True, False, False] and (grad[2] == 0).all()


@pytest.mark.parametrize("name", CALLS)
def test_a_row_that_nothing_depends_on(route, name):
    """0 · NaN is 0 in a gradient: of a row that is left out afterwards, of a sum, of the layer."""
    z = scores(2, 2, 30)
    z[0, 0, 5] = float("nan")
    z.requires_grad_()
    for reduction in ("none", "sum"):
        loss = CALLS[name](z, reduction=reduction)
        (grad,) = torch.autograd.grad(torch.where(loss.isnan(), 0.0, loss).sum(), z)
        assert grad.isfinite().all() and not grad[0, 0].any()
        assert grad[1].any() == (reduction == "none")


@pytest.mark.parametrize("lists", [False, True], ids=["products", "lists"])
def test_a_state_that_nothing_depends_on(route, lists, monkeypatch):
    monkeypatch.setattr(linear, "LISTS_FROM", 10 if lists else 100)
    h, weight = scores(2, 2, 4), scores(30, 4).requires_grad_()
    h[0, 0, 1] = float("nan")
    h.requires_grad_()
    loss = sf.linear_alpha_relu_loss(h, weight, Y, 1.5, 0.2, reduction="none")
    kept = torch.where(loss.isnan(), 0.0, loss).sum()
    of_h, of_weight = torch.autograd.grad(kept, (h, weight))
    assert of_h.isfinite().all() and not of_h[0, 0].any() and of_h[1].any()
    assert of_weight.isfinite().all() and of_weight.any()


@pytest.mark.parametrize("name", CALLS)
def test_a_second_backward_pass(route, name):
    """The gradient of the one pass is given away; the next one is computed again."""
    z = scores(2, 2, 30).requires_grad_()
    loss = CALLS[name](z)
    first = torch.autograd.grad(loss, z, retain_graph=True)[0].clone()
    torch.testing.assert_close(torch.autograd.grad(2 * loss, z, retain_graph=True)[0], 2 * first)
    torch.testing.assert_close(torch.autograd.grad(loss, z)[0], first)


def test_second_derivatives_are_torch_operations(route):
    z = scores(2, 2, 9).requires_grad_()
    (grad,) = torch.autograd.grad(CALLS["entmax_loss"](z), z, create_graph=True)
    (second,) = torch.autograd.grad(grad.square().sum(), z)
    route("device")
    (grad,) = torch.autograd.grad(CALLS["entmax_loss"](z), z, create_graph=True)
    torch.testing.assert_close(second, torch.autograd.grad(grad.square().sum(), z)[0])


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0])
def test_first_derivatives_with_a_graph_are_computed_in_float32(route, alpha):
    """Of p in bfloat16, they are rounded once, as the kernel's are."""
    z, upstream = scores(6, 40, dtype=torch.bfloat16).requires_grad_(), scores(6, 40)
    p = sf.entmax(z, alpha)
    upstream = upstream.bfloat16()
    (plain,) = torch.autograd.grad(p, z, upstream, retain_graph=True)
    (graph,) = torch.autograd.grad(p, z, upstream, create_graph=True)
    assert graph.requires_grad and graph.dtype == torch.bfloat16
    step = 2.0 ** (plain.float().abs().clamp(min=1e-6).log2().floor() - 7)
    assert ((graph.float() - plain.float()).abs() <= step).all()


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda z: sf.entmax_loss(z, Y, 1.0), "softmax"),
        (lambda z: sf.entmax_loss(z, Y, 2.5), "alpha > 2"),
        (lambda z: sf.entmax_loss(z, z.detach().softmax(-1), 1.5), "soft targets"),
        (lambda z: sf.entmax_loss(z.double(), Y, 1.5), "float64"),
        (lambda z: sf.entmax(z, 1.5, solver="sort"), "solver"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_device_route_does(route, loads, call, reason):
    z = scores(2, 2, 30)
    found = value_and_gradients(call, z)
    assert not loads[0]
    route("device")
    for one, other in zip(found, value_and_gradients(call, z), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "name", ["alpha_relu_loss", "entmax_loss", "linear", "entmax", "learned alpha"]
)
def test_compile_sees_whole_operators(route, name):
    """fullgraph: one operator forward, one backward, shapes from the fake kernels."""
    h, weight = scores(2, 2, 4), scores(30, 4)
    calls = {
        **CALLS,
        "linear": lambda h, w: sf.linear_entmax_loss(h, w, Y, 1.5),
        "entmax": MAPPINGS["entmax"],
        "learned alpha": sf.entmax,
    }
    inputs = {"linear": (h, weight), "learned alpha": (scores(2, 2, 9), LEARNED)}
    given = inputs.get(name, (scores(2, 2, 30),))
    eager = value_and_gradients(calls[name], *given)
    torch._dynamo.reset()
    compiled = torch.compile(calls[name], fullgraph=True, backend="aot_eager")
    for one, other in zip(value_and_gradients(compiled, *given), eager, strict=True):
        torch.testing.assert_close(one, other)


def test_operators_are_registered_right(monkeypatch):
    """torch's own check of schemas and fake kernels."""
    monkeypatch.undo()  # canaries are an offset that a fake kernel does not know of
    from sparse_fairseq.functional._triton import ops

    z, y, fields = scores(2, 9), torch.tensor([1, 2]), torch.zeros(2, 8)
    scale, numbers = torch.ones(2), (1.5, 0.2, 0.0, -1)
    tests = ("test_schema", "test_faketensor")
    for operator, arguments in (
        (ops.loss_rows, (z, y, scale, None, *numbers, True)),
        (ops.loss_rows, (z, y, None, None, *numbers, False)),
        (ops.loss_gradient, (z, y, fields, scale, *numbers)),
        (ops.rescale_, (z.clone(), scale, 2 * scale)),
        (ops.entmax_rows, (z, 1.5, None)),
        (ops.entmax_gradients, (z.softmax(1), z, None, scale / 2, True)),
        (ops.linear_rows, (z, scores(5, 9), None, y, scale, None, *numbers, True, [True] * 3)),
    ):
        torch.library.opcheck(operator, arguments, test_utils=tests)


def test_which_calls_are_served():
    from sparse_fairseq.functional._triton import serves

    z, relu = torch.zeros(1, 2), AlphaReLUMapping(1.5, 0.0)
    learned = EntmaxMapping(torch.full((1, 1), 1.5, dtype=torch.float64))
    assert serves("losses", z, relu) and serves("linear_losses", z.half(), relu)
    assert serves("entmax", z, learned) and not serves("losses", z, learned)
    assert not serves("losses", z.double(), relu)
    assert [serves("losses", z, EntmaxMapping(a)) for a in (1.0, 1.01, 2.0, 2.01)] == [0, 1, 1, 0]
