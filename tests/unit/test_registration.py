"""Importing the package: light without fairseq, complete with it, in either order."""

import subprocess
import sys

import pytest

REGISTERED = """
from fairseq.tasks import TASK_REGISTRY
from fairseq.criterions import CRITERION_REGISTRY
assert "sparse_translation" in TASK_REGISTRY
assert {"alpha_relu_loss", "entmax_loss", "sparsemax_loss"} <= set(CRITERION_REGISTRY)
"""


@pytest.mark.parametrize(
    "program",
    [
        "import sys, sparse_fairseq.functional; assert 'fairseq' not in sys.modules\n" + REGISTERED,
        "import fairseq, sparse_fairseq\n" + REGISTERED,
        "import sparse_fairseq.output_transform, sparse_fairseq.criterions, sparse_fairseq.tasks\n"
        + REGISTERED,
    ],
    ids=["functional first", "fairseq first", "parts first"],
)
def test_registration(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
