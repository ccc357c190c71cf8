"""`python -m experiments.adopt CHECKPOINT DATA_BIN --as mine/relu15/seed1`: a run of a model that
somebody trained by hand, so that analyses, report and `make explore` can read it.

CHECKPOINT is ours or stock fairseq's. DATA_BIN is what `data_prep` or `fairseq-preprocess` made.
The run is decoded and scored as all others are.
"""

import argparse
import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

from data_prep.files import atomic_output, lock, sha256, write_json
from data_prep.records import read_facts
from data_prep.segmentation import RECORD, write_record
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

from .commands import find_workers
from .config import Batch, Config, Flags
from .manifest import Manifest
from .paths import ROOT, readable
from .plan import SPLITS, Plan
from .processes import Processes
from .run import Parser, one_line
from .run_folder import Run
from .stages import RunStages
from .systems import System, find_system

# What fairseq trains softmax with.
DENSE = ("cross_entropy", "label_smoothed_cross_entropy", "softmax_loss")
GENERATE: Flags = {"beam": 5, "end-search": "ahead", "batch-size": 64}
GENERATE |= {"max-len-a": 1.5, "max-len-b": 10}


@dataclasses.dataclass
class AdoptedPlan(Plan):
    """A plan whose data lie where they lie."""

    folder: Path = Path()

    @property
    def data(self) -> Path:
        return self.folder


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="python -m experiments.adopt", description=__doc__)
    parser.add_argument("checkpoint", type=Path, help="as in checkpoints/checkpoint_best.pt")
    parser.add_argument("data_bin", type=Path, help="the binarised data it was trained on")
    parser.add_argument("--as", dest="name", required=True, help="DATASET/SYSTEM/seedN")
    parser.add_argument("--log", type=Path, help="what fairseq-train wrote (--log-format json)")
    parser.add_argument("--beam", type=int, default=GENERATE["beam"])
    parser.add_argument("--data-root", type=Path, default=ROOT / "data")
    parser.add_argument("--runs-root", type=Path, default=ROOT / "runs")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    try:
        run = adopt(options)
    except (OSError, ValueError) as error:
        raise UsageError(one_line(error)) from error
    folder = readable(run.path.parents[1])
    root = "" if options.runs_root == ROOT / "runs" else f" --runs-root {options.runs_root}"
    print(f"{readable(run.path)} is a run now. For the analyses and the report:")
    print(f"python -m experiments.analysis {folder}")
    print(f"python -m experiments.report {run.dataset}{root}")


def adopt(options: argparse.Namespace) -> Run:
    run, system = named_run(options)
    state = read_checkpoint(options.checkpoint)
    check_system(system, state["cfg"]["criterion"], options)
    languages = find_languages(options.data_bin)
    folder = data_folder(options, run.dataset, languages)
    config = make_config(run, system, state["cfg"], folder, options)
    plan = AdoptedPlan(config, [run], ("train", "generate", "score"), options, folder)
    run.checkpoints.mkdir(parents=True)
    with lock(run.path / ".lock", run.name) as held:
        write_checkpoint(state, run.checkpoint)
        if options.log is None:
            run.train_log.touch()
        else:
            shutil.copyfile(options.log, run.train_log)
        manifest = Manifest(plan, run)
        manifest.begin("train", [])
        manifest.entries["adopted"] = {
            "checkpoint": str(options.checkpoint.absolute()),
            "sha256": sha256(options.checkpoint),
        }
        manifest.finish("train")
        stages = RunStages(plan, Run(run.path), find_workers(None), 1, Processes(), held)
        for stage in ("generate", "score"):
            print(f"{run.name}: {stage}")
            stages.perform(stage, lambda line: None)
    return run


def named_run(options: argparse.Namespace) -> tuple[Run, System]:
    parts = options.name.split("/")
    number = parts[-1].removeprefix("seed")
    if len(parts) != 3 or not all(parts) or not number.isdigit() or ".." in parts:
        raise UsageError(
            f"--as {options.name}: DATASET/SYSTEM/seedN is needed, as in mine/relu15/seed1"
        )
    system = find_system(parts[1])
    run = Run(options.runs_root.expanduser().absolute() / parts[0] / parts[1] / f"seed{number}")
    if run.path.exists() and any(run.path.iterdir()):
        raise UsageError(f"{readable(run.path)} is there already: remove it, or give another --as")
    return run, system


