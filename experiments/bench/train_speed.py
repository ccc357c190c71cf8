"""Words per second of fairseq's training loop with each criterion, and where the time goes.

One model takes turns with the criteria, update after update, so that a busy machine slows all of
them; ratios are within a round, and the median over the rounds counts. Supports have the size of a
trained model's: τ (α-ReLU) and the scale of the output weights (entmax) are set for it, and the
learning rate is too small to change anything. `fairseq-train` does the same updates; what is not
in here is the reading of data.

    python -m experiments.bench.train_speed [--dim 512 --layers 6] [--vocab 128000] …
"""

import argparse
import logging
import statistics
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import entmax as peer
import torch
from fairseq import criterions, options, tasks
from fairseq.criterions import FairseqCriterion
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer

import sparse_fairseq.register  # noqa: F401
from experiments.bench.common import clock, machine, write_csv
from experiments.bench.fused import scale_for_support, tau_for_support
from sparse_fairseq.functional._host import layer, passes
from sparse_fairseq.output_transform import OutputSettings

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "entmax package"  # 1.5-entmax, k = 100
SYSTEMS = {
    "softmax": ["--criterion=cross_entropy"],  # fairseq's own, to which the others are compared
    "softmax_loss": ["--criterion=softmax_loss"],
    "relu15": ["--criterion=alpha_relu_loss", "--alpha=1.5", "--tau=0"],
    "entmax15": ["--criterion=entmax_loss", "--alpha=1.5"],
    "sparsemax": ["--criterion=sparsemax_loss"],
    "entmax15_sort": ["--criterion=entmax_loss", "--alpha=1.5", "--solver=sort"],  # what SE timed
    PACKAGE: ["--criterion=cross_entropy"],  # gives way to the package's loss
}
NOT_FUSED = ("softmax", PACKAGE)
LENGTH = 24  # words in a sentence
# Forward product of the output layer; softmax or threshold, support and loss; gradient products
# of the output layer; then what all have in common.
PARTS = ("product", "loss", "gradients", "optimizer", "rest of the model")


