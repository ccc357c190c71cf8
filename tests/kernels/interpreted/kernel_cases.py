"""Inputs and float64 references of the kernels' tests. Scores lie among NaN, so that a load out of
bounds shows. Everything is made on the CPU and goes to torch's default device, which is a GPU in
``tests/gpu``."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from sparse_fairseq.functional import reference
from sparse_fairseq.functional._triton import launch
from sparse_fairseq.functional._triton.launch import Family

FENCE = 64
IGNORED = -100
FAMILIES = [
    *(Family(alpha, 0.3) for alpha in (1.2, 1.5, 2.0, 3.0)),
    Family(1.02, -0.9),  # in float64
    *(Family(alpha) for alpha in (1.001, 1.2, 1.5, 1.9, 2.0)),
]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# Of p − q, relative to its largest entry. The interpreter truncates to bfloat16, hardware rounds.
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def name(value) -> str:
    if isinstance(value, Family):
        return f"entmax{value.alpha}" if value.tau is None else f"relu{value.alpha}"
    return str(value).removeprefix("torch.")


def fenced(values: Tensor, fill: float) -> tuple[Tensor, Tensor]:
    """(buffer, view of it with the values), with FENCE elements of ``fill`` on both sides."""
    size = values.numel() + 2 * FENCE
    buffer = torch.full((size,), fill, dtype=values.dtype, device=values.device)
    view = buffer[FENCE : FENCE + values.numel()].view(values.shape)
    view.copy_(values)
    return buffer, view


def canaries_around_outputs(monkeypatch) -> Iterator[list[tuple[Tensor, int]]]:
    """Until the generator goes on, every output of a kernel lies between canaries; then they are
    looked at. Yields a list of (buffer, size of the output in it), which grows."""
    made: list[tuple[Tensor, int]] = []

    def new_output(like: Tensor, dtype: torch.dtype, *shape: int) -> Tensor:
        buffer, view = fenced(torch.empty(shape, dtype=dtype, device=like.device), 77)
        made.append((buffer, view.numel()))
        return view

    monkeypatch.setattr(launch, "new_output", new_output)
    yield made
    for buffer, size in made:
        assert (buffer[:FENCE] == 77).all(), "a kernel wrote before its output"
        assert (buffer[FENCE + size :] == 77).all(), "a kernel wrote behind its output"


def scores(
    rows: int, classes: int, dtype=torch.float32, seed: int = 0, scale: float = 2.0
) -> Tensor:
    """Rows with a gap of NaN behind each."""
    generator = torch.Generator().manual_seed(seed + classes)
    values = torch.randn(rows, classes, generator=generator, device="cpu") * scale
    wide = torch.full((rows, classes + 3), float("nan"), dtype=dtype)
    wide[:, :classes] = values.to(wide)
    return wide[:, :classes]


def targets(rows: int, classes: int) -> Tensor:
    """The second row is ignored, if there is one."""
    generator = torch.Generator().manual_seed(classes)
    y = torch.randint(classes, (rows,), generator=generator, device="cpu")
    y[1:2] = IGNORED
    return y.to(torch.get_default_device())


class Expected(NamedTuple):
    loss: Tensor
    p: Tensor
    gradient: Tensor  # p − q


def expected(family: Family, z: Tensor, y: Tensor, smoothing: float = 0.0) -> Expected:
    """In float64, from the definitions. Ignored rows are those of class 0."""
    device, z, y = z.device, z.double().clamp(min=-1e30), y.cpu()
    with torch.device("cpu"):
        z = z.cpu()  # clamped: 0 · −inf is what the reference cannot do
        q = reference.smoothed(y.where(y != IGNORED, 0), z.shape[1], smoothing)
        if family.tau is None:
            p = reference.entmax(z, family.alpha)
            loss = reference.entmax_loss(z, q, family.alpha)
        else:
            p = reference.alpha_relu(z, family.alpha, family.tau)
            loss = reference.alpha_relu_loss(z, q, family.alpha, family.tau)
    return Expected(loss.to(device), p.to(device), (p - q).to(device))


def assert_near(found: Tensor, wanted: Tensor, tolerance: float) -> None:
    """Relative to the largest entry (at least 1)."""
    error = (found.double() - wanted.double()).abs().max().item()
    size = max(1.0, wanted.abs().max().item())
    assert error <= tolerance * size, (error, tolerance * size)
