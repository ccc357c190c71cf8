"""How good the translations are: BLEU, empty translations, examples, human judgement."""

import difflib
import re
from collections.abc import Callable, Iterator

from markupsafe import Markup, escape
from matplotlib.axes import Axes

from data_prep.inflection import spelled

from ...systems import describe, in_order
from ..figures import INK, Looks, draw
from ..gather import Material
from ..parts import (
    Cell,
    Figure,
    Section,
    Table,
    missing,
    number,
    number_text,
    system_label,
    text,
    to_csv,
)
from .common import (
    Measured,
    comparison,
    finish,
    make_section,
    mean_of,
    nothing,
    of_seeds,
    source_text,
    system_cell,
    triple,
)


def bleu(material: Material) -> Section:
    if material.inflects:
        section = make_section(material, "bleu", "Accuracy of inflection", ["S2S Table 1"])
        _inflection(material, section)
    else:
        places = ["SE Table 1", "S2S Table 2"]
        section = make_section(material, "bleu", "Translation quality", places)
        _translation(material, section)
    if not section.blocks:
        section.missing = nothing(material, "bleu")
    return section


def test_scores(material: Material, score: str) -> dict[str, Measured]:
    """Of the analysis if it was made; else as they were when the runs finished."""
    result = (material.result("bleu") or {}).get("test") or {}
    found = {
        system: (own[score]["mean"], own[score]["std"], own[score]["n"])
        for system, own in (result.get("systems") or {}).items()
        if own.get(score)
    }
    for system in material.systems:
        found.setdefault(system, material.mean(system, "test", score))
    return {system: value for system, value in found.items() if value}


def _translation(material: Material, section: Section) -> None:
    scores = test_scores(material, "bleu")
    if not scores:
        return
    chrf = test_scores(material, "chrf")
    more = {"chrF": lambda system: number(*mean_of(chrf, system, 1), why="")}
    caption = "Detokenised test BLEU, higher is better"
    table = comparison(material, "bleu", caption, "bleu", scores, _why(material, "bleu"), 1, more)
    table.notes += _signatures(material)
    section.reading = [
        "Test BLEU of the checkpoint that was best in validation. The best value here is bold."
    ]
    section.blocks = [table, _bleu_figure(material, scores)]
    tokenized = test_scores(material, "tokenized_bleu")
    if tokenized and any(map(material.comparable, material.published("tokenized_bleu"))):
        caption = "Tokenised test BLEU (subwords joined), higher is better"
        section.blocks.append(
            comparison(
                material,
                "tokenized_bleu",
                caption,
                "tokenized_bleu",
                tokenized,
                _why(material, "bleu"),
                2,
            )
        )
    section.blocks += [*_ensembles(material, "bleu", 1), *_significance(material)]
    section.missing += ((material.result("bleu") or {}).get("test") or {}).get("problems") or []
    if (material.result("bleu") or {}).get("test") is None:
        section.missing.append(f"Significance of differences: {material.why('bleu')}")


def _why(material: Material, analysis: str):
    return lambda system: material.why(analysis, system)


def _signatures(material: Material) -> list[str]:
    for run in material.runs:
        test = material.scores(run).get("test") or {}
        found = [test[key] for key in ("bleu_signature", "chrf_signature") if key in test]
        if found:
            return [f"sacreBLEU: {'; '.join(found)}"]
    return []


