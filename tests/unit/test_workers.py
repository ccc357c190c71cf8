"""`--tau batch` on several workers: all of them measure, one number counts, no failure hangs.

Two real workers (gloo), forked after what takes long to import.
"""

import subprocess
import sys
from ast import literal_eval
from pathlib import Path

from fairseq_runs import environment

PROGRAM = """
import sys, tempfile
import torch
from torch import distributed, multiprocessing
from tiny_fairseq import load_training_data, make_criterion, make_dataset, make_model, make_task
import sparse_fairseq.register
from sparse_fairseq.errors import UsageError

def worker(rank, init, kind, answers):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{init}", rank=rank, world_size=2)
    task = make_task(200)
    model = make_model(task)
    make_criterion(task, "alpha_relu_loss", tau="batch")
    if rank == 1:
        with torch.no_grad():  # weights that differ in their last digits, as after a reduction
            model.decoder.output_projection.weight.mul_(1 + 1e-4)

    def gather(module, args):  # a sharded model does so: it runs on all workers or hangs
        distributed.all_reduce(torch.zeros(1))
        if kind == "failing" and rank == 0:
            raise MemoryError("no memory left")
        if kind == "refusing" and rank == 0:
            raise UsageError("not with this")

    model.decoder.register_forward_pre_hook(gather)
    load_training_data(task, make_dataset(task))
    try:
        task.begin_epoch(1, model)
        answer = repr(model.decoder.output_transform.tau)
    except BaseException as error:
        answer = f"{type(error).__name__}: {error}"
    answers[rank] = answer

for kind in ("sharded", "failing", "refusing"):
    with tempfile.TemporaryDirectory() as folder:
        context = multiprocessing.get_context("fork")
        answers = context.Manager().dict()
        workers = [
            context.Process(target=worker, args=(rank, f"{folder}/init", kind, answers))
            for rank in (0, 1)
        ]
        [each.start() for each in workers]
        [each.join(120) for each in workers]
        hung = [each for each in workers if each.is_alive()]
        [each.kill() for each in hung]
        print(kind, "hung" if hung else [answers[0], answers[1]], sep="|")
"""


def test_all_measure_and_none_waits_for_a_failure():
    folder = Path(__file__).parent.parent
    path = {"PYTHONPATH": f"{folder}:{folder.parent}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={**environment(), **path},
    )
    found = dict(line.split("|") for line in done.stdout.splitlines() if "|" in line)
    assert found.keys() == {"sharded", "failing", "refusing"}, done.stderr[-3000:]
    one, other = literal_eval(found["sharded"])
    assert one == other and 0 < float(one) < 2
    for kind, error in (
        ("failing", "MemoryError: no memory left"),
        ("refusing", "UsageError: sparse_fairseq: error: not with this"),
    ):
        failed, told = literal_eval(found[kind])
        assert failed == error
        assert "--tau batch failed on worker 0: see its error" in told
