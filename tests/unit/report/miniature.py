"""A miniature tree of runs with plausible results of every analysis, in the shapes they write."""

import dataclasses
import itertools
import json
import math
from pathlib import Path

from experiments.plan import make_plan
from experiments.run import parse

SYSTEMS = ("softmax", "sparsemax", "entmax15", "relu15")
BLEU = {"softmax": 35.1, "sparsemax": 34.6, "entmax15": 36.4, "relu15": 36.9, "relu15_tau5": 36.5}
SUPPORT = {"softmax": 9998, "sparsemax": 4, "entmax15": 9, "relu15": 31, "relu15_tau5": 40}
SPEED = {"softmax": 3300, "sparsemax": 3500, "entmax15": 3150, "relu15": 3720, "relu15_tau5": 3700}
VOCABULARY = 9998
# How much more or less than the mean is right.
LANGUAGES = {"german": -2.5, "english": 2.5}
# What a translation may contain, and must not do.
EVIL = "<script>document.title = 'hacked'</script>"


def write(path: Path, value) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def answer(name: str, result, **settings) -> dict:
    made = {"settings": settings, "date": "2026-01-02T03:04:05+00:00"}
    return {"analysis": name, "made": made, "fingerprint": "0", "result": result}


def write_runs(
    root: Path, dataset: str = "iwslt14_de_en", systems=SYSTEMS, seeds=(1, 2), analyses: bool = True
) -> Path:
    """runs/ with everything; returns it."""
    data = root / "data" / dataset
    write(data / "data.json", {"sizes": {"train": 160239}, "spec": {"operations": 10000}})
    for system in systems:
        for seed in seeds:
            path = root / "runs" / dataset / system / f"seed{seed}"
            write_run(path, data, system, seed)
            if analyses:
                write_analyses(path / "analysis", system, seed)
    if analyses:
        write_comparisons(root / "runs" / dataset / "analysis", systems, seeds)
    return root / "runs"


def write_inflection(
    root: Path, dataset: str, accuracies: dict[str, float], *options: str
) -> tuple[Path, str]:
    """Runs that inflect words: scores only, and an ensemble of the first system.

    Returns runs/ and the name that the dataset has with these options of experiments.run.
    """
    config = make_plan(parse([dataset, *options])).config
    dataset, first = config.dataset, next(iter(accuracies))
    sizes = {"train": 10000 * len(_languages(config))}
    write(root / "data" / dataset / "data.json", {"sizes": sizes})
    for system, accuracy in accuracies.items():
        for member in ("seed1", "ensemble") if system == first else ("seed1",):
            path = root / "runs" / dataset / system / member
            write_run(path, root / "data" / dataset, "softmax", 1, dataclasses.asdict(config))
            shown = accuracy + (member == "ensemble")
            each = {name: shown + gap for name, gap in _languages(config).items()}
            languages = {
                name: {"word_accuracy": value, "edit_distance": 0.2, "examples": 1000}
                for name, value in each.items()
            }
            test = {"word_accuracy": shown, "edit_distance": 0.2, "languages": languages}
            write(path / "scores.json", {"test": test})
    return root / "runs", dataset


def _languages(config) -> dict[str, float]:
    """The language of the demo, those that were named, or as many as the papers have."""
    count = {"high": 86, "medium": 102}.get(config.data.get("setting"), 0)
    if config.data.get("languages"):
        count = 0
    return LANGUAGES | {f"language{i}": 0.0 for i in range(3, count + 1)}


