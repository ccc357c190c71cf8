"""From clean text to the units a model sees: Moses tokens, then BPE or sentencepiece.

Both are what `fairseq-interactive` does with raw text under the flags that `interactive_flags`
gives. Codes are learnt with subword-nmt and applied with fastBPE.
"""

import functools
import heapq
import io
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from data_prep import archives
from data_prep.files import atomic_output, write_json
from data_prep.parallel import chunks, ordered_map
from data_prep.progress import Progress, track
from data_prep.records import read_record
from data_prep.spec import LEARNT, DataSpec
from sparse_fairseq.errors import UsageError

CHUNK = 5_000
# subword-nmt holds 0.8 kB per type; rarer words hardly matter for what is merged.
LEARN_TYPES = 400_000
# Beyond this many types, those seen once are forgotten while counting.
COUNTED_TYPES = 2_000_000
# sentencepiece holds its training sentences in memory.
LEARN_SENTENCES = 1_000_000

RECORD = "segmentation.json"
WITHOUT_SPACES = ("bo", "ja", "km", "lo", "my", "th", "yue", "zh")


@functools.cache
def tokenizer(spec: DataSpec, language: str) -> Callable[[str], str]:
    """Moses tokenisation exactly as fairseq's own `--tokenizer moses` does it by default."""
    if spec.tokenizer == "none":
        return str
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(language)
    return functools.partial(
        moses.tokenize, aggressive_dash_splits=True, return_str=True, escape=True
    )


@functools.cache
def normaliser(spec: DataSpec, language: str) -> Callable[[str], str]:
    """Moses punctuation normalisation, for text that models read as well as for references."""
    if not spec.normalise:
        return str
    from sacremoses import MosesPunctNormalizer

    moses = MosesPunctNormalizer(language)
    return lambda text: " ".join(moses.normalize(text).split())


def tokenizer_note(spec: DataSpec, language: str) -> str | None:
    """What to tell people of a language that Moses does not know."""
    if spec.tokenizer == "none":
        return None
    from sacremoses.corpus import NonbreakingPrefixes

    if language in WITHOUT_SPACES:
        return (
            f"'{language}' is written without spaces: sentencepiece may suit it better than Moses"
        )
    if language in NonbreakingPrefixes().available_langs.values():
        return None
    return f"Moses has no rules for '{language}': it is tokenised with those of English"


class WordCounts:
    """Counts words of any number of sentences in bounded memory."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def update(self, more: Counter[str]) -> None:
        self.counts.update(more)
        if len(self.counts) > COUNTED_TYPES:
            self.counts = Counter({w: n for w, n in self.counts.items() if n > 1})

    def write(self, path: Path) -> None:
        """The most frequent words with their counts, equal ones in alphabetical order."""
        order = heapq.nsmallest(
            LEARN_TYPES, self.counts.items(), key=lambda item: (-item[1], item[0])
        )
        with atomic_output(path) as file:
            file.writelines(f"{word} {count}\n" for word, count in order)


def learn(spec: DataSpec, clean: Path, models: Path, jobs: int) -> None:
    """Learns what the spec's segmentation needs, in processes that give back their memory."""
    if spec.segmentation not in LEARNT:
        return
    if spec.segmentation == "bpe":
        files = {name: clean / f"words.{language}" for language, name in model_files(spec).items()}
        work = [
            functools.partial(_learn_bpe, words, models / name, spec.operations)
            for name, words in files.items()
        ]
    else:
        texts = [clean / f"train.tokens.{language}" for language in (spec.source, spec.target)]
        model = models / "spm.model"
        work = [functools.partial(_learn_sentencepiece, texts, model, spec.operations)]
    try:
        list(ordered_map(_call, work, jobs=min(jobs, len(work))))
    except (ValueError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or ["?"])[-1]
        if most := re.search(r"set it to a value <= (\d+)", reason):  # as sentencepiece says it
            reason = f"at most {most[1]} are possible: --operations {most[1]}"
            reason += f" (make own: OPERATIONS={most[1]})"
        what = f"cannot learn {spec.operations} {spec.segmentation} operations"
        raise UsageError(f"{what} from this text: {reason}") from error


def _call(function: Callable[[], None]) -> None:
    function()


