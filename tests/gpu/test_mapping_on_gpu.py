"""The interpreter's cases of ``test_kernel_mapping`` on the device, against CPU float64."""

from test_kernel_mapping import *  # noqa: F403
