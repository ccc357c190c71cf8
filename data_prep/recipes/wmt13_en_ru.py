"""WMT'13 English-Russian: Common Crawl, News Commentary v8, Wikipedia's headlines.

That is what WMT'13 offered without the Yandex corpus, which SE leaves out for its licence; SE
counts 1.3M pairs after a filtering that it does not describe.
"""

from collections import Counter
from pathlib import Path

from data_prep import archives, formats
from data_prep.acceptance import Presumed
from data_prep.clean import Rows, aligned, joined
from data_prep.download import Source
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

DEFAULTS = {
    "source": "en",
    "target": "ru",
    "operations": 60_000,
    "max_words": 250,
    "max_ratio": 9.0,
}
COMMON_CRAWL = Source(
    "training-parallel-commoncrawl.tgz",
    "https://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz",
)
NEWS = Source(
    "training-parallel-nc-v8.tgz", "https://www.statmt.org/wmt13/training-parallel-nc-v8.tgz"
)
# The Russian headlines are the same in every year's archive.
HEADLINES = Source(
    "wiki-titles.tgz",
    "https://www.statmt.org/wmt15/wiki-titles.tgz",
    md5="f74eef43032766d55884a5073ed8ce27",
)
VALID = Source("dev.tgz", "https://www.statmt.org/wmt13/dev.tgz")
TEST = Source(
    "test.tgz", "https://www.statmt.org/wmt13/test.tgz", md5="48eca5d02f637af44e85186847141f67"
)


def sources(spec: DataSpec, raw: Path | None) -> list[Source]:
    if {spec.source, spec.target} != {"en", "ru"}:
        raise UsageError(f"wmt13_en_ru has en and ru, not {spec.source} and {spec.target}")
    return [COMMON_CRAWL, NEWS, HEADLINES, VALID, TEST]


def official(spec: DataSpec) -> dict[str, int]:
    # newstest2013 is the same text in all languages; see wmt14_en_de.
    return {"valid": Presumed(3_003), "test": 3_000}


def read(spec: DataSpec, files: dict[str, Path], scratch: Path, dropped: Counter[str]):
    languages = (spec.source, spec.target)

    def unpack(source: Source, pattern: str) -> list[Path]:
        members = [pattern.format(language) for language in languages]
        return archives.unpack(files[source.name], scratch, members)

    crawl = unpack(COMMON_CRAWL, "commoncrawl.ru-en.{}")
    news = unpack(NEWS, "training/news-commentary-v8.ru-en.{}")
    headlines = archives.unpack(files[HEADLINES.name], scratch, ["wiki/ru-en/wiki.ru-en"])[0]
    return {
        "train": joined(aligned(*crawl), aligned(*news), _headlines(headlines, spec, dropped)),
        "valid": aligned(*unpack(VALID, "dev/newstest2012.{}")),
        "test": aligned(*unpack(TEST, "test/newstest2013-src.{}.sgm"), formats.segments),
    }


def _headlines(path: Path, spec: DataSpec, dropped: Counter[str]) -> Rows:
    """The file's lines are Russian ||| English."""
    step = 1 if spec.source == "ru" else -1
    return Rows(lambda: (row[::step] for row in formats.columns(path, b" ||| ", dropped)), path)
