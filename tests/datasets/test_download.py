"""Downloads from a server on loopback: whole, interrupted, altered, refused."""

import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from regard.core.errors import UserError
from regard.datasets import download
from regard.datasets.download import Wanted, download_file

BODY = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(BODY).hexdigest()

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@dataclass
class Site:
    """What the server does, and what it was asked for."""

    body: bytes = BODY
    tag: str | None = '"one"'
    breaks: list[int] = field(default_factory=list)
    """After how many bytes each of the next responses ends."""
    statuses: list[int] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    redirect: str | None = None
    honest: bool = True
    url: str = ""


class _Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        site = self.site
        site.ranges.append(self.headers.get("Range"))
        if site.redirect:
            self.send_response(302)
            self.send_header("Location", site.redirect)
            self.end_headers()
            return
        status = site.statuses.pop(0) if site.statuses else 200
        if status != 200 or self.path == "/missing":
            self.send_error(404 if status == 200 else status)
            return
        start = self._start()
        if start > 0 and start >= len(site.body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(site.body)}")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            stated = start if site.honest else start - 1
            self.send_header("Content-Range", f"bytes {stated}-{len(site.body) - 1}/*")
        if site.tag:
            self.send_header("ETag", site.tag)
        self.send_header("Content-Length", str(len(site.body) - start))
        self.end_headers()
        end = start + site.breaks.pop(0) if site.breaks else len(site.body)
        self.wfile.write(site.body[start:end])

    def _start(self) -> int:
        asked, same = self.headers.get("Range"), self.headers.get("If-Range")
        if asked is None or (same is not None and same != self.site.tag):
            return 0
        return int(asked.removeprefix("bytes=").removesuffix("-"))

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    handler = type("Handler", (_Handler,), {"site": made})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}/data.bin"
    yield made
    server.shutdown()
    server.server_close()
    thread.join()


def get(site: Site, folder: Path, **known: object) -> Path:
    wanted = Wanted(name="data.bin", urls=(site.url,), **known)  # type: ignore[arg-type]
    return download_file(wanted, folder, wait=lambda _: None)


def test_a_file_arrives_whole(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    wanted = Wanted(name="data.bin", urls=(site.url,), bytes=len(BODY), sha256=DIGEST)
    path = download_file(wanted, tmp_path, lambda _, done, whole: seen.append((done, whole)))
    assert path.read_bytes() == BODY
    assert [each.name for each in tmp_path.iterdir()] == ["data.bin"]
    assert seen[-1] == (len(BODY), len(BODY))


def test_a_broken_download_goes_on_where_it_ended(site: Site, tmp_path: Path) -> None:
    site.breaks = [1000, 500_000]
    assert get(site, tmp_path).read_bytes() == BODY
    assert site.ranges == [None, "bytes=1000-", "bytes=501000-"]


def test_a_later_command_goes_on_too(site: Site, tmp_path: Path) -> None:
    site.breaks = [1000] * download.TRIES
    with pytest.raises(UserError, match=r"failed 5 times.*what has arrived is kept"):
        get(site, tmp_path)
    assert (tmp_path / "data.bin.part").stat().st_size == 5000
    site.ranges.clear()
    assert get(site, tmp_path).read_bytes() == BODY
    assert site.ranges == ["bytes=5000-"]


def test_a_file_that_has_changed_begins_anew(site: Site, tmp_path: Path) -> None:
    site.breaks = [1000] * download.TRIES
    with pytest.raises(UserError):
        get(site, tmp_path)
    site.body, site.tag = BODY[::-1], '"two"'
    assert get(site, tmp_path).read_bytes() == BODY[::-1]


def test_without_tag_and_digest_nothing_is_continued(site: Site, tmp_path: Path) -> None:
    site.tag, site.breaks = None, [1000]
    assert get(site, tmp_path).read_bytes() == BODY
    assert site.ranges == [None, None]


def test_without_tag_but_with_a_digest_it_is(site: Site, tmp_path: Path) -> None:
    site.tag, site.breaks = None, [1000]
    assert get(site, tmp_path, sha256=DIGEST).read_bytes() == BODY
    assert site.ranges == [None, "bytes=1000-"]


def test_a_part_that_is_whole_needs_no_more(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data.bin.part").write_bytes(BODY)
    assert get(site, tmp_path, sha256=DIGEST).read_bytes() == BODY
    (tmp_path / "data.bin").unlink()
    (tmp_path / "data.bin.part").write_bytes(BODY + b"more")
    assert get(site, tmp_path, sha256=DIGEST).read_bytes() == BODY


def test_an_altered_file_is_not_kept(site: Site, tmp_path: Path) -> None:
    site.body = BODY[:-1] + b"x"
    with pytest.raises(UserError, match=f"SHA-256 is .* where {DIGEST} is expected.*not kept"):
        get(site, tmp_path, sha256=DIGEST)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_checked_and_not_fetched(site: Site, tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"something else")
    with pytest.raises(UserError, match="14 bytes where 1,024,000 are expected"):
        get(site, tmp_path, bytes=len(BODY))
    (tmp_path / "data.bin").write_bytes(BODY)
    get(site, tmp_path, bytes=len(BODY), sha256=DIGEST)
    assert site.ranges == []


def test_a_file_larger_than_known_is_refused(site: Site, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at most 1,000 are expected"):
        get(site, tmp_path, bytes=1000)
    assert not (tmp_path / "data.bin").exists()


def test_the_next_address_is_tried(site: Site, tmp_path: Path) -> None:
    missing = site.url.replace("data.bin", "missing")
    wanted = Wanted(name="data.bin", urls=(missing, site.url))
    assert download_file(wanted, tmp_path).read_bytes() == BODY
    with pytest.raises(UserError, match="404 Not Found"):
        download_file(Wanted(name="other", urls=(missing,)), tmp_path)


def test_a_busy_server_is_tried_again(site: Site, tmp_path: Path) -> None:
    site.statuses = [503, 429]
    assert get(site, tmp_path).read_bytes() == BODY


def test_a_server_that_continues_elsewhere_is_not_believed(site: Site, tmp_path: Path) -> None:
    site.breaks, site.honest = [1000], False
    assert get(site, tmp_path).read_bytes() == BODY
    assert site.ranges == [None, "bytes=1000-", None]


@pytest.mark.parametrize("target", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_a_redirect_leads_to_no_file(site: Site, tmp_path: Path, target: str) -> None:
    site.redirect = target
    with pytest.raises(UserError, match="was not downloaded"):
        get(site, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_server_is_one_line(tmp_path: Path) -> None:
    wanted = Wanted(name="x", urls=("http://127.0.0.1:9/x", "http://no-such-host.invalid/x"))
    with pytest.raises(UserError, match=r"Connection refused.*no connection"):
        download_file(wanted, tmp_path, wait=lambda _: None)
