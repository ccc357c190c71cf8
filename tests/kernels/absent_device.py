"""A GPU that is not there: the launchers run as they are, kernels are compiled for it and looked
at, and nothing is computed."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
# name: target, and the bytes of shared memory that a program may have there
TARGETS = {
    "sm_80": (GPUTarget("cuda", 80, 32), 163 << 10),
    "sm_90": (GPUTarget("cuda", 90, 32), 227 << 10),
    "sm_100": (GPUTarget("cuda", 100, 32), 227 << 10),
    "gfx942": (GPUTarget("hip", "gfx942", 64), 64 << 10),
}


class AbsentDevice(DriverBase):
    """What Triton asks a driver for, up to the launch, which does nothing."""

    def __init__(self, name: str) -> None:
        self.target, self.shared = TARGETS[name]
        self.index = 1000 + list(TARGETS).index(name)
        self.utils = self
        self.launches: list[str] = []

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty):
        raise NotImplementedError

    get_active_torch_device = get_benchmarker = map_python_to_cpp_type

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return self.index

    def get_current_stream(self, device) -> int:
        return 0

    def get_device_properties(self, device) -> dict:
        return {"max_shared_mem": self.shared}

    def load_binary(self, name, binary, shared, device):
        return object(), object(), 0, 0, 1024

    def launcher_cls(self, source, metadata):
        return lambda *arguments: self.launches.append(metadata.name)


@dataclass(frozen=True)
class Resources:
    """What a compiled kernel takes of a multiprocessor."""

    registers: int
    spilled: int  # instructions that touch local memory (NVIDIA), vector registers (AMD)
    shared: int  # bytes
    widest_load: int  # bits
    widest_store: int


def compiled_kernels(device: AbsentDevice, *modules) -> list:
    """Every kernel that was compiled for a device, in the order of the modules."""
    kernels = [
        kernel
        for module in modules
        for kernel in vars(module).values()
        if isinstance(kernel, triton.JITFunction) and kernel.__name__.endswith("_kernel")
    ]
    return [c for kernel in kernels for c in kernel.device_caches[device.index][0].values()]


def resources(compiled) -> Resources:
    if "cubin" in compiled.asm:
        return _of_cubin(compiled)
    text = compiled.asm["amdgcn"]

    def number(name: str) -> int:
        return int(re.search(rf"\.{name}:\s+(\d+)", text)[1])

    loads = re.findall(r"(?:global|buffer)_load_(dwordx4|dwordx2|dword)\b", text)
    stores = re.findall(r"(?:global|buffer)_store_(dwordx4|dwordx2|dword)\b", text)
    bits = {"dwordx4": 128, "dwordx2": 64, "dword": 32}
    widths = (max((bits[found] for found in kind), default=0) for kind in (loads, stores))
    return Resources(
        number("vgpr_count"), number("vgpr_spill_count"), compiled.metadata.shared, *widths
    )


def _of_cubin(compiled) -> Resources:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = _run("cuobjdump", "-res-usage", file.name)
        code = _run("nvdisasm", "-c", file.name)
    registers = int(re.search(r"REG:(\d+)", usage)[1])
    spilled = len(re.findall(r"\b(?:STL|LDL)\b", code))
    widths = []
    for kind in ("LDG", "STG"):
        found = re.findall(rf"\b{kind}\.E(?:\.\w+)*", code)
        sizes = (re.search(r"\.(256|128|64)", one) for one in found)
        widths.append(max((int(size[1]) if size else 32 for size in sizes), default=0))
    return Resources(registers, spilled, compiled.metadata.shared, *widths)


def _run(tool: str, *arguments: str) -> str:
    done = subprocess.run([TOOLS / tool, *arguments], capture_output=True, text=True)
    return done.stdout + done.stderr
