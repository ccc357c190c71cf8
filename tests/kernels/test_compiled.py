"""Every kernel as the launchers launch it, compiled for GPUs that are not here: it compiles, spills
nothing, fits into shared memory, and loads and stores as many bits at a time as its rows allow."""

import functools
import gc
import itertools

import pytest
import torch
import triton
from absent_device import TARGETS, AbsentDevice, compiled_kernels, forget_compiled, resources

from sparse_fairseq.functional._triton import (
    _alpha_relu,
    _entmax,
    _lists,
    _rescale,
    launch,
    linear,
)
from sparse_fairseq.functional._triton._math import LINEAR, POWER, SQUARE, VALUE_ONLY
from sparse_fairseq.functional._triton.launch import ALIGNMENT, Family, Target

MODULES = (_alpha_relu, _entmax, _lists, _rescale)
ROWS = 4
# Bits of the widest load and store of what is no stream of scores. A thread has 8 numbers or more
# of the weights and states that it gathers, but one of their sum.
OF_LISTS = {
    "states_of_lists_kernel": (128, 32),
    "weights_of_lists_kernel": (128, 32),
    "states_of_dense_kernel": (128, 128),
    "weights_of_dense_kernel": (128, 128),
}
REGISTERS = 65_536  # of a multiprocessor of NVIDIA: those of one program must fit
RELU = [Family(alpha, 0.3) for alpha in (1.5, 2.0, 1.2, 1.02)]  # the last one in float64
ENTMAX = [Family(alpha) for alpha in (1.5, 2.0, 1.2)]
LONG = 32_768


def losses(dtype, family: Family, classes: int, everything: bool = True) -> None:
    """One pass, and the backward pass from the scores."""
    z = torch.empty(ROWS, classes, dtype=dtype)
    target = Target(torch.zeros(ROWS, dtype=torch.int64), -100, 0.1 * everything)
    counted = torch.ones(classes, dtype=torch.bool) if everything else None
    options = {"stats": everything, "counted": counted, "scale": torch.ones(1), "out": z}
    fields = launch.loss_rows(z, target, family, **options)
    launch.loss_gradient(z, target, family, fields, options["scale"])


def values(dtype, family: Family, classes: int) -> None:
    """Without a gradient, as in validation."""
    target = Target(torch.zeros(ROWS, dtype=torch.int64), -100, 0.0)
    launch.loss_rows(torch.empty(ROWS, classes, dtype=dtype), target, family, stats=True)


def mapping(dtype, alpha: float | None, keys: int) -> None:
    z = torch.empty(64, keys, dtype=dtype)
    eps = torch.ones(64) if alpha is None else None
    p = launch.entmax_rows(z, alpha, eps)
    launch.entmax_gradients(p, p, alpha, eps, alpha is None)


def layer(dtype, family: Family, everything: bool = True, classes: int = 4096) -> None:
    """Lists; the products of smaller vocabularies launch what ``losses`` does."""
    h, weight = (torch.zeros(size, 64, dtype=dtype) for size in (ROWS, classes))
    target = Target(torch.zeros(ROWS, dtype=torch.int64), -100, 0.1 * everything)
    counted = torch.ones(classes, dtype=torch.bool) if everything else None
    options = {"stats": everything, "counted": counted, "lists": True, "needs": (True, True, True)}
    linear.linear_rows(h, weight, None, target, family, scale=torch.ones(ROWS), **options)


def rescaling(dtype, classes: int) -> None:
    launch.rescale_(torch.empty(ROWS, classes, dtype=dtype), torch.ones(1), torch.ones(1))


LOSS_WIDTHS = (*launch.LOSS_TILES, LONG)
MAPPING_WIDTHS = (*launch.MAPPING_TILES, LONG)
BLOCKS = (launch.SHORT_BLOCK, launch.LONGEST_BLOCK["alpha_relu"])


