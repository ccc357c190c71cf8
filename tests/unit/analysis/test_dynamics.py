"""A hand-written log of a run that was killed and went on."""

import json

import pytest
from hand_made import make_run

from experiments.analysis import alpha_sweep, dynamics
from experiments.analysis.shared.analysis import NotMeasured


def line(time: str, logger: str, text) -> str:
    text = text if isinstance(text, str) else json.dumps(text)
    return f"2026-11-16 {time} | INFO | {logger} | {text}\n"


def valid(updates: int, accuracy: float, loss: float = 1.0) -> dict:
    record = {"epoch": updates // 100, "valid_accuracy": str(accuracy), "valid_loss": str(loss)}
    return {**record, "valid_num_updates": str(updates)}


def saved(updates: int) -> str:
    return f"Saved checkpoint /x/checkpoint_last.pt (epoch 1 @ {updates} updates, score 1.0) (…)"


FIRST = [
    line("10:00:00", "fairseq_cli.train", "{'_name': None}"),
    "a warning without a time\n",
    line("10:00:10", "fairseq.trainer", "No existing checkpoint found /x/checkpoint_last.pt"),
    line("10:01:10", "valid", valid(100, 20.5)),
    line("10:01:12", "fairseq.checkpoint_utils", saved(100)),
    line("10:01:12", "train", {"epoch": 1, "train_wps": "500", "train_num_updates": "100"}),
    line("10:02:12", "valid", valid(200, 99.0)),  # lost: killed before it was saved
]
SECOND = [
    line("12:00:00", "fairseq_cli.train", "{'_name': None}"),
    line("12:00:20", "fairseq.trainer", "Loaded checkpoint /x/last.pt (epoch 2 @ 100 updates)"),
    line("12:01:20", "valid", valid(200, 40.0)),
    line("12:01:21", "fairseq.checkpoint_utils", saved(200)),
    line("12:02:20", "valid", valid(300, 38.0, loss=0.5)),
]


def test_lost_work_counts_neither_in_updates_nor_in_time(tmp_path):
    run = make_run(tmp_path)
    run.train_log.write_text("".join(FIRST + SECOND))
    result = dynamics.compute(run, {})
    found = [(p["updates"], p["seconds"], p["accuracy"]) for p in result["points"]]
    # 62 s until the checkpoint was written, and 60 s more for each 100 updates after it.
    assert found == [(100, 60, 20.5), (200, 122, 40.0), (300, 182, 38.0)]
    assert result["seconds"] == 182 and result["restarts"] == 1
    assert result["training"] == [{"updates": 100, "epoch": 1, "seconds": 62, "wps": 500}]


def test_a_line_that_was_cut_short_is_left_out(tmp_path):
    run = make_run(tmp_path)
    cut = FIRST[-1][: len(FIRST[-1]) // 2] + "\n"
    run.train_log.write_text("".join([*FIRST[:-1], cut, *SECOND]))
    assert [p["updates"] for p in dynamics.compute(run, {})["points"]] == [100, 200, 300]


def test_alpha_sweep_is_made_anew_when_training_ends(tmp_path):
    settings = {"criterion": "entmax_loss", "alpha": 1.5}
    run = make_run(tmp_path, settings=settings)
    run.train_log.write_text("".join(SECOND))
    path = run.path.parents[1] / "analysis" / "alpha_sweep.json"
    alpha_sweep.ANALYSIS.perform([run])
    assert "missing" in json.loads(path.read_text())
    run = make_run(tmp_path, settings=settings, stages={"train": {}})
    run.checkpoint.parent.mkdir()
    run.checkpoint.touch()
    alpha_sweep.ANALYSIS.perform([run])
    assert json.loads(path.read_text())["result"]["points"]


def test_a_run_without_validation_is_not_measured(tmp_path):
    run = make_run(tmp_path)
    with pytest.raises(NotMeasured, match=r"train\.log is missing"):
        dynamics.compute(run, {})
    run.train_log.write_text("".join(FIRST[:3]))
    with pytest.raises(NotMeasured, match="no validation"):
        dynamics.compute(run, {})


@pytest.mark.parametrize(
    "flags, alphas",
    [
        ({"criterion": "cross_entropy"}, (1.0, None)),
        ({"criterion": "softmax_loss", "attention-alpha": 1.5}, (1.0, 1.5)),
        ({"criterion": "sparsemax_loss", "cross-attention-alpha": 2}, (2.0, 2.0)),
        ({"criterion": "entmax_loss", "alpha": 1.33, "attention-alpha": 1.5}, (1.33, 1.5)),
        ({"criterion": "alpha_relu_loss", "alpha": 1.5}, None),
        ({"criterion": "entmax_loss", "cross-attention-alpha": "learned"}, None),
        ({}, None),
    ],
)
def test_alphas_of_a_run(flags, alphas):
    assert alpha_sweep.alphas_of(flags) == alphas


def test_alpha_sweep_takes_the_accuracy_of_the_selected_checkpoint(tmp_path):
    by_accuracy = {"best-checkpoint-metric": "accuracy", "maximize-best-checkpoint-metric": True}
    flags = {"criterion": "entmax_loss", "alpha": 1.5}
    trained = {"stages": {"train": {}}}
    runs = [
        make_run(tmp_path, "out1.5_att1", 1, settings={**flags, **by_accuracy}, **trained),
        make_run(tmp_path, "out1.5_att1", 2, settings=flags, **trained),  # by loss
        make_run(tmp_path, "relu15", 1, settings={"criterion": "alpha_relu_loss"}, **trained),
        make_run(
            tmp_path, "x", 1, settings={**flags, "cross-attention-alpha": "learned"}, **trained
        ),
        make_run(tmp_path, "out1.5_att2", 1, settings={**flags, "attention-alpha": 2}),  # goes on
    ]
    for run in runs:
        run.train_log.write_text("".join(SECOND))
    result = alpha_sweep.compute(runs, {})
    assert [(p["seed"], p["accuracy"]) for p in result["points"]] == [(1, 40.0), (2, 38.0)]
    (mean,) = result["means"]
    assert (mean["output_alpha"], mean["attention_alpha"], mean["n"]) == (1.5, None, 2)
    assert mean["mean"] == 39.0 and mean["std"] == pytest.approx(2**0.5)
