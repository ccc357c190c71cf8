"""`--arch sparse_lstm`: against S2S's equations, fairseq's own LSTM, and itself without batches."""

from argparse import Namespace

import pytest
import torch
from fairseq.models.lstm import LSTMModel
from fairseq.sequence_generator import EnsembleModel
from tiny_fairseq import make_batch, make_criterion, make_task

from sparse_fairseq.errors import UsageError
from sparse_fairseq.functional.reference import entmax as slow_entmax
from sparse_fairseq.generation.decoder_states import DecoderStates
from sparse_fairseq.models.sparse_lstm import GeneralAttention
from sparse_fairseq.modules.alpha_state import STATE_KEY
from sparse_fairseq.output_transform import can_fuse

SIZES = {"encoder_embed_dim": 6, "decoder_embed_dim": 6, "decoder_hidden_size": 8}


@pytest.fixture
def task():
    return make_task()


def make_model(task, alpha=1.5, **args):
    args = {**SIZES, "encoder_layers": 2, "decoder_layers": 2, "criterion": "any", **args}
    torch.manual_seed(0)
    model = task.build_model(Namespace(arch="sparse_lstm", attention_alpha=alpha, **args))
    # A new LSTM's attention scores are all but equal; larger ones have zeros among their weights.
    with torch.no_grad():
        model.decoder.attention.project.weight.mul_(300)
        for parameter in (*model.encoder.lstm.parameters(), *model.decoder.layers.parameters()):
            parameter.mul_(10)
    return model.double().eval()


def alone(sample, i):
    """Sentence i of a batch without its padding."""
    length = int(sample["net_input"]["src_lengths"][i])
    target = sample["target"][i]
    steps = int(target.ne(1).sum())
    return {
        "src_tokens": sample["net_input"]["src_tokens"][i : i + 1, -length:],
        "src_lengths": torch.tensor([length]),
        "prev_output_tokens": sample["net_input"]["prev_output_tokens"][i : i + 1, :steps],
    }


def lstm_step(cell, x, h, c):
    gates = cell.weight_ih @ x + cell.bias_ih + cell.weight_hh @ h + cell.bias_hh
    i, f, g, o = gates.chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def paper_logits(model, source, prefix, alpha):
    """S2S §2 for one sentence, equation by equation."""
    decoder = model.decoder
    states, hidden, cell, _ = model.encoder(source.unsqueeze(0), torch.tensor([len(source)]))
    h_j = states.squeeze(1)
    h, c = [list(x.squeeze(1)) for x in (hidden, cell)]
    o = torch.zeros(decoder.hidden_size).double()
    logits, attention = [], []
    for token in prefix:
        x = torch.cat((decoder.embed_tokens.weight[token], o))
        for layer, lstm in enumerate(decoder.layers):
            h[layer], c[layer] = lstm_step(lstm, x, h[layer], c[layer])
            x = h[layer]
        s = h[-1]
        z = torch.stack([h_j[j] @ decoder.attention.project.weight @ s for j in range(len(h_j))])
        pi = slow_entmax(z.unsqueeze(0), alpha).squeeze(0) if alpha > 1 else z.softmax(0)
        context = (pi.unsqueeze(1) * h_j).sum(0)
        o = torch.tanh(decoder.combine.weight @ torch.cat((s, context)) + decoder.combine.bias)
        logits.append(decoder.fc_out.weight @ o + decoder.fc_out.bias)
        attention.append(pi)
    return torch.stack(logits), torch.stack(attention)


@torch.no_grad()
@pytest.mark.parametrize("alpha", [1.0, 1.25, 1.5, 2.0, 3.0])
def test_each_sentence_of_a_padded_batch_gets_what_the_paper_says(task, alpha):
    model, sample = make_model(task, alpha), make_batch(task)
    logits, attention = model(**sample["net_input"])
    zeros = 0
    for i, source in enumerate(sample["net_input"]["src_tokens"]):
        single = alone(sample, i)
        steps, length = single["prev_output_tokens"].size(1), single["src_tokens"].size(1)
        expected, weights = paper_logits(
            model, source[-length:], single["prev_output_tokens"][0], alpha
        )
        torch.testing.assert_close(logits[i, :steps], expected)
        # Attention stands where the batch has its tokens: padding is on the left.
        torch.testing.assert_close(attention[i, :steps, -length:], weights)
        assert attention[i, :, :-length].eq(0).all()
        zeros += int((weights == 0).sum())
    assert (zeros > 0) == (alpha > 1)


