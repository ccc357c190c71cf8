"""Every kernel as the launchers launch it, compiled for GPUs that are not here: it compiles, spills
nothing, fits into shared memory, and loads and stores as many bits at a time as its rows allow."""

import functools
import gc
import itertools
from typing import NamedTuple

import pytest
import torch
import triton
from absent_device import TARGETS, AbsentDevice, compiled_kernels, forget_compiled, resources

from sparse_fairseq.functional._triton import (
    IGNORED,
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


class Call(NamedTuple):
    """What a loss is asked for beside its value."""

    gradient: bool = True
    stats: bool = False
    smoothing: float = 0.0

    def options(self, classes: int) -> dict:
        """Flags of classes go with statistics, as in the criteria."""
        counted = torch.ones(classes, dtype=torch.bool) if self.stats else None
        return {"stats": self.stats, "counted": counted}

    def target(self) -> Target:
        return Target(torch.zeros(ROWS, dtype=torch.int64), IGNORED, self.smoothing)


PLAIN = Call()
VALUE = Call(gradient=False)  # no_grad, reduction="none", float16, torch.compile
CRITERION = Call(stats=True)
VALIDATION = Call(gradient=False, stats=True)
SMOOTHED = Call(smoothing=0.1)
EVERYTHING = Call(stats=True, smoothing=0.1)


def losses(dtype, family: Family, classes: int, call: Call = PLAIN) -> None:
    """One pass, and (of a plain call) the backward pass from the scores."""
    z = torch.empty(ROWS, classes, dtype=dtype)
    options = call.options(classes)
    if call.gradient:
        options |= {"scale": torch.ones(1), "out": z}
    fields = launch.loss_rows(z, call.target(), family, **options)
    if call == PLAIN:
        launch.loss_gradient(z, call.target(), family, fields, options["scale"])


def mapping(dtype, alpha: float | None, keys: int) -> None:
    z = torch.empty(64, keys, dtype=dtype)
    eps = torch.ones(64) if alpha is None else None
    p = launch.entmax_rows(z, alpha, eps)
    launch.entmax_gradients(p, p, alpha, eps, alpha is None)


def layer(dtype, family: Family, call: Call = PLAIN, classes: int = 4096) -> None:
    """Lists; the products of smaller vocabularies launch what ``losses`` does."""
    h, weight = (torch.zeros(size, 64, dtype=dtype) for size in (ROWS, classes))
    options = call.options(classes) | {"lists": True, "needs": (True, True, True)}
    linear.linear_rows(h, weight, None, call.target(), family, scale=torch.ones(ROWS), **options)


def rescaling(dtype, classes: int) -> None:
    launch.rescale_(torch.empty(ROWS, classes, dtype=dtype), torch.ones(1), torch.ones(1))


EXTREME_WIDTHS = (64, 8192, 16_384, LONG)
LOSS_WIDTHS = (*launch.LOSS_TILES, LONG)
MAPPING_WIDTHS = (*launch.MAPPING_TILES, LONG)
BLOCKS = (launch.SHORT_BLOCK, launch.LONGEST_BLOCK["alpha_relu"])


def of_losses(families, widths, less: int, *calls: Call) -> list:
    return [
        functools.partial(losses, family=family, classes=classes - less, call=call)
        for family, classes, call in itertools.product(families, widths, calls)
    ]


def of_layers(*calls: Call) -> list:
    """Those with a gradient: without it nothing is listed."""
    return [
        functools.partial(layer, family=family, call=call)
        for call in calls
        if call.gradient
        for family in (*RELU, *ENTMAX)
    ]


def configurations(losses_less: int, keys_less: int) -> dict[str, list]:
    """What is launched, by parts: every width and every kind of α that the launchers know, for a
    loss that is asked for nothing else; the narrowest and the widest tile and block of each for the
    criteria's call and for a value alone. Some classes or keys less: rows that are not aligned."""
    often = (CRITERION, VALUE)
    return {
        "alpha_relu_loss": of_losses(RELU, BLOCKS, losses_less, PLAIN)
        + of_losses(RELU, BLOCKS[1:], losses_less, *often),
        "entmax_loss": of_losses(ENTMAX, LOSS_WIDTHS, losses_less, PLAIN)
        + of_losses(ENTMAX, EXTREME_WIDTHS, losses_less, *often),
        "entmax": of_mapping(MAPPING_WIDTHS, keys_less),
        "layer": of_layers(PLAIN, CRITERION),
        "rescaling": [
            functools.partial(rescaling, classes=classes - losses_less) for classes in BLOCKS
        ],
    }


def of_mapping(widths, less: int) -> list:
    return [
        functools.partial(mapping, alpha=alpha, keys=width - less)
        for alpha in (1.5, 2.0, 1.2, None)
        for width in widths
    ]


# Of each part: its configurations for a target and a dtype, and its kernels.
PARTS = {
    "alpha_relu_loss": (24, {"alpha_relu_loss_kernel", "alpha_relu_gradient_kernel"}),
    "entmax_loss": (
        48,
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
    "layer": (18, {"alpha_relu_loss_kernel", "entmax_loss_blocks_kernel", *OF_LISTS}),
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
    others = ({64} if dtype == torch.float32 else {32, 64}) - {want}
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
    """Vocabularies that are padded as fairseq does; sentences of any length. float16 is compiled
    like bfloat16: a kernel's code has a dtype in loads and stores alone."""
    launches = configurations(losses_less=0, keys_less=3)[part]
    names = check(target, launches, dtype)
    assert (len(names), set(names)) == PARTS[part]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_all_that_a_loss_can_be_asked_for(target, dtype):
    """Statistics and smoothing, with a gradient and without, in every width."""
    calls = (CRITERION, VALUE, VALIDATION, SMOOTHED, EVERYTHING)
    launches = of_losses(RELU, BLOCKS, 0, *calls) + of_losses(ENTMAX, LOSS_WIDTHS, 0, *calls)
    assert check(target, [*launches, *of_layers(*calls)], dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("target", TARGETS)
def test_the_other_alignment(target, dtype):
    """Vocabularies that are not padded, and sentences that are."""
    calls = (CRITERION, VALUE, VALIDATION, SMOOTHED, EVERYTHING)
    launches = itertools.chain(*configurations(losses_less=3, keys_less=0).values())
    others = of_losses(RELU, BLOCKS[1:], 3, *calls) + of_losses(ENTMAX, LOSS_WIDTHS, 3, *calls)
    assert set(check(target, [*launches, *others], dtype)) == KERNELS


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_float16(target):
    """The narrowest and the widest, and sentences of padded length."""
    calls = (PLAIN, CRITERION, VALUE)
    launches = of_losses(RELU, BLOCKS[1:], 0, *calls)
    launches += of_losses(ENTMAX, EXTREME_WIDTHS, 0, *calls) + of_layers(*calls)
    launches += of_mapping((32, launch.LONGEST_MAPPING_TILE, LONG), 0)
    launches += configurations(0, 0)["rescaling"]
    assert set(check(target, launches, torch.float16)) == KERNELS
