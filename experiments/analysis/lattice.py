"""What a sparse model could have said: forced decoding of references with every candidate of
non-zero score (S2S Fig. 2), and the full search trees of a few short outputs (S2S Fig. 1).

``result``:

    forced      one per sentence: id, source (tokens), steps, segments
      steps     one per target token: token, score (of the token), in_support, support (number of
                candidates), candidates [{"token", "score"}, …] (the best ones, best first)
      segments  runs of steps with a single candidate, merged: {"start", "end" (exclusive), "text"};
                a step with several is a segment of its own
    trees       one per sentence: id, source, complete (whether every sentence with a non-zero score
                is in it), root, expanded (nodes), hypotheses [{"tokens", "text", "score"}, …] with
                their product of scores, best first
      root      node: token, score (given what is before it), total (product up to it), children;
                `others` {"count", "score"}: candidates left out; `unexplored`: cut off here

Scores are probabilities for softmax and entmax; those of α-ReLU need not sum to one.
"""

import heapq
import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from data_prep.inflection import spelled

from ..fairseq_output import Generated
from ..run_folder import Run
from .shared.analysis import Analysis, beam_hypotheses
from .shared.models import Loaded, load, model_inputs
from .shared.words import read_segmentation, subword_joiner

SHORT = range(8, 16)  # words of a sentence that can be shown


def compute(run: Run, settings: dict) -> dict:
    loaded, split = load(run), settings["split"]
    generated = beam_hypotheses(run, split)
    join = subword_joiner(read_segmentation(run))
    shown = short_sentences([len(s.target.split(" ")) for s in generated], settings["sentences"])
    forced = []
    for sample in loaded.batches(split, f"{run.name}: lattices", shown):
        forced += lattices(loaded, sample, settings["candidates"], join)
    join = spelled if run.inflects else join
    trees = []
    for number in tree_sentences(generated, settings["trees"]):
        (sample,) = loaded.batches(split, f"{run.name}: search tree", [number])
        limits = settings["nodes"], settings["candidates"]
        tree = search_tree(next_scores(loaded, sample), loaded.dictionary.eos(), *limits)
        source = loaded.source_symbols(sample["net_input"]["src_tokens"][0])
        trees.append({"id": number, "source": source, **_in_words(tree, loaded, join)})
    return {
        "split": split,
        "forced": sorted(forced, key=lambda entry: entry["id"]),
        "trees": trees,
    }


