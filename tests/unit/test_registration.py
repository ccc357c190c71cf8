"""What registers the package with fairseq, and what does not: `import sparse_fairseq.register` does
(and --user-dir, see the tests of commands); `sparse_fairseq` and its `functional` do not."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sparse_fairseq

REGISTERED = """
from fairseq.tasks import TASK_REGISTRY
from fairseq.criterions import CRITERION_REGISTRY
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
found = {*TASK_REGISTRY, *CRITERION_REGISTRY, *ARCH_MODEL_REGISTRY, *LR_SCHEDULER_REGISTRY}
ours = {"sparse_translation", "alpha_relu_loss", "entmax_loss", "sparsemax_loss"}
ours |= {"sparse_transformer", "sparse_lstm", "halve_on_loss"}
"""
LIGHT = "import sys, sparse_fairseq, sparse_fairseq.functional; assert 'fairseq' not in sys.modules"


def python(program: str, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, **options)


@pytest.mark.parametrize(
    ("program", "registered"),
    [
        (f"{LIGHT}\nimport fairseq", "not ours & found"),
        (f"{LIGHT}\nimport sparse_fairseq.register", "ours <= found"),
        ("import fairseq, sparse_fairseq.register", "ours <= found"),
    ],
)
def test_only_the_documented_import_registers(program, registered):
    done = python(f"{program}\n{REGISTERED}\nassert {registered}, found")
    assert done.returncode == 0, done.stderr


def test_the_package_says_which_path_to_give(tmp_path):
    command = [sys.executable, "-m", "sparse_fairseq"]
    environment = {**os.environ, "PYTHONPATH": str(Path(sparse_fairseq.__file__).parent.parent)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert Path(done.stdout.strip()) == Path(sparse_fairseq.__file__).parent


def test_registering_leaves_the_root_logger_as_it_was():
    done = python(
        "import logging; root = logging.getLogger(); before = (root.level, list(root.handlers)); "
        "import sparse_fairseq.register; assert before == (root.level, root.handlers)"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_flags_lists_what_we_add_to_fairseq():
    done = subprocess.run(
        [sys.executable, "-m", "sparse_fairseq.flags"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    sections = {part.split("\n")[0]: part for part in re.split(r"^(?=--)", done.stdout, flags=re.M)}
    assert "  --end-search (default: auto)" in sections["--task sparse_translation"]
    assert "  --tau (default: batch)" in sections["--criterion alpha_relu_loss"]
    assert "  --cross-attention-alpha\n" in sections["--arch sparse_transformer"]
    assert "--dropout" not in done.stdout  # fairseq's own
