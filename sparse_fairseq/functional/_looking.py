"""Whether a tensor's values may be read on the host, and whether it is one of ``torch.func``."""

import torch
from torch import Tensor


def may_look(tensor: Tensor) -> bool:
    """Whether values may be read to decide or to complain: elsewhere that waits for the device,
    breaks the graph, or has no answer (a sample of ``torch.func.vmap`` has no value of its own)."""
    if tensor.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    return not is_transformed(tensor)


def is_transformed(tensor: Tensor) -> bool:
    """Whether it is inside of ``torch.func.grad``, ``vmap`` or their like."""
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor)
