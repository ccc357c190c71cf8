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
    """What a compiled kernel takes of a multiprocessor, and how it goes to memory."""

    registers: int
    spilled: int  # instructions that touch local memory (NVIDIA), vector registers (AMD)
    shared: int  # bytes
    loads: frozenset[int]  # bits that an instruction moves for a thread
    stores: frozenset[int]


def _kernels(*modules) -> list[triton.JITFunction]:
    return [
        kernel
        for module in modules
        for kernel in vars(module).values()
        if isinstance(kernel, triton.JITFunction) and kernel.__name__.endswith("_kernel")
    ]


def compiled_kernels(device: AbsentDevice, *modules) -> list:
    """Every kernel that was compiled for a device, in the order of the modules."""
    launched = [one for one in _kernels(*modules) if device.index in one.device_caches]
    return [c for kernel in launched for c in kernel.device_caches[device.index][0].values()]


def forget_compiled(device: AbsentDevice, *modules) -> None:
    for kernel in _kernels(*modules):
        kernel.device_caches.pop(device.index, None)


def resources(compiled) -> Resources:
    return _of_cubin(compiled) if "cubin" in compiled.asm else _of_amdgcn(compiled)


def _of_amdgcn(compiled) -> Resources:
    text = compiled.asm["amdgcn"]

    def number(name: str) -> int:
        return int(re.search(rf"\.{name}:\s+(\d+)", text)[1])

    def widths(kind: str) -> frozenset[int]:
        """Of buffer instructions, which tensors under 2 GB have; global ones are a row's fields."""
        bits = {"ubyte": 8, "ushort": 16, "short": 16, "dword": 32, "dwordx2": 64, "dwordx4": 128}
        found = re.findall(rf"buffer_{kind}_(?:format_)?(\w+)", text)
        return frozenset(bits[name.removesuffix("_d16").removesuffix("_d16_hi")] for name in found)

    return Resources(
        number("vgpr_count"), number("vgpr_spill_count"), compiled.metadata.shared,
        widths("load"), widths("store"),
    )  # fmt: skip


def _of_cubin(compiled) -> Resources:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        usage = _run("cuobjdump", "-res-usage", file.name)
        # Nothing spills without a stack; a stack may also hold return addresses.
        stack = int(re.search(r"STACK:(\d+)", usage)[1])
        code = _run("nvdisasm", "-c", file.name) if stack else ""
    text = compiled.asm["ptx"]

    def widths(kind: str) -> list[int]:
        found = re.findall(rf"{kind}\.global\S*?(?:\.v(\d))?\.[bfsu](\d+)\s", text)
        return [int(vector or 1) * int(bits) for vector, bits in found]

    copies = re.findall(r"cp\.async\S*\.shared\.global\S* .*, 0x(\w+),", text)
    return Resources(
        int(re.search(r"REG:(\d+)", usage)[1]), len(re.findall(r"\b(?:STL|LDL)\b", code)),
        compiled.metadata.shared,
        frozenset(widths("ld") + [8 * int(size, 16) for size in copies]), frozenset(widths("st")),
    )  # fmt: skip


def _run(tool: str, *arguments: str) -> str:
    done = subprocess.run([TOOLS / tool, *arguments], capture_output=True, text=True, check=True)
    return done.stdout
