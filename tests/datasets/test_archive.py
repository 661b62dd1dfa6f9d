"""Archives of strangers: nothing leaves the folder, nothing grows without limit."""

import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from regard.core.errors import UserError
from regard.datasets import archive
from regard.datasets.archive import files_inside, safe_name

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def tar(path: Path, *infos: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as made:
        for info, content in infos:
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return path


def test_zip_and_tar_give_the_same_files(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("data/", "")
        made.writestr("data/one.txt", b"one")
    folder = tarfile.TarInfo("data")
    folder.type = tarfile.DIRTYPE
    tar(tmp_path / "a.tgz", (folder, b""), (tarfile.TarInfo("data/one.txt"), b"one"))
    for name in ("a.zip", "a.tgz"):
        assert [(n, f.read()) for n, f in files_inside(tmp_path / name)] == [
            ("data/one.txt", b"one")
        ]


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "a/../../x", "a\\..\\x", "C:/x", "a/..", "", "x\0y"]
)
def test_a_name_that_leaves_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="leaves the folder"):
        safe_name(name)


@pytest.mark.parametrize("name", ["../x", "/etc/x"])
def test_so_it_is_in_an_archive(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr(name, b"one")
    path = tar(tmp_path / "a.tar", (tarfile.TarInfo(name), b"one"))
    for each in (tmp_path / "a.zip", path):
        with pytest.raises(UserError, match="leaves the folder"):
            list(files_inside(each))


def test_links_and_devices_are_skipped(tmp_path: Path) -> None:
    link, device = tarfile.TarInfo("link"), tarfile.TarInfo("device")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    device.type = tarfile.CHRTYPE
    path = tar(tmp_path / "a.tar", (link, b""), (device, b""), (tarfile.TarInfo("x"), b"1"))
    assert [name for name, _ in files_inside(path)] == ["x"]
    info = zipfile.ZipInfo("link")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr(info, "/etc/passwd")
        made.writestr("x", b"1")
    assert [name for name, _ in files_inside(tmp_path / "a.zip")] == ["x"]


def test_an_archive_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("zeros", bytes(10_000))
    path = tar(tmp_path / "a.tar", (tarfile.TarInfo("zeros"), bytes(10_000)))
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 9_999)
    for each in (tmp_path / "a.zip", path):
        with pytest.raises(UserError, match="10,000 bytes in all; at most"):
            list(files_inside(each))
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 10_000)
    monkeypatch.setattr(archive, "MAX_ARCHIVE_FILES", 0)
    for each in (tmp_path / "a.zip", path):
        with pytest.raises(UserError, match="1 files"):
            list(files_inside(each))


def test_a_member_longer_than_stated_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("zeros", bytes(10_000))
    raw = (tmp_path / "a.zip").read_bytes()
    forged = raw.replace((10_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    assert forged != raw
    (tmp_path / "b.zip").write_bytes(forged)
    with pytest.raises(UserError, match=r"not a whole zip|longer than"):
        [file.read() for _, file in files_inside(tmp_path / "b.zip")]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 torn", b"\x1f\x8b torn"])
def test_what_is_no_archive_is_one_line(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.tar\.gz: "):
        list(files_inside(tmp_path / "a.tar.gz"))


def test_a_torn_archive_is_one_line(tmp_path: Path) -> None:
    whole = tar(tmp_path / "a.tgz", (tarfile.TarInfo("x"), bytes(range(256)) * 500)).read_bytes()
    (tmp_path / "torn.tgz").write_bytes(whole[: len(whole) // 2])
    packed = lzma.compress(gzip.decompress(whole))
    (tmp_path / "torn.tar.xz").write_bytes(packed[: len(packed) // 2])
    for name in ("torn.tgz", "torn.tar.xz"):
        with pytest.raises(UserError, match="not a whole zip or tar archive"):
            [file.read() for _, file in files_inside(tmp_path / name)]
