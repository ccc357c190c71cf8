"""`--lr-scheduler halve_on_loss`: S2S §4, "halved whenever the loss increases"."""

from argparse import Namespace

import pytest
import torch
from fairseq.logging.meters import AverageMeter
from fairseq.optim.sgd import SGD
from tiny_fairseq import make_task

from sparse_fairseq.errors import UsageError
from sparse_fairseq.optim import HalveOnLoss


@pytest.fixture
def task():
    return make_task()


def make_schedule(lr=(0.001,), name="sparse_translation"):
    flags = Namespace(lr=list(lr), momentum=0.0, weight_decay=0.0)
    optimizer = SGD(flags, [torch.nn.Parameter(torch.zeros(1))])
    return HalveOnLoss(Namespace(lr=list(lr), task=name), optimizer)


def validate(task, *losses):
    """One validation as fairseq does it, with a subset for each loss."""
    task.begin_valid_epoch(1, None)
    for loss in losses:
        meter = AverageMeter()
        meter.update(torch.tensor(loss))
        # What the best checkpoint is selected by is of no interest here.
        task.post_validate(None, {"loss": 0.0, "accuracy": 50.0}, {"loss": meter})


def test_halves_whenever_the_loss_is_above_the_last_one(task):
    schedule = make_schedule()
    rates = []
    for loss in (0.9, 0.5, 0.6, 0.55, 0.55, 0.56, 0.57, 0.3):
        validate(task, loss)
        rates.append(schedule.optimizer.get_lr())  # of the next update, without asking for it
    assert rates == [0.001, 0.001, *[0.0005] * 3, 0.00025, 0.000125, 0.000125]
    assert schedule.step_update(0) == 0.000125


def test_a_rise_in_the_last_digits_counts(task):
    """fairseq rounds what it logs to three or four digits."""
    schedule = make_schedule()
    validate(task, 0.05)
    validate(task, 0.050001)
    assert schedule.step_update(0) == 0.0005


def test_only_the_first_subset_counts(task):
    schedule = make_schedule()
    validate(task, 0.5, 0.1, 0.9)
    validate(task, 0.4, 0.8, 0.8)
    assert schedule.step_update(0) == 0.001
    validate(task, 0.45, 0.1, 0.1)
    assert schedule.step_update(0) == 0.0005


def test_epochs_without_validation_change_nothing(task):
    schedule = make_schedule()
    validate(task, 0.5)
    for epoch in (1, 2, 3):
        schedule.step(epoch, None)
    validate(task, 0.6)
    schedule.step(4, 99.0)
    assert schedule.step_update(0) == 0.0005


def test_state_carries_rate_and_last_loss(task):
    schedule = make_schedule()
    validate(task, 0.5)
    validate(task, 0.6)
    assert "best" in schedule.state_dict()  # which fairseq's own schedules look for
    resumed = make_schedule()
    resumed.load_state_dict(schedule.state_dict())
    assert resumed.step_update(0) == 0.0005
    validate(task, 0.61)  # reaches the schedule that was built last
    assert resumed.step_update(0) == 0.00025
    assert schedule.step_update(0) == 0.0005


def test_wrong_use_is_named(task):
    with pytest.raises(UsageError, match="needs --task sparse_translation"):
        make_schedule(name="translation")
    with pytest.raises(UsageError, match="one --lr"):
        make_schedule(lr=(0.1, 0.2))
    with pytest.raises(UsageError, match="--reset-lr-scheduler"):
        make_schedule().load_state_dict({"best": 0.3})
