"""SparseMultiheadAttention: against a slow reference, fairseq's own attention, and its edges."""

import ast
from pathlib import Path

import pytest
import torch
from fairseq.modules import MultiheadAttention

import sparse_fairseq
from sparse_fairseq import functional as sf
from sparse_fairseq.functional import reference
from sparse_fairseq.modules import LEARNED, AnotherAlpha, SparseMultiheadAttention

DIM, HEADS, BATCH, LENGTH, SOURCE = 8, 2, 3, 5, 7
ALPHAS = [1.0, 1.3, 1.5, 2.0, 3.0, LEARNED]
CAUSAL = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)
KINDS = {"self": {"self_attention": True}, "cross": {"encoder_decoder_attention": True}}


def attention(alpha, kind="self", dtype=torch.float64, cls=SparseMultiheadAttention, **options):
    torch.manual_seed(1)
    if cls is SparseMultiheadAttention:
        options["alpha"] = alpha
    module = cls(DIM, HEADS, **KINDS[kind], **options).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            # Sharper scores than at the start, so that there are zeros; biases that are not 0.
            parameter.mul_(3).add_(0.1 if name.endswith("bias") else 0.0)
    return module


def states(length=LENGTH, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(length, BATCH, DIM, generator=generator, dtype=torch.float64).to(dtype)


def padding(length, *sizes, left=False):
    """True at the positions beyond each sentence's size."""
    mask = torch.arange(length) >= torch.tensor(sizes)[:, None]
    return mask.flip(1) if left else mask


def slow_attention(module, query, key, allowed):
    """One query and head at a time, over the keys it is allowed to see and no other."""
    q, k, v = module.q_proj(query), module.k_proj(key), module.v_proj(key)
    alphas = torch.as_tensor(module.alpha, dtype=torch.float64).expand(HEADS)
    size = DIM // HEADS
    weights = torch.zeros(HEADS, *allowed.shape, dtype=torch.float64)
    heads = torch.zeros_like(q)
    for h, alpha in enumerate(alphas.tolist()):
        part = slice(h * size, (h + 1) * size)
        for b in range(len(allowed)):
            for t in range(len(query)):
                seen = allowed[b, t].nonzero().squeeze(1)
                if len(seen):
                    scores = k[seen, b, part] @ q[t, b, part] / size**0.5
                    weights[h, b, t, seen] = reference.entmax(scores, alpha)
                heads[t, b, part] = weights[h, b, t] @ v[:, b, part]
    return module.out_proj(heads), weights


@pytest.mark.parametrize("alpha", ALPHAS)
def test_masks_agree_with_a_slow_reference(alpha):
    module = attention(alpha)
    x, pad = states(), padding(LENGTH, 5, 2, 4)
    out, weights = module(
        x, x, x, key_padding_mask=pad, attn_mask=CAUSAL.double(), need_head_weights=True
    )
    allowed = (CAUSAL == 0) & ~pad[:, None]
    expected, expected_weights = slow_attention(module, x, x, allowed)
    tolerance = 1e-10 if alpha in (LEARNED, 1.0) or alpha <= 2 else 1e-6
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=tolerance)
    torch.testing.assert_close(out, expected, rtol=0, atol=10 * tolerance)
    if alpha != 1.0:
        assert ((weights == 0) & allowed).any()  # sparse, and not only because of the masks


@pytest.mark.parametrize("alpha", [1.0, 1.5, LEARNED])
@pytest.mark.parametrize("need_weights", [True, False])
def test_masks_of_every_kind_that_torch_takes(alpha, need_weights):
    module, x = attention(alpha), states()
    mask = CAUSAL.double()
    expected, _ = module(x, x, x, attn_mask=mask, need_weights=need_weights)
    of_heads = mask.expand(BATCH * HEADS, -1, -1)
    for other in (mask.isinf(), of_heads, of_heads.isinf()):
        out, _ = module(x, x, x, attn_mask=other, need_weights=need_weights)
        torch.testing.assert_close(out, expected)
    # Of one head only: the others see everything.
    first = of_heads.clone()
    first[1::HEADS] = 0.0
    out, weights = module(x, x, x, attn_mask=first, need_head_weights=True)
    assert (weights[0][:, mask.isinf()] == 0).all() and (weights[1][:, mask.isinf()] > 0).any()


def test_biases_as_keys_are_refused():
    with pytest.raises(ValueError, match="add_bias_kv"):
        attention(1.5, add_bias_kv=True)


@pytest.mark.parametrize("alpha", [1.0, 1.5, LEARNED])
def test_attention_to_a_padded_source_agrees_with_a_slow_reference(alpha):
    module = attention(alpha, "cross")
    x, source, pad = states(), states(SOURCE, seed=1), padding(SOURCE, 3, 7, 5, left=True)
    out, weights = module(x, source, source, key_padding_mask=pad, static_kv=True)
    allowed = (~pad)[:, None].expand(BATCH, LENGTH, SOURCE)
    expected, by_head = slow_attention(module, x, source, allowed)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(weights, by_head.mean(0), rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0, LEARNED])
