"""Checkpoints of an earlier version load, decode and resume as they did (see tests/checkpoints)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq_runs import environment

FOLDER = Path(__file__).parent.parent / "checkpoints"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict:
    """What this version does with them, in one process: starting fairseq takes most of the time."""
    folder = tmp_path_factory.mktemp("replay")
    program = [sys.executable, FOLDER / "replay.py", "tell", folder]
    done = subprocess.run(program, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads((folder / "told.json").read_text())


@pytest.mark.parametrize("kind", EXPECTED)
def test_it_decodes_as_it_did(told, kind):
    for hypotheses, expected in zip(told[kind]["decoded"], EXPECTED[kind]["decoded"], strict=True):
        assert [words for words, _ in hypotheses] == [words for words, _ in expected]
        scores = [score for _, score in expected]
        assert [score for _, score in hypotheses] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("kind", EXPECTED)
def test_it_resumes_as_it_did(told, kind):
    assert told[kind]["losses"] == pytest.approx(EXPECTED[kind]["losses"], abs=2e-4)
    sums = EXPECTED[kind]["sums of weights"]
    assert told[kind]["sums of weights"] == pytest.approx(sums, rel=1e-3, abs=1e-4)