def _bleu_figure(material: Material, scores: dict[str, Measured]) -> Figure:
    systems = in_order(set(scores) & set(material.systems))
    looks = Looks(systems)
    papers = {s: material.paper("bleu", s) for s in systems}
    papers = {s: n.value for s, n in papers.items() if n and material.comparable(n)}
    seeds = {s: _of_each_seed(material, s) for s in systems}

    def plot(axes: Axes) -> None:
        for place, system in enumerate(reversed(systems)):
            mean, deviation, _ = scores[system]
            axes.errorbar(
                [mean],
                [place],
                xerr=[deviation or 0],
                markersize=9,
                capsize=3,
                **looks.point(system),
            )
            values = [value for _, value in seeds[system]]
            axes.plot(values, [place - 0.2] * len(values), "|", color=looks.colour(system))
            if system in papers:
                axes.plot(
                    [papers[system]],
                    [place],
                    "D",
                    markersize=8,
                    markerfacecolor="none",
                    markeredgecolor=INK,
                    label="paper" if system == next(iter(papers)) else None,
                )
        axes.set_yticks(range(len(systems)), [system_label(s) for s in reversed(systems)])
        axes.set_ylim(-0.6, len(systems) - 0.4)
        axes.margins(x=0.15)
        axes.set_xlabel("test BLEU")
        axes.grid(axis="y", visible=False)

    rows = [[s, "here", seed, value] for s in systems for seed, value in seeds[s]]
    rows += [[s, "paper", "", value] for s, value in papers.items()]
    svg = draw("bleu", "Test BLEU of each system", plot, (4.4, 1.0 + 0.42 * len(systems)))
    caption = "Test BLEU: mean here with the deviation over seeds; ticks below are single seeds."
    caption += " Hollow diamonds are the paper’s." if papers else ""
    return Figure("bleu_figure", caption, [svg], to_csv(["system", "who", "seed", "bleu"], rows))


def _of_each_seed(material: Material, system: str) -> list[tuple[int | None, float]]:
    found = [
        (run.seed, (material.scores(run).get("test") or {}).get("bleu"))
        for run in material.runs_of(system)
    ]
    return [(seed, value) for seed, value in found if isinstance(value, int | float)]


def _significance(material: Material) -> Iterator[Table]:
    pairs = ((material.result("bleu") or {}).get("test") or {}).get("pairs") or []
    found = {}
    for pair in pairs:
        # The baseline is the one that the papers name first.
        names = in_order([pair["baseline"], pair["system"]])
        sign = 1 if names[0] == pair["baseline"] else -1
        found[(*names, pair["metric"])] = (sign * pair["difference"], pair["p_value"])
    rows = []
    for baseline, system, metric in sorted(found, key=_place):
        if metric == "bleu":
            bleu, chrf = found[baseline, system, "bleu"], found.get((baseline, system, "chrf"))
            cells = [_signed(bleu[0]), _p_value(bleu[1])]
            cells += [_signed(chrf and chrf[0]), _p_value(chrf and chrf[1])]
            names = [Cell(system_label(name), name) for name in (system, baseline)]
            rows.append([*names, *cells])
    if rows:
        columns = ["System", "Baseline", "Δ BLEU", "p (BLEU)", "Δ chrF", "p (chrF)"]
        note = f"sacreBLEU’s paired bootstrap with {pairs[0]['samples']:,} samples, one seed."
        yield Table("significance", "Which differences are significant?", columns, rows, [note])


def _place(pair: tuple[str, str, str]) -> tuple:
    return (*(describe(name).order for name in pair[:2]), *pair)


def _signed(value: float | None) -> Cell:
    if value is None:
        return missing("not measured")
    shown = number_text(value, 1)
    return Cell(f"+{shown}" if value > 0 and shown != "0.0" else shown, value)


def _p_value(value: float | None) -> Cell:
    cell = number(value, 3, "not measured")
    cell.strong = value is not None and value < 0.05
    return cell


def _inflection(material: Material, section: Section) -> None:
    scores = test_scores(material, "word_accuracy")
    if not scores:
        return
    section.reading = [
        "Words of the test set that are exactly right, and how many characters of a word have to "
        "be changed to make it right; of several languages, the means over them."
    ]
    more = _edit_distance(test_scores(material, "edit_distance"))
    caption = "Word accuracy in %, mean over seeds"
    why = _why(material, "bleu")
    seeds = comparison(material, "word_accuracy", caption, "word_accuracy", scores, why, 2, more)
    section.blocks = [seeds, *_languages(material)]
    more = _edit_distance(_of_ensembles(material, "edit_distance"))
    section.blocks[1:1] = _ensembles(material, "word_accuracy", 2, more)


OF_ENSEMBLES = {"word_accuracy": "Word accuracy in %", "bleu": "Detokenised test BLEU"}


