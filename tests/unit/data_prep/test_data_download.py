"""Downloads that stop, lie or change, from a server of the test's own."""

import gzip
import hashlib
import json
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from miniature_corpora import tar

from data_prep import download
from data_prep.download import Source, obtain, pin
from data_prep.files import sha256
from data_prep.prepare import prepared
from data_prep.spec import DataSpec
from sparse_fairseq.errors import UsageError

CONTENT = bytes(range(256)) * 4096  # 1 MiB


class Handler(BaseHTTPRequestHandler):
    """Serves CONTENT; what the path ends with says how badly."""

    def do_GET(self):
        server = self.server
        server.requests.append((self.path, self.headers.get("Range")))
        first = sum(path == self.path for path, _ in server.requests) == 1
        if self.path == "/missing":
            return self.send_error(404)
        if self.path == "/busy" and first:
            return self.send_error(503)
        start = 0
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        if wanted and self.headers.get("If-Range") == server.etag:
            start = int(wanted[1])
        self.send_response(206 if start else 200)
        self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(server.content) - start))
        self.end_headers()
        body = server.content[start:]
        if (self.path == "/breaks" and first) or self.path == "/always-breaks":
            body = body[: len(body) // 2]
        if self.path == "/sleeps" and first:
            self.wfile.write(body[:1000])
            self.wfile.flush()
            server.released.wait(20)
            return None
        return self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        http.requests, http.etag, http.content = [], '"one"', CONTENT
        http.released = threading.Event()
        http.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield http
        http.released.set()
        http.shutdown()


def get(server, path, target, **options):
    download.download(server.url + path, target, pause=0.0, **{"timeout": 10.0, **options})


def test_a_whole_file_comes_in_one_request(server, tmp_path):
    get(server, "/file", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_broken_connection_goes_on_where_it_stopped(server, tmp_path):
    get(server, "/breaks", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert [asked for _, asked in server.requests] == [None, f"bytes={len(CONTENT) // 2}-"]


def test_a_new_process_goes_on_with_the_part_of_a_killed_one(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    (tmp_path / "file.part.json").write_text(json.dumps(server.etag))
    get(server, "/file", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.requests == [("/file", "bytes=1000-")]


def test_the_first_half_of_an_older_version_is_thrown_away(server, tmp_path):
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    (tmp_path / "file.part.json").write_text(json.dumps('"older"'))
    get(server, "/file", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_kill_before_the_first_byte_mixes_no_versions(server, tmp_path, monkeypatch):
    """Wherever the new version's name is written, nothing of the older one is left by then."""
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    (tmp_path / "file.part.json").write_text(json.dumps('"older"'))
    write = download.write_json

    def killed(*args):
        write(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(download, "write_json", killed)
        with pytest.raises(KeyboardInterrupt):
            get(server, "/file", tmp_path / "file")
    get(server, "/file", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_silent_server_times_out_and_is_asked_again(server, tmp_path):
    started = time.monotonic()
    get(server, "/sleeps", tmp_path / "file", timeout=0.5)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert time.monotonic() - started < 15
    assert len(server.requests) == 2


def test_a_busy_server_is_asked_again_and_a_missing_file_is_not(server, tmp_path):
    get(server, "/busy", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT
    server.requests.clear()
    with pytest.raises(UsageError, match=r"/missing: HTTP 404 .* or save it as SOMEWHERE/other "):
        get(server, "/missing", tmp_path / "other")
    assert len(server.requests) == 1


def test_a_file_that_never_comes_whole_is_named_and_not_used(server, tmp_path):
    server.etag = 'W/"weak"'  # nothing to go on with, so that every try starts anew
    with pytest.raises(UsageError) as error:
        get(server, "/always-breaks", tmp_path / "file", attempts=2)
    assert f"ended at {len(CONTENT) // 2} of {len(CONTENT)} bytes" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "file").exists()


def test_a_wrong_checksum_is_named_and_the_download_removed(server, tmp_path):
    source = Source("file.txt", f"{server.url}/file", sha256="0" * 64)
    with pytest.raises(UsageError, match="file.txt is not the right file: its sha256 is .*removed"):
        obtain(source, tmp_path)
    assert not (tmp_path / "file.txt").exists()
    good = Source("file.txt", f"{server.url}/file", md5=hashlib.md5(CONTENT).hexdigest())
    assert obtain(good, tmp_path)[0].read_bytes() == CONTENT


def test_what_was_used_once_is_what_must_be_used_again(server, tmp_path):
    server.content = b"one\ntwo\nthree"
    source = Source("text.en", f"{server.url}/file")
    path, entry = obtain(source, tmp_path / "raw")
    assert not (tmp_path / "raw" / "lock.json").exists()  # nobody has read it yet
    pin([entry], tmp_path / "raw")
    locked = json.loads((tmp_path / "raw" / "lock.json").read_text())["text.en"]
    assert locked == entry
    assert (entry["size"], entry["lines"], entry["sha256"]) == (13, 3, sha256(path))
    assert obtain(source, tmp_path / "raw")[1] == entry
    assert len(server.requests) == 1
    # The publisher changes the file.
    path.unlink()
    server.content = b"one\ntwo\n"
    message = "text.en is not the right file: its size is 8, not 13 as .* remove .*lock.json"
    with pytest.raises(UsageError, match=message):
        obtain(source, tmp_path / "raw")
    assert not path.exists()
    (tmp_path / "raw" / "lock.json").unlink()
    assert obtain(source, tmp_path / "raw")[1]["size"] == 8


BROKEN = ["", '{"text.en": ', "[1]", '{"text.en": {"size": 1}}', b"\xff"]


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_lock_file_is_one_line_and_removes_nothing(tmp_path, content):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "text.en").write_bytes(b"one\n")
    (raw / "lock.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match="lock.json is broken .*: remove it") as error:
        obtain(Source("text.en", "http://127.0.0.1:9/none"), raw)
    assert "\n" not in str(error.value)
    assert (raw / "text.en").exists()


NO_CHECKSUMS = '{"spec": {}, "sizes": {}}'
NO_SPEC = '{"spec": "multi30k", "sizes": {}, "checksums": {}}'


@pytest.mark.parametrize("content", [*BROKEN, NO_CHECKSUMS, NO_SPEC])
def test_a_broken_data_json_is_one_line(tmp_path, content):
    path = tmp_path / "data.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError, match="data.json is broken .*: remove it") as error:
        prepared(DataSpec.from_mapping({"recipe": "multi30k", "operations": 60}), tmp_path)
    assert "\n" not in str(error.value)


def test_a_part_with_a_broken_validator_starts_anew(server, tmp_path):
    (tmp_path / "file.part").write_bytes(b"x" * 1000)
    (tmp_path / "file.part.json").write_text('"on')
    get(server, "/file", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_files_of_the_user_come_first_and_are_never_removed(server, tmp_path):
    raw, folder = tmp_path / "mine", tmp_path / "raw"
    raw.mkdir()
    (raw / "text.en").write_bytes(b"mine\n")
    source = Source("text.en.gz", f"{server.url}/file")
    path, entry = obtain(source, folder, raw)
    assert path == raw / "text.en" and server.requests == []
    pin([entry], folder)
    (raw / "text.en").write_bytes(b"yours\n")
    with pytest.raises(UsageError, match="mine/text.en is not the right file: .* not used"):
        obtain(source, folder, raw)
    assert (raw / "text.en").exists()


def test_a_directory_without_the_file_says_what_it_has_instead(server, tmp_path, capsys):
    raw = tmp_path / "mine"
    for name in ("deep/text.de", *(f"{n}.txt" for n in range(9))):
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        (raw / name).touch()
    source = Source("2017/de/text.en", f"{server.url}/missing")
    with pytest.raises(UsageError, match=r"save it as SOMEWHERE/2017/de/text.en and give --raw"):
        obtain(source, tmp_path / "raw", raw)
    said = capsys.readouterr().err
    assert f"{raw} has no 2017/de/text.en, but " in said and "it comes from http" in said
    assert said.count(".txt") == 8 - said.count("deep/text.de") and ", ...;" in said


def test_truncated_files_of_the_user_are_named(tmp_path):
    raw = tmp_path / "mine"
    raw.mkdir()
    whole = gzip.compress(CONTENT)
    (raw / "text.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="mine/text.gz is not the right file: it is truncated"):
        obtain(Source("text.gz", "http://127.0.0.1:9/none"), tmp_path / "raw", raw)
    path = tar(raw / "a.tgz", {"x": CONTENT})
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(UsageError, match="mine/a.tgz is not the right file: it is truncated"):
        obtain(Source("a.tgz", "http://127.0.0.1:9/none"), tmp_path / "raw", raw)
    assert not (tmp_path / "raw" / "lock.json").exists()


PIP = """
import sys
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--dest") + 1])
(folder / "x-1.0.tar.gz").write_bytes(b"half")
"""


@pytest.mark.parametrize("killed", [True, False])
def test_pip_writes_elsewhere_until_it_is_done(tmp_path, monkeypatch, killed):
    """With a stand-in for pip, which is killed or is not after it has written the file."""
    run = subprocess.run

    def stand_in(command, **options):
        done = run([sys.executable, "-c", PIP, *command[1:]], check=True, **options)
        assert not (tmp_path / "x-1.0.tar.gz").exists()
        if killed:
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(download.subprocess, "run", stand_in)
    source = Source("x-1.0.tar.gz", "pip:x==1.0")
    if killed:
        with pytest.raises(KeyboardInterrupt):
            download.pip_download(source, tmp_path / source.name)
        assert not list(tmp_path.iterdir())
    else:
        download.pip_download(source, tmp_path / source.name)
        assert [path.name for path in tmp_path.iterdir()] == [source.name]


def test_pip_without_a_network_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(UsageError) as error:
        obtain(Source("x-1.0.tar.gz", "pip:x==1.0"), tmp_path)
    message = str(error.value)
    assert message.startswith("sparse_fairseq: error: pip cannot download x==1.0 (")
    assert "is there a network?" in message and "--raw" in message
    assert "\n" not in message
