"""`make own`: a config for text files of one's own, by their size, and then the whole experiment.

The config is written to CONFIGS, so that `make <name>/report` and all other targets know it.
"""

import operator
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from data_prep.files import atomic_output, sha256
from data_prep.recipes import plain_text
from data_prep.records import read_facts
from data_prep.spec import OWN_FILES, DataSpec, nearest
from sparse_fairseq.errors import UsageError

from . import run
from .config import CONFIGS, Flags, load_config, merged, read_values, read_yaml
from .paths import ROOT, readable
from .plan import PAIR

# The smallest number of training pairs of each preset of experiments/configs/presets.
PRESETS = {"tiny": 0, "small": 10_000, "medium": 60_000, "base": 500_000}
SEGMENTATIONS = ("bpe", "sentencepiece", "none")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def parse(arguments: list[str] | None = None) -> tuple[Any, list[str]]:
    """What is ours, and what is for `experiments.run`."""
    parser = run.Parser(prog="python -m experiments.own", description=__doc__)
    parser.add_argument("--name", help="of the dataset, as in mine")
    parser.add_argument("--pair", help="its languages, as in de-en")
    parser.add_argument("--train", help="path/train for path/train.de and path/train.en, or a .tsv")
    parser.add_argument("--valid", help="the same; default: held out from the training data")
    parser.add_argument("--test", help="the same; default: held out from the training data")
    parser.add_argument("--segmentation", help=", ".join(SEGMENTATIONS))
    parser.add_argument("--operations", type=int, help="number of merges or pieces")
    parser.add_argument("--systems", help='as in "softmax relu15"')
    parser.add_argument("--config", type=Path, help="settings of your own instead of a preset")
    parser.add_argument("--configs", type=Path, default=ROOT / "configs", help="where to write")
    parser.add_argument("--data-root", type=Path, default=ROOT / "data")
    parser.add_argument("--dry-run", action="store_true", help="print the commands")
    return parser.parse_known_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options, others = parse(arguments)
    try:
        values = config_values(options)
        if options.dry_run:
            with tempfile.TemporaryDirectory() as folder:
                hand_over(options, write_config(options, values, Path(folder)), others)
        else:
            hand_over(options, write_config(options, values, options.configs), others)
    except (OSError, ValueError) as error:
        raise UsageError(run.one_line(error)) from error


def hand_over(options: Any, folder: Path, others: list[str]) -> None:
    flags = [f"--configs={folder}", f"--data-root={options.data_root}", "--report"]
    run.main([options.name, *flags, *(["--dry-run"] if options.dry_run else []), *others])


def config_values(options: Any) -> Flags:
    """The whole config of the files, by their size or by a file of settings."""
    check_name(options)
    data = data_values(options)
    spec = DataSpec.from_mapping({"recipe": "plain_text", "operations": 1, **data})
    paths = [path for name in OWN_FILES for path in plain_text.files_of(spec, name)]
    for path in paths:
        plain_text.check_text(path)
    check_unchanged(options, paths)
    pairs = operator.length_hint(plain_text.rows_of(spec, "train"))
    settings = base_settings(options, pairs)
    segmentation = options.segmentation or (settings.get("data") or {}).get("segmentation", "bpe")
    ours = {
        "about": f"own files, {data['source']} to {data['target']}",
        "data": {"recipe": "plain_text", **data, **segmentation_values(options, segmentation)},
        "train": validation_flags(segmentation, data["target"]),
    }
    if options.systems is not None:
        ours["systems"] = options.systems.replace(",", " ").split()
    return merged(settings, ours)


def check_name(options: Any) -> None:
    for option in ("name", "pair", "train"):
        if not getattr(options, option):
            usual = "make own NAME=mine PAIR=de-en TRAIN=path/train"
            raise UsageError(f"own data needs {option.upper()}=, as in {usual}")
    name = options.name
    if not NAME.fullmatch(name):
        raise UsageError(f"NAME={name}: letters, digits, _, - and . are possible, as in mine")
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    if name in targets.group(1).split() or (CONFIGS / f"{name}.yaml").is_file():
        raise UsageError(f"NAME={name}: there is a target of that name: choose another")


def data_values(options: Any) -> Flags:
    match = PAIR.fullmatch(options.pair)
    if not match:
        raise UsageError(f"PAIR={options.pair}: two languages are needed, as in de-en or pt-BR-en")
    files = {name: getattr(options, name) for name in OWN_FILES}
    given = {name: str(Path(path).expanduser().absolute()) for name, path in files.items() if path}
    return {"source": match[1], "target": match[2], **given}


def check_unchanged(options: Any, paths: list[Path]) -> None:
    """Refuses files that are not those which the data under this name were made of."""
    folder = options.data_root / options.name
    if not (folder / "data.json").exists():
        return
    facts = read_facts(folder, f"make clean-{options.name}")
    known = {entry["name"]: entry for entry in facts.get("sources", ())}
    for path in paths:
        entry = known.get(str(path))
        if entry and (path.stat().st_size != entry["size"] or sha256(path) != entry["sha256"]):
            remedy = f"give it another NAME, or make clean-{options.name}"
            raise UsageError(f"{path} has changed since {readable(folder)} was made: {remedy}")


def base_settings(options: Any, pairs: int) -> Flags:
    if options.config is not None:
        if not options.config.is_file():
            raise UsageError(f"CONFIG={options.config}: there is no such file")
        values = read_yaml(options.config)
        base = values.pop("extends", None)
        found = read_values(str(base), options.config.parent) if base else {}
        if found is None:
            raise UsageError(f"{options.config}: extends {base}, which is not there")
        return merged(found, values)
    preset = [name for name, least in PRESETS.items() if pairs >= least][-1]
    where = f"experiments/configs/presets/{preset}.yaml"
    print(f"{options.name}: {pairs:,} training pairs, settings of {where}", file=sys.stderr)
    return read_values(f"presets/{preset}") or {}


def segmentation_values(options: Any, segmentation: str) -> Flags:
    if segmentation not in SEGMENTATIONS:
        hint = nearest(segmentation, SEGMENTATIONS)
        raise UsageError(f"SEGMENTATION={segmentation} is unknown{hint}")
    values: Flags = {"segmentation": segmentation}
    if segmentation != "bpe":  # raw text for sentencepiece; words as they are for none
        values["tokenizer"] = "none"
    if options.operations is not None:
        if options.operations < 1:
            raise UsageError(f"OPERATIONS={options.operations}: at least 1 is needed")
        values["operations"] = options.operations
    return values


def validation_flags(segmentation: str, target: str) -> Flags:
    """How validation turns what the model says into text, for BLEU."""
    if segmentation == "bpe":
        language = f'{{"target_lang": "{target}"}}'
        return {"eval-bleu-detok": "moses", "eval-bleu-detok-args": language}
    pieces = "sentencepiece" if segmentation == "sentencepiece" else None
    return {"eval-bleu-detok": "space", "eval-bleu-remove-bpe": pieces}


def write_config(options: Any, values: Flags, folder: Path) -> Path:
    folder = folder.expanduser().absolute()
    with atomic_output(folder / f"{options.name}.yaml") as file:
        file.write(
            "# Written by `make own`, anew each time. To change settings, copy it and give\n"
        )
        file.write("# the copy as CONFIG=. What the keys mean: docs/own-data.md.\n")
        yaml.safe_dump(values, file, sort_keys=False, allow_unicode=True, width=100)
    load_config(options.name, folder)  # refuses what makes no sense
    return folder


if __name__ == "__main__":
    main()
