"""Validation and shaping of arguments, shared by the mappings and the losses. No math."""

import math

import torch
from torch import Tensor

SOLVERS = ("auto", "sort", "topk", "bisect")
REDUCTIONS = ("mean", "sum", "none")


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype that results are computed in: at least float32."""
    if not dtype.is_floating_point:
        raise ValueError(f"scores must be floating-point, got {dtype}")
    return torch.float64 if dtype == torch.float64 else torch.float32


def check_alpha(alpha: float | Tensor, minimum: float = 1.0, strict: bool = False) -> None:
    """Raise a ValueError unless every α is finite and at least (strictly above) ``minimum``."""
    bound = f"alpha must be {'>' if strict else '>='} {minimum:g}"
    if isinstance(alpha, Tensor):
        values = alpha.detach()
        above = values > minimum if strict else values >= minimum
        wrong = values[~(above & values.isfinite())]
        if wrong.numel():
            raise ValueError(f"{bound} and finite, got {wrong.flatten()[0].item()}")
        return
    if not math.isfinite(alpha) or alpha < minimum or (strict and alpha == minimum):
        raise ValueError(f"{bound} and finite, got {alpha}")


def alpha_per_row(alpha: float | Tensor, leading: torch.Size) -> float | Tensor:
    """α for rows of the given leading shape: a number, or a float64 column [rows, 1].

    A tensor with one element that needs no gradient is a number; anything else must broadcast to
    the leading shape followed by 1, for the classes.
    """
    if not isinstance(alpha, Tensor):
        return float(alpha)
    if alpha.numel() == 1 and not alpha.requires_grad:
        return float(alpha.item())
    rows = torch.Size((*leading, 1))
    try:
        expanded = alpha.to(torch.float64).expand(rows)
    except RuntimeError:
        raise ValueError(
            f"alpha of shape {tuple(alpha.shape)} does not broadcast to {tuple(rows)}: "
            "one alpha for each row of scores"
        ) from None
    return expanded.reshape(-1, 1)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_solver(solver: str, topk: int, n_iter: int) -> None:
    check_choice("solver", solver, SOLVERS)
    for name, value in (("topk", topk), ("n_iter", n_iter)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


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
    finite = bool(tau.isfinite().all()) if isinstance(tau, Tensor) else math.isfinite(tau)
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
    return float(value)
