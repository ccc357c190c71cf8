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


def write_iwslt14(raw: Path, size: int = 115) -> Path:
    pairs = sentences(("de", "en"), size)
    members = {}
    for side, language in enumerate(("de", "en")):
        lines = [pair[side] for pair in pairs]
        members[f"de-en/train.tags.de-en.{language}"] = tagged(lines)
        for number, name in enumerate(
            ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
        ):
            part = [pair[side] for pair in sentences(("de", "en"), 3, seed=number + 1)]
            members[f"de-en/IWSLT14.{name}.de-en.{language}.xml"] = sgml(part)
    tar(raw / "de-en.tgz", members)
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
