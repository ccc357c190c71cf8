"""The names, arguments and defaults of the entmax package (1.3), computed by this one.

``from sparse_fairseq.functional import entmax_api as entmax`` is all that a program has to change.
What approximates there is exact here: ``k``, ``n_iter`` and ``ensure_sum_one`` are taken and change
nothing.
docs/migrating-from-entmax.md lists the differences.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from . import losses, mappings

BISECTIONS = 100  # for α < 1 and budgets: until float64 shows no more change


# --- mappings -------------------------------------------------------------------------------


def sparsemax(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
    """Sparsemax along ``dim``.

    >>> sparsemax(torch.tensor([1.0, 0.5, -1.0]))
    tensor([0.7500, 0.2500, 0.0000])
    """
    return mappings.sparsemax(X, dim)


def entmax15(X: Tensor, dim: int = -1, k: int | None = None) -> Tensor:
    """1.5-entmax along ``dim``."""
    return mappings.entmax(X, 1.5, dim)


def sparsemax_bisect(
    X: Tensor, dim: int = -1, n_iter: int = 50, ensure_sum_one: bool = True
) -> Tensor:
    """Sparsemax along ``dim``, exactly."""
    return mappings.sparsemax(X, dim)


def entmax_bisect(
    X: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    n_iter: int = 50,
    ensure_sum_one: bool = True,
) -> Tensor:
    """α-entmax along ``dim``, exactly; α > 0, a number or a tensor that broadcasts to X with size 1
    in ``dim``. α = 1 is softmax. Below 1 nothing is sparse."""
    if not isinstance(alpha, Tensor):
        return _dense_entmax(X, alpha, dim) if alpha < 1 else mappings.entmax(X, alpha, dim)
    low = alpha < 1
    if not bool(low.any()):
        return mappings.entmax(X, alpha, dim)
    dense = _dense_entmax(X, torch.where(low, alpha, 0.5), dim)
    return torch.where(low, dense, mappings.entmax(X, torch.where(low, 1.5, alpha), dim))


def _dense_entmax(X: Tensor, alpha: float | Tensor, dim: int) -> Tensor:
    """0 < α < 1: p = ((1−α)(max x − x) + c)^(−1/(1−α)), where c ≥ 1 makes the sum one."""
    if not bool(torch.as_tensor(alpha > 0).all()):
        raise ValueError(f"alpha must be > 0, got {alpha}")
    x = X.to(torch.promote_types(X.dtype, torch.float32))
    below = (1 - alpha) * (x.detach().amax(dim, keepdim=True) - x)
    exponent = 1 / (alpha - 1)
    with torch.no_grad():
        low = torch.ones_like(below.amax(dim, keepdim=True))
        high = low * X.shape[dim] ** (1 - alpha)
        for _ in range(BISECTIONS):
            c = (low + high) / 2
            over = (below + c).pow(exponent).sum(dim, keepdim=True) > 1
            low, high = torch.where(over, c, low), torch.where(over, high, c)
        slope = exponent * (below + low).pow(exponent - 1).sum(dim, keepdim=True)
    # One Newton step that autograd sees: its derivative is that of the root.
    c = low - ((below + low).pow(exponent).sum(dim, keepdim=True) - 1) / slope
    return (below + c).pow(exponent).to(X.dtype)


def normmax_bisect(X: Tensor, alpha: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> Tensor:
    """max ⟨x, p⟩ − ‖p‖_α over the simplex, for α > 1, exactly.

    p ∝ g^(1/(α−1)) for gaps g = [x − τ]₊ with Σ g^(α/(α−1)) = 1: these powers are entmax of
    x·α/(α−1) for 2 − 1/α.
    """
    powers = mappings.entmax(X * (alpha / (alpha - 1)), 2 - 1 / alpha, dim)
    inside = powers > 0
    weight = powers.where(inside, 1.0).pow(1 / alpha).where(inside, 0.0)
    return weight / weight.sum(dim, keepdim=True)


def budget_bisect(X: Tensor, budget: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> Tensor:
    """max ⟨x, p⟩ − ½‖p‖² with 0 ≤ p ≤ 1 that sum to ``budget``: clip(x − τ, 0, 1)."""
    with torch.no_grad():
        low, high = X.amin(dim, keepdim=True) - 1, X.amax(dim, keepdim=True)
        for _ in range(BISECTIONS):
            tau = (low + high) / 2
            over = (X - tau).clamp(0, 1).sum(dim, keepdim=True) > budget
            low, high = torch.where(over, tau, low), torch.where(over, high, tau)
        between = (low < X) & (low + 1 > X)
        ones = (low + 1 <= X).sum(dim, keepdim=True)
    # τ from the entries that are not clipped: what autograd sees of it.
    size = between.sum(dim, keepdim=True)
    tau = (X.where(between, 0.0).sum(dim, keepdim=True) + ones - budget) / size.clamp(min=1)
    p = (X - torch.where(size > 0, tau, low)).clamp(0, 1)
    everything = torch.as_tensor(budget, device=X.device) >= X.shape[dim]
    return torch.where(everything, torch.ones_like(p), p)


class _Applied(nn.Module):
    """A function of this module with the arguments that its constructor was given."""

    function: Callable[..., Tensor]

    def __init__(self, **arguments) -> None:
        super().__init__()
        self._names = tuple(arguments)
        for name, value in arguments.items():
            setattr(self, name, value)

    def applied(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, **{name: getattr(self, name) for name in self._names})

    def forward(self, X: Tensor) -> Tensor:
        return self.applied(X)


class Sparsemax(_Applied):
    function = staticmethod(sparsemax)

    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__(dim=dim, k=k)


class Entmax15(_Applied):
    function = staticmethod(entmax15)

    def __init__(self, dim: int = -1, k: int | None = None) -> None:
        super().__init__(dim=dim, k=k)


class SparsemaxBisect(_Applied):
    function = staticmethod(sparsemax_bisect)

    def __init__(self, dim: int = -1, n_iter: int | None = None) -> None:
        super().__init__(dim=dim, n_iter=n_iter)


class EntmaxBisect(_Applied):
    function = staticmethod(entmax_bisect)

    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__(alpha=alpha, dim=dim, n_iter=n_iter)


class NormmaxBisect(_Applied):
    function = staticmethod(normmax_bisect)

    def __init__(self, alpha: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__(alpha=alpha, dim=dim, n_iter=n_iter)


class BudgetBisect(_Applied):
    function = staticmethod(budget_bisect)

    def __init__(self, budget: float | Tensor = 2, dim: int = -1, n_iter: int = 50) -> None:
        super().__init__(budget=budget, dim=dim, n_iter=n_iter)


# --- losses ---------------------------------------------------------------------------------


def sparsemax_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    """The sparsemax loss of each row."""
    return losses.sparsemax_loss(X, target, reduction="none")


def entmax15_loss(X: Tensor, target: Tensor, k: int | None = None) -> Tensor:
    """The 1.5-entmax loss of each row."""
    return losses.entmax_loss(X, target, 1.5, reduction="none")


def sparsemax_bisect_loss(X: Tensor, target: Tensor, n_iter: int = 50) -> Tensor:
    """The sparsemax loss of each row."""
    return losses.sparsemax_loss(X, target, reduction="none")


def entmax_bisect_loss(
    X: Tensor, target: Tensor, alpha: float | Tensor = 1.5, n_iter: int = 50
) -> Tensor:
    """The α-entmax loss of each row; a tensor α receives a gradient."""
    return losses.entmax_loss(X, target, alpha, reduction="none")


def normmax_bisect_loss(
    X: Tensor, target: Tensor, alpha: float | Tensor = 2, n_iter: int = 50
) -> Tensor:
    """⟨p − q, x⟩ − ‖p‖_α + 1 of each row, with gradient p − q for x."""
    p = normmax_bisect(X.detach(), alpha, -1, n_iter)
    norm = p.pow(alpha).sum(-1).pow(1 / alpha) if isinstance(alpha, Tensor) else p.norm(alpha, -1)
    at_target = X.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (p * X.where(p > 0, 0.0)).sum(-1) - at_target + (1 - norm)


class _Loss(_Applied):
    """``reduction`` is "elementwise_mean" (or "mean"), "sum" or "none"."""

    def __init__(self, ignore_index: int, reduction: str, **arguments) -> None:
        super().__init__(**arguments)
        if reduction not in ("elementwise_mean", "mean", "sum", "none"):
            raise ValueError(f"reduction must be elementwise_mean, sum or none, got {reduction!r}")
        self.reduction, self.ignore_index = reduction, int(ignore_index)

    def forward(self, X: Tensor, target: Tensor) -> Tensor:  # type: ignore[override]
        ignored = target == self.ignore_index
        loss = self.applied(X, target.masked_fill(ignored, 0)).masked_fill(ignored, 0.0)
        if self.reduction == "none":
            return loss
        if self.reduction == "sum":
            return loss.sum()
        return loss.sum() / (~ignored).sum().clamp(min=1)


class SparsemaxLoss(_Loss):
    function = staticmethod(sparsemax_loss)

    def __init__(
        self, k: int | None = None, ignore_index: int = -100, reduction: str = "elementwise_mean"
    ) -> None:
        super().__init__(ignore_index, reduction, k=k)


class SparsemaxBisectLoss(_Loss):
    function = staticmethod(sparsemax_bisect_loss)

    def __init__(
        self, n_iter: int = 50, ignore_index: int = -100, reduction: str = "elementwise_mean"
    ) -> None:
        super().__init__(ignore_index, reduction, n_iter=n_iter)


class Entmax15Loss(_Loss):
    function = staticmethod(entmax15_loss)

    def __init__(
        self, k: int | None = 100, ignore_index: int = -100, reduction: str = "elementwise_mean"
    ) -> None:
        super().__init__(ignore_index, reduction, k=k)


class EntmaxBisectLoss(_Loss):
    function = staticmethod(entmax_bisect_loss)

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction, alpha=alpha, n_iter=n_iter)


class NormmaxBisectLoss(_Loss):
    function = staticmethod(normmax_bisect_loss)

    def __init__(
        self,
        alpha: float | Tensor = 2,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ) -> None:
        super().__init__(ignore_index, reduction, alpha=alpha, n_iter=n_iter)
