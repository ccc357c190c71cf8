"""Sparse mappings and losses in plain torch: any torch user can import this; no fairseq here.

One call, ``entmax_loss(z, target)``, from top to bottom:

1. ``losses.py`` checks the arguments, puts classes last and reads the target: q, which rows count,
   and how much (``Rows``). Reductions and class weights are factors of rows from here on.
2. ``_routes.py`` decides which code computes: ``_host/`` (CPU: lists of the few candidates),
   ``_device/`` (torch operations only: other devices and torch.compile) or ``_triton/`` (kernels).
3. ``losses._FenchelYoung`` asks that route for the ``losses`` of the rows, multiplies and sums. Its
   backward pass asks the same route for the ``gradient``, scale · (p − q).
4. On the host, ``passes.py`` goes over blocks of rows: ``blocks.make_block`` finds the support as a
   list (or whole rows, where many classes are in it) and Ω*(z); the loss is Ω*(z) + Ω(q) − qᵀz; a
   sink keeps what the backward pass needs. On a device, ``_device/__init__.py`` does the same with
   whole rows, from what ``thresholds.solve`` finds in a fixed number of steps.

Three files are enough to follow it: ``losses.py``, ``_host/passes.py`` and ``_host/blocks.py``, or
``losses.py``, ``_device/__init__.py`` and ``_device/thresholds.py``.

The fused losses (``fused.py``) are the same with logits that are made block by block, and with a
sink that computes the gradients of states and weights at once. Mappings (``mappings.py``) skip the
loss.
``_problem.py`` has the types that are passed around, ``_newton.py`` and ``_solvers.py`` the math of
thresholds, ``_tsallis.py`` entropies and derivatives; ``reference.py`` is what tests compare with.
"""

from ._problem import RowStats
from .fused import linear_alpha_relu_loss, linear_entmax_loss
from .losses import alpha_relu_loss, entmax_loss, sparsemax_loss
from .mappings import alpha_relu, entmax, entmax_threshold, sparsemax
from .modules import AlphaReLU, AlphaReLULoss, Entmax, EntmaxLoss, Sparsemax, SparsemaxLoss
from .tau import batch_tau, gaussian_support, gaussian_tau, xavier_tau

__all__ = [
    "AlphaReLU",
    "AlphaReLULoss",
    "Entmax",
    "EntmaxLoss",
    "RowStats",
    "Sparsemax",
    "SparsemaxLoss",
    "alpha_relu",
    "alpha_relu_loss",
    "batch_tau",
    "entmax",
    "entmax_loss",
    "entmax_threshold",
    "gaussian_support",
    "gaussian_tau",
    "linear_alpha_relu_loss",
    "linear_entmax_loss",
    "sparsemax",
    "sparsemax_loss",
    "xavier_tau",
]
