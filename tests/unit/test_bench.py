"""The benchmark of training looks inside of the fused layer: what it looks for must be there."""

from argparse import Namespace

import pytest

from experiments.bench.train_speed import PARTS, SYSTEMS, Bench, profile


@pytest.mark.filterwarnings("ignore")
def test_the_profile_finds_every_part_of_an_update(tmp_path):
    sizes = {"vocab": 2000, "dim": 64, "ffn": 0, "layers": 1, "tokens": 480, "support": 10}
    rows = profile(Bench(Namespace(**sizes, not_fused=False), tmp_path))
    assert [row["system"] for row in rows] == list(SYSTEMS)
    assert all(row[part] >= 0 for row in rows for part in PARTS)  # whole milliseconds
