"""Loss, gradient and statistics of the kernels against float64 references."""

import pytest
import torch
from kernel_cases import (
    DTYPES,
    FAMILIES,
    IGNORED,
    TOLERANCE,
    assert_near,
    expected,
    name,
    scores,
    targets,
)

from sparse_fairseq.functional._triton import launch
from sparse_fairseq.functional._triton._math import CORRECT, LOSS, SCORE, SUPPORT, TOTAL
from sparse_fairseq.functional._triton.launch import Family, Target

INF, NAN = float("inf"), float("nan")
PLAIN = [Family(1.5, 0.3), Family(1.2, 0.3), Family(1.5), Family(2.0), Family(1.2)]


def run(family, z, y, smoothing=0.0, scale=None, **options):
    """The fields and the gradient, in one pass."""
    scale = torch.ones(1) if scale is None else scale
    out = launch.new_output(z, z.dtype, *z.shape)
    target = Target(y, IGNORED, smoothing)
    fields = launch.loss_rows(z, target, family, scale=scale, out=out, **options)
    return fields, out


def check(family, z, y, smoothing=0.0):
    """One pass with statistics and a scale of its own for each row."""
    scale = torch.tensor([0.5, -3.0, 2.0, 1.0])[: len(z)]
    fields, grad = run(family, z, y, smoothing, scale, stats=True)
    live = y != IGNORED
    want = expected(family, z, y, smoothing)
    assert (fields[~live, LOSS.value] == 0).all() and (grad[~live] == 0).all()
    size = 1 + want.p.sum(1) + z.double().abs().amax(1)  # the largest terms of the sum
    error = (fields[:, LOSS.value] - want.loss).abs() / size
    assert (error[live] < 2e-6).all(), error
    gradient = scale[:, None].double() * want.gradient
    assert_near(grad[live], gradient[live], TOLERANCE[z.dtype])
    at_y = y.where(live, 0)[:, None]
    assert (fields[:, SUPPORT.value] == (want.p > 0).sum(1))[live].all()
    assert_near(fields[live, TOTAL.value], want.p.sum(1)[live], 2e-6)
    assert_near(fields[live, SCORE.value], want.p.gather(1, at_y)[live, 0], 1e-6)
    best = z.gather(1, at_y).squeeze(1) == z.amax(1)
    assert (fields[:, CORRECT.value].bool() == best)[live].all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("classes", [1, 2, 37, 64, 130])
@pytest.mark.parametrize("family", FAMILIES, ids=name)
def test_one_pass(family, classes, smoothing):
    check(family, scores(3, classes), targets(3, classes), smoothing)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=name)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("family", FAMILIES, ids=name)
def test_half_precision(family, smoothing, dtype):
    check(family, scores(3, 50, dtype), targets(3, 50), smoothing)


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
@pytest.mark.parametrize("classes", [32, 33, 100])
@pytest.mark.parametrize("family", FAMILIES, ids=name)
def test_rows_in_blocks(small_blocks, family, classes, dtype):
    check(family, scores(3, classes, dtype), targets(3, classes), 0.1)


@pytest.mark.parametrize("family", [Family(1.5, 0.3), Family(1.5), Family(1.2)], ids=name)
def test_a_vocabulary(family):
    """Default sizes: 17,000 classes are several blocks, for entmax too."""
    check(family, scores(1, 17_000), targets(1, 17_000))


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("family", FAMILIES, ids=name)
def test_backward_from_the_scores(family, smoothing, dtype):
    """The value alone first, the gradient when the upstream gradient is known."""
    z, y = scores(3, 70, dtype), targets(3, 70)
    target = Target(y, IGNORED, smoothing)
    fields = launch.loss_rows(z, target, family)
    scale = torch.tensor([2.0, 1.0, -0.5])
    grad = launch.loss_gradient(z, target, family, fields, scale)
    both, in_one_pass = run(family, z, y, smoothing, scale)
    # Near, not equal: two kernels may add in another order.
    torch.testing.assert_close(fields[:, LOSS.value], both[:, LOSS.value], atol=2e-6, rtol=2e-6)
    assert_near(grad, in_one_pass, TOLERANCE[dtype])
    assert_near(grad[0], 2.0 * expected(family, z, y, smoothing).gradient[0], TOLERANCE[dtype])


@pytest.mark.parametrize("long", [False, True], ids=["tile", "blocks"])
@pytest.mark.parametrize("family", PLAIN, ids=name)
def test_the_scores_may_be_overwritten(family, long, request):
    if long:
        request.getfixturevalue("small_blocks")
    z, y = scores(3, 70), targets(3, 70)
    _, grad = run(family, z, y)
    own = z.clone()
    launch.loss_rows(own, Target(y, IGNORED, 0.0), family, scale=torch.ones(1), out=own)
    assert torch.equal(own, grad)


@pytest.mark.parametrize("family", PLAIN, ids=name)
def test_strides(family):
    """Classes that do not lie side by side, as those of (N, C, L) scores."""
    z, y = scores(3, 40), targets(3, 40)
    transposed = z.t().contiguous().t()
    assert transposed.stride() == (1, 3)
    for found, wanted in zip(run(family, transposed, y), run(family, z, y), strict=True):
        assert torch.equal(found[:, :1], wanted[:, :1])
    _, grad = run(family, transposed, y)
    assert torch.equal(grad, run(family, z, y)[1])


