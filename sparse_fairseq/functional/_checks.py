"""Validation and shaping of arguments, shared by the mappings and the losses. No math."""

import math
from typing import Any

import torch
from torch import Tensor

from ._looking import may_look

SOLVERS = ("auto", "sort", "topk", "bisect")
REDUCTIONS = ("mean", "sum", "none")
# The power 1/(α−1) of α-ReLU multiplies what rounding does to its gap: below this α float32 would
# lose more than its last digits.
ALPHA_RELU_DOUBLE_BELOW = 1.08


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that results are computed in: at least float32."""
    if not dtype.is_floating_point:
        raise ValueError(f"scores must be floating-point, got {dtype}")
    return torch.float64 if dtype == torch.float64 else torch.float32


def number(value: float) -> float:
    """The number as a constant. With ``dynamic=True`` torch.compile takes a float that is an
    argument for a symbol; as the key of a dict it is one value of it."""
    (constant,) = {float(value): None}
    return constant


def check_alpha(alpha: float | Tensor, minimum: float = 1.0, strict: bool = False) -> None:
    """Raise a ValueError unless every α is finite and at least (strictly above) ``minimum``.

    Of a tensor that may not be looked at, wrong entries make their rows NaN instead."""
    at_least = ">" if strict else ">="
    if isinstance(alpha, Tensor):
        if not may_look(alpha):
            return
        values = alpha.detach()
        above = values > minimum if strict else values >= minimum
        wrong = values[~(above & values.isfinite())]
        if wrong.numel():
            got = wrong.flatten()[0].item()
            raise ValueError(f"alpha must be {at_least} {minimum:g} and finite, got {got}")
        return
    alpha = number(alpha)
    if not math.isfinite(alpha) or alpha < minimum or (strict and alpha == minimum):
        raise ValueError(f"alpha must be {at_least} {minimum:g} and finite, got {alpha}")


def alpha_per_row(alpha: float | Tensor, leading: torch.Size) -> float | Tensor:
    """α for rows of the given leading shape: a number, or a float64 column [rows, 1].

    A tensor has the leading shape (one α for each row), or broadcasts to that shape followed by 1,
    for the classes. One with a single element that needs no gradient is a number.
    """
    if not isinstance(alpha, Tensor):
        return number(alpha)
    if alpha.numel() == 1 and not alpha.requires_grad and may_look(alpha):
        return float(alpha.item())
    rows = torch.Size((*leading, 1))
    wide = alpha.to(torch.float32 if alpha.device.type == "mps" else torch.float64)
    if alpha.shape == leading:
        return wide.reshape(-1, 1)
    try:
        expanded = wide.expand(rows)
    except RuntimeError:
        raise ValueError(
            f"alpha of shape {tuple(alpha.shape)} does not broadcast to {tuple(rows)}: "
            "one alpha for each row of scores"
        ) from None
    return expanded.reshape(-1, 1)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_solver(solver: str, topk: int | None, n_iter: int | None) -> dict[str, Any]:
    """The solver with its own option, or the default of it."""
    check_choice("solver", solver, SOLVERS)
    options: dict[str, Any] = {"solver": solver}
    for name, value, default, user in (
        ("topk", topk, 100, "topk"),
        ("n_iter", n_iter, 50, "bisect"),
    ):
        if value is not None and solver != user:
            raise ValueError(f"{name} is an option of solver={user!r}, not of {solver!r}")
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
        options[name] = default if value is None else value
    return options


def check_target(target: Tensor, shape: torch.Size) -> None:
    """Class indices must have the leading shape of the scores."""
    if target.dtype.is_floating_point or target.dtype == torch.bool:
        raise ValueError(
            f"target must hold class indices of shape {tuple(shape[:-1])} or probabilities of "
            f"shape {tuple(shape)}, got {target.dtype} of shape {tuple(target.shape)}"
        )
    if target.shape != shape[:-1]:
        raise ValueError(
            f"target has shape {tuple(target.shape)}, scores {tuple(shape)} need "
            f"{tuple(shape[:-1])}"
        )


def check_range(target: Tensor, classes: int, ignore_index: int) -> None:
    """Class indices must name a class, or be the index to ignore."""
    wrong = target[((target < 0) | (target >= classes)) & (target != ignore_index)]
    if wrong.numel():
        raise ValueError(
            f"target {wrong[0].item()} is out of range for {classes} classes "
            f"(ignore_index is {ignore_index})"
        )


def check_tau(tau: float | Tensor) -> None:
    if isinstance(tau, Tensor):
        finite = not may_look(tau) or bool(tau.isfinite().all())
    else:
        finite = math.isfinite(number(tau))
    if not finite:
        raise ValueError(f"tau must be finite, got {tau}")


def check_broadcast(name: str, value: float | Tensor, shape: torch.Size) -> None:
    """A tensor must broadcast to the scores without widening them."""
    if not isinstance(value, Tensor):
        return
    try:
        fits = torch.broadcast_shapes(value.shape, shape) == shape
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} of shape {tuple(value.shape)} does not broadcast to scores of shape "
            f"{tuple(shape)}"
        )


def check_constant(name: str, value: float | Tensor) -> float:
    """A number, or a tensor that holds one and asks for no gradient."""
    if isinstance(value, Tensor) and (value.numel() != 1 or value.requires_grad):
        raise ValueError(f"{name} must be one number without gradient, got {value}")
    return float(value) if isinstance(value, Tensor) else number(value)


def classes_last(tensor: Tensor, dim: int) -> Tensor:
    return tensor if dim in (-1, tensor.dim() - 1) else tensor.movedim(dim, -1)


def check_counted(counted: Tensor | None, classes: int) -> None:
    """One flag for each class: kernels read as many, without a look at the shape."""
    if counted is not None and (counted.shape != (classes,) or counted.dtype != torch.bool):
        raise ValueError(
            f"counted must be bool of shape ({classes},), got {counted.dtype} of shape "
            f"{tuple(counted.shape)}"
        )


def class_weight(weight: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """One weight for each class, as cross_entropy takes them."""
    if weight.shape != (classes,):
        raise ValueError(f"class weights have shape {tuple(weight.shape)}, need ({classes},)")
    if weight.requires_grad:
        raise ValueError("class weights get no gradient: detach them")
    return weight.to(dtype)
