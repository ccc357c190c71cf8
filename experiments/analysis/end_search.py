"""What the rule for the end of a search is worth: fairseq's (`--end-search full`), and `ahead`.

fairseq ends the search for a sentence when as many hypotheses as the beam are complete, however bad
they are. Softmax always has bad ones to complete; a sparse model often has none, and so searches
on. `ahead` goes on while an unfinished hypothesis is better than the complete ones. Everything else
is as the run was decoded. ``result``:

    split, sentences, beam
    full, ahead     scores of the outputs: of sentences bleu and chrf (of the words as they were
                    divided for training, so only comparable with each other) and length (words, of
                    100 in the references); of inflected words word_accuracy and edit_distance
    differ          % of the outputs that are not the same
"""

from ..metrics import corpus_scores, inflection_scores, read_languages
from ..run_folder import Run
from .shared.analysis import Analysis, percent
from .shared.decoding import beam_of, generator_of, words_of
from .shared.models import data_files, load

RULES = ("full", "ahead")


def compute(run: Run, settings: dict) -> dict:
    split, loaded = settings["split"], load(run)
    generators = {rule: generator_of(loaded, run, end_search=rule) for rule in RULES}
    outputs: dict[str, dict[int, str]] = {name: {} for name in (*RULES, "references")}
    for sample in loaded.batches(split, f"{run.name}: two ends of a search"):
        tokens = {"references": sample["target"]}
        for rule, generator in generators.items():
            tokens[rule] = [found[0]["tokens"] for found in generator.generate(None, sample)]
        for name, rows in tokens.items():
            for number, row in zip(sample["id"].tolist(), rows, strict=True):
                outputs[name][number] = words_of(loaded, run, row)
    texts = {name: [found[i] for i in sorted(found)] for name, found in outputs.items()}
    references = texts.pop("references")
    different = sum(one != other for one, other in zip(*texts.values(), strict=True))
    return {
        "split": split,
        "sentences": len(references),
        "beam": beam_of(run),
        **{rule: scores(run, split, texts[rule], references) for rule in RULES},
        "differ": percent(different, len(references)),
    }


def scores(run: Run, split: str, outputs: list[str], references: list[str]) -> dict[str, float]:
    if run.inflects:
        found = inflection_scores(outputs, references, read_languages(run, split))
        return {key: found[key] for key in ("word_accuracy", "edit_distance")}
    found = corpus_scores(outputs, references, run.target_lang, tokenised=True)
    words, wanted = (sum(len(text.split()) for text in texts) for texts in (outputs, references))
    return {**{key: found[key] for key in ("bleu", "chrf")}, "length": percent(words, wanted)}


ANALYSIS = Analysis(
    compute,
    lambda run, settings: [
        run.decoded_checkpoint(),
        *(run.text / f"{settings['split']}.{end}" for end in ("language", run.target_lang)),
        *data_files(run, settings["split"]),
    ],
    {"split": "test"},
)

if __name__ == "__main__":
    ANALYSIS.main()
