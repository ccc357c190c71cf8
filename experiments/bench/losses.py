"""Time and memory of the losses beside F.cross_entropy and the entmax package.

Forward + backward at 1024 × 32,000 in float32; ratios to the F.cross_entropy of the same round.
"""

import argparse
from collections.abc import Callable
from itertools import product

import entmax as peer
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.bench.common import machine, peak_memory, summary, take_turns, write_csv
from sparse_fairseq import functional as sf

BASELINE = "F.cross_entropy"
# These take seconds: one round is enough for a ratio of 10 or 60.
SLOW = frozenset(
    {"entmax package: sort", "entmax package: bisect", "entmax15 sort", "entmax15 bisect"}
)

CASES = ("untrained", "trained", "onmt")

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


def losses(z: Tensor) -> dict[str, Loss]:
    tau = sf.batch_tau(z)
    return {
        BASELINE: F.cross_entropy,
        "relu15": lambda z, y: sf.alpha_relu_loss(z, y, 1.5, tau),
        "relu15 with stats": lambda z, y: sf.alpha_relu_loss(z, y, 1.5, tau, return_stats=True)[0],
        "entmax15": lambda z, y: sf.entmax_loss(z, y, 1.5),
        "entmax15 with stats": lambda z, y: sf.entmax_loss(z, y, 1.5, return_stats=True)[0],
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


def run_case(case: str, rows: int, classes: int, rounds: int, only: str | None) -> list[dict]:
    z, y = make_logits(case, rows, classes)
    z.requires_grad_()

    def forward_backward(loss: Loss) -> None:
        z.grad = None
        loss(z, y).backward()

    chosen = {
        name: lambda loss=loss: forward_backward(loss)
        for name, loss in losses(z.detach()).items()
        if name == BASELINE or not only or only in name
    }
    ratios = take_turns(chosen, rounds, SLOW)
    size = z.numel() * z.element_size()
    result = []
    for name, run in chosen.items():
        memory = round(peak_memory(run) / size, 2)
        result.append({"case": case, "loss": name, **summary(ratios[name]), "memory": memory})
    return result


def show(case: str, found: dict[int, list[dict]]) -> None:
    """A line for each loss, with the numbers of threads beside each other."""
    print(f"\n{case:26}" + "".join(f"{f'{threads} threads':>22}" for threads in found))
    for results in zip(*found.values(), strict=True):
        ratios = (f"{r['ratio']:7.2f} [{r['lowest']:5.2f}, {r['highest']:5.2f}]" for r in results)
        print(f"  {results[0]['loss']:24}{''.join(ratios)}  memory {results[0]['memory']:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--classes", type=int, default=32_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", help="time only losses whose name contains this")
    args = parser.parse_args()
    print(f"losses, forward + backward, {args.rows} x {args.classes} float32; {machine()}")
    print("ratio: time / F.cross_entropy, median [lowest, highest]; memory: peak / logits")
    # One thread first: threads that wait for work would count in its CPU time.
    found: dict[tuple[str, int], list[dict]] = {}
    for threads, case in product(sorted(args.threads), CASES):
        torch.set_num_threads(threads)
        found[case, threads] = run_case(case, args.rows, args.classes, args.rounds, args.only)
    for case in CASES:
        show(case, {threads: found[case, threads] for threads in sorted(args.threads)})
    size = {"rows": args.rows, "classes": args.classes}
    rows = [{"threads": n, **size, **row} for (_, n), results in found.items() for row in results]
    write_csv("losses", rows)


if __name__ == "__main__":
    main()