def _learn_bpe(words: Path, codes: Path, operations: int) -> None:
    """Learns merges from counted words and writes them in fastBPE's format."""
    from subword_nmt import learn_bpe as subword_nmt

    # Its own bar knows nothing of logs.
    subword_nmt.tqdm = lambda steps: track(steps, f"learn {codes.name}", len(steps), "merges")
    learnt = io.StringIO()
    with words.open(encoding="utf-8", newline="\n") as vocabulary:
        subword_nmt.learn_bpe(vocabulary, learnt, operations, is_dict=True)
    with atomic_output(codes) as file:
        # fastBPE wants a third column, the count of the pair, and reads only the order of lines.
        merges = learnt.getvalue().split("\n")[1:-1]
        file.writelines(f"{merge} {len(merges) - rank}\n" for rank, merge in enumerate(merges))


def _learn_sentencepiece(texts: list[Path], model: Path, pieces: int) -> None:
    """Learns pieces from evenly spaced sentences of both languages."""
    import sentencepiece

    stride = -(-sum(map(archives.count_lines, texts)) // LEARN_SENTENCES)
    sentences = (
        line.decode()
        for text in texts
        for number, line in enumerate(archives.lines(text))
        if number % stride == 0
    )
    learnt = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences, model_writer=learnt, vocab_size=pieces, minloglevel=2
    )
    with atomic_output(model, "wb") as file:
        file.write(learnt.getvalue())


def model_files(spec: DataSpec) -> dict[str, str]:
    """Which file segments which language: one for both if the segmentation is joint."""
    if spec.segmentation not in LEARNT:
        return {}
    name = "codes" if spec.segmentation == "bpe" else "spm.model"
    languages = (spec.source, spec.target)
    return {lang: name if spec.joint_bpe else f"{name}.{lang}" for lang in languages}


@functools.cache
def segmenter(spec: DataSpec, model: Path) -> Callable[[list[str]], list[str]]:
    if spec.segmentation == "bpe":
        import fastBPE

        with _silent_stderr():
            return fastBPE.fastBPE(str(model)).apply
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return lambda texts: [" ".join(line) for line in pieces.encode(texts, out_type=str)]


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """fastBPE reports every loading of codes, below the level of Python's own stderr."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _segment_chunk(spec: DataSpec, model: Path, lines: list[bytes]) -> bytes:
    segmented = segmenter(spec, model)([line.decode() for line in lines])
    return "".join(f"{line}\n" for line in segmented).encode()


def segment(spec: DataSpec, text: Path, model: Path, out: Path, size: int, jobs: int) -> None:
    """Segments one file of tokenised text on all cores."""
    work = functools.partial(_segment_chunk, spec, model)
    with (
        atomic_output(out, "wb") as file,
        Progress(f"segment {out.name}", size, "sentences") as bar,
    ):
        for segmented in ordered_map(work, chunks(archives.lines(text), CHUNK), jobs):
            file.write(segmented)
            bar.advance(segmented.count(b"\n"))


def _record(spec: DataSpec) -> dict:
    keys = ("source", "target", "tokenizer", "normalise", "segmentation", "operations")
    keys += ("joint_bpe", "joint_dictionary")
    return {**{key: getattr(spec, key) for key in keys}, "models": model_files(spec)}


def write_record(spec: DataSpec, bin_dir: Path) -> None:
    """Says beside the binarised data how its text was segmented."""
    write_json(bin_dir / RECORD, _record(spec))


def interactive_flags(bin_dir: str | Path, spec: DataSpec | None = None) -> list[str]:
    """Flags with which fairseq-interactive takes raw text, and fairseq-generate gives it.

    With ``spec``, of data that have yet to be made.
    """
    bin_dir = Path(bin_dir)
    path = bin_dir / RECORD
    remedy = "prepare the data anew (python -m data_prep)"
    if spec is None and not path.exists():
        raise UsageError(f"{path} is missing: {remedy}")
    keys = ("source", "target", "tokenizer", "segmentation", "models")
    record = _record(spec) if spec else read_record(path, remedy, *keys)
    flags = [f"--source-lang={record['source']}", f"--target-lang={record['target']}"]
    if record["tokenizer"] == "moses":
        flags.append("--tokenizer=moses")
    models = {lang: bin_dir.resolve() / name for lang, name in record["models"].items()}
    if record["segmentation"] == "bpe":
        # Only the source is ever encoded; decoding joins what ends in @@ and needs no codes.
        flags += ["--bpe=fastbpe", f"--bpe-codes={models[record['source']]}"]
    elif record["segmentation"] == "sentencepiece":
        flags += ["--bpe=sentencepiece", f"--sentencepiece-model={models[record['source']]}"]
    return flags
