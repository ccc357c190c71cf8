"""Time of sparse attention beside softmax attention in plain torch and the entmax package.

Forward + backward of scores, weights and weighted values with 8 heads, d = 512, in float32; ratios
to the softmax attention of the same round.
"""

import argparse
from collections.abc import Callable

import entmax as peer
import torch
from torch import Tensor

from experiments.bench.common import machine, summary, take_turns, write_csv
from sparse_fairseq import functional as sf

BASELINE = "softmax"
HEADS, DIM = 8, 512
# Standard deviations of the scores: as at the start of training, and of attention that has learned.
CASES = {"untrained": 1.0, "trained": 3.0}

Mapping = Callable[[Tensor], Tensor]


def mappings(heads: int) -> dict[str, Mapping]:
    """From scores [batch * heads, queries, keys] to weights."""
    # Spread over (1, 2), as Correia et al. (2019) find them after training.
    learned = torch.linspace(1.05, 1.95, HEADS).repeat(heads // HEADS).view(-1, 1, 1)
    ours, theirs = learned.clone().requires_grad_(), learned.clone().requires_grad_()
    return {
        BASELINE: lambda z: z.softmax(-1),
        "entmax 1.5": lambda z: sf.entmax(z, 1.5),
        "sparsemax": lambda z: sf.entmax(z, 2.0),
        "entmax 1.25": lambda z: sf.entmax(z, 1.25),
        "entmax learned": lambda z: sf.entmax(z, ours),
        "package: entmax 1.5": lambda z: peer.entmax15(z, dim=-1),
        "package: sparsemax": lambda z: peer.sparsemax(z, dim=-1),
        "package: entmax 1.25 (bisect)": lambda z: peer.entmax_bisect(z, 1.25, dim=-1),
        "package: entmax learned (bisect)": lambda z: peer.entmax_bisect(z, theirs, dim=-1),
    }


def run_case(case: str, length: int, tokens: int, rounds: int, only: str | None) -> list[dict]:
    torch.manual_seed(0)
    heads = max(1, tokens // length) * HEADS
    shape = heads, length, DIM // HEADS
    query, key, value, upstream = (torch.randn(shape) for _ in range(4))
    query.mul_(CASES[case] / shape[2] ** 0.5)
    leaves = [tensor.requires_grad_() for tensor in (query, key, value)]

    def forward_backward(mapping: Mapping) -> None:
        for leaf in leaves:
            leaf.grad = None
        weights = mapping(torch.bmm(query, key.transpose(1, 2)))
        torch.bmm(weights, value).backward(upstream)

    chosen = {
        name: lambda mapping=mapping: forward_backward(mapping)
        for name, mapping in mappings(heads).items()
        if name == BASELINE or not only or only in name
    }
    # Bisection takes seconds: one round is enough for a ratio of 10 or 60.
    slow = frozenset(name for name in chosen if "bisect" in name)
    ratios = take_turns(chosen, rounds, slow)
    return [{"mapping": name, **summary(ratios[name])} for name in chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[32, 64, 128, 256, 512, 1024])
    parser.add_argument("--tokens", type=int, default=2048, help="in a batch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", help="time only mappings whose name contains this")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"attention, forward + backward, {HEADS} heads, d = {DIM}, float32; {machine()}")
    print(f"ratio: time / {BASELINE} attention, median [lowest, highest]")
    rows = []
    for case in CASES:
        for length in args.lengths:
            print(f"\n{case}, length {length}")
            for row in run_case(case, length, args.tokens, args.rounds, args.only):
                print(
                    f"  {row['mapping']:34} {row['ratio']:7.2f}  "
                    f"[{row['lowest']:.2f}, {row['highest']:.2f}]"
                )
                rows.append({"case": case, "length": length, "tokens": args.tokens, **row})
    write_csv("attention", rows)


if __name__ == "__main__":
    main()