def write_run(path: Path, data: Path, system: str, seed: int, config: dict | None = None) -> None:
    shift = 0.3 * (seed - 1.5)
    finished = "2026-01-02T03:04:05+00:00"
    stages = {"train": {"finished": finished, "seconds": 5000 + 90 * seed}}
    stages |= {"generate": {"finished": finished}, "score": {"finished": finished}}
    manifest = {
        "config": config or {"data": {"source": "de", "target": "en"}},
        "data": {"bin": str(data / "bin"), "text": str(data / "text"), "checksums": {}},
        "commands": {"train": [["fairseq-train"]]},
        "git_commit": "0123456789abcdef",
        "versions": {"python": "3.11.2", "torch": "2.13.0"},
        "hardware": {"machine": "x86_64", "cpu": "Some processor", "cores": 2, "gpus": []},
        "stages": stages,
        "tau": 0.3312 if system == "relu15" else None,
    }
    write(path / "manifest.json", manifest)
    (path / "checkpoints").mkdir(exist_ok=True)
    (path / "checkpoints" / "checkpoint_best.pt").touch()
    split = {
        "bleu": BLEU[system] + shift,
        "bleu_signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
        "chrf": BLEU[system] + 20 + shift,
        "chrf_signature": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
        "certified_raw": 0.0 if system == "softmax" else 22.0,
        "certified_normalized": 0.0 if system == "softmax" else 20.0,
        "sentences_per_second": 40.0 + shift,
    }
    scores = {
        "train_words_per_second": SPEED[system] + 10 * seed,
        "train_seconds": 5000.0,
        "epochs": 6.0,
        "updates": 5400.0,
        "valid_support": float(SUPPORT[system]),
        "valid": split,
        "test": split,
    }
    write(path / "scores.json", scores)


def write_analyses(folder: Path, system: str, seed: int) -> None:
    for name, result in (
        ("support", support(system)),
        ("self_normalization", sums(system)),
        ("empty_string", empty(system)),
        ("exactness", {"valid": exactness(system), "test": exactness(system)}),
        ("exact_search", exact_search(system)),
        ("end_search", end_search(system)),
        ("dynamics", dynamics(system, seed)),
        ("lattice", lattice(system)),
        ("keystrokes", keystrokes(system)),
        ("attention", attention(system)),
        ("energy", energy(seed)),
        ("parameters", {"parameters": 46_937_088, "embeddings": 15e6, "vocabulary": VOCABULARY}),
    ):
        settings = {"split": result["split"]} if "split" in result else {}
        write(folder / f"{name}.json", answer(name, result, **settings))


def counts(mean: float, top: int) -> dict:
    if mean >= top:
        return {"positions": 1000, "mean": float(top), "std": 0.0, "counts": [[top, 1000]]}
    numbers = sorted({max(1, round(mean * math.exp(0.9 * (q - 10) / 5))) for q in range(21)})
    pairs = [[n, round(100 * math.exp(-(math.log(n / mean) ** 2)))] for n in numbers]
    return {"positions": sum(k for _, k in pairs), "mean": mean, "std": mean / 2, "counts": pairs}


def support(system: str) -> dict:
    output = counts(float(SUPPORT[system]), VOCABULARY)
    output["zero_share"] = 1 - output["mean"] / VOCABULARY
    attended = counts({"softmax": 24.0}.get(system, 5.5), 24)
    both = {"gold": output, "beam": {**output, "mean": output["mean"] * 0.9}}
    return {
        "split": "valid",
        "vocabulary": VOCABULARY,
        "output": both,
        "attention": {"gold": {**attended, "layers": [5.0, 6.0]}, "beam": attended},
    }


def sums(system: str) -> dict:
    bins = [round(900 * math.exp(-(((i - 25) / 6) ** 2))) for i in range(50)]
    histogram = {"start": 1.0, "width": 0.01, "counts": bins, "above": 0}
    summary = {"positions": sum(bins), "mean": 1.25, "std": 0.05, "histogram": histogram}
    if not system.startswith("relu"):
        exact = {"start": 1.0, "width": 0.01, "counts": [1000], "above": 0}
        summary = {"positions": 1000, "mean": 1.0, "std": 0.0, "histogram": exact}
    return {"split": "test", "gold": summary, "beam": summary}


def empty(system: str) -> dict:
    share = {"softmax": 7.1}.get(system, 0.04)
    ways = ("raw", "renormalized", "raw_length_normalized", "renormalized_length_normalized")
    return {
        "split": "valid",
        "sentences": 1000,
        **{way: {"count": 1, "percent": share} for way in ways},
    }


def exactness(system: str) -> dict:
    sparse = system != "softmax"
    return {
        "sentences": 1000,
        "certified_raw": 22.0 if sparse else 0.0,
        "certified_normalized": 20.0 if sparse else 0.0,
        "single_hypothesis": 9.0 if sparse else 0.0,
        "forced": 0,
        "mean_hypotheses": 3.6 if sparse else 5.0,
        "counts": [[1, 90], [2, 70], [3, 60], [4, 80], [5, 700]] if sparse else [[5, 1000]],
        "beam": 5,
    }


