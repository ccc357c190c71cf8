"""Certificates, counted from lines whose answer is plain."""

import pytest
from hand_made import make_run, write_generated

from experiments.analysis import exactness
from experiments.analysis.shared.analysis import NotMeasured


def test_shares(tmp_path):
    run = make_run(tmp_path)
    lines = [
        ("yes", "yes", 1, "finished"),
        ("yes", "yes", 3, "finished"),
        ("no", "no", 1, "finished"),  # one was found, but others were pruned
        ("no", "no", 5, "finished"),
        ("no", "yes", 0, "forced"),
    ]
    write_generated(run, "valid", [{"hypothesis": "a", "exactness": line} for line in lines])
    result = exactness.compute(run, {})
    assert result == {
        "valid": {
            "sentences": 5,
            "certified_raw": 40.0,
            "certified_normalized": 0.0,
            "exhaustive": 60.0,
            "single_hypothesis": 20.0,
            "forced": 1,
            "mean_hypotheses": 2.0,
            "counts": [[0, 1], [1, 2], [3, 1], [5, 1]],
            "beam": 5,
        }
    }


def test_nothing_generated_and_nothing_certified(tmp_path):
    run = make_run(tmp_path)
    with pytest.raises(NotMeasured, match="nothing was generated"):
        exactness.compute(run, {})
    write_generated(run, "test", [{"hypothesis": "a"}])
    with pytest.raises(NotMeasured, match="no E- lines"):
        exactness.compute(run, {})
