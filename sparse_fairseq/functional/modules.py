"""Mappings and losses as modules that hold their options, for users of ``torch.nn``."""

import math

import torch
from torch import Tensor, nn

from .losses import alpha_relu_loss, entmax_loss
from .mappings import alpha_relu, entmax


class _Alpha(nn.Module):
    """α: a number, or 1 + sigmoid of a parameter, in (1, 2) (Correia et al. 2019, "Adaptively
    Sparse Transformers")."""

    def __init__(self, alpha: float, learnable: bool, heads: int | None) -> None:
        super().__init__()
        if heads is not None and not learnable:
            raise ValueError("heads is for a learnable alpha: a fixed one is the same for all")
        if learnable and not 1.0 < alpha < 2.0:
            raise ValueError(f"a learnable alpha starts between 1 and 2, got {alpha}")
        self.fixed, self.heads = alpha, heads
        if learnable:
            start = math.log((alpha - 1.0) / (2.0 - alpha))
            self.logits = nn.Parameter(torch.full(() if heads is None else (heads,), start))
        else:
            self.register_parameter("logits", None)

    def forward(self) -> float | Tensor:
        """A number, or float64 that broadcasts to scores [..., heads, queries, keys]: half
        precision must not round α to 1 or 2."""
        if self.logits is None:
            return self.fixed
        alpha = 1.0 + self.logits.double().sigmoid()
        return alpha if self.heads is None else alpha.view(-1, 1, 1)

    def extra_repr(self) -> str:
        heads = "" if self.heads is None else f", heads={self.heads}"
        return f"{self.fixed}" if self.logits is None else f"{self.fixed}, learnable=True{heads}"


class Entmax(nn.Module):
    """:func:`entmax` with a fixed or a learnable α.

    Parameters
    ----------
    alpha
        α, or what a learnable one starts with, then between 1 and 2.
    dim
        The dimension of the classes; the last one for ``heads``.
    learnable
        Whether α is a parameter.
    heads
        One learnable α for each head of scores [..., heads, queries, keys].

    >>> Entmax(1.5)(torch.tensor([2.0, 1.0, -1.0]))
    tensor([0.8307, 0.1693, 0.0000])
    >>> Entmax(learnable=True, heads=8)(torch.randn(2, 8, 5, 5)).shape
    torch.Size([2, 8, 5, 5])
    """

    def __init__(
        self,
        alpha: float = 1.5,
        dim: int = -1,
        *,
        learnable: bool = False,
        heads: int | None = None,
    ) -> None:
        super().__init__()
        if heads is not None and dim != -1:
            raise ValueError("heads needs the classes in the last dimension")
        self.alpha, self.dim = _Alpha(alpha, learnable, heads), dim

    def forward(self, z: Tensor) -> Tensor:
        return entmax(z, self.alpha(), self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Sparsemax(Entmax):
    """:func:`sparsemax` as a module."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__(2.0, dim)


class AlphaReLU(nn.Module):
    """:func:`alpha_relu` with a fixed or a learnable α and a constant τ; α as in
    :class:`Entmax`."""

    def __init__(
        self,
        alpha: float = 1.5,
        tau: float = 0.0,
        *,
        learnable: bool = False,
        heads: int | None = None,
    ) -> None:
        super().__init__()
        self.alpha, self.tau = _Alpha(alpha, learnable, heads), tau

    def forward(self, z: Tensor) -> Tensor:
        return alpha_relu(z, self.alpha(), self.tau)

    def extra_repr(self) -> str:
        return f"tau={self.tau}"


class _Loss(nn.Module):
    """Holds options of a loss; class weights as a buffer, so that they follow the module."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, **options) -> None:
        super().__init__()
        self.options = options
        self.register_buffer("weight", weight)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class AlphaReLULoss(_Loss):
    """:func:`alpha_relu_loss` with fixed options."""

    def __init__(
        self,
        alpha: float = 1.5,
        tau: float | None = None,
        *,
        dim: int = -1,
        weight: Tensor | None = None,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            weight,
            alpha=alpha,
            tau=tau,
            dim=dim,
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )

    def forward(self, z: Tensor, target: Tensor) -> Tensor:
        return alpha_relu_loss(z, target, weight=self.weight, **self.options)


class EntmaxLoss(_Loss):
    """:func:`entmax_loss` with fixed options. ``alpha`` may be a parameter."""

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        *,
        dim: int = -1,
        weight: Tensor | None = None,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        solver: str = "auto",
        topk: int | None = None,
        n_iter: int | None = None,
    ) -> None:
        super().__init__(
            weight,
            dim=dim,
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            solver=solver,
            topk=topk,
            n_iter=n_iter,
        )
        self.alpha = alpha

    def extra_repr(self) -> str:
        return f"alpha={self.alpha!r}, {super().extra_repr()}"

    def forward(self, z: Tensor, target: Tensor) -> Tensor:
        return entmax_loss(z, target, self.alpha, weight=self.weight, **self.options)


class SparsemaxLoss(EntmaxLoss):
    """:func:`sparsemax_loss` with fixed options."""

    def __init__(self, **options) -> None:
        super().__init__(2.0, **options)
