"""How an inflection task looks as a pair of token sequences."""

from data_prep.clean import Row

# Stands for a space inside a word, as in sentencepiece and in fairseq's characters.
SPACE = "\u2581"


def characters(word: str) -> str:
    """The characters of a word as tokens."""
    return " ".join(SPACE if character.isspace() else character for character in word.strip())


def spelled(tokens: str) -> str:
    """The word whose characters these are."""
    return tokens.replace(" ", "").replace(SPACE, " ")


def example(tags: list[str], lemma: str, form: str, *labels: str) -> Row:
    """Source: tags, then the lemma's characters; target: the form's characters.

    Tags are in brackets, so that none is taken for a character (N, V, 1 are both).
    """
    source = " ".join([*(f"[{tag}]" for tag in tags), characters(lemma)])
    texts = (source if characters(lemma) else "", characters(form), *labels)
    return tuple(text.encode("utf-8", "surrogateescape") for text in texts)
