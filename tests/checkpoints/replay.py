"""Makes the tiny checkpoints of this folder; tells what a version of the package does with them.

    python tests/checkpoints/replay.py make FOLDER     # six trainings of a few updates
    python tests/checkpoints/replay.py tell FOLDER     # decodes with and resumes each: told.json

The committed files were made by the version of commit c846733, with what it told in expected.json.
`make` is for a kind of model that comes later: whoever makes the old ones anew tests nothing.
"""

import json
import logging
import lzma
import random
import shutil
import sys
from pathlib import Path

import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli import train

HERE = Path(__file__).parent
PACKAGE = HERE.parent.parent / "sparse_fairseq"
TRAINED, RESUMED = 300, 3  # updates

TRANSFORMER = [f"--{side}-{name}" for side in ("encoder", "decoder") for name in (
    "layers=1", "embed-dim=8", "ffn-embed-dim=8", "attention-heads=2")]  # fmt: skip
LSTM = ["--encoder-embed-dim=6", "--decoder-embed-dim=6"]
ALPHAS = ["--encoder-attention-alpha", "--decoder-attention-alpha", "--cross-attention-alpha"]
RELU = ["--criterion=alpha_relu_loss", "--alpha=1.5", "--tau=batch"]
KINDS = {
    "alpha_relu": ["--arch=transformer", *TRANSFORMER, *RELU],
    # Tied embeddings: the state says what they are multiplied with on input.
    "entmax": ["--arch=transformer", *TRANSFORMER, "--share-all-embeddings",
               "--criterion=entmax_loss", "--alpha=1.3"],
    "softmax": ["--arch=transformer", *TRANSFORMER, "--criterion=cross_entropy"],
    "fixed_attention": ["--arch=sparse_transformer", *TRANSFORMER, "--criterion=sparsemax_loss",
                        *(f"{flag}=1.5" for flag in ALPHAS)],
    "learned_attention": ["--arch=sparse_transformer", *TRANSFORMER, "--criterion=entmax_loss",
                          *(f"{flag}=learned" for flag in ALPHAS)],
    "sparse_lstm": ["--arch=sparse_lstm", *LSTM, *RELU],
}  # fmt: skip
BASICS = ["--task=sparse_translation", "--dataset-impl=raw", "--source-lang=src"]
BASICS += ["--target-lang=tgt", "--optimizer=adam", "--lr=0.02", "--batch-size=8", "--seed=7"]
BASICS += ["--required-batch-size-multiple=1", "--cpu", "--num-workers=0", "--no-epoch-checkpoints"]
BASICS += ["--log-format=json", "--log-interval=1", "--disable-validation", "--dropout=0"]


def write_data(folder: Path) -> None:
    """Words and the same words reversed, as text."""
    rng = random.Random(1)
    folder.mkdir(parents=True)
    for split, size in (("train", 48), ("test", 6)):
        lines = [[rng.choice("abcdef") for _ in range(rng.randint(1, 5))] for _ in range(size)]
        for language, step in (("src", 1), ("tgt", -1)):
            text = "".join(" ".join(line[::step]) + "\n" for line in lines)
            (folder / f"{split}.src-tgt.{language}").write_text(text)
    for language in ("src", "tgt"):
        (folder / f"dict.{language}.txt").write_text("".join(f"{word} 1\n" for word in "abcdef"))


def fairseq_train(data: Path, save_dir: Path, *args: str) -> None:
    parser = options.get_training_parser()
    given = [str(data), f"--user-dir={PACKAGE}", f"--save-dir={save_dir}", *BASICS, *args]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, given))
    train.main(cfg)


def make(folder: Path) -> None:
    write_data(folder / "data")
    for kind, args in KINDS.items():
        save_dir = folder / f"made_{kind}"
        fairseq_train(folder / "data", save_dir, *args, f"--max-update={TRAINED}")
        state = torch.load(save_dir / "checkpoint_last.pt")
        # Whose machine it was is nobody's business.
        state["cfg"]["common"]["user_dir"] = "sparse_fairseq"
        state["cfg"]["checkpoint"]["save_dir"] = "checkpoints"
        state["cfg"]["task"].update(data="data", save_dir="checkpoints")
        model = state["cfg"]["model"]
        vars(model).update(data="data", user_dir="sparse_fairseq", save_dir="checkpoints")
        torch.save(state, save_dir / "checkpoint.pt")
        with lzma.open(folder / f"{kind}.pt.xz", "wb") as file:
            file.write((save_dir / "checkpoint.pt").read_bytes())
        shutil.rmtree(save_dir)


def decoded(checkpoint: Path, data: Path) -> list[list]:
    """The translations of the test set, best first."""
    models, _, task = checkpoint_utils.load_model_ensemble_and_task(
        [str(checkpoint)], arg_overrides={"data": str(data)}
    )
    task.load_dataset("test")
    dataset = task.dataset("test")
    sample = dataset.collater([dataset[i] for i in range(len(dataset))])
    parser = options.get_generation_parser()
    given = options.parse_args_and_arch(parser, [str(data), "--beam=3", "--max-len-b=9"])
    generator = task.build_generator(models, convert_namespace_to_omegaconf(given).generation)
    found = task.inference_step(generator, models, sample)
    return [
        [[task.tgt_dict.string(h["tokens"]), float(h["score"])] for h in hypotheses]
        for hypotheses in found
    ]


def resumed(checkpoint: Path, data: Path, folder: Path, args: list[str]) -> dict:
    """The losses of the next updates, and the weights after them."""
    folder.mkdir(parents=True)
    shutil.copy(checkpoint, folder / "checkpoint_last.pt")
    with Records("train_inner") as records:
        fairseq_train(data, folder, *args, f"--max-update={TRAINED + RESUMED}")
    losses = {record["num_updates"]: float(record["loss"]) for record in records}
    weights = torch.load(folder / "checkpoint_last.pt")["model"]
    sums = {
        name: float(x.double().abs().sum()) for name, x in weights.items() if "version" not in name
    }
    return {"losses": losses, "sums of weights": sums}


class Records(logging.Handler):
    """What fairseq says as JSON under a name, to which it renames one logger for a while."""

    def __init__(self, name: str):
        super().__init__()
        self.logger = logging.getLogger("fairseq.logging.progress_bar")
        self.wanted, self.found = name, []

    def emit(self, record):
        if record.name == self.wanted:
            self.found.append(json.loads(record.getMessage()))

    def __enter__(self) -> list[dict]:
        self.logger.addHandler(self)
        return self.found

    def __exit__(self, *_):
        self.logger.removeHandler(self)


def tell(folder: Path) -> dict:
    told = {}
    for kind, args in KINDS.items():
        checkpoint = folder / f"{kind}.pt"
        with lzma.open(HERE / f"{kind}.pt.xz") as file:
            checkpoint.write_bytes(file.read())
        told[kind] = {
            **resumed(checkpoint, HERE / "data", folder / kind, args),
            "decoded": decoded(checkpoint, HERE / "data"),
        }
    return told


if __name__ == "__main__":
    command, where = sys.argv[1], Path(sys.argv[2])
    where.mkdir(parents=True, exist_ok=True)
    if command == "make":
        make(where)
    else:
        (where / "told.json").write_text(json.dumps(tell(where), indent=1) + "\n")
