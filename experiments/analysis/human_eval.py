"""Do people understand the translations? Human evaluation of systems (SE §4.7, Table 4).

`draw` writes a blind annotation page per annotator and the key; `read` turns the exports of the
pages into means, deviations and Cohen's κ. The page itself is human_eval_page.html and .js.
"""

import argparse
import base64
import hashlib
import json
import random
import re
import secrets
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data_prep.files import atomic_output, write_json
from sparse_fairseq.errors import UsageError

from ..provenance import now, provenance
from ..run_folder import Run, read_lines
from ..spread import spread

REFERENCE = "reference"
ANNOTATORS = (1, 2)
SIGNS = {"": 0.0, "+": 1 / 3, "-": -1 / 3, "−": -1 / 3}
HERE = Path(__file__).parent


def draw_samples(
    sentences: int, candidates: Sequence[str], size: int, shared: int, seed: int
) -> dict[int, list[dict]]:
    """Per annotator: ``size`` sentences, ``shared`` of them common, and each one's candidates.

    Sentences and candidates are in random order, another one on each page.
    """
    if not 0 <= shared <= size or size < 1:
        raise ValueError(f"cannot share {shared} of {size} sentences")
    needed = 2 * size - shared
    if sentences < needed:
        raise ValueError(
            f"two samples of {size} with {shared} shared need {needed} sentences, there are "
            f"{sentences}"
        )
    rng = random.Random(seed)
    drawn = rng.sample(range(sentences), needed)
    sheets = {}
    for annotator, own in zip(ANNOTATORS, (drawn[shared:size], drawn[size:]), strict=True):
        chosen = drawn[:shared] + own
        rng.shuffle(chosen)
        sheets[annotator] = [
            {"sentence": i, "candidates": rng.sample(candidates, len(candidates))} for i in chosen
        ]
    return sheets


