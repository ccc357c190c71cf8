"""Every preset of `make own` trains: models that want a GPU, too, for two updates."""

import pytest
import torch

from experiments import own

SETTINGS = """
extends: presets/{preset}
data: {{operations: 40}}
train: {{max-epoch: null, max-update: 2, no-save-optimizer-state: true}}
"""
LETTERS = "abcdefghij"


@pytest.mark.slow
@pytest.mark.parametrize("preset", own.PRESETS)
def test_every_preset_trains_and_validates(preset, tmp_path):
    for language, word in (("de", "Satz"), ("en", "Sentence")):
        lines = [f"{word} {a} {b}\n" for a in LETTERS for b in LETTERS]
        (tmp_path / f"train.{language}").write_text("".join(lines))
    (tmp_path / "settings.yaml").write_text(SETTINGS.format(preset=preset))
    places = [f"--configs={tmp_path / 'configs'}", f"--data-root={tmp_path / 'data'}"]
    files = ["--name=mine", "--pair=de-en", f"--train={tmp_path / 'train'}"]
    options, _ = own.parse([*files, f"--config={tmp_path / 'settings.yaml'}", *places])
    values = own.config_values(options)
    own.write_config(options, values, tmp_path / "configs")
    runs = [f"--runs-root={tmp_path / 'runs'}", "--gpus=0"]
    own.run.main(["mine", "relu15", "1", "train", *places, *runs])
    run = tmp_path / "runs/mine/relu15/seed1"
    log = (run / "train.log").read_text()
    assert '"valid_bleu":' in log and '"valid_num_updates": "2"' in log
    model = torch.load(run / "checkpoints/checkpoint_best.pt", weights_only=False)["model"]
    size = values["train"]["encoder-ffn-embed-dim"]
    assert model["encoder.layers.0.fc1.weight"].shape[0] == size
