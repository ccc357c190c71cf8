"""What the rule for the end of a search is worth: fairseq's (`--end-search full`), and `ahead`.

fairseq ends the search for a sentence when as many hypotheses as the beam are complete, however bad
they are. `ahead` goes on while an unfinished hypothesis is better than the complete ones. Beam,
limits of length and ranking are as the run was decoded. ``result``:

    split, sentences, beam
    full, ahead     scores of the outputs: of sentences bleu (bleu_signature) and chrf (of the words
                    as they were divided for training, so only comparable with each other) and
                    length (words, of 100 in the references); of inflected words word_accuracy and
                    edit_distance
    differ          % of the outputs that are not the same
"""

from ..metrics import inflection_scores, read_languages
from ..run_folder import Run
from .shared.analysis import Analysis, percent
from .shared.decoding import beam_of, generator_of
from .shared.models import data_files, load
from .shared.words import reader, word_scores

RULES = ("full", "ahead")


def compute(run: Run, settings: dict) -> dict:
    split, loaded = settings["split"], load(run)
    generators = {rule: generator_of(loaded, run, end_search=rule) for rule in RULES}
    words, wanted = reader(loaded, run), reader(loaded, run, of_references=True)
    outputs: dict[str, dict[int, str]] = {rule: {} for rule in RULES}
    references: dict[int, str] = {}
    for sample in loaded.batches(split, f"{run.name}: two ends of a search"):
        numbers = sample["id"].tolist()
        references |= zip(numbers, map(wanted, sample["target"]), strict=True)
        for rule, generator in generators.items():
            best = [words(found[0]["tokens"]) for found in generator.generate(None, sample)]
            outputs[rule] |= zip(numbers, best, strict=True)
    order = sorted(references)
    texts = {rule: [found[number] for number in order] for rule, found in outputs.items()}
    right = [references[number] for number in order]
    different = sum(one != other for one, other in zip(*texts.values(), strict=True))
    return {
        "split": split,
        "sentences": len(order),
        "beam": beam_of(run),
        **{rule: scores(run, split, texts[rule], right) for rule in RULES},
        "differ": percent(different, len(order)),
    }


def scores(run: Run, split: str, outputs: list[str], references: list[str]) -> dict:
    if not run.inflects:
        return word_scores(run, outputs, references)
    found = inflection_scores(outputs, references, read_languages(run, split))
    return {key: found[key] for key in ("word_accuracy", "edit_distance")}


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
