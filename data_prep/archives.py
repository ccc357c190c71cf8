"""Reads and unpacks archives that nobody has to trust: tar and zip, compressed text files.

Only regular files are written, only below the target, and only those that somebody asked for.
"""

import errno
import gzip
import os
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from data_prep.progress import Progress
from sparse_fairseq.errors import UsageError

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip", ".whl")
# Not OSError: a full disk or a missing permission is no fault of the file. A zip's flags and names
# may be what is damaged: then it seems encrypted, too new or in no encoding.
DAMAGE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)
DAMAGE += (RuntimeError, ValueError)
BLOCK = 1 << 20


class Broken(Exception):
    """The file is truncated or damaged."""


def is_archive(name: str) -> bool:
    return name.endswith(ARCHIVES)


def _is_zip(path: Path) -> bool:
    return path.name.endswith((".zip", ".whl"))


@contextmanager
def _noticing_damage() -> Iterator[None]:
    """Turns the many ways in which a damaged file fails into Broken."""
    try:
        yield
    except DAMAGE as error:
        raise Broken(f"truncated or damaged ({error})") from error
    except OSError as error:
        # A place in the file that no file has.
        if error.errno != errno.EINVAL:
            raise
        raise Broken(f"truncated or damaged ({error})") from error


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turns damage into one line that names the file."""
    try:
        with _noticing_damage():
            yield
    except Broken as error:
        raise UsageError(f"{path} is {error}; get it again") from error


def open_binary(path: Path) -> IO[bytes]:
    """A file, uncompressed on the way if it is gzipped."""
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if compressed else path.open("rb")


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a text file without their end, which is \\n and nothing else."""
    with _naming(path), open_binary(path) as file:
        for line in file:
            yield line.removesuffix(b"\n")


def count_lines(path: Path) -> int:
    """Reads a text file to its end; Broken if that fails."""
    count, last = 0, b"\n"
    with _noticing_damage(), open_binary(path) as file:
        while block := file.read(BLOCK):
            count, last = count + block.count(b"\n"), block
    return count + (not last.endswith(b"\n"))


def verify(path: Path) -> None:
    """Reads an archive to its end; Broken if that fails."""
    with _noticing_damage():
        if _is_zip(path):
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            if damaged:
                raise Broken(f"its member {damaged} is damaged")
        else:
            # tarfile takes a stream that just ends for the end of the archive, gzip does not.
            count_lines(path)
            with open_binary(path) as file, tarfile.open(fileobj=file, mode="r|") as archive:
                end = max((member.offset_data + member.size for member in archive), default=0)
                if not end or file.tell() < end:
                    raise Broken("truncated")


def tar_members(path: Path, label: str) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Walks through a tar as a stream; the bar follows the position in the file."""
    with _naming(path), path.open("rb") as raw:
        gzipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        file = gzip.GzipFile(fileobj=raw) if gzipped else raw
        size = path.stat().st_size
        with (
            tarfile.open(fileobj=file, mode="r|") as archive,
            Progress(f"{label} {path.name}", size / 1e6, "MB") as bar,
        ):
            for member in archive:
                yield archive, member
                bar.advance(raw.tell() / 1e6 - bar.done)


def names(path: Path) -> list[str]:
    """What a zip holds."""
    with _naming(path), zipfile.ZipFile(path) as archive:
        return archive.namelist()


def unpack(path: Path, target: Path, wanted: Iterable[str]) -> list[Path]:
    """Unpacks the wanted members (names as in the archive) below ``target`` and returns them.

    A name that leads out of the target is an error even if nobody wants it: such an archive is
    not what its publisher made. So is a wanted member that is a link or a device.
    """
    wanted = list(dict.fromkeys(wanted))
    if all((target / name).is_file() for name in wanted):
        return [target / name for name in wanted]
    target.mkdir(parents=True, exist_ok=True)
    with _naming(path):
        (_unpack_zip if _is_zip(path) else _unpack_tar)(path, target, set(wanted))
    missing = [name for name in wanted if not (target / name).is_file()]
    if missing:
        raise UsageError(f"{path} is not the right file: it has no {missing[0]}; not used")
    return [target / name for name in wanted]


def _safe_name(path: Path, name: str) -> str:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\\" in name or "\0" in name:
        raise UsageError(f"{path} is unsafe: its member '{name}' lies outside; not unpacked")
    return str(pure)


def _refuse_link(path: Path, name: str) -> None:
    raise UsageError(f"{path} is unsafe: its member '{name}' is a link or a device; not unpacked")


def _unpack_tar(path: Path, target: Path, wanted: set[str]) -> None:
    for archive, member in tar_members(path, "unpack"):
        name = _safe_name(path, member.name)
        if name not in wanted:
            continue
        content = archive.extractfile(member) if member.isreg() else _refuse_link(path, name)
        _write(content, target / name)


def _unpack_zip(path: Path, target: Path, wanted: set[str]) -> None:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = _safe_name(path, member.filename)
            if name not in wanted:
                continue
            # The upper half are Unix's mode bits; 0 where the zip was made elsewhere.
            if (member.external_attr >> 16) & 0o170000 not in (0, 0o100000):
                _refuse_link(path, name)
            with archive.open(member) as content:
                _write(content, target / name)


def _write(content: IO[bytes], path: Path) -> None:
    """Writes a member to a temporary name first: a killed unpacking leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            shutil.copyfileobj(content, file, BLOCK)
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
