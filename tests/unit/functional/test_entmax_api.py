"""The entmax package's names: its own tests with another import, and its values."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import entmax as peer
import pytest
import torch
from helpers import only, scores, targets

from sparse_fairseq.functional import entmax_api

pytestmark = only("host")

NAMES = [name for name in dir(peer) if callable(getattr(peer, name))]
# Of its private functions, which find thresholds by (partial) sorting.
PRIVATE = re.compile(r"^    _(sparsemax|entmax)_threshold_and_support,\n", re.MULTILINE)


def parameters(function):
    found = inspect.signature(function).parameters.values()
    return [(p.name, p.default) for p in found]


@pytest.mark.parametrize("name", NAMES)
def test_names_arguments_and_defaults(name):
    assert parameters(getattr(entmax_api, name)) == parameters(getattr(peer, name))


@pytest.mark.slow
def test_its_own_tests_pass_with_one_import_changed(tmp_path):
    files = sorted(Path(peer.__file__).parent.glob("test_*.py"))
    if not files:
        pytest.skip("the installed entmax package comes without its tests")
    for file in files:
        text = re.sub(
            r"from entmax\.\w+ import", f"from {entmax_api.__name__} import", file.read_text()
        )
        (tmp_path / f"test_peer_{file.stem}.py").write_text(PRIVATE.sub("", text))
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    command += ["-k", "not test_entmax_topk and not test_sparsemax_topk"]
    command += ["--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 90


@pytest.mark.parametrize("name", ["sparsemax", "entmax15", "sparsemax_bisect", "entmax_bisect"])
def test_values_are_the_packages(name):
    z = scores(5, 30, scale=2.0)
    own, theirs = getattr(entmax_api, name), getattr(peer, name)
    torch.testing.assert_close(own(z), theirs(z))
    torch.testing.assert_close(own(z, dim=0), theirs(z, dim=0))


def test_values_of_what_is_not_sparse_or_has_a_budget():
    z = scores(5, 30, scale=2.0)
    for alpha in (0.3, 0.8):
        theirs = peer.entmax_bisect(z, alpha, n_iter=100)
        torch.testing.assert_close(entmax_api.entmax_bisect(z, alpha), theirs)
    torch.testing.assert_close(entmax_api.normmax_bisect(z), peer.normmax_bisect(z))
    torch.testing.assert_close(
        entmax_api.budget_bisect(z, 3), peer.budget_bisect(z, 3), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize(
    "name", ["SparsemaxLoss", "Entmax15Loss", "EntmaxBisectLoss", "NormmaxBisectLoss"]
)
@pytest.mark.parametrize("reduction", ["elementwise_mean", "sum", "none"])
def test_losses_are_the_packages(name, reduction):
    z, y = scores(5, 30).requires_grad_(), targets(5, classes=30)
    own = getattr(entmax_api, name)(reduction=reduction, ignore_index=int(y[1]))(z, y)
    theirs = getattr(peer, name)(reduction=reduction, ignore_index=int(y[1]))(z, y)
    torch.testing.assert_close(own, theirs, rtol=1e-6, atol=1e-6)
    grads = (torch.autograd.grad(loss.sum(), z)[0] for loss in (own, theirs))
    torch.testing.assert_close(*grads, rtol=1e-6, atol=1e-6)


def test_what_differs_on_purpose():
    """The rows of the table in docs/migrating-from-entmax.md."""
    z, y = torch.tensor([[1.0, 0.5, -float("inf")]]), torch.tensor([0])
    assert entmax_api.Entmax15Loss()(z, y).isfinite()
    assert (entmax_api.sparsemax(torch.full((2, 3), -float("inf"))) == 0).all()
    torch.testing.assert_close(entmax_api.entmax_bisect(z, 1.0), z.softmax(1))
    negative = torch.tensor([0, -1])
    loss = entmax_api.SparsemaxLoss(ignore_index=-1, reduction="none")(scores(2, 3), negative)
    assert loss[1] == 0 and entmax_api.SparsemaxLoss(reduction="mean")(z, y).isfinite()
    half = entmax_api.entmax15(scores(4, 32_000, scale=0.2, dtype=torch.bfloat16))
    assert (half.float().sum(1) - 1).abs().max() < 2e-3
    alpha = torch.tensor(1.5, requires_grad=True)
    entmax_api.EntmaxBisectLoss(alpha)(scores(2, 5), torch.tensor([0, 1])).backward()
    assert alpha.grad != 0