@torch.no_grad()
def test_softmax_attention_is_that_of_fairseqs_lstm(task):
    ours, sample = make_model(task, alpha=1.0), make_batch(task)["net_input"]
    args = {**SIZES, "encoder_hidden_size": 4, "encoder_layers": 2, "decoder_layers": 2}
    args = Namespace(**args, decoder_out_embed_dim=8, encoder_bidirectional=True, criterion="any")
    stock = LSTMModel.build_model(args, task).double().eval()
    state = {k: v for k, v in ours.state_dict().items() if not k.endswith("_version")}
    state["decoder.attention.input_proj.weight"] = state.pop("decoder.attention.project.weight")
    # Stock has no bias here, and takes [c; s] for [s; c].
    ours.decoder.combine.bias.zero_()
    state.pop("decoder.combine.bias")
    combine = state.pop("decoder.combine.weight")
    state["decoder.attention.output_proj.weight"] = torch.cat((combine[:, 8:], combine[:, :8]), 1)
    stock.load_state_dict(state, strict=True)
    torch.testing.assert_close(ours(**sample)[0], stock(**sample)[0])


@torch.no_grad()
def test_right_padding_changes_nothing(task):
    model, sample = make_model(task), make_batch(task)["net_input"]
    right = {**sample, "src_tokens": sample["src_tokens"].clone()}
    for row, length in zip(right["src_tokens"], sample["src_lengths"], strict=True):
        row.copy_(row.roll(int(length)))
    torch.testing.assert_close(model(**right)[0], model(**sample)[0])


@torch.no_grad()
@pytest.mark.parametrize("places", [(0, 0), (9, 9), (2, 5)])
def test_padding_may_be_wider_than_needed_and_anywhere(task, places):
    """--required-seq-len-multiple adds columns; a user may type <pad>."""
    model, sample = make_model(task), make_batch(task)["net_input"]
    source = sample["src_tokens"]
    for place in places:
        column = torch.full_like(source[:, :1], task.source_dictionary.pad())
        source = torch.cat((source[:, :place], column, source[:, place:]), dim=1)
    logits, attention = model(**{**sample, "src_tokens": source})
    torch.testing.assert_close(logits, model(**sample)[0])
    is_padding = source.eq(task.source_dictionary.pad())
    assert (attention.transpose(1, 2)[is_padding] == 0).all()  # where the words are, and only there


@torch.no_grad()
def test_incremental_decoding_with_reordering_is_a_full_pass_over_the_prefixes(task):
    """Rows come, go and change places as in a beam search; the reference starts anew each time."""
    model, sample = make_model(task), make_batch(task, sentences=4)["net_input"]
    states = DecoderStates(EnsembleModel([model]), sample)
    order = torch.arange(4)
    prefixes = sample["prev_output_tokens"][:, :1]
    generator = torch.Generator().manual_seed(0)
    for step in range(6):
        log_scores, attention = states.log_scores(prefixes, 1.0)
        for row, sentence in enumerate(order.tolist()):
            single = alone({"net_input": sample, "target": sample["prev_output_tokens"]}, sentence)
            single["prev_output_tokens"] = prefixes[row : row + 1]
            full, weights = model(**single)
            torch.testing.assert_close(log_scores[row], full[0, -1].float().log_softmax(-1))
            torch.testing.assert_close(attention[row, -weights.size(2) :], weights[0, -1])
        # Several rows of one sentence at first, and a sentence that ends.
        rows = torch.randint(len(order), (5 if step < 3 else 3,), generator=generator)
        states.reorder(rows, moved=True)
        order = order[rows]
        new = torch.randint(4, 20, (len(rows), 1), generator=generator)
        prefixes = torch.cat((prefixes[rows], new), dim=1)


@torch.no_grad()
def test_the_output_is_fed_to_the_next_step(task):
    model, sample = make_model(task), make_batch(task)["net_input"]
    before = model(**sample)[0]
    model.decoder.layers[0].weight_ih[:, 6:] += 0.5  # the columns behind the embedding's
    after = model(**sample)[0]
    torch.testing.assert_close(after[:, 0], before[:, 0])
    assert not torch.isclose(after[:, 1], before[:, 1]).all(1).any()


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_gradients_of_the_attention(alpha):
    torch.manual_seed(1)
    attention = GeneralAttention(3, 4, alpha).double()
    torch.nn.init.normal_(attention.project.weight, std=0.7)
    state = torch.randn(2, 3, dtype=torch.double, requires_grad=True)
    source = torch.randn(2, 5, 4, dtype=torch.double, requires_grad=True)
    is_padding = torch.tensor([[True, True, False, False, False], [False] * 5])
    weights = attention(state, source, is_padding)[1]
    assert (weights[is_padding] == 0).all() and ((weights[~is_padding] == 0).any() or alpha < 1.5)

    def call(state, source, weight):
        return torch.func.functional_call(
            attention, {"project.weight": weight}, (state, source, is_padding)
        )

    assert torch.autograd.gradcheck(call, (state, source, attention.project.weight))