@pytest.mark.parametrize("long", [False, True], ids=["tile", "blocks"])
@pytest.mark.parametrize("family", PLAIN, ids=name)
def test_infinities_and_nan(family, long, request):
    if long:
        request.getfixturevalue("small_blocks")
    z = scores(5, 50).clone()
    z[0, 10:] = -INF
    z[1, :] = -INF
    z[2, 7] = NAN
    z[3, 7] = INF
    z[4, 7] = NAN  # in a row that does not count
    y = torch.tensor([3, 3, 3, 3, IGNORED])
    fields, grad = run(family, z, y, stats=True)
    loss = fields[:, LOSS.value]
    want = expected(family, z[:1], y[:1])
    assert_near(loss[:1], want.loss, 2e-6)
    assert_near(grad[:1], want.gradient, 1e-6)
    assert loss[1] == INF and grad[1, 3] == -1 and (grad[1] != 0).sum() == 1
    assert loss[2:4].isnan().all() and grad[2:4].isnan().all()
    assert loss[4] == 0 and (grad[4] == 0).all()
    target = Target(y, IGNORED, 0.0)
    again = launch.loss_gradient(
        z, target, family, launch.loss_rows(z, target, family), torch.ones(1)
    )
    torch.testing.assert_close(again, grad, equal_nan=True)


@pytest.mark.parametrize("family", PLAIN, ids=name)
def test_an_impossible_target(family):
    """A score of −inf at the target is an infinite loss; smoothing asks for all classes."""
    z = scores(2, 50).clone()
    z[0, 5] = z[1, 9] = -INF
    y = torch.tensor([5, 3])
    assert run(family, z, y)[0][0, LOSS.value] == INF
    assert (run(family, z, y, 0.1)[0][:, LOSS.value] == INF).all()


@pytest.mark.parametrize("wrong", [-1, 50, 10**12])
@pytest.mark.parametrize("family", PLAIN, ids=name)
def test_a_target_that_is_no_class(family, wrong):
    """No error can be raised on a device: NaN says it."""
    fields, grad = run(family, scores(2, 50), torch.tensor([wrong, 3]))
    assert fields[0, LOSS.value].isnan() and grad[0].isnan().all()
    assert fields[1, LOSS.value].isfinite() and grad[1].isfinite().all()


@pytest.mark.parametrize("classes", [40, 130])
@pytest.mark.parametrize("family", FAMILIES, ids=name)
def test_ties(family, classes):
    check(family, torch.zeros(3, classes), targets(3, classes))
    check(family, scores(3, classes).round(), targets(3, classes))


@pytest.mark.parametrize("scale", [1e-4, 1e2, 1e4])
@pytest.mark.parametrize("family", [Family(1.1), Family(1.5), Family(2.0)], ids=name)
def test_flat_and_steep_scores(family, scale):
    check(family, scores(3, 90, scale=scale), targets(3, 90))


@pytest.mark.parametrize("family", PLAIN, ids=name)
def test_classes_that_support_does_not_count(family):
    z, y = scores(3, 70), targets(3, 70)
    counted = torch.ones(70, dtype=torch.bool)
    counted[::3] = False
    fields, _ = run(family, z, y, stats=True, counted=counted)
    live = y != IGNORED
    want = ((expected(family, z, y).p > 0) & counted).sum(1)
    assert (fields[:, SUPPORT.value] == want)[live].all()


@pytest.mark.parametrize("ignore_index", [-100, -1, 0, 3])
@pytest.mark.parametrize("family", PLAIN[::2], ids=name)
def test_ignore_index(family, ignore_index):
    z, y = scores(3, 20), torch.tensor([1, ignore_index, 2])
    target = Target(y, ignore_index, 0.0)
    out = launch.new_output(z, z.dtype, *z.shape)
    fields = launch.loss_rows(z, target, family, scale=torch.ones(1), out=out)
    assert (fields[:, LOSS.value] == 0).tolist() == [False, True, False]
    assert (out == 0).all(1).tolist() == [False, True, False]


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_rescaling(dtype):
    grad = scores(3, 70, dtype).contiguous()
    have, want = torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2.0, 0.0, 2.0])
    before = grad.clone()
    launch.rescale_(grad, have, want)
    torch.testing.assert_close(grad[0], before[0] * 4)
    assert torch.equal(grad[1:], before[1:])


def test_no_rows():
    for family in (Family(1.5, 0.3), Family(1.5)):
        fields, grad = run(family, torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64))
        assert fields.shape == (0, 8) and grad.shape == (0, 5)


@pytest.mark.parametrize("long", [False, True], ids=["tile", "blocks"])
@pytest.mark.parametrize("family", [Family(1.5, 0.3), Family(1.5)], ids=name)
def test_offsets_beyond_32_bits(family, long, request):
    """Three rows, a billion scores apart; what lies between is never touched, and so not there."""
    if long:
        request.getfixturevalue("small_blocks")
    apart, values, y = 1_100_000_000, scores(3, 40, torch.float16), targets(3, 40)
    z = torch.empty(2 * apart + 40, dtype=torch.float16).as_strided((3, 40), (apart, 1))
    z.copy_(values)
    target = Target(y, IGNORED, 0.0)
    fields, grad = run(family, values, y)
    far = launch.loss_rows(z, target, family)
    assert torch.equal(far[:, LOSS.value], fields[:, LOSS.value])
    assert torch.equal(launch.loss_gradient(z, target, family, far, torch.ones(1)), grad)
