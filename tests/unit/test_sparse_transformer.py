"""--arch sparse_transformer*: presets, stock checkpoints, decoding, flags and logs."""

from argparse import Namespace

import pytest
import torch
from fairseq.dataclass.configs import EMAConfig
from fairseq.logging import metrics
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.ema.ema import EMA
from omegaconf import OmegaConf
from tiny_fairseq import SIZES, make_batch, make_criterion, make_task

from sparse_fairseq.errors import UsageError
from sparse_fairseq.models.sparse_transformer import parse_alpha
from sparse_fairseq.modules import LEARNED, SparseMultiheadAttention
from sparse_fairseq.modules.alpha_state import STATE_KEY
from sparse_fairseq.output_transform import can_fuse

PRESETS = ["", "_tiny", "_iwslt_de_en", "_wmt_en_de", "_wmt_en_de_big", "_wmt_en_de_big_t2t"]
PRESETS += ["_vaswani_wmt_en_de_big", "_vaswani_wmt_en_fr_big"]
MIXED = {"encoder": LEARNED, "decoder": "1.5", "cross": "2"}
ALL_LEARNED = dict.fromkeys(MIXED, LEARNED)


@pytest.fixture(scope="module")
def task():
    return make_task()


def build(task, arch="sparse_transformer", alphas=None, **options):
    sizes = {f"{side}_{k}": v for side in ("encoder", "decoder") for k, v in SIZES.items()}
    sizes |= {"encoder_layers": 2, "decoder_layers": 2, "attention_dropout": 0.1, "dropout": 0.1}
    flags = {f"{which}_attention_alpha": alpha for which, alpha in (alphas or {}).items()}
    torch.manual_seed(0)
    return task.build_model(Namespace(arch=arch, **{**sizes, **flags, **options}))


def logits(model, batch, seed=3):
    torch.manual_seed(seed)
    return model(**batch["net_input"])[0]


def attentions(model):
    found = model.named_modules()
    return {name: m for name, m in found if isinstance(m, SparseMultiheadAttention)}


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_those_of_fairseq(preset):
    ours, stock = Namespace(), Namespace()
    ARCH_CONFIG_REGISTRY[f"sparse_transformer{preset}"](ours)
    ARCH_CONFIG_REGISTRY[f"transformer{preset}"](stock)
    assert vars(ours) == vars(stock)


@pytest.mark.parametrize("training", [True, False])
def test_alpha_1_is_the_stock_transformer(task, training):
    """Same seed, same weights, same dropout: same logits and gradients. And it loads its state."""
    ours, stock = build(task), build(task, "transformer")
    assert ours.state_dict().keys() == stock.state_dict().keys()
    with torch.no_grad():
        for parameter in stock.parameters():
            parameter.mul_(1.5)
    ours.load_state_dict(stock.state_dict(), strict=True)
    batch, outputs = make_batch(task), []
    for model in (ours, stock):
        out = logits(model.train(training), batch)
        out.square().mean().backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        outputs.append((out, gradients))
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-6)


def test_each_flag_reaches_its_attention_in_every_layer(task):
    model = build(task, alphas=MIXED)
    expected = {}
    for layer in range(2):
        expected[f"encoder.layers.{layer}.self_attn"] = None
        expected[f"decoder.layers.{layer}.self_attn"] = 1.5
        expected[f"decoder.layers.{layer}.encoder_attn"] = 2.0
    assert {name: m.constant_alpha for name, m in attentions(model).items()} == expected
    state = model.state_dict()
    names = {None: "alpha_logits", 1.5: STATE_KEY, 2.0: STATE_KEY}
    saved = {f"{attention}.{names[alpha]}": alpha for attention, alpha in expected.items()}
    assert state.keys() - build(task).state_dict().keys() == saved.keys()
    assert all(alpha is None or state[key].item() == alpha for key, alpha in saved.items())