class PackageCriterion(FairseqCriterion):
    """The entmax package's loss of the same logits, as one would use it with fairseq."""

    requested = OutputSettings("entmax", 1.5)

    def __init__(self, task) -> None:
        super().__init__(task)
        self.loss = peer.Entmax15Loss(k=100, ignore_index=self.padding_idx, reduction="sum")

    def forward(self, model, sample, reduce=True):
        loss = self.compute_loss(model(**sample["net_input"])[0], sample["target"])
        size = sample["ntokens"]
        return loss, size, {"loss": loss.data, "ntokens": size, "sample_size": size}

    def compute_loss(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.loss(logits.flatten(0, 1), target.flatten())

    @staticmethod
    def reduce_metrics(logging_outputs) -> None:
        metrics.log_scalar("loss", sum(log["loss"] for log in logging_outputs))

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


class Stopwatch:
    """Time spent in parts of an update."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.last = 0.0

    def around(self, part: str, function: Callable) -> Callable:
        def timed(*args, **kwargs):
            start = clock()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[part] += clock() - start

        return timed

    def around_layer(self, forward: Callable) -> Callable:
        """An output layer whose backward pass ends when the gradient of its input is there, and
        begins when that of its output is; what came before since "backward" began is the loss."""

        def timed(h: torch.Tensor) -> torch.Tensor:
            logits = self.around("product", forward)(h)
            logits.register_hook(lambda grad: self.lap("loss"))
            h.register_hook(lambda grad: self.lap("gradients"))
            return logits

        return timed

    def around_backward(self, backward: Callable) -> Callable:
        def timed(loss: torch.Tensor) -> None:
            self.last = clock()
            backward(loss)

        return timed

    def lap(self, part: str) -> None:
        now = clock()
        self.seconds[part] += now - self.last
        self.last = now


class Bench:
    """A model and its trainer, for which criteria take turns."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self.args = args
        for language in ("src", "tgt"):
            words = (f"w{i} 1\n" for i in range(args.vocab - 4))
            (folder / f"dict.{language}.txt").write_text("".join(words))
        cfg = self.config(folder, "softmax")
        self.task = tasks.setup_task(cfg.task)
        self.model = self.task.build_model(cfg.model)
        self.output = self.model.decoder.output_projection
        self.criteria = {
            system: criterions.build_criterion(self.config(folder, system).criterion, self.task)
            for system in SYSTEMS
        }
        self.criteria[PACKAGE] = PackageCriterion(self.task)
        self.trainer = Trainer(cfg, self.task, self.model, self.criteria["softmax"])
        self.trainer.lr_step_begin_epoch(1)
        self.sample = self.make_batch()
        self.plain_weight = self.output.weight.detach().clone()

    def config(self, folder: Path, system: str):
        args, d = self.args, self.args.dim
        sizes = {"layers": args.layers, "embed-dim": d, "ffn-embed-dim": args.ffn or 4 * d}
        run = [f"--{side}-{k}={v}" for side in ("encoder", "decoder") for k, v in sizes.items()]
        run += [str(folder), f"--user-dir={ROOT / 'sparse_fairseq'}", "--task=sparse_translation"]
        run += ["--source-lang=src", "--target-lang=tgt", "--arch=transformer", "--optimizer=adam"]
        run += ["--lr=1e-20", "--clip-norm=1", "--cpu", f"--max-tokens={args.tokens}"]
        run += SYSTEMS[system]
        if args.not_fused and system not in NOT_FUSED:
            run.append("--no-fused-output")
        parser = options.get_training_parser()
        return convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, run))

    def make_batch(self) -> dict:
        torch.manual_seed(0)
        sentences = self.args.tokens // LENGTH
        source, target, previous = torch.randint(4, self.args.vocab, (3, sentences, LENGTH))
        inputs = {"src_tokens": source, "src_lengths": torch.full((sentences,), LENGTH)}
        inputs["prev_output_tokens"] = previous
        return {
            "id": torch.arange(sentences),
            "nsentences": sentences,
            "ntokens": target.numel(),
            "net_input": inputs,
            "target": target,
        }

    def choose(self, system: str) -> None:
        """The system's criterion, and an output with trained sparsity."""
        criterion = self.trainer._criterion = self.criteria[system]
        self.trainer._wrapped_criterion = None
        support = self.args.support
        with torch.no_grad():
            self.output.weight.copy_(self.plain_weight)
            settings = getattr(criterion, "requested", OutputSettings())
            if settings.kind == "alpha_relu":
                tau = tau_for_support(self.features(), self.plain_weight, support)
                settings = replace(settings, tau=tau)
            elif settings.alpha > 1:
                h = self.features()
                scale = scale_for_support(h, self.plain_weight, settings.alpha, support)
                self.output.weight.mul_(scale)
            self.model.decoder.output_transform.settings = settings

    def features(self) -> torch.Tensor:
        """Some hidden states of the output layer."""
        inputs = {key: value[:2] for key, value in self.sample["net_input"].items()}
        h = self.model(**inputs, features_only=True)[0]
        return h.flatten(0, 1)

    def update(self) -> dict:
        with metrics.aggregate(new_root=True) as log:
            self.trainer.train_step([self.sample])
        return log.get_smoothed_values()

    @contextmanager
    def watched(self, watch: Stopwatch, system: str) -> Iterator[None]:
        """While this lasts, updates tell the watch where their time goes."""
        optimizer, places = self.trainer.optimizer, []
        if system in NOT_FUSED:
            self.output.forward = watch.around_layer(self.output.forward)
            places += [(self.criteria[system], "compute_loss", "loss")]
            optimizer.backward = watch.around_backward(optimizer.backward)
        else:
            places += [(layer, "_logits", "product")]
            parts = ("make_block", "block_loss", "block_stats")
            places += [(passes, name, "loss") for name in parts]
            parts = ("add_entries", "finish_rows", "finished")
            places += [(layer.Gradients, name, "gradients") for name in parts]
        places += [(optimizer, "step", "optimizer")]
        originals = [getattr(place, name) for place, name, _ in places]
        for (place, name, part), original in zip(places, originals, strict=True):
            setattr(place, name, watch.around(part, original))
        try:
            yield
        finally:
            for place, name in ((self.output, "forward"), (optimizer, "backward")):
                place.__dict__.pop(name, None)
            for (place, name, _), original in zip(places, originals, strict=True):
                setattr(place, name, original)


