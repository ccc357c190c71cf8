"""Archives are data from strangers: nothing leaves the target, nothing half is used."""

import errno
import io
import tarfile
import zipfile

import pytest
from miniature_corpora import tar, zipped

from data_prep import archives
from sparse_fairseq.errors import UsageError


def evil_tar(path, name, kind=tarfile.REGTYPE, target=""):
    with tarfile.open(path, "w:gz") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, target, 4 if kind == tarfile.REGTYPE else 0
        archive.addfile(info, io.BytesIO(b"evil"))
        good = tarfile.TarInfo("good")
        good.size = 4
        archive.addfile(good, io.BytesIO(b"good"))
    return path


@pytest.mark.parametrize("make", [tar, zipped])
def test_wanted_members_are_unpacked_and_no_others(tmp_path, make):
    path = make(tmp_path / ("a.tgz" if make is tar else "a.zip"), {"x/one": b"1", "x/two": b"2"})
    (found,) = archives.unpack(path, tmp_path / "out", ["x/two"])
    assert found.read_bytes() == b"2"
    assert sorted(p.name for p in (tmp_path / "out" / "x").iterdir()) == ["two"]


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "x/../../evil"])
def test_members_outside_the_target_are_refused(tmp_path, name):
    path = evil_tar(tmp_path / "a.tgz", name)
    with pytest.raises(UsageError, match="a.tgz is unsafe: its member .* lies outside"):
        archives.unpack(path, tmp_path / "deep" / "out", ["good", name])
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, b"evil")
    with pytest.raises(UsageError, match="a.zip is unsafe: its member .* lies outside"):
        archives.unpack(tmp_path / "a.zip", tmp_path / "deep" / "out", [name])
    assert not list(tmp_path.rglob("evil"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    path = evil_tar(tmp_path / "a.tgz", "evil", kind, "/etc/passwd")
    with pytest.raises(UsageError, match="'evil' is a link or a device"):
        archives.unpack(path, tmp_path / "out", ["evil"])
    assert not (tmp_path / "out" / "evil").exists()


def test_a_link_in_a_zip_is_refused(tmp_path):
    info = zipfile.ZipInfo("evil")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(UsageError, match="'evil' is a link or a device"):
        archives.unpack(tmp_path / "a.zip", tmp_path / "out", ["evil"])


def test_a_file_behind_a_link_of_the_archive_stays_inside(tmp_path):
    """A directory that the archive makes a link to elsewhere becomes a real directory."""
    outside = tmp_path / "outside"
    outside.mkdir()
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        link = tarfile.TarInfo("x")
        link.type, link.linkname = tarfile.SYMTYPE, str(outside)
        archive.addfile(link)
        file = tarfile.TarInfo("x/file")
        file.size = 4
        archive.addfile(file, io.BytesIO(b"evil"))
    archives.unpack(tmp_path / "a.tgz", tmp_path / "out", ["x/file"])
    assert not list(outside.iterdir())


@pytest.mark.parametrize("make", [tar, zipped])
def test_a_full_disk_is_not_blamed_on_the_archive(tmp_path, make, monkeypatch):
    path = make(tmp_path / ("a.tgz" if make is tar else "a.zip"), {"one": b"1"})

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(archives.shutil, "copyfileobj", full)
    with pytest.raises(OSError, match="No space left"):
        archives.unpack(path, tmp_path / "out", ["one"])


@pytest.mark.parametrize("make", [tar, zipped])
def test_a_damaged_byte_is_one_line_or_harmless(tmp_path, make):
    """Wherever it is: never another error, never another content."""
    name = "a.tgz" if make is tar else "a.zip"
    content = bytes(range(256)) * 2
    whole = make(tmp_path / name, {"one": content, "two": content}).read_bytes()
    for place in range(0, len(whole), 3):
        broken = bytearray(whole)
        broken[place] ^= 0xFF
        (tmp_path / name).write_bytes(broken)
        try:
            archives.verify(tmp_path / name)
            (found,) = archives.unpack(tmp_path / name, tmp_path / f"out{place}", ["one"])
        except (archives.Broken, UsageError):
            continue
        assert found.read_bytes() == content


def test_a_missing_member_is_named(tmp_path):
    path = tar(tmp_path / "a.tgz", {"one": b"1"})
    with pytest.raises(UsageError, match="a.tgz is not the right file: it has no two"):
        archives.unpack(path, tmp_path / "out", ["one", "two"])


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_truncated_archive_is_noticed(tmp_path, share):
    content = bytes(range(256)) * 400
    path = tar(tmp_path / "a.tgz", {f"m{n}": content[n:] + content[:n] for n in range(9)})
    archives.verify(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(archives.Broken):
        archives.verify(path)
    if share < 0.9:
        with pytest.raises(UsageError, match="a.tgz is truncated or damaged"):
            archives.unpack(path, tmp_path / "out", ["m8"])


def test_a_truncated_zip_or_plain_tar_is_noticed(tmp_path):
    for path in (zipped(tmp_path / "a.zip", {"m": b"x" * 9999}), tmp_path / "a.tar"):
        if path.suffix == ".tar":
            with tarfile.open(path, "w") as archive:
                info = tarfile.TarInfo("m")
                info.size = 9999
                archive.addfile(info, io.BytesIO(b"x" * 9999))
        archives.verify(path)
        path.write_bytes(path.read_bytes()[: -10_300 if path.suffix == ".tar" else -30])
        with pytest.raises(archives.Broken):
            archives.verify(path)