def end_search(system: str) -> dict:
    lost = 2.5 if system == "softmax" else 0.2
    bleu = BLEU[system]
    rules = {
        rule: {
            **{"bleu": value, "bleu_signature": "nrefs:1|tok:none"},
            **{"chrf": value + 20, "length": 95 + value / 10},
        }
        for rule, value in (("full", bleu - lost), ("ahead", bleu))
    }
    return {"split": "test", "sentences": 6750, "beam": 5, **rules, "differ": 8 * lost}


def exact_search(system: str) -> dict:
    shift = 2.0 if system == "softmax" else 0.0
    return {
        **{"split": "test", "sentences": 1000, "budget": 400, "proved_by_beam": 80.0 - shift},
        **{"proved": 95.5 - shift, "gaps": [0.25, 0.5, 1.5]},
        "search_errors": {"1": 20.0, "5": 6.0 + shift, "20": 1.0},
        "beam": {"bleu": 40.0, "chrf": 60.0, "empty": 0.0, "length": 98.0, "shorter": 0.0},
        "exact": {
            **{"bleu": 39.0, "chrf": 59.0, "empty": 3.0 + shift, "length": 95.0},
            "shorter": 7.0,
        },
        "of_proved": {
            "sentences": 955,
            "beam": {"bleu": 43.0, "chrf": 63.0, "empty": 0.0, "length": 99.0, "shorter": 0.0},
            "exact": {"bleu": 42.5, "chrf": 62.5, "empty": 3.1, "length": 96.0, "shorter": 6.5},
        },
        "by_length": [
            {"words": 5, "sentences": 600, "proved": 100.0, "time": 0.8},
            {"words": None, "sentences": 400, "proved": 88.75, "time": 1.6},
        ],
        "by_budget": [
            {"budget": 0, "proved": 80.0 - shift, "time": 1.0},
            {"budget": 100, "proved": 91.0 - shift, "time": 0.9},
            {"budget": 400, "proved": 95.5 - shift, "time": 1.2},
        ],
    }


def keystrokes(system: str) -> dict:
    lists = {"top_k": (5.0, 80.0), "top_p": (4.0, 78.0)}
    if system != "softmax":
        lists["all"] = (float(SUPPORT[system]), 93.0)
    return {
        **{"split": "valid", "sentences": 100, "words": 700, "k": 5, "p": 0.9},
        **{"without": 4000, "with": 1800, "saved": 55.0, "first": 60.0, "accepted": 85.0},
        "ahead": 0.0 if system == "softmax" else 40.0,
        "lists": {
            name: {"median": 3, "length": length, "coverage": coverage, "saved": 50.0}
            | ({"listed": 60.0, "cut": 2.0} if name == "all" else {})
            for name, (length, coverage) in lists.items()
        },
        "curve": [[k, 60.0 + k] for k in range(1, 21)],
    }


def dynamics(system: str, seed: int) -> dict:
    points = [
        {
            "updates": 900 * k,
            "epoch": float(k),
            "seconds": 900.0 * k * 3300 / SPEED[system],
            "loss": 5.0 / k,
            "bleu": BLEU[system] * (1 - math.exp(-0.7 * k)) + 0.1 * seed,
        }
        for k in range(1, 7)
    ]
    return {"points": points, "training": [], "seconds": points[-1]["seconds"], "restarts": 0}


def step(token: str, *candidates: tuple[str, float]) -> dict:
    found = [{"token": t, "score": s} for t, s in candidates]
    score = dict(candidates).get(token, 0.0)
    support = len([s for _, s in candidates if s])
    return {
        "token": token,
        "score": score,
        "in_support": score > 0,
        "support": support,
        "candidates": found,
    }


