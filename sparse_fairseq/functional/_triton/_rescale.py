"""A gradient that was made for one upstream gradient, for another one."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["grad_row", "classes"])
def rescale_kernel(
    grad_ptr, have_ptr, want_ptr, grad_row, have_row, want_row, classes,
    ALIGNED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Nothing is read or written where the factor is 1, as after ``loss.backward()``."""
    row = tl.program_id(0).to(tl.int64)
    have = tl.load(have_ptr + row * have_row)
    want = tl.load(want_ptr + row * want_row)
    if have != want:
        factor = want / have
        classes *= ALIGNED
        grad_ptr += row * grad_row * ALIGNED
        for start in range(0, classes, BLOCK):
            at = (start + tl.arange(0, BLOCK)).to(tl.int64)
            grad = tl.load(grad_ptr + at, mask=at < classes, other=0.0).to(tl.float32)
            grad = tl.where(want != 0.0, grad * factor, 0.0)  # 0 · NaN
            grad = grad.to(grad_ptr.dtype.element_ty)
            tl.store(grad_ptr + at, grad, mask=at < classes)
