"""The first table and the last ones: systems at a glance, setting, runs and what is broken."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ...analysis.papers import published
from ..gather import Material
from ..parts import Cell, Section, Table, duration_text, missing, number, text
from .common import Measured, of_seeds, system_cell, training_speed, triple
from .quality import test_scores


def glance(material: Material) -> Section:
    section = Section("glance", "Systems at a glance", [])
    section.command = material.make("report")
    columns = {
        "BLEU": (test_scores(material, "bleu"), 1),
        "chrF": (test_scores(material, "chrf"), 1),
        "Word accuracy, %": (test_scores(material, "word_accuracy"), 2),
        "Edit distance": (test_scores(material, "edit_distance"), 3),
        "Prefer empty, %": (percent_empty(material), 2),
        f"Non-zero {material.tokens}": (nonzeros(material), 1),
        "Σp": (total_score(material), 2),
        "Certified, %": (certified(material), 1),
        f"Training, {material.tokens}/s": (training_speed(material), 0),
        f"Decoding, {material.outputs}/s": (_scores(material, "test", "sentences_per_second"), 1),
    }
    columns = {title: found for title, found in columns.items() if any(found[0].values())}
    if not columns:
        section.missing = [f"No system has been run: {material.make()}"]
        return section
    rows = []
    for system in material.all_systems:
        seeds = len(material.runs_of(system))
        cells = [
            number(value[0] if (value := found.get(system)) else None, digits, "not measured")
            for found, digits in columns.values()
        ]
        if not seeds:  # once is enough
            cells = [missing(f"not run: {material.make(system)}"), *[missing("")] * len(cells[1:])]
        rows.append([system_cell(system), number(seeds, 0), *cells])
    caption = "Means over seeds"
    section.blocks = [Table("glance", caption, ["System", "Seeds", *columns], rows)]
    section.reading = [
        f"{_splits(columns)} The headings of all tables sort; every table and figure can be saved "
        "as CSV."
    ]
    return section


TESTED = {  # how a heading begins -> what it is in a sentence
    "BLEU": "BLEU",
    "chrF": "chrF",
    "Word accuracy": "word accuracy",
    "Edit distance": "edit distance",
    "Σp": "Σp",
    "Decoding": "decoding speed",
}


def _splits(columns: Iterable[str]) -> str:
    """Which of the columns are of which data."""
    parts, titles = [], [title.partition(",")[0] for title in columns]
    if tested := [TESTED[title] for title in titles if title in TESTED]:
        *names, last = tested
        parts.append(f"{', '.join(names)} and {last} are" if names else f"{last} is")
        parts[0] += " of the test set"
    if "Training" in titles:
        parts.append("training speed is of the training set")
    sentence = ", ".join([*parts, "all else is of the validation set"])
    return f"{sentence[0].upper()}{sentence[1:]}."


def _scores(material: Material, *keys: str) -> dict[str, Measured]:
    return {system: material.mean(system, *keys) for system in material.all_systems}


def percent_empty(material: Material) -> dict[str, Measured]:
    return of_seeds(material, "empty_string", lambda r: r["raw"]["percent"])


def nonzeros(material: Material) -> dict[str, Measured]:
    analysed = of_seeds(material, "support", lambda r: r["output"]["gold"]["mean"])
    return {**_scores(material, "valid_support"), **analysed}


def total_score(material: Material) -> dict[str, Measured]:
    return of_seeds(material, "self_normalization", lambda r: r["gold"]["mean"])


def certified(material: Material) -> dict[str, Measured]:
    way = material.certificate
    analysed = of_seeds(material, "exactness", lambda r: r["valid"][f"certified_{way}"])
    return {**_scores(material, "valid", f"exact_{way}"), **analysed}


def data_of(material: Material) -> dict[str, Any]:
    """data.json of the data that the runs were trained on."""
    for run in material.runs:
        try:
            path = Path(run.manifest["data"]["bin"]).parent / "data.json"
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return {}


FLAGS = {  # published metric -> flag of fairseq-train or fairseq-generate
    "dropout": "dropout",
    "attention_dropout": "attention-dropout",
    "label_smoothing": "label-smoothing",
    "learning_rate": "lr",
    "warmup": "warmup-updates",
    "max_updates": "max-update",
    "embedding_size": "encoder-embed-dim",
    "hidden_size": "encoder-ffn-embed-dim",
    "layers": "encoder-layers",
    "heads": "encoder-attention-heads",
    "beam": "beam",
}
SHOWN = {  # in other sections
    *(
        "bleu",
        "tokenized_bleu",
        "word_accuracy",
        "word_accuracy_ensemble",
        "empty_string",
        "total_score",
    ),
    *("tau", "tau_batch", "tau_formula", "support_share", "d_model", "human_score", "kappa"),
    *("training_hours", "energy", "support", "attended", "certified", "single_hypothesis"),
    *("words_per_second", "best_output_alpha", "inference_time_ratio", "shapiro_wilk_p"),
    "hypothesis_probability",
}


def setting(material: Material) -> Section:
    section = Section("setting", "Setting", [])
    paper = material.config.paper if material.config else None
    if paper is None:
        section.missing = [f"no paper has {material.dataset}; its setting is in its config"]
        return section
    numbers = [
        n
        for n in published()
        if n.dataset in (None, material.dataset, material.target)
        and n.place.startswith(f"{paper} ")
        and n.metric not in SHOWN
    ]
    known = _known(material)
    rows = []
    for printed in numbers:
        value = known.get(printed.metric)
        here = (value, None, 1) if isinstance(value, int | float) else None
        title = printed.metric.replace("_", " ")
        note = printed.unit if printed.unit != title else None
        digits = _digits(printed.value, value)
        cells = triple(material, printed, here, digits, _why_unknown(material, printed.metric))
        rows.append([Cell(title, title, note=note), *cells])
    section.places = list(dict.fromkeys(number.place for number in numbers))
    section.reading = ["What else the paper says about this dataset and its models."]
    columns = ["Quantity", "Paper", "Here", "Difference"]
    section.blocks = [Table("setting", "Published settings", columns, rows)]
    return section


def _why_unknown(material: Material, metric: str) -> str:
    arch = material.config.train.get("arch")
    return f"as --arch {arch} has it" if metric in FLAGS and arch else "not known"


def _digits(*values: Any) -> int:
    numbers = [value for value in values if isinstance(value, int | float)]
    return min(6, max((len(f"{v:.6g}".partition(".")[2]) for v in numbers), default=0))


def _known(material: Material) -> dict[str, Any]:
    """What is known here of the quantities that papers publish."""
    config, data = material.config, data_of(material)
    flags = {**config.softmax, **config.train, **config.generate}
    known = {metric: flags.get(flag) for metric, flag in FLAGS.items()}
    known["label_smoothing"] = flags.get("label-smoothing", 0.0)  # no criterion smooths by itself
    known["training_pairs"] = (data.get("sizes") or {}).get("train")
    known["bpe_merges"] = config.data.get("operations")
    known["vocabulary"] = next(
        (result["vocabulary"] for result in material.first_results("support").values()), None
    )
    known["batch_tokens"], known["batch_size"] = config.batch.tokens, config.batch.sentences
    known["accumulation"] = config.batch.accumulate
    known["runs"] = max((len(material.runs_of(x)) for x in material.systems), default=0)
    betas = re.findall(r"[\d.]+", str(flags.get("adam-betas", "")))
    if len(betas) == 2:
        known["adam_beta1"], known["adam_beta2"] = map(float, betas)
    by_epochs = flags.get("validate-interval")
    known["validation_interval"] = flags.get("validate-interval-updates", by_epochs)
    if languages := material.language_count:
        known["languages"], pairs = languages, known["training_pairs"]
        known["training_samples_per_language"] = pairs and pairs / languages
    return known


def runs(material: Material) -> Section:
    section = Section("runs", "Runs", [])
    rows = []
    for run in material.runs:
        manifest, scores = run.manifest, material.scores(run)
        stages = manifest.get("stages") or {}
        seconds = (stages.get("train") or {}).get("seconds")
        commit = str(manifest.get("git_commit") or "")
        finished = str((stages.get("train") or {}).get("finished") or "")[:16].replace("T", " ")
        rows.append(
            [
                system_cell(run.system),
                text(run.member),
                text(", ".join(stages) or "none"),
                number(scores.get("epochs"), 0, "not known"),
                number(scores.get("updates"), 0, "not known"),
                Cell(duration_text(seconds), seconds) if seconds else missing("not finished"),
                text(finished) if finished else missing("not finished"),
                text(commit[:10] + ("+" if commit.endswith("+") else ""))
                if commit
                else missing("not known"),
            ]
        )
    columns = ["System", "Run", "Stages done", "Epochs", "Best at update", "Training", "Finished"]
    columns += ["Commit"]
    if rows:
        section.blocks = [Table("runs", "Every run", columns, rows, _machines(material))]
    problems = [f"{name}: {problem}" for name, problem in sorted(material.broken.items())]
    lacking = [s for s in material.all_systems if not any(r.system == s for r in material.runs)]
    section.missing = problems + [f"not run: {material.make(s)}" for s in lacking]
    return section


def _machines(material: Material) -> list[str]:
    """Hardware and versions, each once."""
    notes = []
    for run in material.runs:
        hardware, versions = run.manifest.get("hardware") or {}, run.manifest.get("versions") or {}
        gpus = ", ".join(hardware.get("gpus") or []) or "no GPU"
        parts = [str(hardware.get("cpu") or hardware.get("machine") or "unknown processor")]
        parts += [f"{hardware.get('cores', '?')} cores", gpus]
        parts += [f"{name} {version}" for name, version in versions.items()]
        notes.append("; ".join(parts))
    return list(dict.fromkeys(notes))
