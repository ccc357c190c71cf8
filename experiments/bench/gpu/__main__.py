"""Losses on a GPU beside cross-entropy and other kernels; words/s of fairseq-train.

First the bandwidth of a copy. Then each loss, forward, backward and both, with the bytes that it
must move (counted, see docs/gpu.md) beside the time. Writes one JSON.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from experiments.bench.gpu.contestants import bytes_for_each, fused_losses, plain_losses
from experiments.bench.gpu.environment import NoGPU, environment, write_json
from experiments.bench.gpu.training import words_per_second

CLASSES = (8_192, 16_384, 32_768, 65_536, 131_072, 262_144)


def seconds(
    run: Callable[..., object], device: str, repeats: int, prepare: Callable | None = None
) -> float:
    """The median of ``repeats`` runs, after two that warm up. Each gets what ``prepare`` made; that
    is not timed."""
    times = []
    for number in range(repeats + 2):
        given = () if prepare is None else (prepare(),)
        if device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            run(*given)
            end.record()
            end.synchronize()
            took = start.elapsed_time(end) / 1000
        else:
            before = time.perf_counter()
            run(*given)
            took = time.perf_counter() - before
        if number >= 2:
            times.append(took)
    return statistics.median(times)


def copy_bandwidth(device: str, elements: int, repeats: int) -> float:
    """GB/s of a copy: what a kernel that moves bytes can reach."""
    source = torch.empty(elements, dtype=torch.float32, device=device)
    target = torch.empty_like(source)
    return 8 * elements / seconds(lambda: target.copy_(source), device, repeats) / 1e9


def time_loss(loss, inputs, device: str, repeats: int) -> dict[str, float]:
    """Seconds of forward, backward and both."""
    leaves = [part for part in inputs if part.is_floating_point()]
    for leaf in leaves:
        leaf.requires_grad_()

    def both() -> None:
        torch.autograd.grad(loss(*inputs), leaves)

    with torch.no_grad():
        forward = seconds(lambda: loss(*inputs), device, repeats)
    together = seconds(both, device, repeats)
    backward = seconds(
        lambda value: torch.autograd.grad(value, leaves), device, repeats, lambda: loss(*inputs)
    )
    return {"forward": forward, "backward": backward, "both": together}


def plain(args: argparse.Namespace, dtype: torch.dtype, classes: int) -> list[dict[str, Any]]:
    rows = max(1, min(args.rows, args.elements // classes))
    z = torch.randn(rows, classes, device=args.device, dtype=torch.float32).mul_(3).to(dtype)
    y = torch.randint(classes, (rows,), device=args.device)
    return measured(args, plain_losses(args.device), (z, y), z.numel() * z.element_size())


def fused(args: argparse.Namespace, dtype: torch.dtype, classes: int) -> list[dict[str, Any]]:
    h = torch.randn(args.rows, args.hidden, device=args.device).to(dtype)
    weight = torch.randn(classes, args.hidden, device=args.device).mul_(args.hidden**-0.5).to(dtype)
    y = torch.randint(classes, (args.rows,), device=args.device)
    return measured(args, fused_losses(args.device), (h, weight, y), None)


def measured(args, losses: dict[str, Callable], inputs, size: int | None) -> list[dict[str, Any]]:
    """A row for each loss; what fails says so and stops nothing."""
    found = []
    for name, loss in losses.items():
        row: dict[str, Any] = {"loss": name}
        if args.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        try:
            row |= time_loss(loss, inputs, args.device, args.repeats)
        except Exception as error:  # of a peer that does not know a shape, or has no memory
            found.append(row | {"error": f"{type(error).__name__}: {error}"[:300]})
            continue
        if args.device == "cuda":
            row["peak_bytes"] = torch.cuda.max_memory_allocated() - before
        factor = None if size is None else bytes_for_each(name, inputs[0].shape[1])
        if factor is not None:
            row["bytes"] = factor * size
            row["gb_per_s"] = row["bytes"] / row["both"] / 1e9
        found.append(row)
    return found


def run(args: argparse.Namespace) -> dict[str, Any]:
    content: dict[str, Any] = {"environment": environment(args.device)}
    bandwidth = copy_bandwidth(args.device, args.elements, args.repeats)
    content["copy_gb_per_s"] = bandwidth
    print(f"copy: {bandwidth:.0f} GB/s")
    for kind, measure in (("losses", plain), ("fused", fused)):
        content[kind] = []
        for dtype in (torch.bfloat16, torch.float32):
            for classes in args.classes:
                for row in measure(args, dtype, classes):
                    row = {"dtype": str(dtype).removeprefix("torch."), "classes": classes} | row
                    content[kind].append(row)
                    print(kind, *(f"{key}={_short(value)}" for key, value in row.items()))
    if not args.no_training:
        try:
            content["training"] = words_per_second(args.device, args.updates)
        except RuntimeError as error:  # the losses are measured by then
            content["training"] = [{"error": str(error)}]
        for row in content["training"]:
            print("fairseq-train", *(f"{key}={_short(value)}" for key, value in row.items()))
    return content


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.bench.gpu", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--elements", type=int, default=1 << 28, help="scores at most")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--updates", type=int, default=200, help="of each training")
    parser.add_argument("--no-training", action="store_true")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    try:
        content = run(args)
    except NoGPU as error:
        sys.exit(f"bench-gpu: {error}")
    print(f"written to {write_json(args.out, 'bench', content)}")


if __name__ == "__main__":
    main()
