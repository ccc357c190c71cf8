"""How a run's outputs read as words, and how good those are: tokens joined as they were divided for
training, and compared with references that were divided alike."""

import json
from collections.abc import Callable, Sequence

from torch import Tensor

from data_prep.segmentation import RECORD

from ...metrics import corpus_scores
from ...run_folder import Run
from .analysis import percent
from .models import Loaded


def read_segmentation(run: Run) -> dict:
    """How the data were tokenised and cut into subwords."""
    record = json.loads((run.bin / RECORD).read_text(encoding="utf-8"))
    if record["segmentation"] == "none":  # of a run that was adopted, its dictionary told
        pieces = (run.config.get("generate") or {}).get("post-process")
        record["segmentation"] = {"subword_nmt": "bpe"}.get(pieces, pieces or "none")
    return record


def subword_joiner(segmentation: dict) -> Callable[[str], str]:
    """A function that joins the subwords of a line."""
    if segmentation["segmentation"] == "bpe":
        return lambda line: f"{line} ".replace("@@ ", "").strip()
    if segmentation["segmentation"] == "sentencepiece":
        return lambda line: line.replace(" ", "").replace("\u2581", " ").strip()
    return str


def reader(loaded: Loaded, run: Run, of_references: bool = False) -> Callable[[Tensor], str]:
    """A function that gives the words of tokens. Unknown words of references are written
    otherwise than those of outputs, which are right in no case."""
    join, dictionary = subword_joiner(read_segmentation(run)), loaded.dictionary

    def words(tokens: Tensor) -> str:
        real = tokens[tokens != dictionary.pad()]
        return join(dictionary.string(real.cpu(), escape_unk=of_references))

    return words


def word_scores(run: Run, outputs: Sequence[str], references: Sequence[str]) -> dict:
    """bleu, bleu_signature, chrf, and the length (words, of 100 in the references)."""
    tokenised = read_segmentation(run)["segmentation"] != "sentencepiece"
    scores = corpus_scores(outputs, references, run.target_lang, tokenised)
    words, wanted = (sum(len(text.split()) for text in texts) for texts in (outputs, references))
    kept = {name: scores[name] for name in ("bleu", "bleu_signature", "chrf")}
    return {**kept, "length": percent(words, wanted)}
