"""What is done, done again, gone on with, and refused; with commands that only pretend."""

import json
from contextlib import contextmanager

import pytest

from data_prep.files import lock
from experiments import run
from experiments.run_folder import Run
from sparse_fairseq.errors import UsageError
from tests.pretended_runs import CONFIG

TRAIN = "fairseq-train"
WHOLE = [TRAIN, "fairseq-generate", "fairseq-generate"]


def interrupt_training(place, *words: str) -> None:
    place.commands.interrupt = True
    with pytest.raises(SystemExit, match="130"):
        place.call("relu15", "1", "train", *words)
    place.commands.interrupt = False


def test_what_is_done_is_not_done_again(place):
    assert place.call() == WHOLE
    assert place.call() == []


def test_an_edited_reference_is_scored_again(place):
    place.call("relu15", "1")
    before, scores = place.manifest["stages"]["score"]["made_from"], place.run / "scores.json"
    old = scores.read_text()
    (place.folder / "data/tiny/text/test.en").write_text("something else\n")
    assert place.call("relu15", "1") == []  # nothing is decoded for it
    assert place.manifest["stages"]["score"]["made_from"] != before
    assert scores.read_text() != old
    manifest = place.manifest
    del manifest["stages"]["score"]["made_from"]["references"]  # as version 0.1 wrote it
    (place.run / "manifest.json").write_text(json.dumps(manifest))
    place.call("relu15", "1")
    assert place.manifest == manifest


def test_a_run_that_was_interrupted_is_not_made_shorter(place):
    """fairseq would load the longer training's checkpoint, and end."""
    interrupt_training(place)
    with pytest.raises(UsageError, match=r"was trained longer \(max-epoch = 3, not 1\)"):
        place.call("--epochs=1")
    assert place.manifest["settings"]["max-epoch"] == 3
    assert place.call() == WHOLE


def test_a_run_without_a_checkpoint_may_become_shorter(place):
    place.commands.saves = ()
    interrupt_training(place)
    place.commands.saves = ("checkpoint_last.pt", "checkpoint_best.pt")
    assert place.call("--epochs=1") == WHOLE


def test_what_does_not_limit_a_training_is_longer_than_any_number(place):
    place.configure(CONFIG.replace("max-epoch: 3", "max-update: 900"))
    place.call("--epochs=2")
    assert TRAIN in place.call()  # 900 updates, in any number of epochs
    with pytest.raises(UsageError, match=r"max-epoch = unlimited, not 2"):
        place.call("--epochs=2")


def test_an_end_that_was_not_written_down_is_found_in_the_log(place):
    """fairseq looks at --max-update after an update only, and so would do one too many."""
    place.call("relu15", "1", "train")
    place.forget("train")
    assert place.call() == WHOLE[1:]
    assert "train" in place.manifest["stages"]


def test_the_end_of_a_shorter_training_is_no_end(place):
    place.call("relu15", "1", "train", "--epochs=2")
    interrupt_training(place)
    assert place.call("relu15", "1", "train") == [TRAIN]
    # Killed before fairseq came to its first batch: the log ends with the shorter training.
    text = (place.run / "train.log").read_text()
    place.call("relu15", "1", "train", "--epochs=5")
    place.forget("train")
    (place.run / "train.log").write_text(text)
    assert place.call("relu15", "1", "train", "--epochs=5") == [TRAIN]


def test_decoding_does_not_change_what_a_model_was_trained_with(place):
    place.call("relu15", "1", "train", "--epochs=2")
    place.call("relu15", "1", "generate")
    assert place.manifest["settings"]["max-epoch"] == 2
    assert TRAIN in place.call()


@pytest.mark.parametrize("interval", ["save-interval: 1000000", "validate-interval: 10"])
def test_few_epochs_leave_a_checkpoint_also_where_the_config_looks_rarely(place, interval):
    place.configure(CONFIG.replace("lr: 0.1", f"lr: 0.1, {interval}"))
    place.call("--epochs=5")
    name = interval.partition(":")[0]
    assert f"--{name}=1" in place.manifest["commands"]["train"][0]
    assert TRAIN in place.call("--epochs=20")  # goes on, with the config's interval or ours


@pytest.mark.parametrize("epochs, interval", [(15, 5), (19, 1), (20, 10)])
def test_the_last_epoch_can_be_the_best_one(place, epochs, interval):
    """fairseq looks at epochs 10, 20 … only; what it has not looked at is never selected."""
    place.configure(CONFIG.replace("lr: 0.1", "lr: 0.1, validate-interval: 10"))
    place.call(f"--epochs={epochs}")
    assert f"--validate-interval={interval}" in place.manifest["commands"]["train"][0]


def test_training_without_a_best_checkpoint_is_not_finished(place):
    place.commands.saves = ("checkpoint_last.pt",)
    with pytest.raises(UsageError, match="has no checkpoint_best.pt, no validation took place"):
        place.call()
    assert "train" not in place.manifest["stages"]


def test_a_model_that_is_still_being_trained_does_not_decode(place):
    place.call("relu15", "1", "train")
    interrupt_training(place, "--epochs=5")
    with pytest.raises(UsageError, match="seed1 has not been trained"):
        place.call("relu15", "1", "generate")
    with pytest.raises(UsageError, match="seed1 has not been trained"):
        place.call("relu15", "ensemble", "--seeds=1")


def test_who_waited_for_a_run_does_not_do_it_again(place, monkeypatch):
    """The second call looked at the run before the first one had done it."""
    interrupt_training(place)
    place.commands.run_commands.clear()
    others = iter([place.plan()])

    @contextmanager
    def long_wait(*arguments):
        for plan in others:
            run.perform(plan, place.commands)
            assert place.commands.programs == WHOLE
        with lock(*arguments) as held:
            yield held

    monkeypatch.setattr(run, "lock", long_wait)
    run.perform(place.plan(), place.commands)
    assert place.commands.programs == WHOLE


def test_where_an_average_is_kept_it_is_taken_out_and_decodes(place):
    """What selects a checkpoint is what decodes, and what analyses load (OpenNMT-py does so)."""
    average = "store-ema: true, ema-decay: 0.9, validate-with-ema: true"
    place.configure(CONFIG.replace("max-epoch: 3", f"max-epoch: 3, {average}"))
    programs = place.call("relu15", "1")
    assert programs == ["fairseq-train", "python", "fairseq-generate", "fairseq-generate"]
    train, take_out, *generate = place.commands.run_commands
    assert {"--store-ema", "--validate-with-ema"} <= {*train}
    best, ema = (f"{place.run}/checkpoints/checkpoint_{name}.pt" for name in ("best", "ema"))
    assert take_out[1:] == ["-m", "experiments.ema", best, ema]
    assert all(f"--path={ema}" in command for command in generate)
    assert str(Run(place.run).decoded_checkpoint()) == ema
