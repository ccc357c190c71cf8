"""From a config to the fairseq command lines that a user could paste. Nothing is run here."""

import dataclasses
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

from data_prep.segmentation import interactive_flags
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

from .config import Config, Flags
from .paths import readable
from .systems import find_system, system_flags

# What no config need say. fairseq makes the batches of all epochs in the first one after a start;
# making them anew for each epoch lets an interrupted run end as one that was not.
COMMON: Flags = {
    "update-epoch-batch-itr": "True",
    "no-epoch-checkpoints": True,
    "log-format": "json",
    "log-interval": 20,
}
# Settings under which a run may go on after a change: it only gets longer.
LENGTH = ("max-epoch", "max-update")
# How often fairseq looks and saves, in epochs.
INTERVALS = ("save-interval", "validate-interval")


@dataclasses.dataclass(frozen=True)
class Workers:
    """How many processes share an update, and how fairseq finds them."""

    count: int
    flags: Flags
    rank: int = 0
    master: str | None = None  # where worker 0 runs, unless fairseq finds that out by itself


def launched_rank(environment: Mapping[str, str] = os.environ) -> int:
    """Which of the workers we are that torchrun or SLURM started; 0 if nobody did."""
    return int(environment.get("RANK", environment.get("SLURM_PROCID", "0")))


def find_workers(
    gpus: int | None, environment: Mapping[str, str] = os.environ, pretend: bool = False
) -> Workers:
    """GPUs of this machine, or what torchrun or SLURM started us as; else the CPU.

    ``pretend``: for commands that are only shown, GPUs need not be there.
    """
    if gpus is not None and gpus < 0:
        raise UsageError(f"GPUS={gpus}: 0 (none) or more are needed")
    if int(environment.get("WORLD_SIZE", "1")) > 1:
        return _torchrun_workers(environment, gpus == 0 or not (pretend or _gpu_count()))
    if int(environment.get("SLURM_NTASKS", "1")) > 1:
        if not pretend and not _gpu_count():
            tasks = environment["SLURM_NTASKS"]
            raise UsageError(f"{tasks} SLURM tasks need GPUs, and this machine has none: ask for 1")
        return _slurm_workers(environment, _gpu_count())
    count = gpus if gpus is not None else _gpu_count()
    if not count:
        return Workers(1, {"cpu": True})
    if not pretend and count > (present := _gpu_count()):
        raise UsageError(f"GPUS={count}, but this machine has {present}")
    # Else fairseq, inside a SLURM allocation, takes all GPUs that it finds there.
    master = "localhost" if count > 1 else None
    return Workers(count, {"distributed-world-size": count}, master=master)


def _torchrun_workers(environment: Mapping[str, str], on_cpu: bool) -> Workers:
    """Each run gets a meeting place of its own: what one run leaves in torchrun's would mislead
    the next."""
    count, rank = int(environment["WORLD_SIZE"]), launched_rank(environment)
    flags: Flags = {
        "distributed-world-size": count,
        "distributed-rank": rank,
        "distributed-no-spawn": True,
    }
    if on_cpu:
        flags |= {"cpu": True, "distributed-backend": "gloo"}
    else:
        flags |= {"device-id": int(environment.get("LOCAL_RANK", "0"))}
    return Workers(count, flags, rank, environment["MASTER_ADDR"])


def _slurm_workers(environment: Mapping[str, str], gpus_here: int) -> Workers:
    tasks, nodes = int(environment["SLURM_NTASKS"]), int(environment.get("SLURM_NNODES", "1"))
    # fairseq starts one process per GPU itself where SLURM starts one task per node.
    count = tasks if tasks > nodes else nodes * max(1, gpus_here)
    port = 10_000 + int(environment.get("SLURM_JOB_ID", "0")) % 50_000
    flags = {"distributed-world-size": count, "distributed-port": port}
    return Workers(count, flags, launched_rank(environment))


def _gpu_count() -> int:
    import torch  # only here: a second `make demo` must not wait for torch

    return torch.cuda.device_count()


