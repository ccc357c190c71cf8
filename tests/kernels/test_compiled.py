"""Every kernel as the launchers launch it, compiled for GPUs that are not here: it compiles, spills
nothing, fits into shared memory, and loads and stores 16 bytes at a time."""

import functools

import pytest
import torch
import triton
from absent_device import TARGETS, AbsentDevice, Resources, compiled_kernels, resources

from sparse_fairseq.functional._triton import (
    _alpha_relu,
    _entmax,
    _lists,
    _rescale,
    launch,
    linear,
)
from sparse_fairseq.functional._triton.launch import Family, Target

MODULES = (_alpha_relu, _entmax, _lists, _rescale)
ROWS = 4
# Gathered rows, scalars and masked tiles of products are not streamed.
NOT_STREAMED = {
    "states_of_lists_kernel",
    "weights_of_lists_kernel",
    "states_of_dense_kernel",
    "weights_of_dense_kernel",
}


def losses(dtype, family: Family, classes: int) -> None:
    """One pass, and the backward pass from the scores."""
    z = torch.empty(ROWS, classes, dtype=dtype)
    target = Target(torch.zeros(ROWS, dtype=torch.int64), -100, 0.0)
    scale = torch.ones(1)
    fields = launch.loss_rows(z, target, family, stats=True, scale=scale, out=z)
    launch.loss_gradient(z, target, family, fields, scale)


def mapping(dtype, alpha: float | None, keys: int) -> None:
    z = torch.empty(64, keys, dtype=dtype)
    eps = torch.ones(64) if alpha is None else None
    p = launch.entmax_rows(z, alpha, eps)
    launch.entmax_gradients(p, p, alpha, eps, alpha is None)


def layer(dtype, family: Family, classes: int, hidden: int = 64) -> None:
    h, weight = (torch.zeros(size, hidden, dtype=dtype) for size in (ROWS, classes))
    target = Target(torch.zeros(ROWS, dtype=torch.int64), -100, 0.0)
    options = {"stats": True, "counted": None, "lists": True, "needs": (True, True, True)}
    linear.linear_rows(h, weight, None, target, family, scale=torch.ones(ROWS), **options)


def rescaling(dtype) -> None:
    launch.rescale_(torch.empty(ROWS, 4096, dtype=dtype), torch.ones(1), torch.ones(1))


# One configuration of every kernel, for `make test`; all others in `make test-slow`.
MAIN = [
    functools.partial(losses, family=Family(1.5, 0.3), classes=32_768),
    functools.partial(losses, family=Family(1.5), classes=16_384),
    functools.partial(losses, family=Family(1.5), classes=32_768),
    functools.partial(mapping, alpha=1.5, keys=64),
    functools.partial(mapping, alpha=None, keys=16_384),
    functools.partial(layer, family=Family(1.5, 0.3), classes=4096),
    functools.partial(layer, family=Family(1.5), classes=4096),
    rescaling,
]
REST = [
    *(
        functools.partial(losses, family=family, classes=classes)
        for family in (Family(1.2, 0.3), Family(1.02, 0.3), Family(2.0, 0.3))
        for classes in (1000, 32_768)
    ),
    *(
        functools.partial(losses, family=Family(alpha), classes=classes)
        for alpha in (1.2, 1.5, 2.0)
        for classes in (64, 1024, 8192, 16_384, 32_768)
    ),
    *(
        functools.partial(mapping, alpha=alpha, keys=keys)
        for alpha in (1.2, 1.5, 2.0, None)
        for keys in (64, 1024, 8192, 32_768)
    ),
    *(
        functools.partial(layer, family=family, classes=4096)
        for family in (Family(1.2, 0.3), Family(2.0), Family(1.2))
    ),
]


def compile_all(target: str, configurations, dtypes) -> dict[str, Resources]:
    """The resources of every kernel that the configurations launch, by name and options."""
    device = AbsentDevice(target)
    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(device)
    try:
        for dtype in dtypes:
            for configuration in configurations:
                configuration(dtype)
    finally:
        triton.runtime.driver.set_active(before)
    names = {}
    for compiled in compiled_kernels(device, *MODULES):
        options = {
            name: compiled.src.constants.get((i,))
            for i, name in enumerate(compiled.src.fn.arg_names)
            if name.isupper()
        }
        types = ",".join(sorted(set(compiled.src.signature.values())))
        names[f"{compiled.name} {options} {types}"] = resources(compiled)
    return names


def check_resources(found: dict[str, Resources], target: str) -> None:
    spilling = {name: each for name, each in found.items() if each.spilled}
    assert not spilling, spilling
    for name, each in found.items():
        assert each.registers <= 255 and each.shared <= TARGETS[target][1], (name, each)


def check_width(found: dict[str, Resources]) -> None:
    for name, each in found.items():
        if name.split()[0] not in NOT_STREAMED:
            assert each.widest_load >= 128 and each.widest_store >= 128, (name, each)


@pytest.mark.parametrize("target", TARGETS)
def test_main_configurations(target):
    """In bfloat16, which models train in."""
    found = compile_all(target, MAIN, [torch.bfloat16])
    kernels = {
        name
        for module in MODULES
        for name, value in vars(module).items()
        if isinstance(value, triton.JITFunction) and name.endswith("_kernel")
    }
    assert {name.split()[0] for name in found} == kernels  # none is forgotten
    check_resources(found, target)
    check_width(found)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_all_configurations(target, dtype):
    """Not all of them load 128 bits at once: a short row has less for each thread, and a number of
    classes that is no multiple of 16 is not aligned."""
    check_resources(compile_all(target, [*MAIN, *REST], [dtype]), target)
