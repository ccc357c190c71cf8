"""What a model could have said: lattices (S2S Figure 2) and search trees (S2S Figure 1) as HTML."""

from collections.abc import Iterator

from markupsafe import Markup

from data_prep.inflection import spelled

from ...number_text import number_text
from ...papers import published
from ...systems import describe
from ..gather import END, Material
from ..parts import Figure, Section, system_label, to_csv
from ..section import SectionMaker

CANDIDATES = 5  # of one step that are shown
BRANCHES = 8  # hypotheses of a tree that are shown


def fill(material: Material, section: Section) -> None:
    results = material.first_results("lattice")
    if not results:
        return
    section.reading = [
        f"Forced decoding of a reference: at each step the {material.tokens} with a non-zero "
        "score. Where only one is possible, boxes are merged, as an editor could complete them by "
        "itself. The reference is bold."
    ]
    section.blocks = [_lattices(material, results), *_trees(material, results)]
    section.missing = material.lacking("lattice", results)


def percent(score: float) -> str:
    """Of one: 0.5% and 66.4%, as S2S prints them; never 0% for what is possible."""
    value = 100 * score
    if value in (0, 100):
        return f"{value:.0f}%"
    return f"{number_text(value, 1)}%" if value >= 0.1 else "< 0.1%"


def _lattices(material: Material, results: dict[str, dict]) -> Figure:
    panels, rows = [], []
    # The paper shows 1.5-entmax; softmax leaves nothing out, which is soon seen.
    order = sorted(results, key=lambda system: (system != "entmax15", describe(system).dense))
    for system in order:
        panels += [
            _lattice(material, system, entry, opened=not panels)
            for entry in results[system]["forced"][:1]
        ]
        for entry in results[system]["forced"]:
            for place, step in enumerate(entry["steps"]):
                rows += [
                    [system, entry["id"], place, step["token"], c["token"], c["score"]]
                    for c in step["candidates"]
                ]
    header = ["system", "sentence", "step", "reference", "candidate", "score"]
    caption = "Scores of the candidates at each step; α-ReLU’s need not sum to 100%."
    return Figure("lattice", caption, panels, to_csv(header, rows), wide=True)


def _lattice(material: Material, system: str, entry: dict, opened: bool) -> Markup:
    boxes = []
    for segment in entry["segments"]:
        steps = entry["steps"][segment["start"] : segment["end"]]
        sure = all(step["support"] == 1 and step["in_support"] for step in steps)
        boxes.append(_sure(_text(material, segment)) if sure else _step(steps[0]))
    return Markup(
        "<details{}><summary><strong>{}</strong> <small>source: <span dir=auto>{}</span></small>"
        '</summary><div class="lattice">{}</div></details>'
    ).format(
        Markup(" open") if opened else "",
        system_label(system),
        material.source_text(entry["source"]),
        Markup("").join(boxes),
    )


def _text(material: Material, segment: dict) -> str:
    if not material.inflects:
        return segment["text"]
    return spelled(segment["text"]).replace(END, f" {END}").strip()


def _sure(words: str) -> Markup:
    return Markup('<div class="step sure gold">{}</div>').format(words)


def _step(step: dict) -> Markup:
    shown = step["candidates"][:CANDIDATES]
    if step["token"] not in [candidate["token"] for candidate in shown]:
        shown = [*shown[: CANDIDATES - 1], {"token": step["token"], "score": step["score"]}]
    items = [
        Markup("<li><span{}>{}</span><span>{}</span></li>").format(
            Markup(' class="gold"') if candidate["token"] == step["token"] else "",
            candidate["token"],
            percent(candidate["score"]),
        )
        for candidate in shown
    ]
    left = step["support"] - sum(candidate["score"] > 0 for candidate in shown)
    if left > 0:
        items.append(Markup('<li class="more">and {} more</li>').format(f"{left:,}"))
    return Markup('<div class="step"><ol>{}</ol></div>').format(Markup("").join(items))


