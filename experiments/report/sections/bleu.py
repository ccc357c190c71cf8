"""How good the output is: BLEU and chrF of translations, accuracy of inflection."""

from collections.abc import Callable, Iterator

from matplotlib.axes import Axes

from ...number_text import signed_text
from ...systems import describe, in_order
from ..comparison import Measured, comparison, mean_of
from ..figures import INK, Looks, draw
from ..gather import Material
from ..parts import (
    Cell,
    Figure,
    Section,
    Table,
    missing,
    number,
    system_label,
    text,
    to_csv,
)
from ..section import SectionMaker


def fill(material: Material, section: Section) -> None:
    (_inflection if material.inflects else _translation)(material, section)


def _translation(material: Material, section: Section) -> None:
    scores = material.test_scores("bleu")
    if not scores:
        return
    chrf = material.test_scores("chrf")
    more = {"chrF": lambda system: number(*mean_of(chrf, system, 1), why="")}
    caption = "Detokenised test BLEU, higher is better"
    table = comparison(
        material, "bleu", caption, "bleu", scores, _why(material, "bleu"), 1, more, True
    )
    table.notes += _signatures(material)
    section.reading = [
        "Test BLEU of the checkpoint that was best in validation. The best value here is bold."
    ]
    section.blocks = [table, _bleu_figure(material, scores)]
    tokenized = material.test_scores("tokenized_bleu")
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
                mark_highest=True,
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
        found[(*names, pair["seed"], pair["metric"])] = (sign * pair["difference"], pair["p_value"])
    rows = []
    for *names, seed, metric in sorted(found, key=_place):
        if metric == "bleu":
            bleu, chrf = found[*names, seed, "bleu"], found.get((*names, seed, "chrf"))
            cells = [number(seed, 0), _signed(bleu[0]), _p_value(bleu[1])]
            cells += [_signed(chrf and chrf[0]), _p_value(chrf and chrf[1])]
            rows.append([*(Cell(system_label(name), name) for name in reversed(names)), *cells])
    if rows:
        columns = ["System", "Baseline", "Seed", "Δ BLEU", "p (BLEU)", "Δ chrF", "p (chrF)"]
        note = (
            f"sacreBLEU’s paired bootstrap with {pairs[0]['samples']:,} samples, of each seed. "
            "p is about other test sentences; seeds are other trainings."
        )
        yield Table("significance", "Which differences are significant?", columns, rows, [note])


def _place(pair: tuple[str, str, int, str]) -> tuple:
    return (*(describe(name).order for name in pair[:2]), *pair)


def _signed(value: float | None) -> Cell:
    if value is None:
        return missing("not measured")
    return Cell(signed_text(value), value)


def _p_value(value: float | None) -> Cell:
    cell = number(value, 3, "not measured")
    cell.strong = value is not None and value < 0.05
    return cell


def _inflection(material: Material, section: Section) -> None:
    scores = material.test_scores("word_accuracy")
    if not scores:
        return
    section.reading = [
        "Words of the test set that are exactly right, and how many characters of a word have to "
        "be changed to make it right; of several languages, the means over them."
    ]
    more = _edit_distance(material.test_scores("edit_distance"))
    caption = "Word accuracy in %, mean over seeds"
    why = _why(material, "bleu")
    seeds = comparison(
        material, "word_accuracy", caption, "word_accuracy", scores, why, 2, more, True
    )
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
    yield comparison(material, name, caption, name, scores, why, digits, more, True)


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


SECTION = SectionMaker(
    20,
    lambda material: "Accuracy of inflection" if material.inflects else "Translation quality",
    fill,
    lambda material: ("S2S Table 1",) if material.inflects else ("SE Table 1", "S2S Table 2"),
    ("bleu", "tokenized_bleu", "word_accuracy", "word_accuracy_ensemble"),
)
