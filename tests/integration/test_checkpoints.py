"""The checkpoint knows its output: generate, interactive, validate, hub, stock fairseq, attacks."""

import os
import shutil
from functools import partial

import pytest
import torch
from fairseq.checkpoint_utils import load_ema_from_checkpoint
from fairseq.models.transformer import TransformerModel
from fairseq_runs import run, together, train

RELU = ["--criterion=alpha_relu_loss"]
SYSTEMS = {
    "relu": RELU,
    "entmax": ["--criterion=entmax_loss", "--alpha=1.3", "--share-all-embeddings"],
    "entmax_xavier_tied": ["--criterion=entmax_loss", "--share-all-embeddings"],
    "softmax": ["--criterion=cross_entropy"],
    "stock": ["--criterion=cross_entropy"],
}
SYSTEMS["entmax_xavier_tied"] += ["--output-init=xavier"]


@pytest.fixture(scope="module")
def runs(reversal_data, tmp_path_factory):
    """Each system trained for one epoch: {system: (its Finished, its folder)}."""
    root = tmp_path_factory.mktemp("runs")

    def train_one(system):
        task = {"task": "translation", "sparse": False} if system == "stock" else {}
        done = train(reversal_data, root / system, *SYSTEMS[system], "--max-epoch=1", **task)
        return done, root / system

    return dict(zip(SYSTEMS, together(*(partial(train_one, s) for s in SYSTEMS)), strict=True))


def path(runs, system):
    return runs[system][1] / "checkpoint_last.pt"


def generate(data, *paths, task="sparse_translation", **options):
    joined = ":".join(map(str, paths))
    args = [data, f"--task={task}", f"--path={joined}", "--batch-size=8", "--beam=1", "--cpu"]
    return run("fairseq-generate", *args, "--max-len-b=9", **options)


def hypotheses(finished):
    return [line for line in finished.out.splitlines() if line.startswith("H-")]


def test_validate_repeats_the_last_validation_of_training(runs, reversal_data):
    def validate(system):
        args = ["--task=sparse_translation", "--batch-size=16", "--cpu", "--log-format=json"]
        return run("fairseq-validate", reversal_data, *args, f"--path={path(runs, system)}")

    systems = ["relu", "entmax_xavier_tied", "softmax"]
    for system, done in zip(
        systems, together(*(partial(validate, s) for s in systems)), strict=True
    ):
        (again,) = done.records("valid")
        (first,) = runs[system][0].records("valid")
        for key in again.keys() & {"valid_loss", "valid_support", "valid_total_score"}:
            assert float(again[key]) == pytest.approx(float(first[key]), abs=2e-4), (system, key)


def test_generate_and_interactive_decode_the_same(runs, reversal_data):
    source = reversal_data.parent / "test.src"
    decode = partial(generate, reversal_data, path(runs, "relu"))

    def interact():
        args = ["--task=sparse_translation", f"--path={path(runs, 'relu')}", "--beam=1", "--cpu"]
        args += ["--source-lang=src", "--target-lang=tgt", "--max-len-b=9"]
        return run("fairseq-interactive", reversal_data, *args, stdin=source.read_text())

    generated, interactive = together(decode, interact)
    by_id = sorted(hypotheses(generated), key=lambda line: int(line[2:].split("\t")[0]))
    words = [line.split("\t")[2] for line in by_id]
    assert len(words) == 16 and words == [x.split("\t")[2] for x in hypotheses(interactive)]


def test_ensemble_of_different_outputs_decodes(runs, reversal_data):
    done = generate(reversal_data, *(path(runs, s) for s in ("relu", "entmax", "stock")))
    assert len(hypotheses(done)) == 16


def test_softmax_checkpoints_are_exchangeable_with_stock_fairseq(runs, reversal_data):
    ours = partial(generate, reversal_data, path(runs, "stock"))
    stock = partial(generate, reversal_data, path(runs, "softmax"), task="translation")
    stocks = partial(generate, reversal_data, path(runs, "stock"), task="translation")
    ours, stock, stocks = (hypotheses(x) for x in together(ours, stock, stocks))
    assert ours == stock == stocks  # the same seed trains the same model under either task


def test_stock_fairseq_refuses_a_sparse_checkpoint(runs, reversal_data):
    done = generate(reversal_data, path(runs, "relu"), task="translation", ok=False)
    assert done.code != 0 and "needs_task_sparse_translation" in done.text