def study_name(key: Mapping[str, Any]) -> str:
    """What ties a page to its key and tells nothing about it."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:12]


def annotation_page(study: str, annotator: int, items: list[dict]) -> str:
    """The page as text; ``items`` hold a source and its candidates' texts, and no names."""
    sheet = {"study": study, "annotator": annotator, "items": items}
    script = (HERE / "human_eval_page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = (HERE / "human_eval_page.html").read_text(encoding="utf-8")
    # Sentences may contain anything, </script> too; in JSON, < can be written as an escape.
    data = json.dumps(sheet, ensure_ascii=False).replace("<", "\\u003c")
    parts = {"@SCRIPT_HASH@": digest, "@SCRIPT@": script, "@SHEET@": data}
    return re.sub("|".join(parts), lambda match: parts[match.group()], page)


def pages_of(key: Mapping[str, Any], sources: Sequence[str], texts: Mapping[str, Sequence[str]]):
    for annotator, sheet in key["sheets"].items():
        items = [
            {
                "source": sources[item["sentence"]],
                "candidates": [texts[name][item["sentence"]] for name in item["candidates"]],
            }
            for item in sheet
        ]
        yield annotator, annotation_page(key["study"], int(annotator), items)


def texts_of(runs: Sequence[Run], split: str) -> tuple[list[str], dict[str, list[str]]]:
    """The sources, and what each candidate says: the reference and one run of each system."""
    first, texts = runs[0], {REFERENCE: []}
    for run in runs:
        if run.problem:
            raise UsageError(f"{run.path}: {run.problem}")
        if run.system in texts:
            raise UsageError(f"{run.path}: another run of {run.system} is given; choose one seed")
        if run.text != first.text:
            raise UsageError(f"{run.path} translates {run.text}, but {first.path} {first.text}")
        try:
            texts[run.system] = run.hypotheses(split)
        except OSError as error:
            raise UsageError(f"{run.path} has no translations of {split}: {error}") from error
    try:
        texts[REFERENCE] = first.references(split)
        sources = read_lines(first.text / f"{split}.{first.source_lang}")
    except OSError as error:
        raise UsageError(f"the sentences of {split} are not there: {error}") from error
    for name, lines in texts.items():
        if len(lines) != len(sources):
            raise UsageError(f"{name}: {len(lines)} lines for {len(sources)} sentences of {split}")
    return sources, texts


def write_study(runs: Sequence[Run], args: argparse.Namespace) -> Path:
    folder = args.out or runs[0].path.parents[1] / "analysis" / "human_eval"
    if (folder / "key.json").exists():
        raise UsageError(
            f"{folder / 'key.json'} exists, and its pages may be in use: give another --out"
        )
    sources, texts = texts_of(runs, args.split)
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    try:
        sheets = draw_samples(len(sources), list(texts), args.size, args.shared, seed)
    except ValueError as error:
        raise UsageError(f"{error}: change --size or --shared") from error
    key = {
        "format": "human_eval key",
        "version": 1,
        "dataset": runs[0].dataset,
        "split": args.split,
        "seed": seed,
        "runs": {run.system: run.name for run in runs},
        "sheets": {str(annotator): sheet for annotator, sheet in sheets.items()},
    }
    key["study"] = study_name(key)
    for annotator, page in pages_of(key, sources, texts):
        with atomic_output(folder / f"annotator{annotator}.html") as file:
            file.write(page)
    write_json(folder / "key.json", key)
    return folder


def cohen_kappa(pairs: Sequence[tuple[int, int]]) -> float | None:
    """Agreement of two annotators beyond chance; None if it is undefined.

    κ = (p_o − p_e) / (1 − p_e) with observed agreement p_o and p_e from each one's marginals.
    """
    if not pairs:
        return None
    first, second = (Counter(column) for column in zip(*pairs, strict=True))
    observed = sum(a == b for a, b in pairs) / len(pairs)
    chance = sum(first[mark] * second[mark] for mark in first) / len(pairs) ** 2
    return None if chance == 1 else (observed - chance) / (1 - chance)


def parse_mark(text: Any) -> tuple[int, float] | None:
    """A mark as its point and its refined value (a sign is a third of a point); None if empty."""
    if text in ("", None):
        return None
    match = re.fullmatch(r"([1-4])([+\-−]?)", text.strip()) if isinstance(text, str) else None
    if not match:
        raise ValueError(f"{text!r} is no mark from 1- to 4+")
    point = int(match[1])
    return point, point + SIGNS[match[2]]


def judgements(
    export: Mapping[str, Any], sheet: Sequence[Mapping], problems: list[str]
) -> Iterator[tuple[int, str, int, float]]:
    """Sentence, system, point and refined value of each usable mark of one export."""
    unknown = set(export["ratings"]) - {str(i + 1) for i in range(len(sheet))}
    problems += [f"no sentence {name!r} on this page" for name in sorted(unknown)]
    for number, item in enumerate(sheet, 1):
        marks = export["ratings"].get(str(number), {})
        if not isinstance(marks, dict):
            problems.append(f"sentence {number}: expected marks by letter, found {marks!r:.40}")
            continue
        letters = {chr(65 + i): name for i, name in enumerate(item["candidates"])}
        for letter, text in marks.items():
            try:
                mark = parse_mark(text)
                system = letters[letter]
            except KeyError:
                problems.append(f"sentence {number}: there is no translation {letter!r}")
            except ValueError as error:
                problems.append(f"sentence {number}, translation {letter}: {error}")
            else:
                if mark:
                    yield item["sentence"], system, *mark


def read_export(path: Path, key: Mapping[str, Any]) -> tuple[str, dict]:
    """The annotator and the export; ValueError if it is no export of this study."""
    try:
        export = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"not readable as JSON ({error})") from error
    if not isinstance(export, dict) or not isinstance(export.get("ratings"), dict):
        raise ValueError("no export of an annotation page: it has no ratings")
    if export.get("study") != key["study"]:
        raise ValueError(f"of study {export.get('study')!r}, but the key is of {key['study']!r}")
    annotator = str(export.get("annotator"))
    if annotator not in key["sheets"]:
        raise ValueError(f"of annotator {annotator}, whom the key does not know")
    return annotator, export


def collect(paths: Sequence[Path], key: Mapping[str, Any], problems: list[str]) -> dict[str, dict]:
    """For each annotator: (sentence, system) -> (point, refined value)."""
    found: dict[str, dict] = {}
    for path in paths:
        try:
            annotator, export = read_export(path, key)
            if annotator in found:
                raise ValueError(f"a second export of annotator {annotator}")
        except ValueError as error:
            problems.append(f"{path}: left out, {error}")
            continue
        own: list[str] = []
        sheet = key["sheets"][annotator]
        found[annotator] = {
            (sentence, system): (point, refined)
            for sentence, system, point, refined in judgements(export, sheet, own)
        }
        empty = sum(len(item["candidates"]) for item in sheet) - len(found[annotator])
        if empty:
            own.append(f"incomplete, {empty} translations without a usable mark")
        problems += [f"{path}: {problem}" for problem in own]
    missing = sorted(set(key["sheets"]) - set(found))
    problems += [f"no usable export of annotator {annotator}" for annotator in missing]
    return found


