"""Time and memory of the losses beside F.cross_entropy and the entmax package.

Forward + backward at 1024 × 32,000 in float32. All contestants of a case take turns, round after
round, and a row is the median of its ratios to the F.cross_entropy of the same round: the machine
may be busy, the rounds are not comparable with each other, but the turns within one are.
"""

import argparse
import csv
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import entmax as peer
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from sparse_fairseq import functional as sf

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own messages
RESULTS = Path(__file__).parent / "results" / "losses.csv"
BASELINE = "F.cross_entropy"
# sort and bisect take seconds: fewer rounds are enough for a ratio of 10 or 60.
SLOW = {"entmax package: sort", "entmax package: bisect", "entmax15 sort", "entmax15 bisect"}

Loss = Callable[[Tensor, Tensor], Tensor]


def make_logits(case: str, rows: int, classes: int) -> tuple[Tensor, Tensor]:
    """Logits and targets as an untrained model, a trained one and OpenNMT's untrained give them."""
    torch.manual_seed(0)
    y = torch.randint(classes, (rows,))
    z = torch.randn(rows, classes)
    if case == "untrained":  # fairseq: σ = 1
        return z, y
    if case == "onmt":  # Xavier: σ = sqrt(2·512 / (512 + 32,000)) = 0.18
        return z * 0.18, y
    z *= 3  # trained: the target is well ahead, as it mostly is
    z[torch.arange(rows), y] = z.amax(1) + 1 + 1.5 * torch.randn(rows)
    return z, y


def contestants(z: Tensor) -> dict[str, Loss]:
    """α-ReLU's τ is what the batch would give it; a trained model keeps about 20 non-zeros."""
    tau = sf.batch_tau(z)
    return {
        BASELINE: F.cross_entropy,
        "relu15": lambda z, y: sf.alpha_relu_loss(z, y, 1.5, tau),
        "entmax15": lambda z, y: sf.entmax_loss(z, y, 1.5),
        "sparsemax": sf.sparsemax_loss,
        "entmax1.1": lambda z, y: sf.entmax_loss(z, y, 1.1),
        "entmax1.25": lambda z, y: sf.entmax_loss(z, y, 1.25),
        "entmax1.75": lambda z, y: sf.entmax_loss(z, y, 1.75),
        "entmax3": lambda z, y: sf.entmax_loss(z, y, 3.0),
        "entmax1 (softmax)": lambda z, y: sf.entmax_loss(z, y, 1.0),
        "entmax15 topk": lambda z, y: sf.entmax_loss(z, y, 1.5, solver="topk"),
        "entmax15 sort": lambda z, y: sf.entmax_loss(z, y, 1.5, solver="sort"),
        "entmax15 bisect": lambda z, y: sf.entmax_loss(z, y, 1.5, solver="bisect"),
        "entmax package: k=100": peer.Entmax15Loss(k=100, reduction="sum"),
        "entmax package: sort": peer.Entmax15Loss(reduction="sum"),
        "entmax package: bisect": peer.EntmaxBisectLoss(1.5, reduction="sum"),
    }


def forward_backward(loss: Loss, z: Tensor, y: Tensor) -> float:
    z.grad = None
    start = time.perf_counter()
    loss(z, y).backward()
    return time.perf_counter() - start


def peak_memory(loss: Loss, z: Tensor, y: Tensor) -> float:
    """Most bytes allocated at once beside the logits, in units of the logits."""
    z.grad = None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        loss(z, y).backward()
    size = peak = 0
    events = record.profiler.kineto_results.events()  # type: ignore[union-attr]
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            size += event.nbytes()
            peak = max(peak, size)
    return peak / (z.numel() * z.element_size())


def run_case(case: str, rows: int, classes: int, rounds: int, only: str | None) -> list[dict]:
    z, y = make_logits(case, rows, classes)
    z.requires_grad_()
    losses = contestants(z.detach())
    if only:
        losses = {name: f for name, f in losses.items() if name == BASELINE or only in name}
    for name, loss in losses.items():
        if name not in SLOW:
            forward_backward(loss, z, y)  # warm up
    ratios: dict[str, list[float]] = {name: [] for name in losses}
    for number in range(rounds):
        base = forward_backward(losses[BASELINE], z, y)
        for name, loss in losses.items():
            if name == BASELINE:
                ratios[name].append(1.0)
            elif name not in SLOW or number == 0:
                ratios[name].append(forward_backward(loss, z, y) / base)
    return [
        {
            "case": case,
            "loss": name,
            "ratio": round(statistics.median(ratios[name]), 2),
            "lowest": round(min(ratios[name]), 2),
            "highest": round(max(ratios[name]), 2),
            "memory": round(peak_memory(loss, z, y), 2),
        }
        for name, loss in losses.items()
    ]


def machine() -> dict:
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "entmax": version("entmax"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=32_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", help="time only losses whose name contains this")
    args = parser.parse_args()
    print(f"forward + backward, {args.rows} x {args.classes} float32; {machine()}")
    print("ratio: time / F.cross_entropy, median [lowest, highest]; memory: peak / logits")
    rows = []
    for case in ("untrained", "trained", "onmt"):
        print(f"\n{case}")
        for row in run_case(case, args.rows, args.classes, args.rounds, args.only):
            print(
                f"  {row['loss']:24} {row['ratio']:7.2f}  [{row['lowest']:.2f}, "
                f"{row['highest']:.2f}]  memory {row['memory']:.2f}"
            )
            rows.append({**machine(), "rows": args.rows, "classes": args.classes, **row})
    RESULTS.parent.mkdir(exist_ok=True)
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    print(f"\nwritten to {RESULTS}")


if __name__ == "__main__":
    main()
