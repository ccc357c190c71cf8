"""The interpreter's cases of ``test_kernel_losses`` on the device, against CPU float64."""

from test_kernel_losses import *  # noqa: F403
