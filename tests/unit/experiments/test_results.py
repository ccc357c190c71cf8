"""The table of the terminal: which of several measures it shows."""

import json

import pytest

from experiments.results import collect, table


@pytest.mark.parametrize("generate, exact", [({"unnormalized": True}, "91.0"), ({}, "12.0")])
def test_exact_is_about_the_score_that_ranked(tmp_path, generate, exact):
    run = tmp_path / "d" / "entmax15" / "seed1"
    run.mkdir(parents=True)
    manifest = {"config": {"generate": generate}, "data": {}, "commands": {}, "stages": {}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    (run / "scores.json").write_text('{"test": {"exact_raw": 91.0, "exact_normalized": 12.0}}')
    head, _, row = table(collect(tmp_path, "d")).strip().splitlines()
    assert head.split()[1:] == ["exact", "%"]
    assert row.split() == ["entmax15", exact]
