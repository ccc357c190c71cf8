"""What the best possible system could score: references through the tokeniser and back.

A reference is reachable if the tokens that a model is trained on give it back as it was. Where the
recipe changes what the references keep, no system reaches 100 BLEU.
"""

from pathlib import Path

from data_prep.spec import DataSpec


def ceiling(spec: DataSpec, clean: Path, split: str) -> float | None:
    """BLEU of a split's own references after tokenisation; None where text is not tokenised."""
    if spec.tokenizer == "none":
        return None
    import sacrebleu
    from sacremoses import MosesDetokenizer

    moses = MosesDetokenizer(spec.target)
    references = _lines(clean / f"{split}.{spec.target}")
    tokens = _lines(clean / f"{split}.tokens.{spec.target}")
    # As fairseq's own `--tokenizer moses` gives text back.
    reached = [moses.detokenize(line.split()) for line in tokens]
    return round(sacrebleu.corpus_bleu(reached, [references]).score, 1)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]
