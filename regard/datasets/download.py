"""Downloads that can be interrupted: a `.part` file, continued where it ended, and a digest.

A part is continued only if the server states that the file is still the same (If-Range with its
entity tag or date), or if a SHA-256 is known that the whole must have. A file takes its own name
when it is complete and its digest right, and not before.
"""

import hashlib
import http.client
import json
import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, runtime_checkable

from regard.core.atomic import PART, os_errors_as_user_errors, sync_folder
from regard.core.errors import UserError

Progress = Callable[[str, int, int | None], None]
"""Called with the name of a file, the bytes that are there, and those of the whole if known."""

MAX_DOWNLOAD_BYTES = 16 << 30
"""The largest file that is downloaded where its size is not known."""
TRIES = 5
"""How often a connection that breaks is made anew, for each address."""
SECONDS = 30.0
"""How long a server may be silent."""
_CHUNK = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A file to download, and what is known of it."""

    name: str
    urls: tuple[str, ...]
    bytes: int | None = None
    sha256: str | None = None


_HOPELESS = (socket.gaierror, ssl.SSLCertVerificationError)
"""What another try does not mend: no such host, no connection at all, a wrong certificate."""


class _RefusedError(Exception):
    """A server that answers, but not with the file."""


@runtime_checkable
class _Response(Protocol):
    """What is needed of an HTTP response."""

    status: int
    headers: http.client.HTTPMessage

    def read(self, size: int, /) -> bytes: ...


def download_file(
    wanted: Wanted,
    folder: Path,
    on_progress: Progress | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> Path:
    """The file in `folder`, downloaded or continued unless it is there; its digest is checked."""
    target = folder / wanted.name
    with os_errors_as_user_errors(target):
        folder.mkdir(parents=True, exist_ok=True)
    if target.exists():
        check_digest(target, wanted)
        return target
    problems: list[str] = []
    for url in wanted.urls:
        try:
            _with_retries(url, wanted, target, on_progress, wait)
            return target
        except _RefusedError as problem:
            problems.append(f"{url}: {problem}")
    raise UserError(f"{wanted.name} was not downloaded. " + "; ".join(problems))


def check_digest(path: Path, wanted: Wanted) -> None:
    """Compare the size and the SHA-256 of a file with those that are known."""
    problem = _mismatch(path, wanted)
    if problem:
        raise UserError(f"{path}: {problem}; remove it and download it again")


def file_digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mismatch(path: Path, wanted: Wanted) -> str | None:
    """How a file differs from what is known of it."""
    size = path.stat().st_size
    if wanted.bytes is not None and size != wanted.bytes:
        return f"has {size:,} bytes where {wanted.bytes:,} are expected"
    digest = file_digest(path) if wanted.sha256 is not None else None
    if digest != wanted.sha256:
        return f"its SHA-256 is {digest} where {wanted.sha256} is expected"
    return None


def _with_retries(
    url: str,
    wanted: Wanted,
    target: Path,
    on_progress: Progress | None,
    wait: Callable[[float], None],
) -> None:
    part = target.with_name(target.name + PART)
    problem: Exception | None = None
    for attempt in range(TRIES):
        if attempt:
            wait(2.0 ** (attempt - 1))
        try:
            _continue_part(url, wanted, part, on_progress)
        except (OSError, http.client.HTTPException) as broken:
            problem = broken
            if isinstance(getattr(broken, "reason", None), _HOPELESS):
                raise _RefusedError(f"no connection ({_reason(broken)})") from None
        else:
            _accept(url, wanted, part, target)
            return
    kept = "; what has arrived is kept, and the same command continues" if part.exists() else ""
    raise _RefusedError(f"the connection failed {TRIES} times ({_reason(problem)}){kept}")


def _reason(problem: Exception | None) -> str:
    return str(getattr(problem, "reason", None) or problem)


def _accept(url: str, wanted: Wanted, part: Path, target: Path) -> None:
    """Give a whole part its own name, if its digest is right."""
    wrong = _mismatch(part, wanted)
    _validator_file(part).unlink(missing_ok=True)
    if wrong:
        part.unlink()
        raise _RefusedError(f"{wrong}; it was altered at its source or on the way, and is not kept")
    with os_errors_as_user_errors(target):
        part.replace(target)
        sync_folder(target.parent)


def _continue_part(url: str, wanted: Wanted, part: Path, on_progress: Progress | None) -> None:
    """Ask for the rest of a part, or for the whole, and write it."""
    headers = {"User-Agent": "regard", "Accept-Encoding": "identity"}
    start = _start(url, wanted, part)
    if start:
        headers["Range"] = f"bytes={start}-"
        validator = _kept_validator(url, part)
        if validator:
            headers["If-Range"] = validator
    if start and start == wanted.bytes:
        return
    try:
        request = urllib.request.Request(url, headers=headers)  # noqa: S310 - of the table
        with _OPENER.open(request, timeout=SECONDS) as answer:
            _write(url, wanted, part, answer, start, on_progress)
    except urllib.error.HTTPError as problem:
        problem.close()
        if problem.code == 416 and start:  # nothing follows: whole already, or another file now
            if problem.headers.get("Content-Range") == f"bytes */{start}":
                return
            part.unlink()
            raise ConnectionError("the part does not fit the file at its source") from None
        if problem.code >= 500 or problem.code in (408, 429):
            raise ConnectionError(f"{problem.code} {problem.reason}") from None
        raise _RefusedError(f"{problem.code} {problem.reason}") from None


def _opener() -> urllib.request.OpenerDirector:
    """HTTP and HTTPS only: no redirect leads to a file or to FTP."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


