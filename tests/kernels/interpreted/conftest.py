"""Kernels on CPU tensors, with canaries around everything that they write."""

import pytest
from kernel_cases import canaries_around_outputs

from sparse_fairseq.functional._triton import launch


@pytest.fixture(autouse=True)
def canaries(monkeypatch):
    """The interpreter stores out of bounds without a word: every output lies between canaries."""
    yield from canaries_around_outputs(monkeypatch)


@pytest.fixture
def small_blocks(monkeypatch):
    """Rows of 100 classes are long ones: no tiles, several blocks."""
    monkeypatch.setattr(launch, "LONGEST_TILE", dict.fromkeys(launch.LONGEST_TILE, 0))
    monkeypatch.setattr(launch, "LONGEST_MAPPING_TILE", 0)
    sizes = dict.fromkeys(launch.LONGEST_BLOCK, 32) | {"double": 16}
    monkeypatch.setattr(launch, "LONGEST_BLOCK", sizes)