def take_turns(bench: Bench, rounds: int) -> tuple[dict, dict]:
    """Seconds of an update for each system and round, and what its last update logged."""
    seconds: dict[str, list[float]] = {system: [] for system in SYSTEMS}
    logged = {}
    for number in range(rounds + 1):  # the first warms up
        for system in SYSTEMS:
            bench.choose(system)
            start = clock()
            logged[system] = bench.update()
            if number:
                seconds[system].append(clock() - start)
    return seconds, logged


def profile(bench: Bench) -> list[dict]:
    """Where the time of an update goes, in ms."""
    rows = []
    print("\nms of one update: " + ", ".join(PARTS))
    for system in SYSTEMS:
        bench.choose(system)
        watch = Stopwatch()
        with bench.watched(watch, system):
            start = clock()
            bench.update()
            total = clock() - start
        known = {part: watch.seconds[part] for part in PARTS[:-1]}
        known["rest of the model"] = total - sum(known.values())
        row = {"system": system} | {part: round(1e3 * known[part]) for part in PARTS}
        print(f"  {system:<14}" + "".join(f"{row[part]:>9}" for part in PARTS))
        rows.append(row)
    return rows


def report(seconds: dict[str, list[float]], logged: dict, args: argparse.Namespace) -> list[dict]:
    rows = []
    print(f"{'system':<14}{'words/s':>9}{'× softmax':>11}  [lowest, highest]{'support':>10}")
    for system, rounds in seconds.items():
        # Ratios within a round, which saw the same machine.
        ratios = [b / a for a, b in zip(rounds, seconds["softmax"], strict=True)]
        row = {
            "system": system,
            "wps": round(args.tokens // LENGTH * LENGTH / statistics.median(rounds)),
            "ratio": round(statistics.median(ratios), 3),
            "lowest": round(min(ratios), 3),
            "highest": round(max(ratios), 3),
            "support": logged[system].get("support", ""),
        }
        print(
            f"{system:<14}{row['wps']:>9}{row['ratio']:>11.3f}  "
            f"[{row['lowest']:.2f}, {row['highest']:.2f}]{row['support']:>16}"
        )
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--support", type=int, default=25, help="non-zeros of a row")
    parser.add_argument("--vocab", type=int, default=32_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--ffn", type=int, default=0, help="4 × dim if 0")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=1024, help="in a batch")
    parser.add_argument("--not-fused", action="store_true", help="with --no-fused-output")
    args = parser.parse_args()
    logging.disable(logging.INFO)
    warnings.simplefilter("ignore")  # of hydra and torch, about fairseq
    kind = "not_fused" if args.not_fused else "fused"
    name = f"train_{kind}_v{args.vocab}_d{args.dim}_s{args.support}"
    print(f"updates of fairseq's trainer, {vars(args)}; {machine()}")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        seconds, logged = take_turns(bench, args.rounds)
        rows = report(seconds, logged, args)
        if not args.not_fused:
            parts = profile(bench)
            rows = [row | own for row, own in zip(rows, parts, strict=True)]
    write_csv(name, [vars(args) | row for row in rows])


if __name__ == "__main__":
    main()