def _trees(material: Material, results: dict[str, dict]) -> Iterator[Figure]:
    trees = {s: [t for t in r.get("trees", ()) if t["hypotheses"]] for s, r in results.items()}
    trees = {system: own for system, own in trees.items() if own}
    if not trees:
        return
    system = _most_complete(material, trees)
    rows = [
        [s, t["id"], h["text"], h["score"]]
        for s in trees
        for t in trees[s]
        for h in t["hypotheses"]
    ]
    caption = (
        f"Full search of a few short {material.outputs} by {system_label(system)}: every way on "
        "that has a non-zero score, with its probability given what is before it; at the ends, "
        "the probability of the whole. The CSV has all systems."
    )
    printed = [n for n in published(dataset=material.target, place="S2S Figure 1") if n.note]
    if printed:
        listed = ", ".join(f"{n.note} {n.value:g}%" for n in printed)
        caption += f" S2S Figure 1 has, for the past participle of “draw”: {listed}."
    header = ["system", "sentence", "hypothesis", "score"]
    whole_first = sorted(trees[system], key=lambda tree: not tree["complete"])
    panels = [_tree_panel(material, tree) for tree in whole_first]
    yield Figure("search_tree", caption, panels, to_csv(header, rows), wide=True)


def _most_complete(material: Material, trees: dict[str, list[dict]]) -> str:
    """The system whose trees leave nothing out; of several, the best one, as in S2S Fig. 1."""
    scores = material.test_scores("word_accuracy") or material.test_scores("bleu")

    def rank(system: str) -> tuple:
        complete = [tree["complete"] for tree in trees[system]]
        return all(complete), sum(complete), scores[system][0] if system in scores else -1.0

    return max(trees, key=rank)


def _tree_panel(material: Material, tree: dict) -> Markup:
    count = len(tree["hypotheses"])
    found = f"{count} hypotheses, and no others" if tree["complete"] else "search cut short"
    if tree["complete"] and count == 1:
        found = "a single hypothesis"
    head = Markup("<p><strong dir=auto>{}</strong> <small>{}</small></p>").format(
        material.source_text(tree["source"]), found
    )
    kept = [tuple(h["tokens"]) for h in tree["hypotheses"][:BRANCHES]]
    body = _branches(tree["root"], (), kept)
    return head + Markup('<ul class="tree">{}</ul>').format(
        body if body else Markup("<li>nothing</li>")
    )


def _branches(node: dict, prefix: tuple, kept: list[tuple]) -> Markup:
    """The ways on from a node that lead to a hypothesis that is shown; the others are counted."""
    items, left = [], node.get("others", {}).get("count", 0)
    for child in node.get("children", []):
        ends = "children" not in child and not child.get("unexplored")
        path = prefix if ends else (*prefix, child["token"])
        if any(h == path if ends else h[: len(path)] == path for h in kept):
            items.append(_branch(child, path, kept, ends))
        else:
            left += 1
    if left:
        items.append(Markup('<li><span class="end">and {} more</span></li>').format(f"{left:,}"))
    return Markup("").join(items)


def _branch(node: dict, path: tuple, kept: list[tuple], ends: bool) -> Markup:
    """A node and all that follows without a choice, then the choices."""
    chance = (
        ""
        if node["score"] > 0.9995
        else Markup('<span class="p">{}</span>').format(percent(node["score"]))
    )
    if ends:
        return Markup('<li>{}<span class="end">■ {}</span></li>').format(
            chance, percent(node["total"])
        )
    words = [Markup('<span class="word">{}</span>').format(node["token"])]
    while len(node.get("children", [])) == 1 and not node.get("others"):
        (child,) = node["children"]
        if not child.get("children") or child["score"] <= 0.9995:
            break
        node, path = child, (*path, child["token"])
        words.append(Markup('<span class="word">{}</span>').format(node["token"]))
    rest = _branches(node, path, kept)
    choice = Markup(' class="choice"') if len(node.get("children", [])) > 1 else ""
    return Markup("<li>{}{}<ul{}>{}</ul></li>").format(chance, Markup("").join(words), choice, rest)


SECTION = SectionMaker(
    110,
    "What else could have come",
    fill,
    ("S2S Figure 2", "S2S Figure 1"),
    ("hypothesis_probability",),
)
