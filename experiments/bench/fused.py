"""The output layer fused with a sparse loss beside F.linear + F.cross_entropy.

Forward + backward, gradients of states and weights, float32. A chunked cross-entropy that never
holds all logits either, and the entmax package, run too, so that the baseline is no strawman.
Draws experiments/bench/fused.png: time and memory against the vocabulary.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import entmax as peer
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

from experiments.bench.common import machine, peak_memory, summary, take_turns, write_csv
from sparse_fairseq import functional as sf

BASELINE = "linear + cross_entropy"
TORCH_CHUNKS = {
    "auto": LinearCrossEntropyOptions(),
    "chunks of 512": LinearCrossEntropyOptions(batch_chunk_size=512, chunking_method=None),
}
FIGURE = Path(__file__).parent / "fused.png"


class ChunkedCrossEntropy(torch.autograd.Function):
    """Sum of cross-entropies of h Wᵀ in blocks of rows, as carefully as the sparse losses are
    fused: gradients while a block's logits are at hand, three products, one buffer."""

    @staticmethod
    def forward(ctx, h, weight, y, block):
        grad_h, grad_weight = torch.empty_like(h), torch.zeros_like(weight)
        buffer = h.new_empty(min(block, len(h)), len(weight))
        total = h.new_zeros(())
        for i in range(0, len(h), block):
            rows = slice(i, min(i + block, len(h)))
            z = torch.mm(h[rows], weight.t(), out=buffer[: rows.stop - i])
            torch.log_softmax(z, 1, out=z)
            at_target = z.gather(1, y[rows, None])
            total -= at_target.sum()
            z.exp_().scatter_add_(1, y[rows, None], -torch.ones_like(at_target))
            grad_h[rows] = z @ weight
            grad_weight.addmm_(z.t(), h[rows])
        ctx.gradients = grad_h, grad_weight
        return total

    @staticmethod
    def backward(ctx, upstream):
        grad_h, grad_weight = ctx.gradients
        return grad_h.mul_(upstream), grad_weight.mul_(upstream), None, None


def make_layer(rows: int, classes: int, hidden: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    weight = torch.randn(classes, hidden) / hidden**0.5
    return torch.randn(rows, hidden), weight, torch.randint(classes, (rows,))


def scale_for_support(h: Tensor, weight: Tensor, alpha: float, support: int) -> float:
    """The factor for h with which α-entmax has about that many non-zeros."""
    logits = h[:16] @ weight.t()
    low, high = 1e-3, 1e3
    for _ in range(25):
        middle = (low * high) ** 0.5
        size = (sf.entmax(logits * middle, alpha) > 0).sum(1).double().mean()
        low, high = (middle, high) if size > support else (low, middle)
    return low


def tau_for_support(h: Tensor, weight: Tensor, support: int) -> float:
    """The τ with which 1.5-ReLU has about that many non-zeros."""
    logits = (h[:16] @ weight.t()).flatten()
    return 0.5 * logits.topk(16 * support).values[-1].item()


def contestants(rows: int, classes: int, hidden: int, support: int, package: bool) -> dict:
    h, weight, y = make_layer(rows, classes, hidden)
    weight.requires_grad_()
    tau = tau_for_support(h, weight.detach(), support)
    scale = {a: scale_for_support(h, weight.detach(), a, support) for a in (1.5, 2.0)}

    def timed(loss: Callable[[Tensor], Tensor], factor: float = 1.0) -> Callable[[], None]:
        states = (h * factor).requires_grad_()

        def forward_backward() -> None:
            states.grad = weight.grad = None
            loss(states).backward()

        return forward_backward

    options = {"reduction": "sum"}
    block = max(256, (1 << 23) // classes)
    found = {
        BASELINE: timed(lambda h: F.cross_entropy(F.linear(h, weight), y, **options)),
        "chunked cross_entropy": timed(lambda h: ChunkedCrossEntropy.apply(h, weight, y, block)),
        "relu15 fused": timed(
            lambda h: sf.linear_alpha_relu_loss(h, weight, y, 1.5, tau, **options)
        ),
        "entmax15 fused": timed(
            lambda h: sf.linear_entmax_loss(h, weight, y, 1.5, **options), scale[1.5]
        ),
        "softmax fused": timed(lambda h: sf.linear_entmax_loss(h, weight, y, 1.0, **options)),
        "sparsemax fused": timed(
            lambda h: sf.linear_entmax_loss(h, weight, y, 2.0, **options), scale[2.0]
        ),
    }
    for chunk, linear_options in TORCH_CHUNKS.items():
        found[f"F.linear_cross_entropy, {chunk}"] = timed(
            lambda h, o=linear_options: F.linear_cross_entropy(h, weight, y, options=o, **options)
        )
    if package:
        loss = peer.Entmax15Loss(k=100, reduction="sum")
        found["entmax package k=100"] = timed(lambda h: loss(F.linear(h, weight), y), scale[1.5])
    return found


def run_case(rows, classes, hidden, support, rounds, package=False, memory=False) -> list[dict]:
    runs = contestants(rows, classes, hidden, support, package)
    ratios = take_turns(runs, rounds, frozenset({"entmax package k=100"}))
    case = {"rows": rows, "classes": classes, "hidden": hidden, "support": support}
    print(f"\nN = {rows}, V = {classes:,}, d = {hidden}, {support} non-zeros in a row")
    table = []
    for name, run in runs.items():
        result = {**case, "loss": name, **summary(ratios[name])}
        result["megabytes"] = round(peak_memory(run) / 2**20) if memory else ""
        note = f"  peak {result['megabytes']} MB" if memory else ""
        print(
            f"  {name:24} {result['ratio']:6.2f}  [{result['lowest']:.2f}, "
            f"{result['highest']:.2f}]{note}"
        )
        table.append(result)
    return table


def draw(table: list[dict], rows: int) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.9), layout="constrained")
    points = [row for row in table if row["rows"] == rows and row["support"] == 25]
    for name in dict.fromkeys(row["loss"] for row in points):
        own = sorted((r for r in points if r["loss"] == name), key=lambda r: r["classes"])
        classes = [row["classes"] for row in own]
        left.plot(classes, [row["ratio"] for row in own], "o-", label=name, markersize=3)
        right.plot(classes, [row["megabytes"] for row in own], "o-", markersize=3)
    left.set_ylabel(f"time / ({BASELINE})")
    right.set_ylabel("peak memory, MB")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("vocabulary")
        axes.set_yscale("log")
        axes.grid(alpha=0.3)
    ratios = (0.2, 0.5, 1, 2, 5)
    left.set_yticks(ratios, labels=map(str, ratios))
    left.minorticks_off()
    figure.legend(loc="outside lower center", ncols=3, fontsize=6)
    where = machine()
    figure.suptitle(
        f"output layer + loss, forward + backward, N = {rows}, d = 512, 25 non-zeros; "
        f"{where['machine']}, torch {where['torch']}, {where['date']}",
        fontsize=7,
    )
    figure.savefig(FIGURE, dpi=150)
    print(f"drawn to {FIGURE}")