def test_from_pretrained(runs, reversal_data):
    for system, kind in [("relu", "alpha_relu"), ("entmax", "entmax"), ("softmax", "softmax")]:
        hub = TransformerModel.from_pretrained(
            str(runs[system][1]), "checkpoint_last.pt", data_name_or_path=str(reversal_data)
        )
        assert hub.models[0].decoder.output_transform.kind == kind
        assert isinstance(hub.translate("1 2 3", beam=1), str)
    assert hub.models[0].decoder.output_transform.settings.input_scale == 1


def test_hostile_checkpoint_runs_nothing(runs, reversal_data, tmp_path):
    witness = tmp_path / "pwned"

    class Hostile:
        def __reduce__(self):
            return os.system, (f"touch {witness}",)

    for where in ("model", "extra_state"):
        state = torch.load(path(runs, "relu"))
        state[where]["hostile"] = Hostile()
        torch.save(state, tmp_path / "hostile.pt")
        done = generate(reversal_data, tmp_path / "hostile.pt", ok=False)
        assert done.code != 0 and "weights_only" in done.text
        assert not witness.exists()
    torch.load(tmp_path / "hostile.pt", weights_only=False)
    assert witness.exists()  # the attack works where loading is not safe


def test_ema_checkpoint_carries_the_transform(reversal_data, tmp_path):
    """SE trains WMT with an EMA; fairseq's loader of EMA weights must find a whole model."""
    ema = [*RELU, "--store-ema", "--ema-decay=0.9995"]
    plain = partial(train, reversal_data, tmp_path / "plain", *ema, "--max-epoch=1")
    fp32 = partial(train, reversal_data, tmp_path / "fp32", *ema, "--ema-fp32", "--max-epoch=1")
    together(plain, fp32)
    train(reversal_data, tmp_path / "fp32", *ema, "--ema-fp32", "--max-epoch=2")
    for folder in ("plain", "fp32"):
        file = tmp_path / folder / "checkpoint_last.pt"
        ema_state, model_state = load_ema_from_checkpoint(file)["model"], torch.load(file)["model"]
        (key,) = (k for k in model_state if "output_transform" in k)
        assert torch.equal(ema_state[key], model_state[key])
        weight = "decoder.output_projection.weight"
        assert not torch.equal(ema_state[weight], model_state[weight])


OTHER_OUTPUTS = [
    (["--criterion=entmax_loss"], ["alpha_relu(alpha=1.5", "entmax(alpha=1.5"]),
    ([*RELU, "--alpha=1.6"], ["alpha=1.5", "alpha=1.6"]),
    ([*RELU, "--tau=0.4"], ["tau=0.0", "tau=0.4"]),
]


def test_resume_with_another_output_is_one_clear_line(runs, reversal_data, tmp_path):
    shutil.copy(path(runs, "relu"), tmp_path)
    resume = partial(train, reversal_data, tmp_path, "--max-epoch=2", ok=False)
    attempts = together(*(partial(resume, *args) for args, _ in OTHER_OUTPUTS))
    for done, (_, both) in zip(attempts, OTHER_OUTPUTS, strict=True):
        assert done.code != 0 and "Traceback" not in done.text
        (line,) = (x for x in done.err.splitlines() if x.startswith("sparse_fairseq: error:"))
        assert all(value in line for value in both)


def test_finetuning_changes_the_output(runs, reversal_data, tmp_path):
    def finetune(system, *args):
        start = f"--finetune-from-model={path(runs, system)}"
        return train(reversal_data, tmp_path / system, *args, start, "--max-epoch=1")

    from_relu = partial(finetune, "relu", "--criterion=sparsemax_loss")
    from_relu, from_stock = together(from_relu, partial(finetune, "stock", *RELU))
    (record,) = from_relu.records("valid")
    assert float(record["valid_total_score"]) == pytest.approx(1, abs=1e-3)
    assert "tau = " in from_stock.out


def test_sparse_criterion_under_another_task(reversal_data, tmp_path):
    done = train(reversal_data, tmp_path, *RELU, "--max-epoch=1", task="translation", ok=False)
    assert done.code != 0 and "Traceback" not in done.text
    assert "--task sparse_translation" in done.err


def test_our_code_warns_about_nothing(runs):
    assert "sparse_fairseq" not in runs["relu"][0].err
