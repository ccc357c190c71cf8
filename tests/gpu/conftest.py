"""Tests on a GPU: `make test-gpu`. Without one they fail; none is skipped for want of it.

The cases are those of the interpreter (tests/kernels/interpreted), with the GPU as torch's default
device.
"""

from pathlib import Path

import pytest
import torch

from experiments.bench.gpu.environment import NoGPU, environment, write_json

OUTCOMES: dict[str, str] = {}


def pytest_collection_modifyitems(items) -> None:
    for item in items:
        if Path(__file__).parent in Path(item.path).parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def gpu(request):
    if torch.cuda.is_available():
        return torch.device("cuda")
    if request.config.option.markexpr == "gpu":  # nothing else is to be run: say it once
        pytest.exit(f"test-gpu: {NoGPU()}", returncode=1)
    pytest.fail(str(NoGPU()), pytrace=False)


@pytest.fixture(autouse=True)
def on_the_gpu(gpu, monkeypatch):
    monkeypatch.delenv("SPARSE_FAIRSEQ_ROUTE", raising=False)
    with gpu:
        yield


@pytest.fixture
def canaries(monkeypatch):
    """As in the interpreter. Not around the outputs of ``test_only_on_gpu``: they are large, and
    graphs and peaks of memory are of what users run."""
    from kernel_cases import canaries_around_outputs

    yield from canaries_around_outputs(monkeypatch)


@pytest.fixture
def small_blocks(monkeypatch):
    """Rows of 100 classes are long ones: no tiles, several blocks."""
    from sparse_fairseq.functional._triton import launch

    monkeypatch.setattr(launch, "LONGEST_TILE", dict.fromkeys(launch.LONGEST_TILE, 0))
    monkeypatch.setattr(launch, "LONGEST_MAPPING_TILE", 0)
    sizes = dict.fromkeys(launch.LONGEST_BLOCK, 32) | {"double": 16}
    monkeypatch.setattr(launch, "LONGEST_BLOCK", sizes)


def pytest_runtest_logreport(report) -> None:
    if "tests/gpu/" in report.nodeid and (report.when == "call" or report.outcome != "passed"):
        OUTCOMES[report.nodeid] = report.outcome


def pytest_sessionfinish(session) -> None:
    """One JSON: on what, and how each test ended."""
    if not OUTCOMES or not torch.cuda.is_available():
        return
    counts = {name: list(OUTCOMES.values()).count(name) for name in set(OUTCOMES.values())}
    failed = sorted(name for name, outcome in OUTCOMES.items() if outcome == "failed")
    content = {"environment": environment(), "outcomes": counts, "failed": failed}
    print(f"\nwritten to {write_json(None, 'test', content)}")
