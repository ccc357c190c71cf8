"""Gets the official files of a dataset and says which of them cannot be trusted.

A file is used only if it has the checksum that the recipe knows, or the one that was written to
the lock file when data were first made from it.
"""

import hashlib
import http.client
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from data_prep import archives
from data_prep.files import sha256, write_json
from data_prep.progress import Progress
from data_prep.records import read_record
from sparse_fairseq.errors import UsageError

TIMEOUT = 30.0
ATTEMPTS = 5
BLOCK = 1 << 18
LOCK = "lock.json"
SHOWN_FILES = 8  # of a directory that lacks what was looked for


class Wrong(Exception):
    """A file is not what it should be; the message says in what."""


@dataclass(frozen=True)
class Source:
    """One official file. A url `pip:name==version` is fetched with the user's own pip."""

    name: str
    url: str
    sha256: str | None = None
    md5: str | None = None
    # Other names under which the same content is published.
    also: tuple[str, ...] = ()
    # A file of the user's own: nothing to get, and nothing to compare it with.
    path: Path | None = None


def obtain(source: Source, folder: Path, raw: Path | None = None) -> tuple[Path, dict[str, Any]]:
    """The checked file and what is known of it; downloads it to ``folder`` if need be."""
    if source.path is not None:
        own = source.path
        return own, {"name": str(own), "size": own.stat().st_size, "sha256": sha256(own)}
    given = find(source, raw)
    path = given or find(source, folder)
    if raw is not None and given is None:
        instead = f"{path} is used" if path else f"it comes from {source.url}"
        print(f"{raw} has no {source.name}, {_holds(raw)}; {instead}", file=sys.stderr)
    if path is None:
        path = folder / source.name
        path.parent.mkdir(parents=True, exist_ok=True)
        if source.url.startswith("pip:"):
            pip_download(source, path)
        else:
            download(source.url, path, name=source.name)
    try:
        return path, check(source, path, folder / LOCK)
    except Wrong as error:
        if given is None:
            path.unlink()
        fate = "not used" if given else "removed it, try again"
        raise UsageError(f"{path} is not the right file: {error}; {fate}") from error


def find(source: Source, folder: Path | None) -> Path | None:
    """The source's file in a folder, compressed or not."""
    if folder is None:
        return None
    if not folder.is_dir():
        if folder.exists():
            raise UsageError(f"--raw {folder} is not a directory")
        return None
    names = [name for official in (source.name, *source.also) for name in _variants(official)]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def changed(sources: list[Source], used: list[dict[str, Any]], folders: list[Path]) -> list[str]:
    """Names of files in these folders that are not what they were when they were used."""
    known = {entry["name"]: entry for entry in used}
    names = []
    for source in sources:
        path = source.path or next(filter(None, (find(source, folder) for folder in folders)), None)
        entry = known.get(_key(source, path)) if path else None
        if entry is None:  # not there, or used in another form, compressed or not
            continue
        if path.stat().st_size != entry["size"] or sha256(path) != entry["sha256"]:
            names.append(entry["name"])
    return names


def _key(source: Source, path: Path) -> str:
    """What a file is called in data.json and in the lock file."""
    return str(Path(source.name).parent / path.name)


def _holds(folder: Path) -> str:
    """What a directory has instead of what was looked for."""
    files = (path for path in folder.rglob("*") if path.is_file())
    names = [str(path.relative_to(folder)) for path in islice(files, SHOWN_FILES + 1)]
    more = ", ..." if len(names) > SHOWN_FILES else ""
    return f"but {', '.join(sorted(names[:SHOWN_FILES]))}{more}" if names else "it is empty"


def _variants(name: str) -> list[str]:
    if archives.is_archive(name):
        return [name]
    return [name, name.removesuffix(".gz") if name.endswith(".gz") else f"{name}.gz"]


def check(source: Source, path: Path, lock_file: Path) -> dict[str, Any]:
    """Compares a file with what recipe and lock file know of it."""
    known = _read_lock(lock_file)
    key = _key(source, path)
    entry = {"name": key, "url": source.url, "size": path.stat().st_size, "sha256": sha256(path)}
    # The checksums are of the official file, not of the same text compressed or uncompressed.
    official = path.name == Path(source.name).name
    if official and source.sha256 and entry["sha256"] != source.sha256:
        raise Wrong(f"its sha256 is {entry['sha256']}, not {source.sha256}")
    if official and source.md5 and _md5(path) != source.md5:
        raise Wrong(f"its md5 is {_md5(path)}, not {source.md5}")
    if key in known:
        for quantity in ("size", "sha256"):
            if entry[quantity] != known[key][quantity]:
                was = f"not {known[key][quantity]} as of the file that was used before"
                how = f"to use this one from now on, remove {lock_file}"
                raise Wrong(f"its {quantity} is {entry[quantity]}, {was} ({how})")
        return known[key]
    try:
        if not archives.is_archive(path.name):
            entry["lines"] = archives.count_lines(path)
        elif not (official and (source.sha256 or source.md5)):
            archives.verify(path)
    except archives.Broken as error:
        raise Wrong(f"it is {error}") from error
    return entry


