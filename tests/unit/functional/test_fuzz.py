"""2,400 random cases over shape, dtype, α, scale, infinities, ties and solver.

Each case checks the mapping by its optimality conditions and both losses by their definition.
The cases are seeded: a failure names its number and repeats. Every other
part is left to the slow tests.
"""

import random

import pytest
import torch
from helpers import assert_is_entmax

from sparse_fairseq import functional as sf
from sparse_fairseq.functional import reference

CASES, PARTS = 2400, 24
EACH_PART = [
    part if part % 2 == 0 else pytest.param(part, marks=pytest.mark.slow) for part in range(PARTS)
]
DTYPES = (torch.float64, torch.float32, torch.float32, torch.bfloat16, torch.float16)


def draw_case(number: int):
    rng = random.Random(number)
    torch.default_generator.manual_seed(number)  # torch.manual_seed formats the stack
    rows = rng.choice([1, 2, 5])
    classes = rng.choice([1, 2, 3, 17, 64, 127, 128, 129, 200, 1000, 1024, 1500])
    dtype = rng.choice(DTYPES)
    alpha = rng.choice([1.0, 1.5, 2.0, 1.0 + 10 ** rng.uniform(-4, 0), rng.uniform(1, 2.2)])
    scale = 10 ** rng.uniform(-4, 4)
    z = torch.randn(rows, classes, dtype=torch.float64) * scale
    if rng.random() < 0.3:  # ties, and many of them
        z = (z / scale).round() * scale
    if rng.random() < 0.2:
        z[torch.rand(z.shape) < rng.choice([0.1, 0.9])] = -float("inf")
        z[:, rng.randrange(classes)] = 0.0
    if dtype == torch.float16:
        z = z.clamp(min=-6e4, max=6e4).masked_fill(z == -float("inf"), -float("inf"))
    solver = rng.choice(["auto", "auto", "auto", "sort", "topk", "bisect"])
    return z.to(dtype), alpha, solver, rng


def check_mapping(z, alpha, solver, where):
    exact = z.double()
    p = sf.entmax(
        z if z.dtype in (torch.float32, torch.float64) else z.float(), alpha, solver=solver
    )
    assert sf.entmax(z, alpha, solver=solver).dtype == z.dtype, where
    tolerance = 1e-9 if p.dtype == torch.float64 else 1e-6
    if alpha == 1.0:
        torch.testing.assert_close(p.double(), exact.softmax(-1), rtol=1e-3, atol=tolerance)
        return
    if solver == "bisect":  # in the dtype of z: its τ is as exact as that dtype
        tolerance = tolerance * 100 if alpha <= 2 else 0.05
    assert_is_entmax(p, exact, alpha, tolerance)


def check_losses(z, alpha, solver, rng, where):
    classes = z.shape[1]
    y = torch.randint(classes, (len(z),))
    upstream = torch.randn(len(z), dtype=torch.float64)
    losses = [("entmax", lambda z: sf.entmax_loss(z, y, alpha, solver=solver, reduction="none"))]
    tau = rng.uniform(-1, 1)
    if alpha > 1.1:
        relu = ("alpha_relu", lambda z: sf.alpha_relu_loss(z, y, alpha, tau, reduction="none"))
        losses.append(relu)
    for name, function in losses:
        leaf = z.clone().requires_grad_()
        loss = function(leaf)
        (grad,) = torch.autograd.grad(loss, leaf, upstream.to(loss.dtype))
        assert grad.dtype == z.dtype and not loss.isnan().any(), (where, name)
        at_target = z.gather(1, y[:, None]).squeeze(1)
        assert ((loss == float("inf")) == (at_target == -float("inf"))).all(), (where, name)
        own = z.double().clamp(min=-1e30)  # 0 · −inf is what the reference cannot do
        q = reference.smoothed(y, classes)
        if name == "entmax":
            p = sf.entmax(z.double(), alpha)
            expected = reference.entmax_loss(own, q, alpha)
        else:
            p = reference.alpha_relu(own, alpha, tau)
            expected = reference.alpha_relu_loss(own, q, alpha, tau)
        finite = loss.isfinite()
        # The largest term in the sum of the definition, which a float32 result rounds to.
        shift = tau / (alpha - 1) if name == "alpha_relu" else 0.0
        size = 1 + (p * (own - shift)).abs().sum(1) + at_target.double().abs().where(finite, 0.0)
        error = ((loss.double() - expected).where(finite, 0.0)).abs() / size
        assert (loss[finite] >= -1e-6 * size[finite]).all(), (where, name)
        assert (error < 2e-6).all(), (where, name, error)
        half = {torch.bfloat16: 1e-2, torch.float16: 1e-3}.get(z.dtype, 1e-5)
        bisected = 100 if solver == "bisect" and name == "entmax" else 1
        if bisected == 1 or alpha <= 2:
            expected_grad = upstream[:, None] * (p - q)
            largest = 1 + expected_grad.abs().amax(1, keepdim=True)
            if largest.max() < 6e4:
                assert ((grad.double() - expected_grad).abs() < bisected * half * largest).all(), (
                    where,
                    name,
                )


@pytest.mark.parametrize("part", EACH_PART)
def test_random_cases(part):
    for number in range(part, CASES, PARTS):
        z, alpha, solver, rng = draw_case(number)
        before = z.clone()
        where = f"case {number}: {tuple(z.shape)} {z.dtype} alpha={alpha} solver={solver}"
        check_mapping(z, alpha, solver, where)
        check_losses(z, alpha, solver, rng, where)
        assert torch.equal(z, before), where
