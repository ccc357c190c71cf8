"""Between text, words and the pieces that a model sees. Nothing here knows a model.

A word is what spaces divide once the text is tokenised as the training data were; its name is how
the data spell it (Moses writes ' as &apos;). A piece is an entry of the dictionary.
"""

import functools
import html
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from data_prep.clean import BYTE_ORDER_MARK, CONTROL
from data_prep.inflection import SPACE, characters, spelled
from data_prep.segmentation import segmenter, tokenizer
from data_prep.spec import DataSpec
from sparse_fairseq.criterions.sparse_criterion import uncounted_symbols

TAG = re.compile(r"\[[^\[\]\s]+\]")  # of an inflection, as data_prep.inflection writes it
HIGHEST = "\U0010ffff"


class Language:
    """One side of the data: text to words, words to pieces, and back."""

    def __init__(self, record: dict, code: str, folder: Path, lowercase: bool = False):
        """``record``: segmentation.json, whose models are in ``folder``."""
        keys = ("source", "target", "tokenizer", "normalise", "segmentation")
        self.spec = DataSpec(**{key: record[key] for key in keys if key in record})
        self.code, self.lowercase = code, lowercase
        self.kind = self.spec.segmentation
        name = record.get("models", {}).get(code)
        self.model = folder / name if name else None

    def words(self, text: str) -> list[str]:
        """The names of a text's words; control characters count as spaces, as in the data."""
        text = " ".join(CONTROL.sub(" ", text).removeprefix(BYTE_ORDER_MARK).split())
        text = text.lower() if self.lowercase else text
        if self.kind == "characters":
            tags = TAG.findall(text)
            return [*tags, *characters(TAG.sub("", text)).split()]
        return tokenizer(self.spec, self.code)(text).split()

    def text_of(self, line: str) -> str:
        """A line of the data as people write it."""
        if self.kind != "characters":
            return line
        return " ".join([*TAG.findall(line), spelled(TAG.sub("", line))])

    def pieces(self, word: str) -> list[str]:
        return [word] if self.model is None else segmenter(self.spec, self.model)([word])[0].split()

    def shown(self, word: str) -> str:
        """A word as people write it."""
        if self.kind == "characters":
            return word.replace(SPACE, "\u2423")
        if not self._moses:
            return word
        return "-" if word == "@-@" else html.unescape(word)

    def named(self, letters: str) -> str:
        """The beginning of a word as the data spell it."""
        return _tokenizer(self.code).escape_xml(letters) if self._moses else letters

    @property
    def _moses(self) -> bool:
        return self.spec.tokenizer == "moses"

    def joined(self, words: Sequence[str]) -> str:
        """The text of a sentence."""
        if self.kind == "characters":
            return spelled(" ".join(words))
        if not self._moses:
            return " ".join(words)
        return _detokenizer(self.code).detokenize(list(words))

    def after(self, words: Sequence[str], word: str) -> str:
        """What is added to the text of ``words`` by one more."""
        # Quotes go by turns; all else is decided by the words beside it.
        near = words if '"' in html.unescape(word) else words[-1:]
        return self._after(tuple(near), word)

    @functools.lru_cache(maxsize=20_000)  # noqa: B019  (there are as many as languages)
    def _after(self, words: tuple[str, ...], word: str) -> str:
        before, whole = self.joined(words), self.joined([*words, word])
        return whole[len(before) :] if whole.startswith(before) else f" {self.shown(word)}"


@functools.cache
def _tokenizer(language: str):
    from sacremoses import MosesTokenizer

    return MosesTokenizer(language)


@functools.cache
def _detokenizer(language: str):
    from sacremoses import MosesDetokenizer

    return MosesDetokenizer(language)


class Pieces:
    """The pieces of a dictionary: which of them end a word, which of them may begin with what."""

    def __init__(self, dictionary, kind: str):
        self.symbols: list[str] = list(dictionary.symbols)
        self.eos, self.unknown, self.index = dictionary.eos(), dictionary.unk(), dictionary.index
        # A piece of sentencepiece does not know whether a word ends with it: the next one does.
        self.ends_late = kind == "sentencepiece"
        left_out = set(uncounted_symbols(dictionary))
        counted = [i for i in range(len(self.symbols)) if i not in left_out]
        bpe = kind == "bpe"
        self.letters = [self._letters(symbol, bpe) for symbol in self.symbols]
        self.goes_on = [bpe and symbol.endswith("@@") for symbol in self.symbols]
        self.begins = [not self.ends_late or s.startswith(SPACE) for s in self.symbols]
        self.begins[self.eos] = self.begins[self.unknown] = True
        self.counted, self.uncounted = torch.tensor(counted), torch.tensor(sorted(left_out))
        self.begins_word = torch.tensor(self.begins)
        self.beginners = self.counted[self.begins_word[self.counted]]
        # Within a word BPE has no end; a piece that ends late may not begin the next word.
        if self.ends_late:
            self.inside = self.counted[~self.begins_word[self.counted]]
        else:
            self.inside = self.counted[self.counted != self.eos]
        late = () if self.ends_late else (self.eos,)
        self.no_word_inside = torch.tensor([*sorted(left_out), *late])
        spelled = [i for i in counted if i != self.eos]
        self._sorted = sorted((self.letters[i].casefold(), i) for i in spelled)
        self._spelled: dict[str, list[int]] = {}
        for letters, i in self._sorted:
            self._spelled.setdefault(letters, []).append(i)

    def _letters(self, symbol: str, bpe: bool) -> str:
        if self.ends_late:
            return symbol.removeprefix(SPACE)
        return symbol.removesuffix("@@") if bpe else symbol

    def fitting(self, letters: str) -> torch.Tensor:
        """Pieces with which a word may go on that is to begin with these letters."""
        letters = letters.casefold()
        first = bisect_left(self._sorted, (letters, -1))
        last = bisect_left(self._sorted, (letters + HIGHEST, -1))
        found = [i for _, i in self._sorted[first:last]]
        for end in range(len(letters)):
            shorter = self._spelled.get(letters[:end], [])
            found += [i for i in shorter if self.goes_on[i] or self.ends_late]
        return torch.tensor(found, dtype=torch.long)

    def name(self, path: Iterable[int]) -> str:
        """The word that pieces spell."""
        return "".join(self.letters[i] for i in path)

    def split(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        """Tokens without EOS, word by word."""
        words: list[list[int]] = []
        open_word = False
        for token in tokens:
            begins = self.begins[token] if self.ends_late else not open_word
            if begins or not words:
                words.append([])
            words[-1].append(token)
            open_word = self.goes_on[token]
        return [tuple(word) for word in words]
