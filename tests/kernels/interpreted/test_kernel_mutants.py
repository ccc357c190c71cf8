"""Faults put into copies of the kernels on purpose: each must be noticed by a test of this folder,
or the net has a hole."""

import importlib
import shutil
import sys
from pathlib import Path

import pytest
import test_kernel_layer
import test_kernel_losses
import test_kernel_mapping
from kernel_cases import FENCE, scores, targets

from sparse_fairseq.functional import _triton
from sparse_fairseq.functional._triton.launch import Family

SOURCE = Path(_triton.__file__).parent
RELU, ENTMAX = Family(1.5, 0.3), Family(1.5)


def one_pass(family, smoothing=0.0):
    test_kernel_losses.check(family, scores(3, 37), targets(3, 37), smoothing)


def not_fitting(request, dtype="float32"):
    monkeypatch = request.getfixturevalue("monkeypatch")
    test = test_kernel_layer.test_rows_that_do_not_fit_into_lists
    test(test_kernel_layer.FAMILIES[0], 0.0, getattr(test_kernel_layer.torch, dtype), monkeypatch)


def summed_weights(request):
    monkeypatch = request.getfixturevalue("monkeypatch")
    test_kernel_layer.test_half_precision_sums_the_weights_gradient_in_float32(False, monkeypatch)


# name: file, what stands there, what stands there instead, the test that must fail
MUTANTS = {
    "a mask that is one too wide": (
        "_rows.py", "inside = col < classes", "inside = col <= classes",
        lambda request: one_pass(RELU),
    ),
    "ignored rows that count": (
        "_entmax.py", "live = (y != ignore_index) & here", "live = (y == y) & here",
        lambda request: one_pass(ENTMAX),
    ),
    "a sum in half precision": (
        "_alpha_relu.py", "power += p * gap", "power += (p * gap).to(tl.float16)",
        lambda request: one_pass(RELU),
    ),
    "weights summed in the layer's dtype": (
        "linear.py", "new_output(h, torch.float32, *shape)", "new_output(h, h.dtype, *shape)",
        summed_weights,
    ),
    "smoothing without its constant part": (
        "_alpha_relu.py", "else smoothing / classes", "else 0.0 * smoothing",
        lambda request: one_pass(RELU, 0.1),
    ),
    "a NaN that is not seen": (
        "_alpha_relu.py", "tl.max(unusable(top), 0) > 0", "tl.max(unusable(top), 0) > 1",
        lambda request: test_kernel_losses.test_infinities_and_nan(RELU, False, request),
    ),
    "Newton that stops too early": (
        "_math.py", "MAX_STEPS = tl.constexpr(40)", "MAX_STEPS = tl.constexpr(2)",
        lambda request: one_pass(ENTMAX),
    ),
    "one upstream gradient for all rows": (
        "launch.py", "return scale.stride(0) if", "return 0 * scale.stride(0) if",
        lambda request: one_pass(RELU),
    ),
    "rows that are taken for aligned ones": (
        "launch.py", "if any(size % ALIGNMENT", "if any(size % 1",
        lambda request: one_pass(RELU),
    ),
    "a list that is written behind its end": (
        "_lists.py", "place < CAPACITY", "place <= CAPACITY", not_fitting,
    ),
    "rows that do not fit, and are not flagged": (
        "_alpha_relu.py", "tl.where(again, -1, entries)", "tl.minimum(entries, CAPACITY)",
        not_fitting,
    ),
    "a Jacobian without its second term": (
        "_entmax.py", "tl.sum(s * grad, 1, keep_dims=True) * inverse", "0.0 * inverse",
        lambda request: test_kernel_mapping.test_one_alpha(
            1.5, 7, False, test_kernel_mapping.DTYPES[0], request
        ),
    ),
    "one α that is read as if each row had its own": (
        "_entmax.py", "own = per_row != 0", "own = per_row >= 0",
        lambda request: test_kernel_mapping.test_one_alpha(
            1.1, 7, False, test_kernel_mapping.DTYPES[0], request
        ),
    ),
    "an α of each row that is not read": (
        "_entmax.py", "own = per_row != 0", "own = per_row < 0",
        lambda request: test_kernel_mapping.test_alpha_for_each_row(7, False, request),
    ),
    "rescaling that halves nothing": (
        "_rescale.py", "if have != want:", "if have > want:",
        lambda request: test_kernel_losses.test_rescaling(test_kernel_losses.DTYPES[0]),
    ),
}  # fmt: skip
NUMBERS = {name: number for number, name in enumerate(MUTANTS)}


def load_copy(folder: Path, name: str, monkeypatch, canaries, edit=None) -> None:
    """A copy of the kernels, changed by ``edit``, in the place of those that the tests run."""
    package = folder / name
    shutil.copytree(SOURCE, package)
    (package / "__init__.py").write_text("")
    if edit is not None:
        file, old, new = edit
        text = (package / file).read_text()
        assert old in text, f"{file} has changed: nothing there is {old!r}"
        (package / file).write_text(text.replace(old, new))
    monkeypatch.syspath_prepend(folder)
    launch = importlib.import_module(f"{name}.launch")
    monkeypatch.setattr(launch, "new_output", test_kernel_losses.launch.new_output)
    for module in (test_kernel_losses, test_kernel_mapping):
        monkeypatch.setattr(module, "launch", launch)
    monkeypatch.setattr(test_kernel_layer, "linear", importlib.import_module(f"{name}.linear"))


@pytest.fixture
def forget():
    yield
    for name in [name for name in sys.modules if name.startswith("copy_of_kernels")]:
        del sys.modules[name]


@pytest.mark.parametrize("name", MUTANTS)
def test_each_fault_is_noticed(name, tmp_path, monkeypatch, canaries, request, forget):
    *edit, killer = MUTANTS[name]
    load_copy(tmp_path, f"copy_of_kernels_{NUMBERS[name]}", monkeypatch, canaries, edit)
    with pytest.raises((AssertionError, RuntimeError)):
        killer(request)
        check_canaries(canaries)
    canaries.clear()


def check_canaries(made) -> None:
    for buffer, size in made:
        inner = slice(FENCE, FENCE + size)
        outside = buffer.clone()
        outside[inner] = 77
        assert (outside == 77).all()


def test_a_faultless_copy_passes(tmp_path, monkeypatch, canaries, request, forget):
    """What kills the mutants is the fault, not the copy."""
    load_copy(tmp_path, "copy_of_kernels", monkeypatch, canaries)
    for *_, killer in MUTANTS.values():
        with monkeypatch.context():
            killer(request)
    assert canaries, "the copy's outputs do not lie between canaries"
    check_canaries(canaries)