def short_sentences(lengths: Sequence[int], count: int) -> list[int]:
    """The first sentences of medium length, the same for all models; or the nearest to that."""
    middle = SHORT[len(SHORT) // 2]
    distance = [0 if n in SHORT else abs(n - middle) for n in lengths]
    return sorted(sorted(range(len(lengths)), key=lambda i: (distance[i], i))[:count])


def tree_sentences(generated: list[Generated], count: int) -> list[int]:
    """Sentences whose search was exhaustive, with three hypotheses if possible, and short; each
    with another translation, as far as there are so many."""

    def rank(sentence: Generated) -> tuple:
        several = bool(sentence.exhaustive) and (sentence.hypotheses or 0) > 1
        near = abs((sentence.hypotheses or 0) - 3) if several else 0
        return not several, near, len(sentence.hypothesis.split(" ")), sentence.id

    different: dict[str, int] = {}
    for sentence in sorted(generated, key=rank):
        different.setdefault(sentence.hypothesis, sentence.id)
    return list(different.values())[:count]


def lattices(loaded: Loaded, sample: dict, limit: int, join: Callable[[str], str]) -> list[dict]:
    """Every sentence of a batch, forced to its reference."""
    logits, real = loaded.forced(sample)
    scores = torch.cat([loaded.transform.scores(block) for block in logits.split(256)])
    found = []
    for row, part in enumerate(scores.split(real.sum(1).tolist())):
        target = sample["target"][row][real[row]]
        steps = [step(loaded, p, int(token), limit) for p, token in zip(part, target, strict=True)]
        found.append(
            {
                "id": int(sample["id"][row]),
                "source": loaded.source_symbols(sample["net_input"]["src_tokens"][row]),
                "steps": steps,
                "segments": segments(steps, join),
            }
        )
    return found


def step(loaded: Loaded, p: Tensor, token: int, limit: int) -> dict:
    """The candidates of one step."""
    words = loaded.counted.to(p.device)
    best = words[p[words].argsort(descending=True, stable=True)][:limit]
    return {
        "token": loaded.dictionary[token],
        "score": float(p[token]),
        "in_support": bool(p[token] > 0),
        "support": int((p[words] > 0).sum()),
        "candidates": [
            {"token": loaded.dictionary[int(i)], "score": float(p[i])} for i in best if p[i] > 0
        ],
    }


def segments(steps: list[dict], join: Callable[[str], str] = str) -> list[dict]:
    """Neighbouring steps whose only candidate is the target, merged."""
    merged: list[dict] = []
    single = [step["support"] == 1 and step["in_support"] for step in steps]
    for is_single, group in itertools.groupby(range(len(steps)), key=single.__getitem__):
        places = list(group)
        parts = [places] if is_single else [[place] for place in places]
        for part in parts:
            text = join(" ".join(steps[i]["token"] for i in part))
            merged.append({"start": part[0], "end": part[-1] + 1, "text": text})
    return merged


def next_scores(loaded: Loaded, sample: dict) -> Callable[[list[int]], dict[int, float]]:
    """A function from the tokens so far to the scores of those that may come next."""

    def scores(prefix: list[int]) -> dict[int, float]:
        told = loaded.with_targets(sample, [torch.tensor([*prefix, loaded.dictionary.eos()])])
        logits, _ = loaded.forced(told)
        p = loaded.transform.scores(logits[-1:])[0]
        possible = loaded.counted[(p[loaded.counted.to(p.device)] > 0).cpu()]
        return {int(token): float(p[token]) for token in possible}

    return scores


def search_tree(
    scores: Callable[[list[int]], dict[int, float]], eos: int, nodes: int, candidates: int
) -> dict:
    """All sentences with a non-zero score, most probable branches first, until `nodes` nodes have
    been expanded. Tokens are numbers here."""
    root: dict = {"token": None, "score": 1.0, "total": 1.0}
    order = itertools.count()
    open_nodes = [(-1.0, next(order), [], root)]
    expanded, complete, hypotheses = 0, True, []
    while open_nodes and expanded < nodes:
        _, _, prefix, node = heapq.heappop(open_nodes)
        expanded += 1
        found = sorted(scores(prefix).items(), key=lambda item: (-item[1], item[0]))
        if found[candidates:]:
            complete = False
            left_out = [score for _, score in found[candidates:]]
            node["others"] = {"count": len(left_out), "score": sum(left_out)}
        node["children"] = []
        for token, score in found[:candidates]:
            child = {"token": token, "score": score, "total": node["total"] * score}
            node["children"].append(child)
            if token == eos:
                hypotheses.append({"tokens": prefix, "score": child["total"]})
            else:
                heapq.heappush(open_nodes, (-child["total"], next(order), [*prefix, token], child))
    for *_, node in open_nodes:
        node["unexplored"], complete = True, False
    hypotheses.sort(key=lambda hypothesis: -hypothesis["score"])
    return {"complete": complete, "expanded": expanded, "root": root, "hypotheses": hypotheses}


def _in_words(tree: dict, loaded: Loaded, join: Callable[[str], str]) -> dict:
    """The tree with symbols in the place of numbers."""
    nodes = [tree["root"]]
    while nodes:
        node = nodes.pop()
        if node["token"] is not None:
            node["token"] = loaded.dictionary[node["token"]]
        nodes += node.get("children", [])
    for hypothesis in tree["hypotheses"]:
        symbols = [loaded.dictionary[token] for token in hypothesis["tokens"]]
        hypothesis |= {"tokens": symbols, "text": join(" ".join(symbols))}
    return tree


ANALYSIS = Analysis(
    compute,
    model_inputs,
    {"split": "valid", "sentences": 3, "trees": 3, "candidates": 12, "nodes": 200},
)

if __name__ == "__main__":
    ANALYSIS.main()
