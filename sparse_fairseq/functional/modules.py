"""The losses as modules that hold their options, for users of ``torch.nn``."""

from torch import Tensor, nn

from .losses import alpha_relu_loss, entmax_loss


class _Loss(nn.Module):
    def __init__(self, **options) -> None:
        super().__init__()
        self.options = options

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class AlphaReLULoss(_Loss):
    """:func:`alpha_relu_loss` with fixed options."""

    def __init__(
        self,
        alpha: float = 1.5,
        tau: float | None = None,
        *,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(
            alpha=alpha,
            tau=tau,
            reduction=reduction,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
        )

    def forward(self, z: Tensor, target: Tensor) -> Tensor:
        return alpha_relu_loss(z, target, **self.options)


class EntmaxLoss(_Loss):
    """:func:`entmax_loss` with fixed options. ``alpha`` may be a parameter."""

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        *,
        reduction: str = "mean",
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        solver: str = "auto",
        topk: int | None = None,
        n_iter: int | None = None,
    ) -> None:
        super().__init__(
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
        return entmax_loss(z, target, self.alpha, **self.options)


class SparsemaxLoss(EntmaxLoss):
    """:func:`sparsemax_loss` with fixed options."""

    def __init__(self, **options) -> None:
        super().__init__(2.0, **options)