def pin(entries: list[dict[str, Any]], folder: Path) -> None:
    """Writes down which files were read without complaint: from now on only these are used."""
    if not entries:
        return
    known = _read_lock(folder / LOCK)
    write_json(folder / LOCK, {**known, **{entry["name"]: entry for entry in entries}})


def _read_lock(path: Path) -> dict[str, dict[str, Any]]:
    """What was used before."""
    if not path.exists():
        return {}
    remedy = "remove it, and what is used next is taken on trust"
    known = read_record(path, remedy)
    for name, entry in known.items():
        if not isinstance(entry, dict) or not {"size", "sha256"} <= entry.keys():
            raise UsageError(f"{path} is broken ({name} has no size or no sha256): {remedy}")
    return known


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def download(
    url: str,
    path: Path,
    timeout: float = TIMEOUT,
    attempts: int = ATTEMPTS,
    pause: float = 2.0,
    name: str | None = None,
) -> None:
    """Downloads to ``path``.part and renames it when it is complete; goes on where it stopped.

    ``name`` is where `find` looks for the file in a directory of the user's.
    """
    part = path.with_name(f"{path.name}.part")
    problem = ""
    for attempt in range(attempts):
        if attempt:
            print(f"{path.name}: {problem}; trying again", file=sys.stderr)
            time.sleep(pause * attempt)
        try:
            _download_once(url, part, timeout)
        except urllib.error.HTTPError as error:
            problem = f"HTTP {error.code} {error.reason}"
            if error.code < 500 and error.code not in (408, 416, 429):
                break
        except (OSError, http.client.HTTPException, EOFError) as error:
            problem = str(getattr(error, "reason", None) or error) or type(error).__name__
        else:
            part.replace(path)
            _validator_file(part).unlink(missing_ok=True)
            return
    kept = f" ({part} keeps what came)" if part.exists() else ""
    raise UsageError(
        f"cannot download {url}: {problem}{kept}; try again, or save it as "
        f"SOMEWHERE/{name or path.name} and give --raw SOMEWHERE"
    )


def _validator_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _write_validator(part: Path, validator: str | None) -> None:
    if validator and not validator.startswith("W/"):
        write_json(_validator_file(part), validator)
    else:
        _validator_file(part).unlink(missing_ok=True)


def _read_validator(part: Path) -> str | None:
    """None, and so a new start, where there is none or a broken one."""
    try:
        return str(json.loads(_validator_file(part).read_text()))
    except (FileNotFoundError, ValueError):
        return None


def _download_once(url: str, part: Path, timeout: float) -> None:
    """One request; raises if the file is not complete afterwards."""
    headers = {"User-Agent": "sparse_fairseq"}
    validator = _read_validator(part)
    if part.exists() and validator:
        # If-Range: a file that changed in between comes whole instead of as a wrong second half.
        headers |= {"Range": f"bytes={part.stat().st_size}-", "If-Range": validator}
    request = urllib.request.Request(url, headers=headers)
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # all of it is there, or more than all: only a new start tells
            part.unlink(missing_ok=True)
        raise
    with response:
        resumed = response.status == 206
        start = part.stat().st_size if resumed else 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length else None
        validator = response.headers.get("ETag") or response.headers.get("Last-Modified")
        with (
            part.open("ab" if resumed else "wb") as file,
            Progress(f"download {part.stem}", total, "bytes") as progress,
        ):
            # After the old content is gone: who is killed here must not take it for the new one's.
            _write_validator(part, validator)
            progress.advance(start)
            while block := response.read(BLOCK):
                file.write(block)
                progress.advance(len(block))
    if total is not None and part.stat().st_size != total:
        raise EOFError(f"the connection ended at {part.stat().st_size} of {total} bytes")


def pip_download(source: Source, path: Path) -> None:
    """Fetches a package's archive from wherever the user's pip gets packages."""
    requirement = source.url.removeprefix("pip:")
    kind = "--only-binary" if source.name.endswith(".whl") else "--no-binary"
    options = ["--no-deps", kind, ":all:", "--ignore-requires-python", "--no-input"]
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", *options]
    print(f"pip download {requirement} ...", file=sys.stderr, flush=True)
    # pip writes to the file's final name; a killed one must leave nothing that looks whole.
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        done = subprocess.run(
            [*command, "--dest", folder, requirement], capture_output=True, text=True
        )
        if not done.returncode and (Path(folder) / path.name).exists():
            (Path(folder) / path.name).replace(path)
            return
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    reason = (lines or done.stderr.splitlines() or ["it gave another file"])[0]
    raise UsageError(
        f"pip cannot download {requirement} ({reason.removeprefix('ERROR: ')}): is there a "
        f"network? Or save it as SOMEWHERE/{path.name} and give --raw SOMEWHERE"
    )