def evaluate(paths: Sequence[Path], key: Mapping[str, Any]) -> dict[str, Any]:
    """Mean and deviation of each system over all marks, and κ over the shared sentences.

    SE does not say what + and − count. ``mean``, ``std`` and κ leave them out, which is the
    4-point scale of SE Table 4; ``refined`` takes each as a third of a point.
    """
    problems: list[str] = []
    found = collect(paths, key, problems)
    marks = [(system, *mark) for own in found.values() for (_, system), mark in own.items()]
    systems = {}
    for name in [REFERENCE, *key["runs"]]:
        points = [point for system, point, _ in marks if system == name]
        if points:
            refined = [value for system, _, value in marks if system == name]
            systems[name] = {**spread(points)._asdict(), "refined": spread(refined)._asdict()}
    pairs = []
    if len(found) == len(ANNOTATORS):
        first, second = (found[str(annotator)] for annotator in ANNOTATORS)
        pairs = [(first[place][0], second[place][0]) for place in first if place in second]
    return {
        "systems": systems,
        "kappa": cohen_kappa(pairs),
        "kappa_pairs": len(pairs),
        "marks": {annotator: len(own) for annotator, own in sorted(found.items())},
        "problems": problems,
    }


def document(result: Mapping[str, Any], key: Mapping[str, Any], exports: Sequence[Path]) -> dict:
    """The result with what made it, in the form that all analyses have."""
    made = {
        "runs": list(key["runs"].values()),
        "dataset": key["dataset"],
        "settings": {"split": key["split"], "seed": key["seed"], "study": key["study"]},
        "inputs": [str(path) for path in exports],
        **provenance(),
        "date": now(),
    }
    return {"analysis": "human_eval", "made": made, "result": result}


def read_key(path: Path) -> dict[str, Any]:
    try:
        key = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"--key {path}: not readable as JSON ({error})") from error
    if not isinstance(key, dict) or key.get("format") != "human_eval key":
        raise UsageError(f"--key {path}: no key of a human evaluation")
    return key


def show(result: Mapping[str, Any]) -> None:
    print(f"{'system':16} {'mean':>5} {'std':>5} {'n':>5}   with + and −")
    for name, row in result["systems"].items():
        numbers = [row["mean"], row["std"], row["refined"]["mean"], row["refined"]["std"]]
        mean, std, fine, fine_std = (f"{x:.2f}" if x is not None else "-" for x in numbers)
        print(f"{name:16} {mean:>5} {std:>5} {row['n']:5}   {fine} ± {fine_std}")
    kappa = "undefined" if result["kappa"] is None else f"{result['kappa']:.2f}"
    print(f"Cohen's κ {kappa} on {result['kappa_pairs']} translations that both judged")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.analysis.human_eval", description=__doc__.splitlines()[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    draw = commands.add_parser("draw", help="draw samples, write annotation pages and their key")
    draw.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="one run of each system")
    draw.add_argument("--split", default="test", help="default: test")
    draw.add_argument("--size", type=int, default=135, help="sentences per annotator; default: 135")
    draw.add_argument("--shared", type=int, default=45, help="of them on both pages; default: 45")
    draw.add_argument("--seed", type=int, help="default: a random one; the key records it")
    draw.add_argument("--out", type=Path, help="folder; default: runs/DATASET/analysis/human_eval")
    read = commands.add_parser("read", help="means, deviations and κ from exports of the pages")
    read.add_argument("exports", metavar="EXPORT", nargs="+", type=Path)
    read.add_argument("--key", type=Path, required=True, help="key.json, as draw wrote it")
    read.add_argument("--out", type=Path, help="default: human_eval.json beside the key's folder")
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    args = make_parser().parse_args(arguments)
    if args.command == "draw":
        folder = write_study([Run(path.resolve()) for path in args.runs], args)
        pages = ", ".join(f"annotator{annotator}.html" for annotator in ANNOTATORS)
        print(f"{folder}: {pages} for the annotators; key.json is not for them")
        return
    key = read_key(args.key)
    result = evaluate(args.exports, key)
    for problem in result["problems"]:
        print(f"human_eval: {problem}", file=sys.stderr)
    if not result["systems"]:
        raise UsageError("no export has a usable mark")
    out = args.out or args.key.resolve().parents[1] / "human_eval.json"
    write_json(out, document(result, key, args.exports))
    show(result)
    print(f"written to {out}")


if __name__ == "__main__":
    main()
