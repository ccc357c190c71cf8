"""On what something was measured, and the JSON that says so."""

import json
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from experiments.manifest import provenance

PACKAGES = ("torch", "triton", "fairseq-fixed", "liger-kernel", "cut-cross-entropy", "entmax")
RESULTS = Path(__file__).parent / "results"


class NoGPU(RuntimeError):
    """There is none, and nothing stands in for it."""

    def __init__(self) -> None:
        super().__init__(
            "torch sees no GPU (torch.cuda.is_available() is False): install a CUDA or ROCm build "
            "of torch, on a machine with a GPU"
        )


def environment(device: str = "cuda") -> dict[str, Any]:
    """GPU, driver, versions and commit."""
    found: dict[str, Any] = {"date": datetime.now(UTC).isoformat(timespec="seconds")}
    found |= {"commit": provenance()["git_commit"], "python": platform.python_version()}
    found["versions"] = {name: _version(name) for name in PACKAGES}
    found |= {"cuda": torch.version.cuda, "hip": torch.version.hip}
    if device != "cuda":
        return found | {"gpu": None}
    if not torch.cuda.is_available():
        raise NoGPU
    properties = torch.cuda.get_device_properties(0)
    return found | {
        "gpu": properties.name,
        "memory": properties.total_memory,
        "capability": list(torch.cuda.get_device_capability()),
        "driver": _driver(),
    }


def write_json(path: Path | None, kind: str, content: dict[str, Any]) -> Path:
    """To ``path``, or to a file that is named after the GPU."""
    if path is None:
        gpu = (content["environment"]["gpu"] or "cpu").lower().replace(" ", "-")
        path = RESULTS / f"{kind}-{gpu}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _driver() -> str | None:
    tools = (
        ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        ("rocm-smi", "--showdriverversion"),
    )
    for command in tools:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        except OSError:
            continue
        if done.returncode == 0:
            return done.stdout.strip()
    return None
