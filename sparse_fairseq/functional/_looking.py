"""Whether a tensor's values may be read on the host."""

import torch
from torch import Tensor


def may_look(tensor: Tensor) -> bool:
    """Whether values may be read to decide or to complain: elsewhere that waits for the device, or
    breaks the graph."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()
