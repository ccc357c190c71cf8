"""Several workers without GPUs: what fairseq takes for granted of a machine that has some.

Nothing here touches a run on GPUs, nor one that a single process does.
"""

import functools
import logging
import os

import torch
from fairseq.distributed import utils as distributed_utils
from fairseq.models import distributed_fairseq_model

from .errors import UsageError

logger = logging.getLogger(__name__)

# What torchrun says to each of its workers.
TORCHRUN = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
# Sharding the weights, and the momentum of slowmo, are written for GPUs.
DDP_BACKENDS = ("pytorch_ddp", "c10d", "legacy_ddp", "no_c10d")


def started_by_torchrun() -> int:
    """How many workers torchrun started us as one of; 1 if it did not."""
    if not all(name in os.environ for name in TORCHRUN):
        return 1
    return int(os.environ["WORLD_SIZE"])


def refuse_to_work_alone() -> None:
    """An error if torchrun started several of us and none of us knows of the others: each would
    do all of the work (fairseq-generate does not even ask)."""
    count = started_by_torchrun()
    if count > 1 and not torch.distributed.is_initialized():
        raise UsageError(
            f"torchrun started {count} workers, but only training is shared between them: "
            "start this command without torchrun"
        )


def join_workers(cfg) -> None:
    """Makes this process one of torchrun's workers, if it is one and has no GPU.

    fairseq numbers workers by their GPUs: without any it divides by zero, or takes each worker
    for the only one, and all of them train into one directory.
    """
    if torch.cuda.is_available() and not cfg.common.cpu:
        return
    workers = cfg.distributed_training
    count = started_by_torchrun()
    if count == 1:
        _refuse_to_spawn(workers)
        return
    rank = int(os.environ["RANK"])
    _refuse_what_is_not_distributed(cfg, count)
    workers.distributed_init_method = "env://"
    workers.distributed_world_size = count
    workers.distributed_rank = rank
    workers.distributed_no_spawn = True
    workers.distributed_backend = "gloo"
    logger.info(f"worker {rank} of {count} that torchrun started, on CPUs with gloo")


def _refuse_to_spawn(workers) -> None:
    """fairseq starts one process for each GPU by itself, and none without them."""
    if workers.distributed_world_size > 1 and workers.distributed_init_method is None:
        count = workers.distributed_world_size
        raise UsageError(
            f"--distributed-world-size {count} without GPUs: start the workers with torchrun, "
            f'as in torchrun --nproc-per-node {count} "$(which fairseq-train)" …'
        )


def _refuse_what_is_not_distributed(cfg, count: int) -> None:
    workers = cfg.distributed_training
    if cfg.common_eval.path is not None:  # fairseq-validate, fairseq-interactive
        refuse_to_work_alone()
    if workers.distributed_init_method is not None:
        raise UsageError(
            "torchrun tells the workers how to find each other: "
            "leave out --distributed-init-method and --distributed-rank"
        )
    if workers.distributed_world_size not in (1, count):
        raise UsageError(
            f"--distributed-world-size is {workers.distributed_world_size}, "
            f"but torchrun started {count} workers: leave the flag out"
        )
    if workers.ddp_backend not in DDP_BACKENDS:
        raise UsageError(
            f"--ddp-backend {workers.ddp_backend} needs GPUs: use {' or '.join(DDP_BACKENDS[::2])}"
        )


def _joining(call_main):
    """Every fairseq command goes through `call_main`, the first place that knows its flags."""

    @functools.wraps(call_main)
    def join_and_call(cfg, main, **kwargs):
        join_workers(cfg)
        return call_main(cfg, main, **kwargs)

    return join_and_call


def _without_devices(ddp):
    """torch DDP wants no device ids for a model on the CPU; fairseq always passes one."""

    @functools.wraps(ddp, updated=())
    def wrap(module, device_ids=None, output_device=None, **options):
        if all(p.device.type == "cpu" for p in module.parameters()):
            device_ids = output_device = None
        return ddp(module, device_ids=device_ids, output_device=output_device, **options)

    return wrap


def enable() -> None:
    """Once, when the package is registered with fairseq."""
    distributed_utils.call_main = _joining(distributed_utils.call_main)
    distributed_fairseq_model.DistributedDataParallel = _without_devices(
        distributed_fairseq_model.DistributedDataParallel
    )