SHARES = (0.01, 0.02, 0.04, 0.08, 0.2)
# (rows, classes, hidden, non-zeros in a row): what grows, while the rest stays.
SWEEPS = {
    "supports": [(1024, 32_000, 512, support) for support in (2, 25, 100, 500, 1000)],
    "densities": [(512, 32_000, 512, round(32_000 * share)) for share in SHARES],
    "small layer": [(2048, 4_000, 192, round(4_000 * share)) for share in SHARES],
    "rows": [(rows, 32_000, 512, 25) for rows in (256, 1024, 4096)],
    "classes": [(1024, classes, 512, 25) for classes in (8_000, 32_000, 128_000, 250_000)],
    "memory": [(4096, 32_000, 512, round(32_000 * share)) for share in (0.001, *SHARES)],
}
SHOWN = ("supports", "small layer", "classes", "memory")  # on docs/benchmarks.md


def sweep(name: str, rounds: int) -> list[dict]:
    print(f"\n{name}")
    table = []
    for rows, classes, hidden, support in SWEEPS[name]:
        turns = max(3, min(rounds, rounds * 2**26 // (rows * classes)))
        whole = name == "classes"
        table += run_case(rows, classes, hidden, support, turns, package=whole, memory=whole)
    return [{"sweep": name, **row} for row in table]


def memory_by_density() -> list[dict]:
    """Peak memory only; that of the others does not depend on the support."""
    print("\npeak memory by density, MB")
    table = []
    for rows, classes, hidden, support in SWEEPS["memory"]:
        for name, run in contestants(rows, classes, hidden, support, package=False).items():
            if "fused" in name or not table:
                megabytes = round(peak_memory(run) / 2**20)
                case = {"rows": rows, "classes": classes, "hidden": hidden, "support": support}
                table.append({**case, "loss": name, "megabytes": megabytes})
                print(f"  {support:>6} non-zeros  {name:24} {megabytes:>6}", flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sweeps", nargs="+", choices=SWEEPS, default=list(SHOWN))
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"fused output layer, ratios to {BASELINE}: median [lowest, highest]; {machine()}")
    table = []
    for name in args.sweeps:
        if name == "memory":
            write_csv("fused_memory", memory_by_density())
        else:
            table += sweep(name, args.rounds)
    if table:
        write_csv("fused", table)
    if "classes" in args.sweeps:
        draw([row for row in table if row["megabytes"]], 1024)


if __name__ == "__main__":
    main()
