"""IWSLT'14 German-English, TED talks: the archive that fairseq's examples use.

The split is the one most papers have since then: every 23rd sentence of the training data
validates, all official development and test sets together are the test set.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from data_prep import archives, formats
from data_prep.clean import Row, Rows, aligned, joined
from data_prep.download import Source
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

# fairseq's script also lower-cases and drops pairs by the ratio of their lengths. SE does neither:
# its BLEU is cased, and its 172K pairs are all that the archive has.
DEFAULTS = {"source": "de", "target": "en", "operations": 10_000, "max_words": 175}
ARCHIVE = Source("de-en.tgz", "http://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz")
TESTS = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
VALID_EVERY = 23


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    if {spec.source, spec.target} != {"de", "en"}:
        raise UsageError(f"iwslt14 has de and en, not {spec.source} and {spec.target}")
    return [ARCHIVE]


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    languages = (spec.source, spec.target)
    train = [f"de-en/train.tags.de-en.{language}" for language in languages]
    tests = [[f"de-en/IWSLT14.{name}.de-en.{lang}.xml" for lang in languages] for name in TESTS]
    archives.unpack(files[ARCHIVE.name], scratch, chain(train, *tests))

    pairs = aligned(scratch / train[0], scratch / train[1], formats.transcripts)

    def talks(valid: bool) -> Rows:
        share = 1 / VALID_EVERY if valid else 1 - 1 / VALID_EVERY
        return Rows(lambda: _talks(pairs, valid), *pairs.counted, share=share)

    return {
        "train": talks(valid=False),
        "valid": talks(valid=True),
        "test": joined(
            *(aligned(scratch / left, scratch / right, formats.segments) for left, right in tests)
        ),
    }


def _talks(pairs: Rows, valid: bool) -> Iterator[Row]:
    return (row for n, row in enumerate(pairs, 1) if (n % VALID_EVERY == 0) == valid)
