"""The kernels in Triton's interpreter, on CPU tensors, in a process of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "interpreted"
CASES = 300


def run_interpreted(*arguments: str) -> subprocess.CompletedProcess:
    """pytest in a process that interprets; what Triton warns of (0/0 in lanes that are masked
    later) is left out."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n0",
        "-W",
        "ignore",
        "-p",
        "no:cacheprovider",
        "-p",
        "quick_interpreter",
    ]
    path = os.pathsep.join([str(FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, env=environment, cwd=FOLDER
    )


def test_kernels_agree_with_the_references():
    done = run_interpreted(str(FOLDER))
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= CASES


@pytest.mark.slow
def test_kernels_keep_the_contract_of_functional():
    """The tests of all routes, on this one. Left out: what rounds to bfloat16, which the
    interpreter truncates; a test on a device does it (tests/gpu)."""
    folder = FOLDER.parents[1] / "unit" / "functional"
    files = ("test_earlier_bugs.py", "test_losses.py", "test_mappings.py", "test_fused.py")
    rounding = (
        "test_bfloat16_is_summed_in_float32 or bfloat16 and "
        "(test_half_precision_is_computed_in_float32 "
        "or test_half_precision_rounds_the_difference_of_p_and_q)"
    )
    done = run_interpreted(*(str(folder / file) for file in files), "-k", f"not ({rounding})")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
