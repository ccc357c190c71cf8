"""What users of torch expect: dim, class weights, alpha for each row, modules, torch.func."""

import pytest
import torch
import torch.nn.functional as F
from helpers import only, reference_loss, scores, targets
from torch import nn

from sparse_fairseq import functional as sf
from sparse_fairseq.functional.reference import smoothed

LOSSES = {
    "alpha_relu": lambda z, y, **options: sf.alpha_relu_loss(z, y, 1.5, 0.2, **options),
    "entmax": lambda z, y, **options: sf.entmax_loss(z, y, 1.5, **options),
    "softmax": lambda z, y, **options: sf.entmax_loss(z, y, 1.0, **options),
}


@pytest.mark.parametrize("name", LOSSES)
def test_classes_in_another_dimension(name):
    loss = LOSSES[name]
    z, y = scores(4, 140, 3).requires_grad_(), targets(4, 3, classes=140)
    moved = z.detach().movedim(1, -1).requires_grad_()
    for options in ({}, {"reduction": "none"}, {"label_smoothing": 0.1}):
        ours, expected = loss(z, y, dim=1, **options), loss(moved, y, **options)
        torch.testing.assert_close(ours, expected)
        (grad,) = torch.autograd.grad(ours.sum(), z)
        wanted = torch.autograd.grad(expected.sum(), moved)[0]
        torch.testing.assert_close(grad, wanted.movedim(-1, 1))
    q = scores(4, 140, 3, seed=1).softmax(1)
    torch.testing.assert_close(loss(z, q, dim=1), loss(moved, q.movedim(1, -1)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_weights_are_those_of_cross_entropy(reduction, smoothing):
    z, y = scores(6, 9).requires_grad_(), targets(6, classes=9)
    y[2] = -100
    weight = torch.rand(9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    options = {"weight": weight, "reduction": reduction, "label_smoothing": smoothing}
    ours, expected = LOSSES["softmax"](z, y, **options), F.cross_entropy(z, y, **options)
    (grad,), (wanted,) = (torch.autograd.grad(loss.sum(), z) for loss in (ours, expected))
    torch.testing.assert_close(grad, wanted)
    if not smoothing:  # else they differ by the entropy of the target
        torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("name", LOSSES)
def test_class_weights_multiply_the_loss_of_their_class(name):
    z, y, weight = scores(5, 140), targets(5, classes=140), torch.rand(140)
    each = LOSSES[name](z, y, reduction="none")
    expected = (each * weight[y]).sum() / weight.double()[y].sum()
    torch.testing.assert_close(LOSSES[name](z, y, weight=weight), expected)
    soft = smoothed(y, 140)
    total = LOSSES[name](z, soft, weight=weight, reduction="sum")
    torch.testing.assert_close(total, (each * weight[y]).sum())
    with pytest.raises(ValueError, match=r"class weights have shape \(3,\)"):
        LOSSES[name](z, y, weight=torch.ones(3))


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_class_weights_of_fused_losses(reduction):
    h, weight = scores(5, 6).requires_grad_(), scores(140, 6, seed=1).requires_grad_()
    y, by_class = targets(5, classes=140), torch.rand(140, dtype=torch.float64)
    y[1] = -100
    for smoothing in (0.0, 0.1):
        options = {"reduction": reduction, "label_smoothing": smoothing}
        ours = sf.linear_entmax_loss(h, weight, y, class_weight=by_class, **options)
        plain = sf.entmax_loss(F.linear(h, weight), y, weight=by_class, **options)
        torch.testing.assert_close(ours, plain)
        grads = (torch.autograd.grad(loss.square().sum(), (h, weight)) for loss in (ours, plain))
        for grad, expected in zip(*grads, strict=True):
            torch.testing.assert_close(grad, expected)


@pytest.mark.parametrize("classes", [5, 400])
def test_alpha_for_each_row(classes):
    z, y = scores(2, 3, classes), targets(2, 3, classes=classes)
    alpha = torch.linspace(1.0, 2.0, 6, dtype=torch.float64).view(2, 3).requires_grad_()
    p = sf.entmax(z, alpha)
    loss = sf.entmax_loss(z, y, alpha, reduction="none")
    tau = sf.entmax_threshold(z, alpha.detach() + 0.1)
    for row in range(6):
        at = divmod(row, 3)
        number = alpha[at].item()
        torch.testing.assert_close(p[at], sf.entmax(z[at], number))
        own = reference_loss("entmax", z[at][None], smoothed(y[at][None], classes), number)
        torch.testing.assert_close(loss[at], own[0])
        torch.testing.assert_close(tau[at], sf.entmax_threshold(z[at], number + 0.1))
    assert torch.autograd.grad(loss.sum(), alpha)[0].shape == (2, 3)
    torch.testing.assert_close(sf.entmax(z.movedim(-1, 1), alpha, dim=1).movedim(1, -1), p)


def test_options_of_another_solver_are_refused():
    z, y = scores(2, 5), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="topk is an option of solver='topk', not of 'auto'"):
        sf.entmax(z, topk=3)
    with pytest.raises(ValueError, match="n_iter is an option of solver='bisect', not of 'sort'"):
        sf.entmax_loss(z, y, solver="sort", n_iter=3)
    with pytest.raises(TypeError, match="positional"):
        sf.linear_entmax_loss(z, z, y, 1.5, z[0])


def test_modules_of_mappings():
    z = scores(2, 4, 3, 7)
    torch.testing.assert_close(sf.Entmax(1.3, dim=1)(z), sf.entmax(z, 1.3, dim=1))
    torch.testing.assert_close(sf.Sparsemax()(z), sf.sparsemax(z))
    torch.testing.assert_close(sf.AlphaReLU(1.3, 0.1)(z), sf.alpha_relu(z, 1.3, 0.1))
    assert not list(sf.Entmax().parameters()) and "1.5" in repr(sf.Entmax())


@pytest.mark.parametrize("heads", [None, 4])
@pytest.mark.parametrize("module", [sf.Entmax, sf.AlphaReLU])
def test_learnable_alpha(module, heads):
    learned = module(1.7, learnable=True, heads=heads)
    z = scores(2, 4, 3, 7)
    torch.testing.assert_close(learned(z), module(1.7)(z), rtol=1e-6, atol=1e-7)
    optimizer = torch.optim.SGD(learned.parameters(), lr=1.0)
    learned(z)[..., 0].sum().backward()
    optimizer.step()
    (parameter,) = learned.parameters()
    assert parameter.shape == (() if heads is None else (4,))
    alpha = 1 + parameter.double().sigmoid()
    assert (alpha != 1.7).all() and ((alpha > 1) & (alpha < 2)).all()
    copy = module(1.2, learnable=True, heads=heads)
    copy.load_state_dict(learned.state_dict())
    torch.testing.assert_close(copy(z), learned(z))
    assert isinstance(learned, nn.Module)
    with pytest.raises(ValueError, match="between 1 and 2, got 2.5"):
        module(2.5, learnable=True)
    with pytest.raises(ValueError, match="heads"):
        module(heads=4)


# --- torch.func -------------------------------------------------------------------------------

MAPPINGS = {
    "alpha_relu": lambda z: sf.alpha_relu(z, 1.5, 0.2),
    "entmax": lambda z: sf.entmax(z, 1.3),
    "sparsemax": sf.sparsemax,
}


@pytest.mark.parametrize("classes", [6, 140])
@pytest.mark.parametrize("name", MAPPINGS)
def test_func_transforms_of_mappings(name, classes):
    f, z = MAPPINGS[name], scores(3, classes)
    torch.testing.assert_close(torch.func.vmap(f)(z), f(z))
    torch.testing.assert_close(torch.func.vmap(f, in_dims=1, out_dims=1)(z.t()), f(z).t())
    jacobian = torch.func.jacrev(f)(z[0])
    torch.testing.assert_close(jacobian, torch.autograd.functional.jacobian(f, z[0]))
    per_sample = torch.func.vmap(torch.func.grad(lambda row: f(row)[0]))(z)
    leaf = z.clone().requires_grad_()
    torch.testing.assert_close(per_sample, torch.autograd.grad(f(leaf)[:, 0].sum(), leaf)[0])


@pytest.mark.parametrize("classes", [6, 140])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_func_transforms_of_losses(name, reduction, classes):
    z, y = scores(4, 3, classes), targets(4, 3, classes=classes)

    def loss(z, y):
        return LOSSES[name](z, y, reduction=reduction).sum()

    each = torch.func.vmap(torch.func.grad(loss))(z, y)
    for sample in range(4):
        leaf = z[sample].clone().requires_grad_()
        expected = torch.autograd.grad(loss(leaf, y[sample]), leaf)[0]
        torch.testing.assert_close(each[sample], expected)
        torch.testing.assert_close(torch.func.grad(loss)(z[sample], y[sample]), expected)
    values = torch.func.vmap(loss)(z, y)
    torch.testing.assert_close(values, torch.stack([loss(z[i], y[i]) for i in range(4)]))


def test_func_transforms_of_fused_losses_name_the_alternative():
    h, weight, y = scores(3, 4), scores(20, 4), targets(3, classes=20)
    with pytest.raises(RuntimeError, match="use the plain loss of F.linear"):
        torch.func.grad(lambda h: sf.linear_entmax_loss(h, weight, y))(h)
    with pytest.raises(RuntimeError, match="use the plain loss of F.linear"):
        torch.func.vmap(lambda h, y: sf.linear_alpha_relu_loss(h, weight, y, 1.5, 0.1))(h, y)


# --- one pass over the logits -------------------------------------------------------------------


@only("host")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_rows_with_weights_cost_no_second_pass(reduction, monkeypatch):
    """The logits of sparse rows are computed once, however their losses are weighted."""
    from sparse_fairseq.functional._host import layer

    products = []
    logits = layer._logits
    monkeypatch.setattr(layer, "_logits", lambda *a: products.append(1) or logits(*a))
    h, weight = scores(5, 6).requires_grad_(), scores(400, 6, seed=1, scale=3).requires_grad_()
    loss = sf.linear_entmax_loss(h, weight, targets(5, classes=400), reduction=reduction)
    (loss * torch.arange(5.0)).sum().backward()
    assert len(products) == 1