def configurations(losses_less: int, keys_less: int, cover: bool = False) -> dict[str, list]:
    """What is launched, by parts: every width and every kind of α that the launchers know; or
    (``cover``) the narrowest and the widest tile and block for each. Some classes or keys less:
    rows that are not aligned."""
    blocks = BLOCKS[1:] if cover else BLOCKS
    widths = (64, 8192, 16_384, LONG) if cover else LOSS_WIDTHS
    keys = (32, launch.LONGEST_MAPPING_TILE, LONG) if cover else MAPPING_WIDTHS

    def of(families, widths_) -> list:
        return [
            functools.partial(losses, family=family, classes=classes - losses_less)
            for family, classes in itertools.product(families, widths_)
        ]

    return {
        "alpha_relu_loss": of(RELU, blocks),
        "entmax_loss": of(ENTMAX, widths),
        "entmax": [
            functools.partial(mapping, alpha=alpha, keys=width - keys_less)
            for alpha in (1.5, 2.0, 1.2, None)
            for width in keys
        ],
        "layer": [functools.partial(layer, family=family) for family in (*RELU, *ENTMAX)],
        "rescaling": [
            functools.partial(rescaling, classes=classes - losses_less) for classes in blocks
        ],
    }


# Of each part: its configurations for a target and a dtype, and its kernels.
PARTS = {
    "alpha_relu_loss": (16, {"alpha_relu_loss_kernel", "alpha_relu_gradient_kernel"}),
    "entmax_loss": (
        26,
        {"entmax_loss_tile_kernel", "entmax_loss_blocks_kernel", "entmax_gradient_kernel"},
    ),
    "entmax": (
        56,
        {
            "entmax_tile_kernel",
            "entmax_blocks_kernel",
            "entmax_backward_tile_kernel",
            "entmax_backward_blocks_kernel",
        },
    ),
    "layer": (11, {"alpha_relu_loss_kernel", "entmax_loss_blocks_kernel", *OF_LISTS}),
    "rescaling": (2, {"rescale_kernel"}),
}


def compile_all(target: str, launches, dtype) -> list:
    """(name and options, compiled kernel) of all that the launches launch, each once."""
    device = AbsentDevice(target)
    before = triton.runtime.driver._active
    forget_compiled(device, *MODULES)
    triton.runtime.driver.set_active(device)
    gc.disable()  # a compilation makes many small objects and no cycles: a twelfth of the time
    try:
        for run in launches:
            run(dtype)
    finally:
        gc.enable()
        triton.runtime.driver.set_active(before)
    return [(described(compiled), compiled) for compiled in compiled_kernels(device, *MODULES)]


def options_of(compiled) -> dict:
    return {
        name: getattr(value, "value", value)
        for i, name in enumerate(compiled.src.fn.arg_names)
        if name.isupper() and (value := compiled.src.constants.get((i,))) is not None
    }


def described(compiled) -> str:
    return f"{compiled.name} {options_of(compiled)}, {compiled.metadata.num_warps} warps"


