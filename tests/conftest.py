"""Fixtures of the tests that need fairseq, and the way to their helper modules."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def reversal_data(tmp_path_factory) -> Path:
    from fairseq_runs import write_reversal_data

    sizes = {"train": 400, "valid": 48, "test": 16}
    return write_reversal_data(tmp_path_factory.mktemp("reversal"), sizes, longest=6)