def read_checkpoint(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UsageError(f"{path}: there is no such checkpoint")
    import torch

    import sparse_fairseq.register  # noqa: F401  lets torch load what fairseq's checkpoints contain

    try:
        state = torch.load(path, map_location="cpu")
    except Exception as error:  # whatever a file that is no checkpoint makes of torch
        # torch's advice would be to load it unsafely.
        reason = re.search(r"WeightsUnpickler error: (.*?)(?: Check the|$)", one_line(error))
        text = reason[1] if reason else one_line(error)
        raise UsageError(f"{path} is no checkpoint that can be loaded safely: {text}") from error
    if not isinstance(state, dict) or not isinstance(state.get("cfg"), dict):
        raise UsageError(f"{path} is no checkpoint of fairseq 0.10 or newer")
    return state


def check_system(system: System, criterion: Any, options: argparse.Namespace) -> None:
    """Refuses a name that says something else than the checkpoint."""
    values = criterion if isinstance(criterion, dict) else vars(criterion)
    name = values.get("_name") or values.get("criterion")
    alpha = 1.0 if name in DENSE else 2.0 if name == "sparsemax_loss" else values.get("alpha")
    relu = name == "alpha_relu_loss"
    if alpha != system.alpha or relu == system.normalised:
        what = f"{name} with α = {alpha:g}" if alpha else str(name)
        raise UsageError(f"{options.checkpoint} was trained with {what}, not as '{system.name}'")


def find_languages(data_bin: Path) -> tuple[str, str]:
    from fairseq.data.data_utils import infer_language_pair

    pair = infer_language_pair(str(data_bin)) if data_bin.is_dir() else (None, None)
    if None in pair:
        raise UsageError(
            f"{data_bin} is no binarised data: no dict and no train.<src>-<tgt>.<src>.idx"
        )
    for split in SPLITS:
        if not (data_bin / f"{split}.{pair[0]}-{pair[1]}.{pair[1]}.idx").is_file():
            raise UsageError(f"{data_bin} has no {split} set, which the analyses need")
    return pair


def data_folder(options: argparse.Namespace, dataset: str, languages: tuple[str, str]) -> Path:
    """A folder as `data_prep` makes them; a new one with links, if fairseq-preprocess was used."""
    data_bin = options.data_bin.expanduser().absolute()
    if (data_bin.parent / "data.json").is_file() and (data_bin / RECORD).is_file():
        return data_bin.parent
    folder = options.data_root.expanduser().absolute() / dataset
    checksums = {f"bin/{path.name}": sha256(path) for path in sorted(data_bin.glob("dict.*.txt"))}
    if (folder / "data.json").is_file():
        if read_facts(folder, f"remove {readable(folder)}")["checksums"] != checksums:
            raise UsageError(f"{readable(folder)} holds other data: give another DATASET in --as")
        return folder
    words = {"segmentation": "none", "tokenizer": "none"}  # text is compared as it was binarised
    pair = dict(zip(("source", "target"), languages, strict=True))
    spec = DataSpec.from_mapping({"recipe": "plain_text", **pair, **words})
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for path in data_bin.iterdir():
        link = folder / "bin" / path.name
        link.unlink(missing_ok=True)
        link.symlink_to(path)
    write_record(spec, folder / "bin")
    sizes = write_text(folder, languages)
    facts = {"recipe": "plain_text", "spec": spec.to_mapping(), "sizes": sizes, "sources": []}
    write_json(folder / "data.json", {**facts, "checksums": checksums})
    return folder


def write_text(folder: Path, languages: tuple[str, str]) -> dict[str, int]:
    """Writes both sides of the sets as the text that was binarised, its pieces put together."""
    from fairseq.data import Dictionary, data_utils

    sizes = {}
    for language in languages:
        dictionary = Dictionary.load(str(folder / "bin" / f"dict.{language}.txt"))
        for split in SPLITS:
            prefix = folder / "bin" / f"{split}.{'-'.join(languages)}.{language}"
            sentences = data_utils.load_indexed_dataset(str(prefix), dictionary)
            with atomic_output(folder / "text" / f"{split}.{language}") as file:
                for tokens in sentences:
                    file.write(dictionary.string(tokens, pieces_of(dictionary)) + "\n")
            sizes[split] = len(sentences)
    return sizes


def pieces_of(dictionary: Any) -> str | None:
    """How the words of a dictionary were divided, by the look of them; None if they were not."""
    if any(symbol.endswith("@@") for symbol in dictionary.symbols):
        return "subword_nmt"
    return "sentencepiece" if any("▁" in symbol for symbol in dictionary.symbols) else None


def make_config(
    run: Run, system: System, cfg: dict[str, Any], folder: Path, options: argparse.Namespace
) -> Config:
    """What the checkpoint tells of how it was trained, as a config would say it."""
    from fairseq.data import Dictionary

    spec = read_facts(folder, f"remove {readable(folder)}")["spec"]
    model = cfg["model"] if isinstance(cfg["model"], dict) else vars(cfg["model"])
    generate = {**GENERATE, "beam": options.beam}
    if spec["segmentation"] == "none":
        dictionary = Dictionary.load(str(folder / "bin" / f"dict.{spec['target']}.txt"))
        generate["post-process"] = pieces_of(dictionary)
    criterion = cfg["criterion"] if isinstance(cfg["criterion"], dict) else vars(cfg["criterion"])
    checkpoint, optimization = cfg["checkpoint"], cfg["optimization"]
    train = {
        "arch": model.get("arch") or model.get("_name"),
        "best-checkpoint-metric": checkpoint["best_checkpoint_metric"],
        "maximize-best-checkpoint-metric": checkpoint["maximize_best_checkpoint_metric"],
        "max-update": optimization["max_update"] or None,
        "max-epoch": optimization["max_epoch"] or None,
    }
    return Config(
        dataset=run.dataset,
        about=f"trained by hand, {spec['source']} to {spec['target']}",
        data=spec,
        systems=(system.name,),
        batch=Batch(tokens=cfg["dataset"]["max_tokens"], sentences=cfg["dataset"]["batch_size"]),
        train=train,
        generate=generate,
        softmax={"criterion": criterion.get("_name") or "cross_entropy"},
    )


def write_checkpoint(state: dict[str, Any], path: Path) -> None:
    """The model alone, as one of our task: stock's knows nothing of outputs."""
    import torch

    from sparse_fairseq.tasks import SparseTranslationConfig

    task = dict(state["cfg"]["task"])
    if task.get("_name") == "translation":
        ours = {f.name: f.default for f in dataclasses.fields(SparseTranslationConfig)}
        elsewhere = {"finetune_from_model": None, "save_dir": ".", "quiet": True}
        task = {**ours, **elsewhere, **task, "_name": "sparse_translation"}
    cfg = {**state["cfg"], "task": task}
    with atomic_output(path, "wb") as file:
        torch.save({**state, "cfg": cfg, "last_optimizer_state": None}, file)


if __name__ == "__main__":
    main()