@pytest.mark.parametrize("tied", [{}, {"share_all_embeddings": True}], ids=["untied", "tied"])
@pytest.mark.parametrize("criterion", ["entmax_loss", "sparsemax_loss", "alpha_relu_loss"])
def test_the_output_layer_is_fused_with_the_loss(task, criterion, tied, caplog):
    model, sample = make_model(task, **tied), make_batch(task)
    tau = {"tau": "0.3"} if criterion == "alpha_relu_loss" else {}
    results = []
    for flags in ({}, {"no_fused_output": True}):
        loss, _, log = make_criterion(task, criterion, **tau, **flags)(model, sample)
        model.zero_grad()
        loss.backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        assert len(gradients) == len(list(model.parameters()))
        results.append((loss, log["support"], gradients))
    assert can_fuse(model.decoder)
    assert "cannot be fused" not in caplog.text
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    "arch, units, layers, dropout",
    [("sparse_lstm_s2s", 500, 2, 0.3), ("sparse_lstm_inflection", 300, 2, 0.3)],
)
def test_presets_have_the_sizes_of_the_paper(task, arch, units, layers, dropout):
    """S2S §4: 500 units for translation, 300 for inflection; two layers, dropout 0.3."""
    model = task.build_model(Namespace(arch=arch, criterion="any"))
    assert model.encoder.output_units == model.decoder.hidden_size == units
    assert model.encoder.embed_tokens.embedding_dim == units
    assert model.decoder.embed_tokens.embedding_dim == units
    assert model.decoder.fc_out.in_features == units
    assert model.encoder.lstm.bidirectional
    assert model.encoder.lstm.num_layers == len(model.decoder.layers) == layers
    assert model.decoder.dropout_out_module.p == model.encoder.lstm.dropout == dropout
    assert model.decoder.attention.alpha == 1.5


@pytest.mark.parametrize(
    "args, complaint",
    [
        ({"attention_alpha": 0.5}, "--attention-alpha must be ≥ 1"),
        ({"attention_alpha": float("nan")}, "--attention-alpha"),
        ({"attention_alpha": float("inf")}, "--attention-alpha"),
        ({"decoder_attention": "False"}, "--decoder-attention"),
        ({"encoder_layers": 1, "decoder_layers": 2}, "--encoder-layers must match"),
        ({"decoder_freeze_embed": True}, "--decoder-freeze-embed needs --decoder-embed-path"),
        ({"encoder_embed_path": "no/such.vec"}, "no/such.vec"),
        ({"decoder_out_embed_dim": 7, "share_all_embeddings": True}, "--decoder-out-embed-dim"),
        ({"decoder_embed_path": "x", "share_all_embeddings": True}, "--decoder-embed-path"),
    ],
)
def test_wrong_flags_are_named(task, args, complaint):
    with pytest.raises(UsageError, match=complaint):
        task.build_model(Namespace(arch="sparse_lstm", criterion="any", **SIZES, **args))


def test_no_stock_model_is_built_on_the_way(task, monkeypatch):
    built = []
    original = torch.nn.LSTM.__init__

    def counted(self, *args, **kwargs):
        built.append(self)
        original(self, *args, **kwargs)

    monkeypatch.setattr(torch.nn.LSTM, "__init__", counted)
    model = make_model(task)
    assert built == [model.encoder.lstm]


def test_pretrained_embeddings_are_read_and_frozen(tmp_path):
    task = make_task()
    file = tmp_path / "words.vec"
    file.write_text("2 6\nw0" + " 1" * 6 + "\nw3" + " 2" * 6 + "\n")
    args = {f"{side}_embed_path": str(file) for side in ("encoder", "decoder")}
    model = task.build_model(
        Namespace(arch="sparse_lstm", criterion="any", decoder_freeze_embed=True, **SIZES, **args)
    )
    index = task.tgt_dict.index
    for side, trained in ((model.encoder, True), (model.decoder, False)):
        weight = side.embed_tokens.weight
        assert weight.requires_grad == trained
        assert (weight[index("w0")] == 1).all() and (weight[index("w3")] == 2).all()
        assert weight[index("w1")].abs().max() <= 0.1


def test_another_alpha_is_refused_whatever_the_task(task):
    """No task has said what the checkpoint is loaded for."""
    state = make_model(task, alpha=1.5).state_dict()
    with pytest.raises(UsageError, match="--attention-alpha is 2, that of the checkpoint 1.5"):
        make_model(task, alpha=2.0).load_state_dict(state)


def test_a_run_goes_on_with_its_own_alpha_only():
    """A state that does not say it is taken as it is: α was not part of it at first."""
    task = make_task()
    state = make_model(task, alpha=1.0).state_dict()
    other = make_model(task, alpha=2.0)
    make_criterion(task, "cross_entropy")  # after which the model is one to be trained
    with pytest.raises(UsageError, match="--attention-alpha is 2, that of the checkpoint 1: repea"):
        other.load_state_dict(state)
    other.load_state_dict({k: x for k, x in state.items() if not k.endswith(STATE_KEY)})
