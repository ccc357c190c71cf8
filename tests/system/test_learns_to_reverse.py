"""A small transformer learns to reverse digit strings with each kind of output."""

from functools import partial

import pytest
from fairseq_runs import run, together, write_reversal_data

SYSTEMS = {
    "softmax": ["--criterion=label_smoothed_cross_entropy", "--report-accuracy"],
    "sparsemax": ["--criterion=sparsemax_loss"],
    "entmax15": ["--criterion=entmax_loss", "--alpha=1.5"],
    "relu15": ["--criterion=alpha_relu_loss", "--alpha=1.5"],
}
MODEL = (
    "--arch=transformer --encoder-layers=1 --decoder-layers=1 --encoder-embed-dim=64 "
    "--decoder-embed-dim=64 --encoder-ffn-embed-dim=128 --decoder-ffn-embed-dim=128 "
    "--encoder-attention-heads=2 --decoder-attention-heads=2 --dropout=0"
)
TRAINING = (
    "--optimizer=adam --lr=0.004 --lr-scheduler=polynomial_decay --total-num-update=600 "
    "--warmup-updates=60 --max-update=600 --batch-size=64 --seed=1 --cpu --num-workers=0 "
    "--validate-interval=100 --no-save --log-format=json"
)


@pytest.mark.system
def test_every_system_reaches_99_percent_token_accuracy(tmp_path):
    data = write_reversal_data(tmp_path, {"train": 3000, "valid": 300}, longest=6)

    def learn(system):
        flags = [*MODEL.split(), *TRAINING.split(), f"--save-dir={tmp_path / system}"]
        done = run("fairseq-train", data, "--task=sparse_translation", *flags, *SYSTEMS[system])
        return done.records("valid")[-1]

    final = dict(zip(SYSTEMS, together(*(partial(learn, s) for s in SYSTEMS)), strict=True))
    for system, record in final.items():
        assert float(record["valid_accuracy"]) >= 99, (system, record)
    # Sure of itself, a sparse model keeps about one symbol of the ten.
    for system in ("sparsemax", "entmax15", "relu15"):
        assert float(final[system]["valid_support"]) < 2, (system, final[system])
        assert float(final[system]["valid_zero_targets"]) < 1
    assert float(final["relu15"]["valid_total_score"]) == pytest.approx(1, abs=0.05)
