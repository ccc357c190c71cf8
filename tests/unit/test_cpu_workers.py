"""What a fairseq command makes of torchrun's environment where there is no GPU."""

from types import SimpleNamespace

import pytest

from sparse_fairseq.cpu_workers import TORCHRUN, join_workers
from sparse_fairseq.errors import UsageError


def configuration(path=None, **workers) -> SimpleNamespace:
    stock = {
        **{"distributed_world_size": 1, "distributed_rank": 0, "distributed_no_spawn": False},
        **{"distributed_init_method": None, "distributed_backend": "nccl"},
        "ddp_backend": "pytorch_ddp",
    }
    return SimpleNamespace(
        common=SimpleNamespace(cpu=True),
        common_eval=SimpleNamespace(path=path),
        distributed_training=SimpleNamespace(**{**stock, **workers}),
    )


@pytest.fixture
def torchrun(monkeypatch):
    for name, value in zip(TORCHRUN, ("127.0.0.1", "29500", "2", "1"), strict=True):
        monkeypatch.setenv(name, value)


def test_torchruns_environment_says_who_we_are(torchrun):
    cfg = configuration()
    join_workers(cfg)
    workers = cfg.distributed_training
    assert (workers.distributed_rank, workers.distributed_world_size) == (1, 2)
    assert (workers.distributed_init_method, workers.distributed_backend) == ("env://", "gloo")
    assert workers.distributed_no_spawn


@pytest.mark.parametrize("one", [{}, {"WORLD_SIZE": "1"}])
def test_a_single_process_is_left_alone(torchrun, monkeypatch, one):
    for name in one or TORCHRUN:
        monkeypatch.delenv(name)
    for name, value in one.items():
        monkeypatch.setenv(name, value)
    cfg = configuration()
    join_workers(cfg)
    assert cfg == configuration()


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"path": "a.pt"}, "only training is shared"),
        ({"distributed_init_method": "tcp://127.0.0.1:1"}, "leave out --distributed-init-method"),
        ({"distributed_world_size": 4}, "is 4, but torchrun started 2 workers"),
        ({"ddp_backend": "fully_sharded"}, "--ddp-backend fully_sharded needs GPUs"),
    ],
)
def test_what_contradicts_torchrun_is_refused(torchrun, flags, complaint):
    with pytest.raises(UsageError, match=complaint):
        join_workers(configuration(**flags))


def test_fairseq_cannot_start_workers_without_gpus():
    with pytest.raises(UsageError, match="start the workers with torchrun"):
        join_workers(configuration(distributed_world_size=2))
    cfg = configuration(distributed_world_size=2, distributed_init_method="tcp://127.0.0.1:1")
    join_workers(cfg)  # one of several that somebody starts by hand
    assert cfg.distributed_training.distributed_world_size == 2
