"""fairseq-hydra-train: what it trains is what fairseq-train with the same flags trains."""

from functools import partial

import torch
from doc_pages import ROOT, blocks
from fairseq_runs import TINY, USER_DIR, run, together, train
from test_training import weights

HYDRA = """
common: {{user_dir: {user_dir}, cpu: true, seed: 7, bf16: {bf16}, memory_efficient_bf16: {bf16}}}
task: {{_name: sparse_translation, data: {data}, source_lang: src, target_lang: tgt}}
criterion: {{_name: alpha_relu_loss, alpha: 1.5, tau: batch}}
dataset: {{batch_size: 16, num_workers: 0}}
optimization: {{max_epoch: 1, lr: [0.003]}}
checkpoint: {{save_dir: {save_dir}, no_epoch_checkpoints: true}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
model: {model}
"""
NESTED = """
  _name: {name}
  encoder: {{layers: 1, embed_dim: 32, ffn_embed_dim: 64, attention_heads: 2}}
  decoder: {{layers: 1, embed_dim: 32, ffn_embed_dim: 64, attention_heads: 2}}
"""
RELU = ["--criterion=alpha_relu_loss", "--max-epoch=1"]


def hydra(data, folder, name, model, bf16="false", **options):
    places = {"user_dir": USER_DIR, "data": data, "save_dir": folder / name}
    (folder / f"{name}.yaml").write_text(HYDRA.format(bf16=bf16, model=model, **places))
    config = [f"--config-dir={folder}", f"--config-name={name}", f"hydra.run.dir={folder / name}"]
    return run("fairseq-hydra-train", *config, sparse=False, **options)


def assert_same(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for key in expected:
        close = {"atol": tolerance, "rtol": tolerance, "equal_nan": True}
        torch.testing.assert_close(found[key], expected[key], **close)


def test_a_stock_architecture(reversal_data, tmp_path):
    """And in bfloat16, which fairseq-train keeps for TPUs, nearly the same."""
    model = NESTED.format(name="transformer")
    together(
        partial(hydra, reversal_data, tmp_path, "hydra", model),
        partial(hydra, reversal_data, tmp_path, "bf16", model, "true"),
        partial(train, reversal_data, tmp_path / "flags", *RELU),
    )
    expected = weights(tmp_path / "flags")
    for name, tolerance in [("hydra", 1e-6), ("bf16", 0.05)]:
        assert_same(weights(tmp_path / name), expected, tolerance)


def test_sparse_architectures(reversal_data, tmp_path):
    """sparse_transformer with nested keys, sparse_lstm with flat ones; both decode."""
    transformer = NESTED.format(name="sparse_transformer") + "  cross_attention_alpha: 1.5\n"
    lstm = "{_name: sparse_lstm, encoder_embed_dim: 16, decoder_embed_dim: 16}"
    sizes = TINY["transformer"].replace("--arch=transformer", "--arch=sparse_transformer").split()
    sizes += ["--cross-attention-alpha=1.5"]
    together(
        partial(hydra, reversal_data, tmp_path, "hydra", transformer),
        partial(train, reversal_data, tmp_path / "flags", *RELU, *sizes),
        partial(hydra, reversal_data, tmp_path, "lstm", lstm),
    )
    assert_same(weights(tmp_path / "hydra"), weights(tmp_path / "flags"), 1e-6)

    def generate(name):
        path = f"--path={tmp_path / name / 'checkpoint_last.pt'}"
        args = ["--task=sparse_translation", path, "--beam=1", "--max-len-b=9", "--cpu"]
        return run("fairseq-generate", reversal_data, *args)

    for done in together(partial(generate, "hydra"), partial(generate, "lstm")):
        assert sum(line.startswith("H-") for line in done.out.splitlines()) == 16


def test_the_file_of_the_documentation_works(reversal_data, tmp_path):
    """With the paths of this machine, and a smaller model."""
    (block,) = [x for x in blocks(ROOT / "docs/hydra.md") if x.language == "yaml"]
    smaller = {
        "/path/to/sparse_fairseq": str(USER_DIR),
        "/path/to/bin": str(reversal_data),
        "source_lang: de, target_lang: en": "source_lang: src, target_lang: tgt",
        "max_epoch: 30": "max_update: 2",
        "layers: 6, embed_dim: 512": "layers: 1, embed_dim: 32",
        "decoder: {layers: 6}": "decoder: {layers: 1, embed_dim: 32}",
    }
    text = block.code
    for usual, small in smaller.items():
        assert usual in text
        text = text.replace(usual, small)
    (tmp_path / "run.yaml").write_text(text)
    place = [f"hydra.run.dir={tmp_path}", f"checkpoint.save_dir={tmp_path}", "common.cpu=true"]
    config = [f"--config-dir={tmp_path}", "--config-name=run"]
    run("fairseq-hydra-train", *config, *place, sparse=False)
    assert (tmp_path / "checkpoint_last.pt").is_file()


def test_a_wrong_key_is_one_line(reversal_data, tmp_path):
    model = "{_name: sparse_transformer, encoder: {layer: 1}}"
    done = hydra(reversal_data, tmp_path, "wrong", model, ok=False)
    assert done.code == 1
    assert "sparse_fairseq: error: model.encoder has no key 'layer'; it has" in done.err