def _ensembles(
    material: Material,
    score: str,
    digits: int,
    more: dict[str, Callable[[str], Cell]] | None = None,
) -> Iterator[Table]:
    """Nothing where nobody made one, unless one is published and there are seeds for it."""
    scores, name = _of_ensembles(material, score), f"{score}_ensemble"
    seeds = len(material.config.seeds) if material.config else 1
    if not scores and (seeds < 2 or not material.published(name)):
        return

    def why(system: str) -> str:
        return _why_no_ensemble(material, system)

    caption = f"{OF_ENSEMBLES[score]}, ensemble of the seeds"
    yield comparison(material, name, caption, name, scores, why, digits, more)


def _edit_distance(found: dict[str, Measured]) -> dict[str, Callable[[str], Cell]]:
    return {"Edit distance": lambda system: number(*mean_of(found, system, 3), why="")}


def _of_ensembles(material: Material, score: str) -> dict[str, Measured]:
    ensembles = [run for run in material.runs if run.seed is None]
    found = {run.system: (material.scores(run).get("test") or {}).get(score) for run in ensembles}
    return {system: (value, None, 1) for system, value in found.items() if value is not None}


def _languages(material: Material) -> Iterator[Table]:
    """Word accuracy, language by language; of a single one, the mean says it all."""
    words: dict[str, int | None] = {}
    seen = set()
    for run in material.runs:
        own = (material.scores(run).get("test") or {}).get("languages") or {}
        if run.seed is not None and own:
            seen.add(run.system)
            words |= {language: scores.get("examples") for language, scores in own.items()}
    systems = in_order(seen)
    rows = [
        [text(name), number(words[name], 0, "not known"), *_language(material, systems, name)]
        for name in sorted(words)
    ]
    if len(rows) > 1:
        columns = ["Language", "Test words", *map(system_label, systems)]
        caption = "Word accuracy of each language in %, mean over seeds"
        yield Table("languages", caption, columns, rows)


def _language(material: Material, systems: list[str], name: str) -> list[Cell]:
    found = [material.mean(s, "test", "languages", name, "word_accuracy") for s in systems]
    cells = [number(mean and mean[0], 2, "not measured") for mean in found]
    values = [cell.value for cell in cells if cell.numeric]
    for cell in cells:
        cell.strong = len(values) > 1 and cell.value == max(values)
    return cells


def _why_no_ensemble(material: Material, system: str) -> str:
    if system in material.all_systems:
        return f"not run: {material.make(system, 'ensemble')}"
    return material.why("bleu", system)


def empty_string(material: Material) -> Section:
    output = "string" if material.inflects else "translation"
    section = make_section(material, "empty_string", f"Empty {output}s", ["SE Table 2"])
    raw = of_seeds(material, "empty_string", lambda r: r["raw"]["percent"])
    if not raw:
        section.missing = nothing(material, "empty_string")
        return section
    why = _why(material, "empty_string")
    more = {}
    for title, key in (
        ("Divided by Σp", "renormalized"),
        ("Divided by length", "raw_length_normalized"),
    ):
        found = of_seeds(material, "empty_string", lambda r, key=key: r[key]["percent"])
        more[title] = lambda system, found=found: number(*mean_of(found, system, 2), why(system))
    section.reading = [
        f"“Cat got your tongue”: how many {material.outputs} of the validation set score higher "
        f"with the empty {output} than with what beam search found. Where nothing else is said, "
        "sums of log-scores are compared, as in the paper; dividing by Σp at each step takes away "
        "what α-ReLU gains from scores that sum to more than one."
    ]
    caption = f"{material.outputs.capitalize()} that prefer the empty {output}, %"
    section.blocks = [
        comparison(material, "empty_string", caption, "empty_string", raw, why, 2, more)
    ]
    return section


