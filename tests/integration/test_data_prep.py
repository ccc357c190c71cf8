"""`python -m data_prep` as a user types it, down to what fairseq-preprocess binarised."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest
from miniature_corpora import write_iwslt14, write_multi30k

from data_prep.files import sha256
from data_prep.segmentation import interactive_flags

ROOT = Path(__file__).parents[2]
# Where real corpora lie, each in a folder of its own.
DATA = os.environ.get("SPARSE_FAIRSEQ_DATA")
MULTI30K = Path(DATA or "nowhere") / "multi30k_de_en"
COMMON = ("--recipe=multi30k", "--operations=80", "--any-size")
SIZES = {"train": 300, "val": 20, "test_2016_flickr": 20}


def data_prep(*args, **options) -> subprocess.Popen:
    command = [sys.executable, "-m", "data_prep", *map(str, args)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=environment, **pipes, **options)


def run(*args, code: int = 0) -> str:
    process = data_prep(*args)
    out, err = process.communicate(timeout=900)
    assert process.returncode == code, err
    return out + err


def record(out: Path) -> dict:
    return json.loads((out / "data.json").read_text())


@pytest.fixture(scope="module")
def multi30k(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("multi30k")
    raw = write_multi30k(folder / "raw", SIZES)
    output = run(*COMMON, "--out", folder / "out", "--raw", raw)
    assert "300 train, 20 valid, 20 test pairs" in output
    assert "WARNING: train has 300 pairs, but the official files have 29,000" in output
    assert "the most a system can reach): 100.0 BLEU valid, 100.0 BLEU test" in output
    return {"raw": raw, "out": folder / "out"}


def binarised(out: Path, split: str, language: str) -> list[str]:
    from fairseq.data import Dictionary, data_utils

    dictionary = Dictionary.load(str(out / "bin" / f"dict.{language}.txt"))
    prefix = str(out / "bin" / f"{split}.de-en.{language}")
    dataset = data_utils.load_indexed_dataset(prefix, dictionary)
    return [dictionary.string(dataset[n]) for n in range(len(dataset))]


def test_fairseqs_own_encoders_make_the_binarised_tokens_from_the_text(multi30k):
    """So fairseq-interactive sees what the model was trained on, and text and bin are aligned."""
    from fairseq.data import encoders

    flags = interactive_flags(multi30k["out"] / "bin")
    values = dict(flag.removeprefix("--").split("=", 1) for flag in flags)
    values = {name.replace("-", "_"): value for name, value in values.items()}
    assert values["tokenizer"] == "moses" and values["bpe"] == "fastbpe"
    for language in ("de", "en"):
        # fairseq encodes with the source language's rules; the target is encoded only here.
        settings = Namespace(**{**values, "source_lang": language})
        settings.moses_no_dash_splits = settings.moses_no_escape = False
        tokenizer, bpe = encoders.build_tokenizer(settings), encoders.build_bpe(settings)
        for split in ("train", "valid", "test"):
            lines = (multi30k["out"] / "text" / f"{split}.{language}").read_text().splitlines()
            tokens = [bpe.encode(tokenizer.encode(line)) for line in lines]
            assert binarised(multi30k["out"], split, language) == tokens
    assert (multi30k["out"] / "bin" / "dict.de.txt").read_bytes() == (
        multi30k["out"] / "bin" / "dict.en.txt"
    ).read_bytes()


def test_data_json_describes_what_is_there(multi30k):
    found = record(multi30k["out"])
    assert found["sizes"] == {"train": 300, "valid": 20, "test": 20}
    assert found["spec"]["operations"] == 80
    for name, checksum in found["checksums"].items():
        assert sha256(multi30k["out"] / name) == checksum
    assert {"bin/codes", "bin/segmentation.json", "text/test.en"} <= set(found["checksums"])
    files = {p.name: p for p in multi30k["out"].iterdir()}
    assert set(files) == {".lock", "bin", "data.json", "raw", "text"}
    assert [entry["lines"] for entry in found["sources"]] == [300, 300, 20, 20, 20, 20]


def test_a_second_call_does_nothing_and_another_spec_is_refused(multi30k):
    before = (multi30k["out"] / "data.json").stat().st_mtime_ns
    common = ("--recipe=multi30k", "--out", multi30k["out"])
    # Without --raw: nothing is read or fetched any more.
    assert "300 train" in run(*common, "--operations=80")
    assert (multi30k["out"] / "data.json").stat().st_mtime_ns == before
    other = run(*common, "--operations=81", code=1)
    assert other.startswith("sparse_fairseq: error: ") and other.count("\n") == 1
    assert "holds data with operations 80, not 81: remove its data.json" in other


def test_a_second_call_imports_neither_torch_nor_fairseq(multi30k):
    heavy = {"torch", "fairseq", "sacremoses", "sentencepiece", "sacrebleu"}
    code = f"import sys, data_prep.__main__ as m; m.main(); print({heavy} & {{*sys.modules}})"
    command = [sys.executable, "-c", code, *COMMON, "--out", str(multi30k["out"])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_mistakes_are_one_line(tmp_path):
    for args, message in (
        (["--recipe=multi30k", "--raw", tmp_path / "no"], "/no is not a directory"),
        (["--recipe=mulit30k"], "unknown recipe 'mulit30k'; did you mean 'multi30k'?"),
        (["--recipe=multi30k", "--source=xx"], "multi30k has cs, de, en, fr, not 'xx'"),
    ):
        output = run(*args, "--out", tmp_path / "out", code=1)
        assert output.startswith("sparse_fairseq: error: "), output
        assert output.count("\n") == 1 and message in output
    (tmp_path / "mine" / "text").mkdir(parents=True)
    output = run("--recipe=multi30k", "--out", tmp_path / "mine", code=1)
    assert "mine/text exists, but no data.json says what it is" in output
    assert (tmp_path / "mine" / "text").exists()


def test_truncated_and_unequal_files_are_named(multi30k, tmp_path):
    raw = tmp_path / "raw"
    shutil.copytree(multi30k["raw"], raw)
    whole = (raw / "train.en.gz").read_bytes()
    (raw / "train.en.gz").write_bytes(whole[:-200])
    common = (*COMMON, "--raw", raw, "--out", tmp_path / "out")
    assert "raw/train.en.gz is not the right file: it is truncated" in run(*common, code=1)
    (raw / "train.en.gz").write_bytes((raw / "val.en.gz").read_bytes())
    output = run(*common, code=1)
    assert "raw/train.de.gz has 300 sentences but" in output
    assert "train.en.gz has 20" in output
    assert not (tmp_path / "out" / "data.json").exists()
    assert not (tmp_path / "out" / "bin").exists()


def test_a_killed_preparation_goes_on_and_ends_the_same(multi30k, tmp_path):
    """kill -9 as soon as each stage has left its mark; then once more to the end."""
    out = tmp_path / "out"
    common = (*COMMON, "--raw", multi30k["raw"], "--out", out)
    for mark in (".work/clean.*.tmp", ".work/models", ".work/ready.*.tmp/bin/dict.de.txt"):
        process = data_prep(*common, start_new_session=True)
        deadline = time.monotonic() + 600
        while not list(out.glob(mark)):
            assert process.poll() is None, f"ended before {mark}"
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # Only the process itself: what it started must end without being told.
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert not (out / "data.json").exists()
    run(*common)
    assert record(out)["checksums"] == record(multi30k["out"])["checksums"]
    assert not (out / ".work").exists()
    # Killed after the last move; then somebody removes what was made, to have it made anew.
    (out / ".work" / "ready").mkdir(parents=True)
    spec = json.dumps(record(out)["spec"])
    (out / ".work" / "spec.json").write_text(spec)
    for name in ("text", "bin"):
        shutil.rmtree(out / name)
    (out / "data.json").unlink()
    run(*common)
    assert record(out)["checksums"] == record(multi30k["out"])["checksums"]


def test_iwslt14_from_its_archive_by_two_processes_at_once(tmp_path):
    raw = write_iwslt14(tmp_path / "raw", size=115)
    args = ("--recipe=iwslt14", "--operations=50", "--no-joint-bpe", "--no-joint-dictionary")
    args += ("--source=en", "--target=de", "--any-size")
    together = [data_prep(*args, "--raw", raw, "--out", tmp_path / "out") for _ in range(2)]
    outputs = ["".join(process.communicate(timeout=900)) for process in together]
    # Two at once: one works, the other waits and finds it done.
    assert [process.returncode for process in together] == [0, 0], outputs
    assert sum("waiting: another process works on" in output for output in outputs) == 1
    assert sum("binarise: " in output for output in outputs) == 1
    bin_dir = tmp_path / "out" / "bin"
    assert {"codes.de", "codes.en", "train.en-de.de.idx"} <= {p.name for p in bin_dir.iterdir()}
    assert (bin_dir / "dict.de.txt").read_text() != (bin_dir / "dict.en.txt").read_text()
    assert interactive_flags(bin_dir)[-1] == f"--bpe-codes={bin_dir / 'codes.en'}"


@pytest.mark.skipif(not MULTI30K.is_dir(), reason="needs SPARSE_FAIRSEQ_DATA/multi30k_de_en")
@pytest.mark.slow
def test_the_real_multi30k(tmp_path):
    run("--recipe=multi30k", "--operations=8000", "--raw", MULTI30K, "--out", tmp_path)
    found = record(tmp_path)
    # The sizes that the dataset's own description gives.
    assert found["sizes"] == {"train": 29_000, "valid": 1_014, "test": 1_000}
    assert not found["dropped"]


def tree_memory(pid: int) -> float:
    """Proportional memory of a process and all below it in MB (shared pages counted once)."""
    total, todo = 0.0, [pid]
    while todo:
        current = todo.pop()
        try:
            rollup = Path(f"/proc/{current}/smaps_rollup").read_text()
            children = Path(f"/proc/{current}/task").glob("*/children")
            todo += [int(child) for file in children for child in file.read_text().split()]
        except (OSError, ValueError):
            continue
        total += int(rollup.split("Pss:")[1].split()[0]) / 1024
    return total


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_200_000_pairs_show_the_rate_and_the_memory(tmp_path, capsys):
    """The bound is 1.5 GB for 5 million pairs; what streams costs the same for 200,000."""
    size = 200_000
    raw = write_multi30k(tmp_path / "raw", {**SIZES, "train": size})
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started, peak = time.monotonic(), 0.0
    args = ("--recipe=multi30k", "--operations=2000", "--any-size", "--raw", raw)
    process = data_prep(*args, "--out", tmp_path)
    while process.poll() is None:
        peak = max(peak, tree_memory(process.pid))
        time.sleep(1.0)
    seconds = time.monotonic() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    assert process.returncode == 0, process.stderr.read()
    with capsys.disabled():
        rates = f"{size / seconds:,.0f} pairs/s, {size / cpu:,.0f} per second of a core"
        print(f"\n{size:,} pairs: {rates}, peak {peak:,.0f} MB")
    assert record(tmp_path)["sizes"]["train"] == size
    assert peak < 1_500