def test_incremental_decoding_with_reordered_beams(alpha, kind):
    """Step by step with beams swapped on the way equals the reference on the swapped history."""
    module = attention(alpha, kind)
    x, source, pad = states(), states(SOURCE, seed=1), padding(SOURCE, 3, 7, 5)
    # One row is dropped: fairseq keeps the cache of the source if the number of rows stays.
    order, cache, steps = torch.tensor([2, 0]), {}, []
    for t in range(LENGTH):
        if t == 3:
            module.reorder_incremental_state(cache, order)
            x, source, pad = x[:, order], source[:, order], pad[order]
        if kind == "self":
            step = module(x[t : t + 1], x[t : t + 1], x[t : t + 1], incremental_state=cache)
        else:
            step = module(x[t : t + 1], source, source, pad, cache, static_kv=True)
        steps.append(step[0])
    last = torch.cat(steps[3:])
    if kind == "self":
        expected, _ = slow_attention(module, x, x, (CAUSAL == 0).expand(len(order), -1, -1))
    else:
        allowed = (~pad)[:, None].expand(len(order), LENGTH, SOURCE)
        expected, _ = slow_attention(module, x, source, allowed)
    torch.testing.assert_close(last, expected[3:], rtol=0, atol=1e-9)


@pytest.mark.parametrize("alpha", [1.5, LEARNED])
def test_beams_that_share_the_keys_of_their_sentence(alpha):
    """fairseq keeps one copy of the source for a beam if it is told the beam's size."""
    module, beam = attention(alpha, "cross"), 3
    source, x = states(SOURCE, seed=1)[:, :1], states(1)
    repeated = source.expand(SOURCE, beam, DIM)
    expected = module(x, repeated, repeated, incremental_state={}, static_kv=True)[0]
    module.set_beam_size(beam)
    shared = module(x, repeated, repeated, incremental_state={}, static_kv=True)[0]
    torch.testing.assert_close(shared, expected)


@pytest.mark.parametrize("alpha", [1.0, 1.4, 1.5, 2.0, LEARNED])
def test_gradcheck(alpha):
    module, pad = attention(alpha), padding(LENGTH, 5, 2, 4)
    names = [name for name, _ in module.named_parameters() if "k_proj.bias" not in name]

    def forward(x, *parameters):
        values = dict(zip(names, parameters, strict=True))
        options = {"key_padding_mask": pad, "attn_mask": CAUSAL.double(), "need_weights": True}
        return torch.func.functional_call(module, values, (x, x, x), options)

    inputs = [states().requires_grad_(), *(module.get_parameter(name) for name in names)]
    assert torch.autograd.gradcheck(forward, inputs, atol=1e-6, fast_mode=True)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_alpha_1_equals_fairseq(dropout, training, need_weights):
    ours = attention(1.0, dtype=torch.float32, dropout=dropout)
    stock = attention(None, dtype=torch.float32, dropout=dropout, cls=MultiheadAttention)
    assert ours.state_dict().keys() == stock.state_dict().keys()
    pad, x = padding(LENGTH, 5, 2, 4), states(dtype=torch.float32)
    options = {"key_padding_mask": pad, "attn_mask": CAUSAL, "need_weights": need_weights}
    results = []
    for module in (ours, stock):
        module.train(training)
        torch.manual_seed(5)
        query = x.clone().requires_grad_()
        out, weights = module(query, query, query, **options)
        out.sum().backward()
        # Gradients are sums of many terms: what rounds is their size.
        gradients = [g / g.abs().max() for g in (query.grad, module.q_proj.weight.grad)]
        results.append((out, *gradients))
        assert (weights is None) != need_weights
        if weights is not None and (dropout == 0 or not training):
            results[-1] += (weights,)
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-6)


