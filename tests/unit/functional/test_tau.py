"""τ for α-ReLU: SE Lemma 2, SE Eq. 3 and SE §3.1."""

import numpy as np
import pytest
import torch
from helpers import scores

from sparse_fairseq import functional as sf

# SE Table 3: d_model = 512; V, p*, τ
SE_TABLE_3 = [(10_000, 0.0184, 0.33), (40_000, 0.0171, 0.17), (60_000, 0.0169, 0.14)]


@pytest.mark.parametrize(("vocab_size", "support", "tau"), SE_TABLE_3)
def test_se_table_3(vocab_size, support, tau):
    assert round(sf.xavier_tau(512, vocab_size), 2) == tau
    sigma = (2 * 512 / (512 + vocab_size)) ** 0.5
    assert sf.gaussian_support(vocab_size, sigma) == pytest.approx(support, abs=2e-4)


@pytest.mark.parametrize("sigma", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("alpha", [1.05, 1.25, 1.5, 1.75, 2.0, 3.0])
def test_formula_agrees_with_random_scores(sigma, alpha):
    """To 10% of the standard deviation of (α−1)z: the formulas are for V → ∞, and the larger
    σ and α are, the fewer scores matter."""
    measured = sf.batch_tau(scores(64, 8000, scale=sigma), alpha)
    tolerance = 0.1 * sigma * (alpha - 1)
    assert sf.gaussian_tau(8000, sigma, alpha) == pytest.approx(measured, abs=tolerance)


@pytest.mark.parametrize("alpha", [1.3, 1.5 + 1e-9, 2.0])
def test_numeric_solution_makes_alpha_relu_sum_to_one(alpha):
    logits = scores(256, 10_000)
    total = sf.alpha_relu(logits, alpha, sf.gaussian_tau(10_000, 1.0, alpha)).sum(1).mean()
    assert total == pytest.approx(1.0, abs=0.05)


def test_closed_form_and_numeric_solution_meet():
    """Lemma 2 leaves the largest of V scores out of its integrals and is a little lower."""
    for sigma in (0.1, 1.0):
        lemma = sf.gaussian_tau(40_000, sigma)
        numeric = sf.gaussian_tau(40_000, sigma, 1.5 + 1e-9)
        assert lemma < numeric == pytest.approx(lemma, rel=0.03)


@pytest.mark.parametrize("sigma", [1e-6, 1e-3, 0.02, 100.0])
@pytest.mark.parametrize("vocab_size", [10, 1000, 60_000])
@pytest.mark.parametrize("alpha", [1.01, 1.5, 2.0, 3.0])
def test_any_sigma_has_a_tau(sigma, vocab_size, alpha):
    tau = sf.gaussian_tau(vocab_size, sigma, alpha)
    assert -1 <= tau <= 12 * (alpha - 1) * sigma + 12
    if sigma <= 1e-3:  # next to equal scores: p = 1/V each
        uniform = -(vocab_size ** (1 - alpha))
        assert tau == pytest.approx(uniform, rel=1e-3, abs=5 * (alpha - 1) * sigma)


@pytest.mark.parametrize("sigma", [1.0, 100.0, 1e6])
@pytest.mark.parametrize("alpha", [1.0001, 1.01, 1.2, 2.0, 2.5, 8.0])
def test_expected_sum_is_one_at_the_ends_of_the_range(sigma, alpha):
    """Also where the sum is that of scores that V draws hardly ever contain."""
    tau, scale = sf.gaussian_tau(1000, sigma, alpha), (alpha - 1) * sigma
    above = np.logspace(-12, 6, 400_001)
    x = tau / scale + above
    log_terms = np.log(scale * above) / (alpha - 1) - x * x / 2 + np.log(1000 / (2 * np.pi) ** 0.5)
    assert np.trapezoid(np.exp(log_terms), x) == pytest.approx(1.0, rel=1e-3)


def test_alpha_may_be_a_tensor_with_one_number():
    for alpha in (1.5, 1.75):
        assert sf.gaussian_tau(1000, 1.0, torch.tensor([alpha])) == sf.gaussian_tau(
            1000, 1.0, alpha
        )
    with pytest.raises(ValueError, match="alpha must be one number"):
        sf.gaussian_tau(1000, 1.0, torch.tensor([1.5, 2.0]))


def test_batch_tau_is_the_mean_threshold():
    logits = scores(3, 4, 50, dtype=torch.bfloat16).requires_grad_()
    tau = sf.batch_tau(logits, 1.3)
    assert isinstance(tau, float)
    assert tau == pytest.approx(sf.entmax_threshold(logits.float(), 1.3).mean().item(), abs=1e-6)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="batch_tau"):
        sf.batch_tau(torch.zeros(0, 5))
    with pytest.raises(ValueError, match="sigma.*0"):
        sf.gaussian_tau(100, 0.0)
    for vocab_size in (2, 1000):
        with pytest.raises(ValueError, match="sigma.* 10000 .* 1000000"):
            sf.gaussian_tau(vocab_size, 1e6)
    with pytest.raises(ValueError, match="vocab_size.*1"):
        sf.gaussian_tau(1, 1.0)
    with pytest.raises(ValueError, match="d_model"):
        sf.xavier_tau(0, 100)
    with pytest.raises(ValueError, match="alpha"):
        sf.gaussian_tau(100, 1.0, 1.0)
