"""Bytes that the kernels move for each score, counted load by load in the interpreter."""

import pytest
import torch
from kernel_cases import FAMILIES, name, scores
from triton.runtime.interpreter import interpreter_builder

from sparse_fairseq.functional._triton import launch
from sparse_fairseq.functional._triton.launch import Family, Target


class Traffic:
    """Bytes read from and written to each of the named tensors."""

    def __init__(self, **tensors: torch.Tensor) -> None:
        self.tensors = tensors
        self.read = dict.fromkeys(tensors, 0)
        self.written = dict.fromkeys(tensors, 0)

    def count(self, kind: dict, pointers, mask) -> None:
        width = pointers.get_element_ty().primitive_bitwidth // 8
        places = pointers.data[mask.data.astype(bool)]
        for key, tensor in self.tensors.items():
            start = tensor.data_ptr()
            end = start + tensor.untyped_storage().nbytes() - tensor.storage_offset() * width
            kind[key] += int(((places >= start) & (places < end)).sum()) * width


@pytest.fixture
def counting(monkeypatch):
    """Counts in the Traffic that it is given, from then on."""
    load, store = interpreter_builder.create_masked_load, interpreter_builder.create_masked_store
    into: list[Traffic] = []

    def counted_load(pointers, mask, *rest):
        for traffic in into:
            traffic.count(traffic.read, pointers, mask)
        return load(pointers, mask, *rest)

    def counted_store(pointers, value, mask, *rest):
        for traffic in into:
            traffic.count(traffic.written, pointers, mask)
        return store(pointers, value, mask, *rest)

    monkeypatch.setattr(interpreter_builder, "create_masked_load", counted_load)
    monkeypatch.setattr(interpreter_builder, "create_masked_store", counted_store)

    def start(**tensors: torch.Tensor) -> Traffic:
        into.append(Traffic(**tensors))
        return into[-1]

    return start


def one_pass(counting, family, z):
    y = torch.arange(len(z))
    out = torch.empty(z.shape, dtype=z.dtype)
    traffic = counting(z=z, out=out)
    options = {"stats": True, "scale": torch.ones(1), "out": out}
    launch.loss_rows(z, Target(y, -100, 0.1), family, **options)
    return traffic


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=name)
@pytest.mark.parametrize("family", FAMILIES, ids=name)
def test_loss_and_gradient_are_one_read_and_one_write(counting, family, dtype):
    """8 bytes for each float32 score, 4 in half precision: α-ReLU, and entmax in registers."""
    z = scores(2, 300, dtype).contiguous()
    traffic = one_pass(counting, family, z)
    size = z.numel() * z.element_size()
    assert traffic.read == {"z": size, "out": 0}
    assert traffic.written == {"z": 0, "out": size}


@pytest.mark.parametrize(
    ("family", "classes"), [(Family(1.5), 16_384), (Family(1.2), 8_192)], ids=name
)
def test_the_longest_rows_in_registers(counting, family, classes):
    z = scores(2, classes).contiguous()  # copied, so that the rows are aligned
    traffic = one_pass(counting, family, z)
    assert traffic.read["z"] == traffic.written["out"] == z.numel() * 4


def test_alpha_relu_reads_long_rows_once(counting):
    z = scores(1, 40_000).contiguous()
    traffic = one_pass(counting, Family(1.5, 0.3), z)
    assert traffic.read["z"] == traffic.written["out"] == z.numel() * 4


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_longer_rows_of_entmax_are_read_for_each_step(counting, small_blocks, alpha):
    """A pass for the maximum, at most 9 of Newton, one that writes."""
    z = scores(2, 300, scale=1.0).contiguous()
    traffic = one_pass(counting, Family(alpha), z)
    size = z.numel() * 4
    assert traffic.written["out"] == size
    assert 4 * size <= traffic.read["z"] <= 11 * size


@pytest.mark.parametrize("family", FAMILIES, ids=name)
def test_value_alone_and_backward(counting, family):
    """Where the upstream gradient is not known in time: two reads and a write together."""
    z = scores(2, 300).contiguous()
    target = Target(torch.tensor([3, 4]), -100, 0.0)
    size, traffic = z.numel() * 4, counting(z=z)
    fields = launch.loss_rows(z, target, family)
    assert traffic.read["z"] == size
    launch.loss_gradient(z, target, family, fields, torch.ones(2))
    assert traffic.read["z"] == 2 * size and traffic.written["z"] == 0


def test_ignored_rows_are_not_read(counting):
    z = scores(2, 300).contiguous()
    for family in (Family(1.5, 0.3), Family(1.5)):
        out = torch.empty_like(z)
        traffic = counting(z=z, out=out)
        target = Target(torch.tensor([-100, -100]), -100, 0.0)
        launch.loss_rows(z, target, family, scale=torch.ones(1), out=out)
        assert traffic.read["z"] == 0 and traffic.written["out"] == z.numel() * 4


def test_rescaling_by_one_moves_nothing(counting):
    grad, ones = torch.randn(3, 300), torch.ones(3)
    traffic = counting(grad=grad)
    launch.rescale_(grad, ones, ones)
    assert traffic.read["grad"] == traffic.written["grad"] == 0
    launch.rescale_(grad, ones, 2 * ones)
    assert traffic.read["grad"] == traffic.written["grad"] == grad.numel() * 4


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_attention(counting, alpha):
    """The mapping: a read and a write. Its backward pass: weights and gradient in, gradient out."""
    z, grad = scores(8, 50).contiguous(), torch.randn(8, 50)
    traffic = counting(z=z, grad=grad)
    p = launch.entmax_rows(z, alpha, None)
    size = z.numel() * 4
    assert traffic.read["z"] == size
    traffic = counting(p=p, grad=grad)
    launch.entmax_gradients(p, grad, alpha, None, False)
    assert traffic.read == {"p": size, "grad": size}