def test_alpha_1_equals_fairseq_in_decoding():
    ours = attention(1.0, dtype=torch.float32)
    stock = attention(None, dtype=torch.float32, cls=MultiheadAttention)
    x, caches = states(dtype=torch.float32), ({}, {})
    for t in range(LENGTH):
        steps = [
            module(x[t : t + 1], x[t : t + 1], x[t : t + 1], incremental_state=cache)
            for module, cache in zip((ours, stock), caches, strict=True)
        ]
        torch.testing.assert_close(*steps, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_a_fully_masked_row_attends_to_nothing(alpha, need_weights):
    """With padding on the left, the first queries of a causal attention see padding alone."""
    module, x = attention(alpha, dtype=torch.float32), states(dtype=torch.float32).requires_grad_()
    pad = padding(LENGTH, 5, 3, 1, left=True)
    out, weights = module(
        x, x, x, key_padding_mask=pad, attn_mask=CAUSAL, need_weights=need_weights
    )
    bias = module.out_proj.bias.expand(4, DIM)
    torch.testing.assert_close(out[:4, 2], bias)
    assert weights is None or (weights[2, :4] == 0).all()
    out.sum().backward()
    gradients = [x.grad, *(parameter.grad for parameter in module.parameters())]
    assert out.isfinite().all() and all(grad.isfinite().all() for grad in gradients)


@pytest.mark.parametrize("alpha", [1.5, LEARNED])
def test_entmax_gets_half_precision_as_it_is(alpha, monkeypatch):
    """Kernels widen what they read: casts would be passes more. Weights for a user are float32."""
    seen = []
    entmax = sf.entmax

    def noted(z, *rest):
        seen.append(z.dtype)
        return entmax(z, *rest)

    monkeypatch.setattr(sf, "entmax", noted)
    module, x = attention(alpha, dtype=torch.bfloat16), states(dtype=torch.bfloat16)
    module(x, x, x, need_weights=False)
    module(x, x, x)
    assert seen == [torch.bfloat16, torch.float32]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("alpha", [1.5, LEARNED])
def test_half_precision_computes_weights_in_float32(alpha, dtype):
    module = attention(alpha, dtype=dtype)
    x = states(dtype=dtype).requires_grad_()
    out, weights = module(x, x, x, attn_mask=CAUSAL.to(dtype))
    assert out.dtype == dtype and weights.dtype == torch.float32
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, LENGTH), rtol=0, atol=1e-6)
    exact = module.double()(x.double(), x.double(), x.double(), attn_mask=CAUSAL.double())[0]
    torch.testing.assert_close(out.double(), exact, rtol=0.1, atol=0.1)
    module.to(dtype)
    out.float().square().sum().backward()
    assert x.grad.isfinite().all()


def test_dropout_is_on_the_weights():
    """With all but a few weights dropped, most outputs are the bias; the weights are whole."""
    module = attention(1.5, dropout=0.999).train()
    x = states()
    out, weights = module(x, x, x)
    assert (out == module.out_proj.bias).all(-1).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, LENGTH, dtype=torch.float64))


def test_learned_alpha_starts_as_in_the_paper():
    """1 + sigmoid(a) with a ~ N(0, 1): mean 1.5, standard deviation 0.208 (by quadrature)."""
    torch.manual_seed(0)
    alpha = SparseMultiheadAttention(4000, 2000, alpha=LEARNED, self_attention=True).alpha
    assert alpha.mean().item() == pytest.approx(1.5, abs=0.02)
    assert alpha.std().item() == pytest.approx(0.208, abs=0.01)


def test_every_head_learns_its_alpha_within_bounds():
    module, x = attention(LEARNED, dtype=torch.float32), states(dtype=torch.float32)
    optimizer = torch.optim.Adam([module.alpha_logits], lr=0.5)
    for _ in range(30):
        optimizer.zero_grad()
        # Flatter weights have a smaller sum of squares: α goes down, and down, and down.
        weights = module(x, x, x, need_head_weights=True)[1]
        weights.square().sum().backward()
        assert (module.alpha_logits.grad != 0).all()
        optimizer.step()
        assert ((module.alpha > 1) & (module.alpha < 2)).all()
    assert (module.alpha < 1.01).all()


def test_alpha_survives_half_precision():
    module = attention(LEARNED)
    with torch.no_grad():
        module.alpha_logits.copy_(torch.tensor([-12.0, 12.0]))
    alpha = module.half().alpha
    torch.testing.assert_close(alpha - 1, torch.tensor([-12.0, 12.0]).double().sigmoid())
    assert ((alpha > 1) & (alpha < 2)).all()


def test_a_state_with_another_alpha_is_a_value_error_that_names_no_flag():
    """Which flag sets it, only the model knows."""
    state = SparseMultiheadAttention(8, 2, alpha=1.5).state_dict()
    with pytest.raises(AnotherAlpha, match="^alpha is 2, that of the state 1.5$"):
        SparseMultiheadAttention(8, 2, alpha=2.0).load_state_dict(state)
    assert issubclass(AnotherAlpha, ValueError)


def test_layers_below_the_task_know_no_flags():
    package = Path(sparse_fairseq.__file__).parent
    files = [*package.glob("modules/*.py"), *package.glob("functional/*.py")]
    files += [package / f"{name}.py" for name in ("output_transform", "output_init")]
    for file in files:
        text = file.read_text()
        assert "UsageError" not in text and "errors import" not in text, file
        literals = (x.value for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Constant))
        raised = [x for x in literals if isinstance(x, str) and x.startswith("--")]
        assert not raised, (file, raised)