def train_settings(config: Config, system: str, seed: int) -> Flags:
    """What decides the outcome of a training run, as fairseq flags without devices and paths."""
    batch = config.batch
    size = {"max-tokens": batch.tokens} if batch.tokens else {"batch-size": batch.sentences}
    return {
        **{key: value for key, value in config.train.items() if value is not None},
        **system_flags(config, system),
        **size,
        "accumulate": batch.accumulate,
        "seed": seed,
    }


def train_command(settings: Flags, bin_dir: Path, save_dir: Path, workers: Workers) -> list[str]:
    flags = dict(settings)
    kind, size = batch_size(flags)
    share, frequency = shares(size, flags.pop("accumulate"), workers.count)
    if not share:
        raise UsageError(f"{workers.count} workers cannot share an update of {size} {kind}")
    device = {**workers.flags, kind: share, "update-freq": frequency}
    if workers.master:
        device["distributed-init-method"] = f"tcp://{workers.master}:{meeting_port(save_dir)}"
    common = {"save-dir": readable(save_dir), **COMMON}
    return _command("fairseq-train", bin_dir, {**flags, **device, **common})


def batch_size(settings: Flags) -> tuple[str, int]:
    """The flag that says how big a batch is, and how big."""
    kind = "max-tokens" if "max-tokens" in settings else "batch-size"
    return kind, settings[kind]


def shares(size: int, accumulate: int, workers: int) -> tuple[int, int]:
    """What one of the workers takes at a time, and how many times for one update.

    Together it is ``size`` × ``accumulate``, or as near as whole numbers come. No worker takes
    more at a time than ``size``, which may be all that its memory holds.

    >>> shares(4096, 8, 2), shares(4096, 4, 8), shares(64, 1, 3)
    ((4096, 4), (2048, 1), (21, 1))
    """
    total, fewest = size * accumulate, -(-accumulate // workers)
    for frequency in range(fewest, accumulate + 1):
        if total % (workers * frequency) == 0:
            return total // (workers * frequency), frequency
    return min(size, round(total / (workers * fewest))), fewest


def batch_note(settings: Flags, workers: Workers) -> str | None:
    """What to tell people if workers cannot share an update in whole numbers."""
    kind, size = batch_size(settings)
    total = size * settings["accumulate"]
    share, frequency = shares(size, settings["accumulate"], workers.count)
    if share * frequency * workers.count == total:
        return None
    now = f"{workers.count} × {frequency} × {share} = {workers.count * frequency * share:,}"
    return f"an update of {total:,} ({kind}) is shared as {now}"


def meeting_port(save_dir: Path) -> int:
    """The same for one run, which nobody else may train now; below those that systems give away."""
    return 10_000 + zlib.crc32(str(save_dir.absolute()).encode()) % 20_000


def generate_command(
    config: Config,
    system: str,
    split: str,
    bin_dir: Path,
    checkpoints: list[Path],
    workers: Workers,
) -> list[str]:
    flags = {key: value for key, value in config.generate.items() if value is not None}
    if (
        solver := find_system(system).solver
    ) != "auto":  # what was trained with it is timed with it
        flags = {**flags, "decoding-solver": solver}
    path = ":".join(readable(checkpoint) for checkpoint in checkpoints)
    device = {"cpu": True} if "cpu" in workers.flags else {}
    # fairseq leaves out sentences that do not fill a batch of the multiple, 8 by default.
    whole = {"required-batch-size-multiple": 1}
    flags = {"path": path, "gen-subset": split, **flags, **whole, **device}
    raw_text = interactive_flags(bin_dir, DataSpec.from_mapping(config.data))
    return _command("fairseq-generate", bin_dir, flags) + raw_text


def _command(program: str, bin_dir: Path, flags: Flags) -> list[str]:
    ours = {"user-dir": "sparse_fairseq", "task": "sparse_translation"}
    words = [program, readable(bin_dir)]
    for name, value in {**ours, **flags}.items():
        if value is True:
            words.append(f"--{name}")
        elif value is not False:
            words.append(f"--{name}={_text(value)}")
    return words


def _text(value: object) -> str:
    """Numbers as people write them: 3e-05, 0.1, 1 (not 1.0 for an α of 1)."""
    return f"{value:g}" if isinstance(value, float) else str(value)
