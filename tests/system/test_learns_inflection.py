"""A small LSTM with sparse attention and output learns to inflect all words of a toy language."""

import random

import pytest
from fairseq_runs import run

from experiments.fairseq_output import read_generated
from experiments.metrics import exactness, inflection_scores

MODEL = (
    "--arch=sparse_lstm --attention-alpha=1.5 --encoder-embed-dim=32 --decoder-embed-dim=32 "
    "--decoder-hidden-size=96 --dropout=0"
)
TRAINING = (
    "--criterion=entmax_loss --alpha=1.5 --optimizer=adam --lr=0.006 --lr-scheduler=halve_on_loss "
    "--clip-norm=1 --batch-size=32 --max-epoch=16 --seed=1 --cpu --num-workers=0 "
    "--log-format=json --no-epoch-checkpoints "
    "--best-checkpoint-metric=accuracy --maximize-best-checkpoint-metric"
)

# fairseq drops the last batch if its size is no multiple of this, which is 8 by default.
ALL = "--required-batch-size-multiple=1"


def inflect(lemma: str, tag: str) -> str:
    """A suffix that obeys vowel harmony, a suffix with an e before hissing sounds, a prefix that
    doubles the first sound."""
    if tag == "PAST":
        return lemma + ("da" if "a" in lemma else "de")
    if tag == "PLURAL":
        return lemma + ("es" if lemma[-1] in "sz" else "s")
    return lemma[0] + "o" + lemma


def write_words(folder):
    rng = random.Random(0)
    lemmas = sorted({"".join(rng.choices("abdeglmsz", k=rng.randint(2, 5))) for _ in range(1500)})
    rng.shuffle(lemmas)
    splits = {"valid": lemmas[:50], "test": lemmas[50:100], "train": lemmas[100:]}
    for split, words in splits.items():
        pairs = [(word, tag) for word in words for tag in ("PAST", "PLURAL", "PERFECT")]
        sources = [" ".join(("toy", tag, *word)) for word, tag in pairs]
        targets = [" ".join(inflect(word, tag)) for word, tag in pairs]
        (folder / f"{split}.lemma").write_text("\n".join(sources) + "\n")
        (folder / f"{split}.form").write_text("\n".join(targets) + "\n")
    prefixes = [f"--{split}pref={folder / split}" for split in splits]
    languages = ["--source-lang=lemma", "--target-lang=form", f"--destdir={folder / 'bin'}"]
    run("fairseq-preprocess", *languages, *prefixes, sparse=False)
    return folder / "bin"


@pytest.mark.slow
@pytest.mark.system
def test_words_never_seen_are_inflected_without_fault(tmp_path):
    data = write_words(tmp_path)
    task = "--task=sparse_translation"
    flags = [*MODEL.split(), *TRAINING.split(), f"--save-dir={tmp_path}"]
    run("fairseq-train", data, task, *flags)
    flags = [f"--path={tmp_path / 'checkpoint_best.pt'}", "--beam=5", "--cpu", ALL]
    output = tmp_path / "generated.txt"
    output.write_text(run("fairseq-generate", data, task, *flags).out)
    words = read_generated(output)
    scores = inflection_scores(
        [word.hypothesis for word in words], [word.target for word in words], ["toy"] * len(words)
    )
    assert scores["languages"]["toy"] == {
        "word_accuracy": 100.0,
        "edit_distance": 0.0,
        "examples": 150,
    }
    # S2S §4.1: where there is little ambiguity, most words have one form and the search is exact.
    assert exactness(words)["single_hypothesis"] > 50