@pytest.mark.parametrize(
    "alphas, dtype, tolerance",
    [
        ({}, torch.float32, 1e-5),
        (MIXED, torch.float32, 1e-5),
        (ALL_LEARNED, torch.float32, 1e-5),
        # Logits are of size 1 here: a few roundings of 2⁻⁸ and 2⁻¹¹.
        (ALL_LEARNED, torch.bfloat16, 0.05),
        (ALL_LEARNED, torch.float16, 0.006),
    ],
)
def test_incremental_decoding_equals_the_whole(task, alphas, dtype, tolerance):
    model, batch = build(task, alphas=alphas).eval().to(dtype), make_batch(task)
    net_input = batch["net_input"]
    source, lengths, target = (
        net_input[k] for k in ("src_tokens", "src_lengths", "prev_output_tokens")
    )
    with torch.no_grad():
        encoded = model.encoder(source, lengths)
        order = torch.arange(len(source)).flip(0)[1:]
        reordered = model.encoder.reorder_encoder_out(encoded, order)
        whole = model.decoder(target[order], encoder_out=reordered)[0]
        state, steps = {}, []
        for t in range(1, target.shape[1] + 1):
            if t == 3:
                model.decoder.reorder_incremental_state_scripting(state, order)
                encoded, target = reordered, target[order]
            steps.append(model.decoder(target[:, :t], encoded, incremental_state=state)[0])
    kept = target.ne(task.tgt_dict.pad())[:, 2:]
    got = torch.cat(steps[2:], 1)
    assert got.dtype == dtype
    torch.testing.assert_close(got[kept], whole[:, 2:][kept], rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_trains_every_parameter_and_alpha(task, dtype):
    """Near float32's gradients, with padding in source and target."""
    model = build(task, alphas=ALL_LEARNED, dropout=0.0, attention_dropout=0.0)
    batch = make_batch(task)
    pads = [batch["net_input"]["src_tokens"], batch["target"]]
    assert all((tokens == task.tgt_dict.pad()).any() for tokens in pads)
    gradients = []
    for kind in (torch.float32, dtype):
        model = model.to(kind)
        model.zero_grad()
        scored = logits(model, batch).float().log_softmax(-1)
        kept = batch["target"].ne(task.tgt_dict.pad())
        (-scored.gather(2, batch["target"].unsqueeze(2)).squeeze(2)[kept]).sum().backward()
        gradients.append({n: p.grad.float() for n, p in model.named_parameters()})
    exact, rounded = gradients
    for name, gradient in rounded.items():
        assert gradient.isfinite().all(), name
        if name.endswith("alpha_logits"):
            assert (gradient != 0).all(), name
        error = (gradient - exact[name]).norm() / exact["decoder.embed_tokens.weight"].norm()
        assert error < (0.05 if dtype is torch.bfloat16 else 0.01), name


def test_padding_of_the_batch_changes_nothing(task):
    model, batch = build(task, alphas=MIXED).eval(), make_batch(task)
    net_input = batch["net_input"]
    with torch.no_grad():
        together = model(**net_input)[0]
        for row in range(len(together)):
            source = net_input["src_tokens"][row : row + 1]
            source = source[source.ne(task.src_dict.pad())][None]
            target = net_input["prev_output_tokens"][row : row + 1]
            target = target[target.ne(task.tgt_dict.pad())][None]
            alone = model(source, torch.tensor([source.shape[1]]), target)[0]
            padded = together[row : row + 1, : target.shape[1]]
            torch.testing.assert_close(alone, padded, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", ["0.5", "abc", "nan", "inf", "", "-1"])
@pytest.mark.parametrize("which", ["encoder", "decoder", "cross"])
def test_a_wrong_alpha_is_one_line(task, which, value):
    with pytest.raises(UsageError) as error:
        build(task, alphas={which: value})
    assert f"--{which}-attention-alpha" in str(error.value) and repr(value) in str(error.value)
    assert "\n" not in str(error.value)


def test_xformers_cannot_be_sparse(task):
    with pytest.raises(UsageError, match="--encoder-xformers-att-config"):
        build(task, alphas=MIXED, encoder_xformers_att_config="{}")


def test_an_attention_that_is_not_there_has_no_alpha(task):
    with pytest.raises(UsageError, match="no meaning with --no-cross-attention"):
        build(task, alphas={"cross": "1.5"}, no_cross_attention=True, cross_self_attention=True)


def test_alpha_is_a_number_or_learned():
    assert parse_alpha("--x", "1.25") == parse_alpha("--x", 1.25) == 1.25
    assert parse_alpha("--x", None) == 1.0 and parse_alpha("--x", "learned") == LEARNED


@pytest.mark.parametrize(
    "options",
    [
        {"checkpoint_activations": True},
        {"quant_noise_pq": 0.5},
        {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5},
        {"cross_self_attention": True, "no_cross_attention": True},
    ],
)
def test_other_options_of_the_transformer_go_on_working(task, options):
    alphas = dict(ALL_LEARNED)
    if "no_cross_attention" in options:
        del alphas["cross"]
    model, batch = build(task, alphas=alphas, **options).train(), make_batch(task)
    logits(model, batch).square().mean().backward()
    for module in attentions(model).values():
        used = module.alpha_logits.grad is not None and (module.alpha_logits.grad != 0).all()
        assert used or "encoder_layerdrop" in options
    model.eval()
    assert logits(model, batch).isfinite().all()


def test_learned_alphas_are_logged_by_layer(task):
    model = build(task, alphas={"encoder": LEARNED, "cross": LEARNED})
    with metrics.aggregate(new_root=True) as log:
        model.set_num_updates(1)
        with torch.no_grad():
            model.encoder.layers[0].self_attn.alpha_logits.copy_(torch.tensor([-1.0, 2.0]))
        model.set_num_updates(2)
    values = log.get_smoothed_values()
    names = {f"alpha_{a}{i}{s}" for a in ("encoder", "cross") for i in (0, 1) for s in SUFFIXES}
    assert values.keys() == names
    # 1 + sigmoid(−1) = 1.2689, 1 + sigmoid(2) = 1.8808: of now, and no mean over updates.
    assert [values[f"alpha_encoder0{s}"] for s in SUFFIXES] == [1.5749, 1.2689, 1.8808]
    with metrics.aggregate(new_root=True) as log:
        build(task, alphas={"encoder": "1.5"}).set_num_updates(1)
    assert not log.get_smoothed_values()


SUFFIXES = ("", "_min", "_max")


def test_logging_learned_alphas_does_not_wait_for_the_device(task, monkeypatch):
    """Each transfer of a number makes the host wait for all that a GPU has yet to do."""
    model, calls = build(task, alphas=ALL_LEARNED, decoder_attention_heads=4), []
    for name in ("item", "tolist", "__float__"):
        original = getattr(torch.Tensor, name)
        counted = lambda x, name=name, original=original: calls.append(name) or original(x)  # noqa: E731
        monkeypatch.setattr(torch.Tensor, name, counted)
    with metrics.aggregate(new_root=True) as log:
        model.set_num_updates(1)
        assert not calls
        assert len(log.get_smoothed_values()) == len(calls) == 3 * 3 * 2  # 3 attentions, 2 layers


def test_learned_alphas_survive_a_half_precision_checkpoint(task):
    model = build(task, alphas=ALL_LEARNED)
    state = {name: tensor.clone() for name, tensor in model.half().state_dict().items()}
    loaded = build(task, alphas=ALL_LEARNED)
    loaded.load_state_dict(state, strict=True)
    for name, alpha in loaded.learned_alphas().items():
        torch.testing.assert_close(alpha, model.learned_alphas()[name], rtol=1e-7, atol=0)


def to_be_trained(alphas, **config):
    """A model as fairseq-train builds it, before a checkpoint is loaded."""
    task = make_task(**config)
    model = build(task, alphas=alphas)
    make_criterion(task, "cross_entropy")
    return model


OTHER_ALPHAS = [
    ({}, {"encoder": LEARNED}, "--encoder-attention-alpha is learned, that of the checkpoint 1"),
    ({"cross": LEARNED}, {"cross": "1.5"}, "--cross-attention-alpha is 1.5, .* learned: repeat it"),
    ({"decoder": "1.5"}, {"decoder": "1.6"}, "--decoder-attention-alpha is 1.6, .* 1.5: repeat it"),
    ({"decoder": "1.5"}, {}, "--decoder-attention-alpha is 1, that of the checkpoint 1.5"),
    ({}, {"cross": "1.3"}, "--cross-attention-alpha is 1.3, that of the checkpoint 1: repeat it"),
]


@pytest.mark.parametrize("before, wanted, message", OTHER_ALPHAS)
def test_a_run_goes_on_with_its_own_alphas_only(task, before, wanted, message):
    """In half precision, too, which would round 1.6."""
    for model in (build(task, alphas=before), build(task, alphas=before).half()):
        to_be_trained(before).load_state_dict(model.state_dict())
        with pytest.raises(UsageError, match=message) as error:
            to_be_trained(wanted).load_state_dict(model.state_dict())
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("before, wanted, message", OTHER_ALPHAS)
def test_finetuning_may_change_alphas_but_not_unlearn_them(task, before, wanted, message, caplog):
    model, fresh = build(task, alphas=before), to_be_trained(wanted, finetune_from_model="x.pt")
    own = {k: x.clone() for k, x in fresh.state_dict().items() if k.endswith("alpha_logits")}
    if LEARNED in before.values():
        with pytest.raises(UsageError, match=message):
            fresh.load_state_dict(model.state_dict())
        return
    with caplog.at_level("INFO"):
        fresh.load_state_dict(model.state_dict())
    (flag,) = (f"--{which}-attention-alpha" for which in {**before, **wanted})
    assert len([r for r in caplog.records if r.message.startswith(f"{flag}: from ")]) == 1
    found = fresh.state_dict()
    assert all(torch.equal(found[k], x) for k, x in own.items())
    assert torch.equal(found["encoder.layers.0.fc1.weight"], model.encoder.layers[0].fc1.weight)


@pytest.mark.parametrize("wanted", [{}, {"decoder": "1.6"}])
def test_another_alpha_is_refused_whatever_the_task(task, wanted):
    """No task has said what the checkpoint is loaded for."""
    state = build(task, alphas={"decoder": "1.5"}).state_dict()
    with pytest.raises(UsageError, match="--decoder-attention-alpha is .* the checkpoint 1.5"):
        build(task, alphas=wanted).load_state_dict(state)


def test_loaders_take_alpha_from_the_flags_of_the_checkpoint(task):
    """Also where the state does not say it; but learned α must be there."""
    state = {k: x for k, x in build(task, alphas=MIXED).state_dict().items() if STATE_KEY not in k}
    build(task, alphas=MIXED).load_state_dict(state)
    with pytest.raises(UsageError, match="--decoder-attention-alpha is learned"):
        build(task, alphas=ALL_LEARNED).load_state_dict(state)


def test_a_moving_average_keeps_its_alphas(task):
    model = to_be_trained(MIXED)
    average = EMA(model, EMAConfig(ema_decay=0.5))
    for _ in range(3):
        average.step(model)
    kept = average.get_model().state_dict()
    alphas = {key: x for key, x in model.state_dict().items() if STATE_KEY in key}
    assert alphas and all(torch.equal(kept[key], x) for key, x in alphas.items())
    to_be_trained(MIXED).load_state_dict(kept)  # which refuses others


def test_the_output_can_be_fused_with_the_loss(task):
    assert can_fuse(build(task, alphas=MIXED).decoder)


NESTED = {
    "encoder": {"layers": 1, "embed_dim": 16, "attention_heads": 2, "attention_alpha": 1.5},
    "decoder": {"layers": 2, "attention_heads": 4},
    "cross_attention_alpha": LEARNED,
}
FLAT = {
    **{"encoder_layers": 1, "encoder_embed_dim": 16, "encoder_attention_heads": 2},
    **{"encoder_attention_alpha": 1.5, "decoder_layers": 2, "decoder_attention_heads": 4},
    "cross_attention_alpha": LEARNED,
}


@pytest.mark.parametrize("keys", [NESTED, FLAT], ids=["nested", "flat"])
@pytest.mark.parametrize("preset", ["sparse_transformer", "sparse_transformer_iwslt_de_en"])
def test_keys_of_hydra_are_flags(task, keys, preset):
    """What is not given comes from the preset, and may depend on what is given."""
    cfg = OmegaConf.create({"_name": preset, **keys})
    model = task.build_model(cfg)
    expected = task.build_model(Namespace(arch=preset, **FLAT))
    shapes = [{k: x.shape for k, x in m.state_dict().items()} for m in (model, expected)]
    assert shapes[0] == shapes[1]
    assert model.encoder.layers[0].self_attn.constant_alpha == 1.5
    assert model.decoder.layers[1].encoder_attn.num_heads == 4
    assert model.decoder.embed_dim == (512 if preset.endswith("iwslt_de_en") else 16)


@pytest.mark.parametrize("group", ["encoder", "decoder", "quant_noise"])
def test_a_nested_key_that_is_none_is_named(task, group):
    with pytest.raises(UsageError, match=f"model.{group} has no key 'layer'; it has"):
        task.build_model(OmegaConf.create({"_name": "sparse_transformer", group: {"layer": 1}}))
