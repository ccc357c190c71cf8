"""What the kernels share: the powers of both families, one Newton step, and the rows' layout.

With ε = α − 1, u = z − max z and c = (max p)^ε, α-entmax is p = [εu + c]₊^(1/ε). A kernel carries
c where α is 1.5 or 2, and log max p elsewhere, which stays exact as α goes to 1.
"""

import triton
import triton.language as tl

# How a power is computed: products for α = 1.5 and α = 2, logarithms otherwise.
SQUARE = tl.constexpr(0)
LINEAR = tl.constexpr(1)
POWER = tl.constexpr(2)

# What a pass over a row writes: nothing but the row's fields, the gradient in every column, or the
# gradient's non-zeros as a list.
VALUE_ONLY = tl.constexpr(0)
DENSE = tl.constexpr(1)
LISTED = tl.constexpr(2)

# The float32 fields of a row.
LOSS = tl.constexpr(0)
SHIFT = tl.constexpr(1)  # max z of entmax; NaN in a row that holds NaN or +inf
STATE = tl.constexpr(2)  # of Newton
INVERSE = tl.constexpr(3)  # 1 / Σ of what Newton ended with
SUPPORT = tl.constexpr(4)
TOTAL = tl.constexpr(5)
SCORE = tl.constexpr(6)  # p of the target
CORRECT = tl.constexpr(7)
FIELDS = tl.constexpr(8)

# Newton: Σp − 1 that ends it (p is divided by Σp then), and steps at most (9 are seen).
ENOUGH = tl.constexpr(5e-7)
MAX_STEPS = tl.constexpr(40)


@triton.jit
def log1p(x):
    """Exact for small x too, without a library that the interpreter does not have."""
    w = 1.0 + x
    near = w == 1.0
    return tl.where(near, x, tl.log(w) * (x / tl.where(near, 1.0, w - 1.0)))


@triton.jit
def expm1(x):
    w = tl.exp(x)
    near = w == 1.0
    gone = w == 0.0
    rest = (w - 1.0) * (x / tl.log(tl.where(near | gone, 2.0, w)))
    return tl.where(near, x, tl.where(gone, -1.0, rest))


@triton.jit
def relu_power(gap, beta, KIND: tl.constexpr):
    """gap^β for gap ≥ 0."""
    if KIND == SQUARE:
        return gap * gap
    elif KIND == LINEAR:
        return gap
    else:
        inside = gap > 0.0
        return tl.where(inside, tl.exp(tl.log(tl.where(inside, gap, 1.0)) * beta), 0.0)


@triton.jit
def entmax_powers(u, state, eps, KIND: tl.constexpr):
    """p and p^(2−α), before p is divided by its sum."""
    if KIND == SQUARE:
        gap = tl.maximum(u * 0.5 + state, 0.0)
        return gap * gap, gap
    elif KIND == LINEAR:
        gap = tl.maximum(u + state, 0.0)
        return gap, (gap > 0.0).to(tl.float32)
    else:
        c = tl.exp(eps * state)
        t = eps * u / c
        inside = t > -1.0
        t = tl.where(inside, t, 0.0)
        p = tl.where(inside, tl.exp(state + log1p(t) / eps), 0.0)
        return p, p / (c * (1.0 + t))


@triton.jit
def newton_step(total, slope, state, eps, KIND: tl.constexpr):
    """Newton for ‖[εu + c]₊‖ = 1 in the norm of 1/ε, which is convex in c: from above, no step
    goes too far."""
    if KIND == SQUARE:
        return state - (total - tl.sqrt(total)) / slope
    elif KIND == LINEAR:
        return state - (total - 1.0) / slope
    else:
        share = -total * expm1(-eps * tl.log(total)) / (slope * tl.exp(eps * state))
        return state + log1p(-share) / eps


@triton.jit
def newton_start(KIND: tl.constexpr):
    """c = 1: the largest score alone would have p = 1."""
    if KIND == POWER:
        return 0.0
    else:
        return 1.0


@triton.jit
def entmax_conjugate(score, total, state, eps, KIND: tl.constexpr):
    """Ω*(z − max z) = (ε Σpu + (1 − c)/ε) / α, with c of the normalised p."""
    if KIND == SQUARE:
        rest = 2.0 * (1.0 - state / tl.sqrt(total))
    elif KIND == LINEAR:
        rest = 1.0 - state / total
    else:
        rest = -expm1(eps * (state - tl.log(total))) / eps
    return (eps * score + rest) / (1.0 + eps)