def lattice(system: str) -> dict:
    steps = [
        step("This", ("This", 0.92), ("That", 0.08)),
        step("is", ("is", 1.0)),
        step("another", ("another", 1.0)),
        step(
            "view", ("look", 0.5), ("view", 0.3), (EVIL, 0.15), ("glimpse", 0.0495), ("$x$", 5e-4)
        ),
        step("</s>", (".", 1.0)),
    ]
    segments = [
        {"start": 0, "end": 1, "text": "This"},
        {"start": 1, "end": 3, "text": "is another"},
        {"start": 3, "end": 4, "text": "view"},
        {"start": 4, "end": 5, "text": "</s>"},
    ]
    if system == "softmax":
        for one in steps:
            one["support"] = VOCABULARY
        segments = [{"start": i, "end": i + 1, "text": s["token"]} for i, s in enumerate(steps)]
    forced = {"id": 3, "source": ["Ein", "Blick", EVIL], "steps": steps, "segments": segments}
    trees = [tree(lemma, *found, complete=system != "softmax") for lemma, found in WORDS.items()]
    return {"split": "valid", "forced": [forced], "trees": trees}


# Lemma -> what all forms begin with, and their other letters with the probability of the form.
WORDS = {
    "draw": ("draw", {"ed": 0.664, "n": 0.322, "": 0.014}),  # S2S Figure 1
    "sing": ("s", {"ang": 0.875, "inged": 0.125}),
    "put": ("put", {"": 1.0}),
}


def tree(lemma: str, stem: str, endings: dict[str, float], complete: bool) -> dict:
    def node(token, score, total, children=None, **more):
        found = {"token": token, "score": score, "total": total, **more}
        return found if children is None else {**found, "children": children}

    def chain(letters: list[str], score: float) -> dict:
        first, *rest = letters
        below = chain([*rest], score) if rest else None
        if below:
            below["score"] = 1.0
        return node(first, score, score, [below] if below else None)

    branches = [chain([*ending, "</s>"], p) for ending, p in endings.items()]
    if not complete:
        branches.append(node("x", 0.001, 0.001, unexplored=True))
    for letter in reversed(stem):
        branches = [node(letter, 1.0, 1.0, branches)]
    forms = {stem + ending: p for ending, p in endings.items()}
    return {
        "id": len(lemma),
        "source": ["[V]", "[PST]", *lemma],
        "complete": complete,
        "expanded": 9,
        "root": node(None, 1.0, 1.0, branches),
        "hypotheses": [{"tokens": [*form], "text": form, "score": p} for form, p in forms.items()],
    }


def attention(system: str) -> dict:
    source, target = ["ein", "Bl@@", "ick", "$x^2$", EVIL, "。"], ["a", "look", "日本", ".", "</s>"]
    weights = []
    for row in range(len(target)):
        raw = [math.exp(-abs(row - column)) for column in range(len(source))]
        if system != "softmax":
            raw = [w if w > 0.2 else 0.0 for w in raw]
        weights.append([w / sum(raw) for w in raw])
    shown = {
        "id": 3,
        "source": source,
        "target": target,
        "weights": weights,
        "nonzero": [[w > 0 for w in row] for row in weights],
        "attended": 2.6,
    }
    return {"split": "valid", "layer": 5, "layers": 6, "heads": 8, "maps": [shown]}


def energy(seed: int) -> dict:
    why = "not measured: no nvidia-smi; no RAPL counters in /sys/class/powercap"
    return {"hours": 15.0 + seed, "kwh": None, "source": None, "measured": 0.0, "why": why}


def write_comparisons(folder: Path, systems, seeds) -> None:
    sweep = [("relu15", 0.3312), ("relu15_tau5", 5.0)]
    start = {
        "tau_batch": 0.3304,
        "tau_formula": 0.3311,
        "support_share": 0.0184,
        "sigma": 0.31,
        "shapiro_wilk": {"median_p": 0.41, "min_p": 0.02},
    }
    tau = {
        "architecture": {"d_model": 512, "vocabulary": 10000, "run": "x"},
        "untrained": {"xavier": start, "fairseq": {**start, "tau_batch": 1.41, "tau_formula": 1.4}},
        "equation_3": 0.3312,
        "runs": [{"system": s, "seed": 1, "tau": value} for s, value in sweep],
        "sweep": [
            {"system": s, "seed": 1, "tau": value, "points": dynamics(s, 1)["points"]}
            for s, value in sweep
        ],
    }
    for name, result in (
        ("bleu", {"test": bleu(systems, seeds)}),
        ("examples", examples(systems)),
        ("inference_time", inference_time(systems)),
        ("alpha_sweep", alpha_sweep()),
        ("tau", tau),
    ):
        write(folder / f"{name}.json", answer(name, result))
    write(folder / "human_eval.json", answer("human_eval", human(systems)))


