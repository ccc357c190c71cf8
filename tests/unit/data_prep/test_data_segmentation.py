"""Segmentation: merges that subword-nmt learnt do the same in fastBPE; counting stays small."""

import io
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from miniature_corpora import VOCABULARY, sentences, text

from data_prep import segmentation
from data_prep.parallel import chunks, ordered_map
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

SPEC = DataSpec.from_mapping({"recipe": "multi30k", "operations": 60})


def learnt(folder, lines, spec=SPEC):
    counts = segmentation.WordCounts()
    counts.update(Counter(word for line in lines for word in line.split()))
    for language in ("de", "en"):
        counts.write(folder / f"words.{language}")
        (folder / f"train.tokens.{language}").write_bytes(text(lines))
    segmentation.learn(spec, folder, folder, jobs=2)
    return folder


def test_fastbpe_applies_the_merges_as_subword_nmt_does(tmp_path):
    from subword_nmt.apply_bpe import BPE

    lines = [side for pair in sentences(("de", "ru"), 200) for side in pair]
    codes = learnt(tmp_path, lines) / "codes"
    merges = [line.rsplit(" ", 1)[0] for line in codes.read_text().splitlines()]
    assert len(merges) == 60
    oracle = BPE(io.StringIO("#version: 0.2\n" + "\n".join(merges) + "\n"))
    unseen = [*lines, "Straßenhund Reykjavík 大きい x&apos;y @-@ a", "größerer Flußname ."]
    assert segmentation.segmenter(SPEC, codes)(unseen) == [oracle.process_line(x) for x in unseen]


def test_codes_are_learnt_apart_where_the_segmentation_is_not_joint(tmp_path):
    spec = DataSpec.from_mapping({"recipe": "multi30k", "operations": 5, "joint_bpe": False})
    for language in ("de", "en"):
        counts = segmentation.WordCounts()
        counts.update(Counter({word: 3 for word in VOCABULARY[language].split()}))
        counts.write(tmp_path / f"words.{language}")
    segmentation.learn(spec, tmp_path, tmp_path, jobs=2)
    assert (tmp_path / "codes.de").read_text() != (tmp_path / "codes.en").read_text()
    segmentation.write_record(spec, tmp_path)
    assert segmentation.interactive_flags(tmp_path) == [
        "--source-lang=de",
        "--target-lang=en",
        "--tokenizer=moses",
        "--bpe=fastbpe",
        f"--bpe-codes={tmp_path / 'codes.de'}",
    ]


def test_sentencepiece_gives_back_the_text(tmp_path):
    mapping = {"recipe": "multi30k", "segmentation": "sentencepiece", "tokenizer": "none"}
    spec = DataSpec.from_mapping({**mapping, "operations": 60})
    lines = [side for pair in sentences(("de", "en"), 200) for side in pair]
    model = learnt(tmp_path, lines, spec) / "spm.model"
    segmented = segmentation.segmenter(spec, model)(lines)
    assert [x.replace(" ", "").replace("▁", " ").strip() for x in segmented] == lines
    segmentation.write_record(spec, tmp_path)
    flags = segmentation.interactive_flags(tmp_path)
    assert flags[2:] == ["--bpe=sentencepiece", f"--sentencepiece-model={model}"]
    too_many = r"cannot learn 9999 sentencepiece .*: at most \d+ are possible: --operations \d+ \("
    with pytest.raises(UsageError, match=too_many):
        learnt(tmp_path, lines, DataSpec.from_mapping({**mapping, "operations": 9999}))


def test_text_that_is_split_already_needs_no_flags(tmp_path):
    spec = DataSpec.from_mapping({"recipe": "lefff"})
    segmentation.write_record(spec, tmp_path)
    assert segmentation.interactive_flags(tmp_path) == ["--source-lang=src", "--target-lang=tgt"]
    with pytest.raises(UsageError, match="segmentation.json is missing: prepare the data anew"):
        segmentation.interactive_flags(tmp_path / "nowhere")


def test_counting_forgets_only_words_seen_once(monkeypatch, tmp_path):
    monkeypatch.setattr(segmentation, "COUNTED_TYPES", 100)
    counts = segmentation.WordCounts()
    for number in range(50):
        counts.update(Counter({"always": 2, **{f"once{number}x{n}": 1 for n in range(30)}}))
        assert len(counts.counts) <= 100
    assert counts.counts["always"] == 100
    counts.write(tmp_path / "words")
    assert (tmp_path / "words").read_text().startswith("always 100\n")


def test_chunks_are_taken_as_they_are_needed_and_come_back_in_order():
    taken = []

    def numbers():
        for number in range(100):
            taken.append(number)
            yield number

    results = ordered_map(abs, numbers(), jobs=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    assert len(taken) <= 10
    assert list(results) == list(range(3, 100))
    assert list(chunks(range(5), 2)) == [[0, 1], [2, 3], [4]]


def test_workers_live_whatever_pythons_start_method_is():
    """forkserver, which is the default from 3.14 on, makes them children of another process."""
    code = (
        "import multiprocessing, time; from data_prep.parallel import ordered_map; "
        "multiprocessing.set_start_method('forkserver'); "
        "assert list(ordered_map(time.sleep, [1.5], 1)) == [None]"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_broken_record_of_the_segmentation_is_one_line(tmp_path):
    (tmp_path / segmentation.RECORD).write_text('{"source": "de"}')
    with pytest.raises(UsageError, match="is broken .it has no target.: prepare the data anew"):
        segmentation.interactive_flags(tmp_path)