def score_bits(compiled, target: str, dtype) -> int:
    """What a thread can move of a row at once, by construction: its part of the tile or block, 16
    bytes at most; one score alone where rows do not begin at multiples of 16 bytes."""
    options = options_of(compiled)
    bits = torch.finfo(dtype).bits
    if options["ALIGNED"] != ALIGNMENT:
        return bits
    threads = compiled.metadata.num_warps * TARGETS[target][0].warp_size
    return min(128, bits * options.get("ROWS", 1) * options["BLOCK"] // threads)


def check_width(compiled, found, target: str, dtype) -> None:
    if compiled.name in OF_LISTS:
        assert (max(found.loads), max(found.stores)) == OF_LISTS[compiled.name]
        return
    want = score_bits(compiled, target, dtype)
    # Beside the scores there are numbers of a row, 32 bits, and class indices, 64.
    others = {64} if dtype == torch.float32 else {32, 64}
    if options_of(compiled).get("WRITE") != VALUE_ONLY.value:
        assert max(found.stores - others) == want, (found, want)
        assert dtype == torch.float32 or found.stores <= {want, 32}, (found, want)
    if options_of(compiled).get("COUNTED"):  # and flags of classes, as many as a thread has
        assert want in found.loads, (found, want)
    else:
        assert max(found.loads - others) == want, (found, want)
        assert dtype == torch.float32 or found.loads <= {want, *others}, (found, want)


def check_registers(name, compiled, found, target: str) -> None:
    assert found.spilled == 0 and found.registers <= 255, (name, found)
    if TARGETS[target][0].backend == "cuda":
        threads = 32 * compiled.metadata.num_warps
        limit = compiled.metadata.maxnreg
        assert found.registers <= (limit or REGISTERS // threads), (name, found)
        if limit is not None:  # whole programs that a multiprocessor holds
            assert REGISTERS // (limit * threads) * threads >= launch.ENOUGH_THREADS, name


def check(target: str, launches, dtype) -> list[str]:
    """The names of the kernels, one for each configuration."""
    compiled_ = compile_all(target, launches, dtype)
    for name, compiled in compiled_:
        found = resources(compiled)
        check_registers(name, compiled, found, target)
        assert found.shared <= TARGETS[target][1], (name, found)
        check_width(compiled, found, target, dtype)
    return [compiled.name for _, compiled in compiled_]


KERNELS = {
    name
    for module in MODULES
    for name, value in vars(module).items()
    if isinstance(value, triton.JITFunction) and name.endswith("_kernel")
}


def test_no_row_takes_another_configuration():
    """The widths above are all that there are."""
    for rows, widths in ((launch.LOSS_TILES, LOSS_WIDTHS), (launch.MAPPING_TILES, MAPPING_WIDTHS)):
        taken = {launch.tile_shape(n, rows) for n in range(1, max(rows) + 1)}
        assert taken == {launch.tile_shape(n, rows) for n in widths if n <= max(rows)}
    for kind in launch.LONGEST_BLOCK:
        taken = {launch.block_size(n, kind) for n in range(1, 5000)}
        assert taken == {launch.block_size(n, kind) for n in BLOCKS}
    for n in range(max(launch.LOSS_TILES), LONG):
        for kind in (SQUARE, LINEAR, POWER):
            assert launch.entmax_block(n, kind) == launch.entmax_block(LONG, kind)
    assert max(launch.LONGEST_TILE.values()) == max(launch.LOSS_TILES)
    assert max(launch.MAPPING_TILES) == launch.LONGEST_MAPPING_TILE


def test_no_kernel_is_forgotten():
    assert set().union(*(kernels for _, kernels in PARTS.values())) == KERNELS


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_defaults(target, dtype, part):
    """Vocabularies that are padded as fairseq does; sentences of any length; statistics and
    smoothing. float16 is compiled like bfloat16: a kernel's code has a dtype in loads and stores
    alone."""
    launches = configurations(losses_less=0, keys_less=3)[part]
    names = check(target, launches, dtype)
    assert (len(names), set(names)) == PARTS[part]


def together(parts: dict[str, list]) -> list:
    return list(itertools.chain(*parts.values()))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_float16_and_what_is_not_asked_for(target):
    """No statistics, no smoothing, no gradient, and sentences of padded length."""
    plain = [
        functools.partial(run, family=family, classes=classes)
        for families, widths in ((RELU, BLOCKS[1:]), (ENTMAX, (64, 8192, 16_384, LONG)))
        for family, classes in itertools.product(families, widths)
        for run in (functools.partial(losses, everything=False), values)
    ]
    plain += [functools.partial(layer, family=one, everything=False) for one in (*RELU, *ENTMAX)]
    launches = together(configurations(losses_less=0, keys_less=0, cover=True))
    assert set(check(target, [*launches, *plain], torch.float16)) == KERNELS


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_the_other_alignment(target, dtype):
    """Vocabularies that are not padded, and sentences that are."""
    launches = together(configurations(losses_less=3, keys_less=0))
    assert set(check(target, launches, dtype)) == KERNELS