def bleu(systems, seeds) -> dict:
    def spread(value: float) -> dict:
        values = [value + 0.3 * (seed - 1.5) for seed in seeds]
        return {"mean": sum(values) / len(values), "std": 0.2121, "n": len(seeds), "values": values}

    pairs = []
    for i, baseline in enumerate(systems):
        for system in systems[i + 1 :]:
            gap = BLEU[system] - BLEU[baseline]
            for seed, metric in itertools.product(seeds, ("bleu", "chrf")):
                pairs.append(
                    {
                        "baseline": baseline,
                        "system": system,
                        "seed": seed,
                        "metric": metric,
                        "difference": gap,
                        "p_value": 0.004 if abs(gap) > 1 else 0.2,
                        "samples": 1000,
                    }
                )
    own = {
        s: {
            "bleu": spread(BLEU[s]),
            "chrf": spread(BLEU[s] + 20),
            "tokenized_bleu": spread(BLEU[s]),
        }
        for s in systems
    }
    return {"runs": [], "systems": own, "pairs": pairs}


def examples(systems) -> dict:
    sentences = {
        "7": {
            "source": f"Ein <b>Satz</b> {EVIL}",
            "reference": "Flake was the central figure in Friday's drama.",
            "spread": 30.0,
            "outputs": {
                s: {"text": "Flake was a central figure " + (EVIL if i else ""), "chrf": 40.0 + i}
                for i, s in enumerate(systems)
            },
        },
        "9": {
            "source": "Kurz.",
            "reference": "Short.",
            "spread": 20.0,
            "outputs": {s: {"text": "", "chrf": 0.0} for s in systems},
        },
    }
    return {
        "split": "test",
        "signature": "nrefs:1|nc:6",
        "systems": list(systems),
        "sentences": sentences,
        "widest": [7, 9],
        "pairs": [],
    }


def inference_time(systems) -> dict:
    times = []
    for i, system in enumerate(systems):
        for beam in (1, 5, 10):
            seconds = beam * (1 + 0.15 * i)
            times.append(
                {
                    "system": system,
                    "beam": beam,
                    "seconds": seconds,
                    "sentences_per_second": 100 / seconds,
                    "normalized": seconds,
                }
            )
    return {
        "split": "test",
        "sentences": 100,
        "rounds": 3,
        "device": "cpu",
        "threads": 1,
        "clock": "cpu",
        "seeds": {system: 1 for system in systems},
        "times": times,
    }


def alpha_sweep() -> dict:
    means = []
    for output in (1.0, 1.25, 1.5, 2.0):
        for attended in (1.0, 1.5, 2.0):
            accuracy = 60 - 4 * (output - 1.33) ** 2 + 0.2 * attended
            means.append(
                {
                    "output_alpha": output,
                    "attention_alpha": attended,
                    "mean": accuracy,
                    "std": 0.1,
                    "n": 2,
                }
            )
    return {"points": [], "means": means}


def human(systems) -> dict:
    def marks(mean: float) -> dict:
        refined = {"n": 270, "mean": mean + 0.1, "std": 0.7}
        return {"n": 270, "mean": mean, "std": 0.7, "refined": refined}

    return {
        "systems": {"reference": marks(3.9), **{s: marks(3.2) for s in systems}},
        "kappa": 0.51,
        "kappa_pairs": 180,
        "marks": {"1": 540, "2": 538},
        "problems": ["two.json: incomplete, 2 translations without a usable mark"],
    }


def form(value, where: str = "") -> set[str]:
    """Every key of a JSON value, with the way to it; names of systems and numbers are all one, and
    trees as deep as you like."""
    if isinstance(value, dict):
        named = {
            key: "*" if key in (*SYSTEMS, "reference") or key.isdigit() else key for key in value
        }
        ways = {key: f"{where}.{name}" for key, name in named.items()}
        return {*ways.values()}.union(*(form(value[key], way) for key, way in ways.items()))
    if isinstance(value, list):
        inside = f"{where}[]".replace(".children[].children[]", ".children[]")
        return set().union(*(form(entry, inside) for entry in value))
    return set()
