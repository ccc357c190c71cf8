"""--arch sparse_transformer through fairseq-train and fairseq-generate, as a user runs them."""

import re
from functools import partial

import pytest
import torch
from fairseq_runs import run, together, train

ALPHAS = ["--encoder-attention-alpha=learned", "--decoder-attention-alpha=1.5"]
ALPHAS += ["--cross-attention-alpha=2"]
SPARSE = ["--arch=sparse_transformer", "--criterion=entmax_loss", *ALPHAS]


def load(path):
    return torch.load(path, weights_only=False)


@pytest.fixture(scope="module")
def runs(reversal_data, tmp_path_factory):
    """A run with mixed α that is resumed, and a stock run that goes on as sparse_transformer."""
    folder = tmp_path_factory.mktemp("sparse_transformer")
    mixed, stock = folder / "mixed", folder / "stock"
    softmax = ["--criterion=cross_entropy", "--max-epoch=1"]
    first = together(
        lambda: train(reversal_data, mixed, *SPARSE, "--max-epoch=1"),
        lambda: train(reversal_data, stock, *softmax, task="translation", sparse=False),
    )
    saved = [load(path / "checkpoint_last.pt") for path in (mixed, stock)]
    second = together(
        lambda: train(reversal_data, mixed, *SPARSE, "--max-epoch=2"),
        lambda: train(
            reversal_data,
            stock,
            "--arch=sparse_transformer",
            "--criterion=cross_entropy",
            "--max-epoch=2",
        ),
    )
    return {"folder": folder, "first": first, "second": second, "saved": saved}


def test_learned_alphas_are_logged_and_trained(runs):
    steps = runs["first"][0].records("train_inner")
    assert all(1 < float(s["alpha_encoder0_min"]) <= float(s["alpha_encoder0"]) for s in steps)
    assert all(float(s["alpha_encoder0_max"]) < 2 for s in steps)
    assert len({s["alpha_encoder0"] for s in steps}) > 1
    assert "alpha_decoder0" not in steps[0] and "alpha_cross0" not in steps[0]
    assert "train_alpha_encoder0" in runs["first"][0].records("train")[0]


def test_resuming_goes_on_with_the_alphas(runs):
    before = runs["saved"][0]
    alpha = 1 + before["model"]["encoder.layers.0.self_attn.alpha_logits"].sigmoid()
    resumed = runs["second"][0].records("train_inner")[0]
    assert float(resumed["num_updates"]) == before["optimizer_history"][-1]["num_updates"] + 1
    assert float(resumed["alpha_encoder0"]) == pytest.approx(alpha.mean().item(), abs=2e-4)
    args = load(runs["folder"] / "mixed" / "checkpoint_last.pt")["cfg"]["model"]
    assert [args.encoder_attention_alpha, args.cross_attention_alpha] == ["learned", 2.0]


def test_half_precision_trains_like_float32(runs, reversal_data, tmp_path):
    half = ["--memory-efficient-fp16", "--fp16-init-scale=4", "--max-epoch=1"]
    done = train(reversal_data, tmp_path, *SPARSE, *half)
    found, expected = (
        float(x.records("valid")[-1]["valid_loss"]) for x in (done, runs["first"][0])
    )
    assert found == pytest.approx(expected, rel=0.02)
    steps = done.records("train_inner")
    assert len({step["alpha_encoder0"] for step in steps}) > 1
    assert {float(step["loss_scale"]) for step in steps} == {4.0}  # no overflow
    weights = load(tmp_path / "checkpoint_last.pt")["model"]  # as float32
    assert all(torch.equal(x, x.half().float()) for name, x in weights.items() if "attn" in name)


def test_a_stock_checkpoint_goes_on_as_sparse_transformer(runs):
    stock, continued = runs["saved"][1], runs["second"][1]
    assert float(continued.records("train_inner")[0]["num_updates"]) == (
        stock["optimizer_history"][-1]["num_updates"] + 1
    )
    last = float(runs["first"][1].records("train_inner")[-1]["loss"])
    assert float(continued.records("train_inner")[0]["loss"]) < last + 0.5
    after = load(runs["folder"] / "stock" / "checkpoint_last.pt")
    assert after["model"].keys() == stock["model"].keys()
    assert after["cfg"]["model"].arch == "sparse_transformer"


def test_a_run_goes_on_with_its_own_alphas_only(runs, reversal_data):
    """Whatever fairseq's own complaint would be: a traceback, or none."""
    others = (["--encoder-attention-alpha=1.5"], ["--cross-attention-alpha=1.5"])
    resume = partial(train, reversal_data, runs["folder"] / "mixed", *SPARSE, ok=False)
    for done in together(*(partial(resume, *other, "--max-epoch=3") for other in others)):
        assert done.code == 1 and "Traceback" not in done.text
        (line,) = (x for x in done.err.splitlines() if x.startswith("sparse_fairseq: error:"))
        assert re.search(
            "--(encoder|cross)-attention-alpha is 1.5, .* (learned|2): repeat it", line
        )


def test_finetuning_starts_to_learn_alphas(runs, reversal_data, tmp_path):
    start = f"--finetune-from-model={runs['folder'] / 'stock' / 'checkpoint_last.pt'}"
    softmax = ["--arch=sparse_transformer", "--criterion=cross_entropy", *ALPHAS]
    done = train(reversal_data, tmp_path, *softmax, start, "--max-update=3")
    changes = re.findall(r"--(\w+)-attention-alpha: from 1 to ([\w.]+)", done.out)
    assert changes == [("encoder", "learned"), ("decoder", "1.5"), ("cross", "2")]
    weights = load(tmp_path / "checkpoint_last.pt")["model"]
    assert "encoder.layers.0.self_attn.alpha_logits" in weights


def test_decoding_needs_no_flag_and_prints_alignments(runs, reversal_data):
    options = [reversal_data, "--task=sparse_translation", "--beam=3", "--print-alignment"]
    wrong = ["--arch=sparse_transformer", "--criterion=entmax_loss", "--cross-attention-alpha=0.5"]
    calls = [
        lambda path=path: run(
            "fairseq-generate", *options, f"--path={runs['folder'] / path / 'checkpoint_last.pt'}"
        )
        for path in ("mixed", "stock")
    ]
    refused = lambda: train(reversal_data, runs["folder"] / "wrong", *wrong, ok=False)  # noqa: E731
    *decoded, error = together(*calls, refused)
    for done in decoded:
        alignments = re.findall(r"^A-\d+\t(.*)$", done.out, re.MULTILINE)
        assert len(alignments) == 16
        assert any(re.fullmatch(r"(\d+-\d+ ?)+", line) for line in alignments)
    assert error.code == 1
    assert re.search(
        r"^sparse_fairseq: error: --cross-attention-alpha must .* got '0.5'$", error.err, re.M
    )
    assert "Traceback" not in error.text