_OPENER = _opener()


def _start(url: str, wanted: Wanted, part: Path) -> int:
    """Where to continue; 0 if there is nothing that can be continued safely."""
    if not part.exists():
        return 0
    if wanted.sha256 is None and _kept_validator(url, part) is None:
        return 0
    return part.stat().st_size


def _validator_file(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _kept_validator(url: str, part: Path) -> str | None:
    """The entity tag or date that the server gave when the part was begun."""
    try:
        kept = json.loads(_validator_file(part).read_text())
    except (OSError, ValueError):
        return None
    validator = kept.get("validator") if isinstance(kept, dict) and kept.get("url") == url else None
    return validator if isinstance(validator, str) else None


def _validator(headers: http.client.HTTPMessage) -> str | None:
    tag = headers.get("ETag")
    return tag if tag and not tag.startswith("W/") else headers.get("Last-Modified")


def _write(
    url: str,
    wanted: Wanted,
    part: Path,
    answer: _Response,
    start: int,
    on_progress: Progress | None,
) -> None:
    """Write the body of a response to the part, behind `start` if the server continues there."""
    stated = answer.headers.get("Content-Length")
    length = int(stated) if stated and stated.isdigit() else None
    if answer.status == 206 and not _continues_at(answer.headers, start):
        part.unlink(missing_ok=True)
        raise ConnectionError("the server continued elsewhere than it was told to")
    if answer.status != 206:
        start = 0
    whole = None if length is None else start + length
    limit = wanted.bytes or MAX_DOWNLOAD_BYTES
    if whole is not None and whole > limit:
        raise _RefusedError(f"has {whole:,} bytes where at most {limit:,} are expected")
    with os_errors_as_user_errors(part):
        kept = json.dumps({"url": url, "validator": _validator(answer.headers)})
        _validator_file(part).write_text(kept)
        file = part.open("ab" if start else "wb")
    with file:
        done = _copy_body(wanted.name, answer, file, part, start, limit, whole, on_progress)
    if whole is not None and done < whole:
        raise ConnectionError(f"ended after {done:,} of {whole:,} bytes")


def _continues_at(headers: http.client.HTTPMessage, start: int) -> bool:
    return headers.get("Content-Range", "").startswith(f"bytes {start}-")


def _copy_body(
    name: str,
    answer: _Response,
    file: IO[bytes],
    part: Path,
    done: int,
    limit: int,
    whole: int | None,
    on_progress: Progress | None,
) -> int:
    """Copy the body; what has arrived before a break is on disk."""
    try:
        while chunk := answer.read(_CHUNK):
            done += len(chunk)
            if done > limit:
                raise _RefusedError(f"has more than the {limit:,} bytes that are expected")
            with os_errors_as_user_errors(part):
                file.write(chunk)
            if on_progress is not None:
                on_progress(name, done, whole)
    finally:
        with os_errors_as_user_errors(part):
            file.flush()
            os.fsync(file.fileno())
    return done
