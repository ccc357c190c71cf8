"""The benchmark of training looks inside of the fused layer: what it looks for must be there."""

from argparse import Namespace

import pytest

from experiments.bench.train_speed import PARTS, SYSTEMS, Bench, Stopwatch, profile


@pytest.mark.filterwarnings("ignore")
def test_the_profile_finds_every_part_of_an_update(tmp_path):
    sizes = {"vocab": 2000, "dim": 64, "ffn": 0, "layers": 1, "tokens": 480, "support": 10}
    bench = Bench(Namespace(**sizes, not_fused=False), tmp_path)
    rows = profile(bench)
    assert [row["system"] for row in rows] == list(SYSTEMS)
    for system in SYSTEMS:  # what no wrapped function was called for has no entry
        bench.choose(system)
        watch = Stopwatch()
        with bench.watched(watch, system):
            bench.update()
        assert {*watch.seconds} == {*PARTS[:-1]}, system
