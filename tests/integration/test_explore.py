"""`python -m experiments.explore` as a user types it, on models that fairseq trained."""

import json
import lzma
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from explore_server import Site

from experiments.explore.__main__ import listening, main

ROOT = Path(__file__).parents[2]
FROZEN = ROOT / "tests/checkpoints"


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two trained runs of a dataset; a third one has a checkpoint that nobody can read."""
    folder = tmp_path_factory.mktemp("explore")
    data = folder / "data"
    data.mkdir()
    for side in ("src", "tgt"):
        (data / f"dict.{side}.txt").write_text((FROZEN / f"data/dict.{side}.txt").read_text())
        (data / f"valid.{side}").write_text("a b c d\n")
    record = {"source": "src", "target": "tgt", "tokenizer": "none", "segmentation": "none"}
    (data / "segmentation.json").write_text(json.dumps(record))
    for system, frozen in {"entmax15": "entmax", "softmax": "softmax", "relu15": None}.items():
        run = folder / "runs/letters" / system / "seed1"
        (run / "checkpoints").mkdir(parents=True)
        content = lzma.decompress((FROZEN / f"{frozen}.pt.xz").read_bytes()) if frozen else b"PK"
        (run / "checkpoints/checkpoint_best.pt").write_bytes(content)
        config = {"dataset": "letters", "data": record, "generate": {"beam": 3}}
        where = {"bin": str(data), "text": str(data)}
        manifest = {"config": config, "data": where, "commands": {}, "stages": {}}
        (run / "manifest.json").write_text(json.dumps(manifest))
    return folder / "runs"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_page_lists_runs_answers_and_ends_with_ctrl_c(runs):
    port = free_port()
    command = [sys.executable, "-m", "experiments.explore", str(runs / "letters")]
    with subprocess.Popen(
        [*command, "--port", str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            lines = []
            while not lines or not lines[-1].startswith("http"):
                lines.append(process.stdout.readline())
                assert lines[-1], process.stderr.read()
            site = Site(port)
            listed = {run["name"].split("/")[1]: run for run in site.ask("/api/runs").value["runs"]}
            found = site.ask("/api/translate", {"run": 0, "source": "d a a c"}).value
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert lines[-1] == f"http://127.0.0.1:{port}/  (Ctrl-C ends it)\n"
    assert "half-trained" in listed["entmax15"]["note"]
    assert listed["relu15"]["problem"] and "\n" not in listed["relu15"]["problem"]
    assert [word["unknown"] for word in found["source"]] == [False] * 4
    assert found["words"] and all(word["score"] > 0 for word in found["words"])
    assert len(found["attention"]) == len(found["words"]) + 1
    assert (out, process.returncode) == ("ended\n", 0)
    assert "Traceback" not in errors


def test_taken_port_is_one_line_with_the_next_free_one(runs):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SystemExit, match=rf"port {port} is taken: use --port (\d+)") as error:
            main([str(runs / "letters"), "--port", str(port)])
    free = int(str(error.value).partition("--port ")[2].split()[0])
    assert free > port
    listening(free).close()


def test_page_is_for_this_machine_alone():
    with listening(free_port()) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere/letters"], "nowhere/letters is no directory: train first"),
        (["--port", "0", "."], "--port must be between 1 and 65535, got 0"),
        ([], "arguments are required: RUN"),
        (["--port", "x", "."], "invalid int value: 'x'"),
    ],
)
def test_bad_calls_are_one_line(arguments, message):
    with pytest.raises(SystemExit, match=message) as error:
        main(arguments)
    assert "\n" not in str(error.value)


def test_nothing_but_broken_runs_is_one_line(runs):
    with pytest.raises(SystemExit, match="none of these runs can be used"):
        main([str(runs / "letters/relu15/seed1"), "--port", str(free_port())])
