"""The interpreter's cases of ``test_kernel_layer`` on the device, against CPU float64."""

from test_kernel_layer import *  # noqa: F403
