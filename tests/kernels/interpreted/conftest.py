"""Kernels on CPU tensors, with canaries around everything that they write."""

import pytest
import torch
from kernel_cases import FENCE, fenced

from sparse_fairseq.functional._triton import launch


@pytest.fixture(autouse=True)
def canaries(monkeypatch):
    """The interpreter stores out of bounds without a word: every output lies between canaries."""
    made = []

    def new_output(like, dtype, *shape):
        buffer, view = fenced(torch.empty(shape, dtype=dtype), 77)
        made.append((buffer, view.numel()))
        return view

    monkeypatch.setattr(launch, "new_output", new_output)
    yield made
    for buffer, size in made:
        assert (buffer[:FENCE] == 77).all(), "a kernel wrote before its output"
        assert (buffer[FENCE + size :] == 77).all(), "a kernel wrote behind its output"


@pytest.fixture
def small_blocks(monkeypatch):
    """Rows of 100 classes are long ones: no tiles, several blocks."""
    monkeypatch.setattr(launch, "LONGEST_TILE", dict.fromkeys(launch.LONGEST_TILE, 0))
    monkeypatch.setattr(launch, "LONGEST_MAPPING_TILE", 0)
    sizes = dict.fromkeys(launch.LONGEST_BLOCK, 32) | {"double": 16}
    monkeypatch.setattr(launch, "LONGEST_BLOCK", sizes)
