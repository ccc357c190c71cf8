"""How often a search waits for the device.

There is none here. A stand-in for one: each call that would have to fetch a value, or whose
result's shape depends on values, or that moves data between host and device, is counted.
"""

import collections

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from tiny_fairseq import make_batch, make_model, make_task
from torch.overrides import TorchFunctionMode

from sparse_fairseq.generation import SparseSequenceGenerator
from sparse_fairseq.output_transform import OutputSettings

FETCHES = {
    *("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__contains__"),
    *("nonzero", "masked_select", "unique", "equal", "allclose", "bincount", "cpu"),
    *("repeat_interleave", "tensor", "as_tensor", "new_tensor"),
}


class StandIn(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.waits = collections.Counter()

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if must_wait(getattr(function, "__name__", ""), args, kwargs or {}):
            self.waits[function.__name__] += 1
        return function(*args, **(kwargs or {}))


def must_wait(name: str, args: tuple, kwargs: dict) -> bool:
    if name == "to":  # `.to(dtype)` and `.to(tensor)` of the same place move nothing
        return any(isinstance(x, torch.device | str) for x in (*args[1:], *kwargs.values()))
    if name in ("__getitem__", "__setitem__"):
        return has_mask(args[1])
    return name in FETCHES or (name == "where" and len(args) == 1)


def has_mask(index) -> bool:
    """A boolean mask, or a list, which has to be copied to the device."""
    parts = index if isinstance(index, tuple) else (index,)
    return any(
        isinstance(p, list) or (isinstance(p, torch.Tensor) and p.dtype == torch.bool)
        for p in parts
    )


@pytest.fixture(scope="module")
def task():
    return make_task(vocab=32)


def waits_per_step(kind, model, task, beam, steps=12, **settings) -> float:
    """The difference between a long search and a short one."""
    counts = []
    for length in (steps, 2 * steps):
        generator = kind([model], task.tgt_dict, beam, min_len=length, max_len_b=length, **settings)
        with StandIn() as stand_in:
            generator.generate([model], make_batch(task, sentences=4, length=6))
        counts.append(sum(stand_in.waits.values()))
    return (counts[1] - counts[0]) / steps


@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize(
    "output",
    [OutputSettings(), OutputSettings("entmax", 1.5), OutputSettings("alpha_relu", 1.5, 0.1)],
    ids=str,
)
def test_a_step_waits_less_often_than_stock(task, beam, output):
    torch.manual_seed(0)
    model = make_model(task).eval()
    stock = waits_per_step(SequenceGenerator, model, task, beam)
    model.decoder.output_transform.settings = output
    ours = waits_per_step(SparseSequenceGenerator, model, task, beam)
    assert ours <= 14
    if output.kind == "softmax":  # the same models as stock: entmax on a CPU asks the values
        assert ours <= stock
