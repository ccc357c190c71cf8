"""torchrun without GPUs: two workers, two "nodes" of one worker, kills, restarts and refusals."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from fairseq_runs import BASICS, TINY, USER_DIR, Finished, environment, train
from test_training import last, weights
from tiny_experiment import ROOT, Place

import sparse_fairseq.register  # noqa: F401  (torch.load reads fairseq's checkpoints)

ARGS = ["--criterion=alpha_relu_loss", "--dropout=0", "--max-epoch=2", "--save-interval-updates=5"]
PROGRAMS = Path(sys.executable).parent


def torchrun(options: list[str], program: list, log: Path) -> subprocess.Popen:
    command = [PROGRAMS / "torchrun", *options, *program]
    with log.open("w") as output:
        return subprocess.Popen(
            [str(word) for word in command],
            **{"stdout": output, "stderr": subprocess.STDOUT, "cwd": ROOT, "env": environment()},
            start_new_session=True,
        )


def training(data, save_dir, *args) -> list:
    ours = [f"--user-dir={USER_DIR}", "--task=sparse_translation", f"--save-dir={save_dir}"]
    return [PROGRAMS / "fairseq-train", data, *ours, *BASICS, *TINY["transformer"].split(), *args]


def two_nodes() -> list[list[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = ["--nnodes=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    return [[*place, "--nproc-per-node=1", f"--node-rank={node}"] for node in (0, 1)]


def finish(process: subprocess.Popen, log: Path) -> Finished:
    try:
        process.wait(300)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return Finished(process.returncode, log.read_text(), "")


def children(pid: int) -> list[int]:
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture(scope="module")
def undisturbed(reversal_data, tmp_path_factory) -> tuple[Finished, dict]:
    folder = tmp_path_factory.mktemp("one")
    done = train(reversal_data, folder, *ARGS, "--update-freq=2")
    return done, weights(folder)


def assert_equal_to(undisturbed, done: Finished, folder: Path) -> None:
    one, expected = undisturbed
    assert done.code == 0, done.text[-4000:]
    assert last(done) == pytest.approx(last(one), abs=1e-4)
    for key, value in weights(folder).items():
        torch.testing.assert_close(value, expected[key], atol=1e-4, rtol=1e-4)


def test_two_workers_equal_one_with_update_freq_2(undisturbed, reversal_data, tmp_path):
    log = tmp_path / "log"
    process = torchrun(["--nproc-per-node=2"], training(reversal_data, tmp_path, *ARGS), log)
    done = finish(process, log)
    assert_equal_to(undisturbed, done, tmp_path)
    assert "worker 1 of 2 that torchrun started" in done.text
    assert [record["epoch"] for record in done.records("train")] == [1, 2]  # one log, not two


def test_a_killed_worker_ends_both_nodes_and_a_restart_goes_on(
    undisturbed, reversal_data, tmp_path
):
    program = training(reversal_data, tmp_path / "run", *ARGS)
    logs = [tmp_path / "node0", tmp_path / "node1"]
    slow = [*program, "--max-epoch=1000"]
    nodes = [torchrun(*x) for x in zip(two_nodes(), [slow] * 2, logs, strict=True)]
    deadline = time.monotonic() + 200
    while not (tmp_path / "run/checkpoint_last.pt").exists():
        assert time.monotonic() < deadline, logs[0].read_text()[-4000:]
        time.sleep(0.1)
    (worker,) = children(nodes[1].pid)
    os.kill(worker, signal.SIGKILL)
    ended = [finish(*x) for x in zip(nodes, logs, strict=True)]
    assert all(done.code != 0 for done in ended)

    nodes = [torchrun(*x) for x in zip(two_nodes(), [program] * 2, logs, strict=True)]
    resumed = [finish(*x) for x in zip(nodes, logs, strict=True)]
    assert "Loaded checkpoint" in resumed[0].text and "tau = " not in resumed[0].text
    assert_equal_to(undisturbed, resumed[0], tmp_path / "run")
    assert resumed[1].code == 0


def test_what_cannot_be_distributed_is_refused_before_the_first_batch(reversal_data, tmp_path):
    ours = [reversal_data, f"--user-dir={USER_DIR}", "--task=sparse_translation"]
    decoding = [PROGRAMS / "fairseq-generate", *ours, "--path=any.pt", "--cpu"]
    log = tmp_path / "log"
    done = finish(torchrun(["--nproc-per-node=2"], decoding, log), log)
    assert done.code != 0
    lines = [x for x in done.text.splitlines() if x.startswith("sparse_fairseq: error:")]
    assert lines and all("only training is shared" in line for line in lines)


def test_a_world_of_two_without_torchrun_is_refused(reversal_data, tmp_path):
    done = train(reversal_data, tmp_path, *ARGS, "--distributed-world-size=2", ok=False)
    assert done.code == 1 and "Traceback" not in done.text
    assert "torchrun --nproc-per-node 2" in done.err


def test_experiments_run_shares_each_run_between_workers(tmp_path):
    """Two systems, one after the other: what the first leaves behind must not mislead the
    second."""
    place, log = Place(tmp_path), tmp_path / "log"
    program = ["-m", "experiments.run", *place.arguments("runs", "--epochs=1")]
    done = finish(torchrun(["--nproc-per-node=2"], program, log), log)
    assert done.code == 0, done.text[-4000:]
    for system in ("relu15", "softmax"):
        run = tmp_path / f"runs/tiny/{system}/seed1"
        assert place.json(f"runs/tiny/{system}/seed1/scores.json")["epochs"] == 1
        (command,) = place.json(f"runs/tiny/{system}/seed1/manifest.json")["commands"]["train"]
        assert "--distributed-world-size=2" in command
        assert "distributed init (rank 1)" in (run / "train.rank1.log").read_text()
