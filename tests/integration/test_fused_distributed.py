"""The fused output layer in fairseq-train where it could go wrong: several workers, an LSTM, EMA,
gradient clipping, recomputed activations. The same training without it must give the same weights.
"""

import random
from functools import partial

import pytest
import torch
from fairseq.checkpoint_utils import load_ema_from_checkpoint
from fairseq_runs import together, train
from test_training import last, two_workers, weights

ENTMAX = ["--criterion=entmax_loss", "--dropout=0", "--max-epoch=1"]


def assert_same_weights(found: dict, expected: dict, tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for key in expected:
        close = {"atol": tolerance, "rtol": tolerance, "equal_nan": True}  # entmax has no tau
        torch.testing.assert_close(found[key], expected[key], **close)


def assert_fused(finished) -> None:
    assert "cannot be fused" not in finished.text


def two_lstm_workers(data, save_dir, backend, *args):
    """Both ranks of one run on this machine; the Finished of rank 0."""
    port = random.randint(20000, 60000)
    shared = ["--distributed-world-size=2", "--distributed-no-spawn", "--distributed-backend=gloo"]
    shared += [f"--distributed-init-method=tcp://127.0.0.1:{port}", f"--ddp-backend={backend}"]
    worker = partial(train, data, save_dir, *args, *shared, arch="lstm")
    return together(*(partial(worker, f"--distributed-rank={rank}") for rank in (0, 1)))[0]


def test_two_workers_of_an_lstm_equal_one_without_fusing(reversal_data, tmp_path):
    """LSTM decoders tie their output to embeddings that the encoder does not have: DDP would
    hang or fail if it took the weight of the fused layer for unused."""
    args = [*ENTMAX, "--share-decoder-input-output-embed"]
    alone = ["--update-freq=2", "--no-fused-output"]
    plain = train(reversal_data, tmp_path / "one", *args, *alone, arch="lstm")
    expected = weights(tmp_path / "one")
    for backend in ("pytorch_ddp", "legacy_ddp"):
        two = two_lstm_workers(reversal_data, tmp_path / backend, backend, *args)
        assert_fused(two)
        assert last(two) == pytest.approx(last(plain), abs=1e-4)
        assert_same_weights(weights(tmp_path / backend), expected, 1e-4)


def test_workers_that_accumulate_equal_one_without_fusing(reversal_data, tmp_path):
    """Gradients of all but the last of an update's batches stay where they are: under no_sync."""
    alone = ["--update-freq=4", "--no-fused-output"]
    plain = train(reversal_data, tmp_path / "one", *ENTMAX, *alone)
    expected = weights(tmp_path / "one")
    for backend in ("pytorch_ddp", "legacy_ddp"):
        args = [reversal_data, tmp_path / backend, backend, *ENTMAX, "--update-freq=2"]
        two = two_workers(*args)
        assert_fused(two)
        updates = [x.records("train_inner")[-1]["num_updates"] for x in (two, plain)]
        assert updates[0] == updates[1]
        assert last(two) == pytest.approx(last(plain), abs=1e-4)
        assert_same_weights(weights(tmp_path / backend), expected, 1e-4)


def test_ema_clipping_and_checkpointing_are_the_same_without_fusing(reversal_data, tmp_path):
    args = [*ENTMAX, "--store-ema", "--ema-decay=0.9", "--clip-norm=0.1"]
    args += ["--checkpoint-activations", "--share-all-embeddings"]
    run = partial(train, reversal_data)
    fused, plain = together(
        partial(run, tmp_path / "fused", *args),
        partial(run, tmp_path / "plain", *args, "--no-fused-output"),
    )
    assert_fused(fused)
    assert float(fused.records("train")[-1]["train_clip"]) > 50  # % of updates that were clipped
    assert last(fused) == pytest.approx(last(plain), abs=1e-4)
    assert_same_weights(weights(tmp_path / "fused"), weights(tmp_path / "plain"), 1e-4)
    averages = (
        load_ema_from_checkpoint(tmp_path / name / "checkpoint_last.pt")["model"]
        for name in ("fused", "plain")
    )
    assert_same_weights(*averages, 1e-4)