def examples(material: Material) -> Section:
    what = "Words" if material.inflects else "Translations"
    section = make_section(material, "examples", f"{what} side by side", ["SE Table 7"])
    result = material.result("examples")
    if not result:
        section.missing = [material.why("examples")]
        return section
    section.reading = [
        f"{material.outputs.capitalize()} of the {result['split']} set where the systems are "
        "furthest apart by chrF. What differs from the reference is marked."
    ]
    boxes = Markup("").join(_example(material, i, result) for i in result["widest"])
    panel = Markup('<div class="examples">{}</div>').format(boxes)
    rows = [
        [i, name, s["source"], s["reference"], out["text"], out["chrf"]]
        for i, s in result["sentences"].items()
        for name, out in s["outputs"].items()
    ]
    header = ["sentence", "system", "source", "reference", "translation", "chrf"]
    caption = f"{result['signature']}; the CSV has more {material.outputs}."
    section.blocks = [Figure("examples", caption, [panel], to_csv(header, rows), wide=True)]
    return section


def _example(material: Material, number_: int, result: dict) -> Markup:
    sentence = result["sentences"][str(number_)]
    rows = [
        ("source", escape(source_text(material, sentence["source"].split(" ")))),
        ("reference", escape(_joined(material, sentence["reference"]))),
    ]
    for system in in_order(result["systems"]):
        output = sentence["outputs"].get(system)
        if output:
            label = f"{system_label(system)} ({number_text(output['chrf'], 0)})"
            rows.append((label, _marked(material, output["text"], sentence["reference"])))
    items = Markup("").join(Markup("<dt>{}</dt><dd dir=auto>{}</dd>").format(*row) for row in rows)
    return Markup('<div class="example"><dl><dt>{}</dt><dd>{}</dd>{}</dl></div>').format(
        material.outputs.removesuffix("s"), number_ + 1, items
    )


def _joined(material: Material, output: str) -> str:
    return spelled(output) if material.inflects else output


def _marked(material: Material, output: str, reference: str) -> Markup:
    """The tokens that the reference does not have in this place, marked."""
    if not output.strip():
        return Markup('<span class="gap">(empty)</span>')
    words = re.findall(r"\S+", output)
    matcher = difflib.SequenceMatcher(None, re.findall(r"\S+", reference), words, autojunk=False)
    parts = []
    for kind, _, _, start, end in matcher.get_opcodes():
        chunk = escape(_joined(material, " ".join(words[start:end])))
        if chunk:
            parts.append(chunk if kind == "equal" else Markup("<mark>{}</mark>").format(chunk))
    return Markup("" if material.inflects else " ").join(parts)


def human_eval(material: Material) -> Section:
    section = make_section(material, "human_eval", "Human judgement", ["SE Table 4", "SE §4.7"])
    section.command = (
        f"python -m experiments.analysis.human_eval draw runs/{material.dataset}/SYSTEM/seed1 …"
    )
    result = material.result("human_eval")
    if not result:
        section.missing = [f"needs people, and was not done here: {section.command}"]
        return section
    rows = []
    for system in in_order([*result["systems"], "reference"]):
        own = result["systems"].get(system)
        here = (own["mean"], own["std"], 1) if own else None
        paper = material.paper("human_score", system)
        rows.append(
            [
                system_cell(system),
                *triple(material, paper, here, 2, "no marks"),
                number(own and own["refined"]["mean"], 2, "no marks"),
                number(own and own["n"], 0, "no marks"),
            ]
        )
    kappa = (result["kappa"], None, 1) if result["kappa"] is not None else None
    cells = triple(material, material.paper("kappa"), kappa, 2, "cannot be computed: see below")
    rows.append(
        [text("Cohen’s κ"), *cells, missing("not a mark"), number(result["kappa_pairs"], 0)]
    )
    columns = ["Candidate", "Paper", "Here", "Difference", "With + and −", "Marks"]
    section.reading = [
        "How much of the meaning arrives, from 1 (nothing) to 4 (everything): mean ± standard "
        "deviation over all marks of two annotators, and their agreement."
    ]
    table = Table("human_eval", "Marks of the annotators", columns, rows)
    papers = [*material.published("human_score"), *material.published("kappa")]
    section.blocks = [finish(material, table, papers)]
    section.missing = list(result["problems"])
    return section
