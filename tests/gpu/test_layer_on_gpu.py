"""The interpreter's cases of ``test_kernel_layer`` on the device, against CPU float64,
with canaries around every output."""

import pytest
from test_kernel_layer import *  # noqa: F403

pytestmark = pytest.mark.usefixtures("canaries")
