"""Each limit, and each door: who must not ask, and how much nobody may ask."""

import base64
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from regard.core.errors import UserError
from regard.serve import Limits
from regard.serve.limits import check_address
from tests.serve.conftest import KEY, Start
from tests.serve.live import Live, soon

ROUTES = [
    ("GET", "/"),
    ("GET", "/v1/models"),
    ("POST", "/v1/completions"),
    ("POST", "/api/translate"),
    ("POST", "/api/predict"),
    ("POST", "/api/attention"),
    ("POST", "/api/intervene"),
    ("GET", "/api/runs"),
    ("GET", "/api/runs/gpt/curves"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/static/studio.js"),
    ("GET", "/nowhere"),
]


@pytest.fixture(scope="module")
def locked(start: Start) -> Live:
    """A server with a key."""
    return start(key=KEY, only="gpt")


@pytest.fixture(scope="module")
def hasty(start: Start) -> Live:
    """A server with so little patience that tests need none."""
    limits = Limits(head_seconds=0.3, body_seconds=0.4, seconds=0.8, queued=2, rows=64, body=20_000)
    return start(limits=limits, only="rnn")


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_every_route_but_health_needs_the_key(method: str, path: str, locked: Live) -> None:
    for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Bearer {KEY}x"}):
        answer = httpx.request(method, locked.url + path, headers=given)
        assert answer.status_code == 401
        assert answer.json()["error"]["type"] == "authentication_error"
        assert "Basic" in answer.headers["www-authenticate"]


def test_with_the_key_or_as_a_browser_gives_it_one_is_let_in(locked: Live) -> None:
    assert httpx.get(f"{locked.url}/health").status_code == 200
    for given in (f"Bearer {KEY}", f"Basic {base64.b64encode(f'me:{KEY}'.encode()).decode()}"):
        answer = httpx.get(f"{locked.url}/v1/models", headers={"authorization": given})
        assert answer.status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.org"])
def test_other_addresses_are_refused_without_a_key(host: str) -> None:
    with pytest.raises(UserError, match="set an API key"):
        check_address(host, None)
    check_address(host, KEY)


@pytest.mark.parametrize("key", ["", "short", "with a blank", "ключ-который-длинный"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(UserError, match="the API key"):
        check_address("127.0.0.1", key)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "[", "", "10.0.0.1"])
def test_a_name_that_is_not_ours_is_refused(host: str, client: httpx.Client) -> None:
    for path in ("/", "/v1/models", "/health"):
        answer = client.get(path, headers={"host": host})
        assert answer.status_code in (400, 403), path


def test_an_address_is_no_forged_name_where_there_is_a_key(locked: Live) -> None:
    headers = {"authorization": f"Bearer {KEY}", "host": "10.0.0.1"}
    assert httpx.get(f"{locked.url}/v1/models", headers=headers).status_code == 200
    headers["host"] = "evil.example"
    assert httpx.get(f"{locked.url}/v1/models", headers=headers).status_code == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:1", "http://[", "http://[::", ""]
)
def test_a_page_of_another_origin_is_refused(origin: str, client: httpx.Client) -> None:
    asked = {"model": "gpt", "prompt": "to"}
    answer = client.post("/v1/completions", json=asked, headers={"origin": origin})
    assert answer.status_code == 403
    assert answer.json()["error"]["code"] == "origin_not_allowed"
    assert "access-control-allow-origin" not in answer.headers


def test_our_own_page_may_ask(client: httpx.Client, live: Live) -> None:
    asked = {"model": "gpt", "prompt": "to"}
    answer = client.post("/v1/completions", json=asked, headers={"origin": live.url})
    assert answer.status_code == 200


def test_a_body_that_is_too_large_is_refused_whether_it_says_so_or_not(live: Live) -> None:
    big = b'{"model": "gpt", "prompt": "' + b"a" * 1_000_001 + b'"}'

    def parts() -> Iterator[bytes]:
        for begin in range(0, len(big), 50_000):
            yield big[begin : begin + 50_000]

    for body in (big, parts()):
        try:
            answer = httpx.post(f"{live.url}/v1/completions", content=body)
        except httpx.WriteError:  # it was closed while we were still sending
            continue
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "body_too_large"


def test_the_path_of_a_large_body_does_not_matter(live: Live) -> None:
    with socket.create_connection(live.address) as sock:
        sock.sendall(
            b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n"
        )
        assert b" 413 " in sock.recv(4096).split(b"\r\n")[0]


SLOW = {
    "nothing": b"",
    "half a line": b"GET /hea",
    "headers without end": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ",
    "a body without end": (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    ),
    "chunks without end": (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
    ),
    "the next request": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /heal",
}


@pytest.mark.parametrize("name", SLOW)
def test_who_sends_too_slowly_is_closed(name: str, hasty: Live) -> None:
    begun = time.monotonic()
    with socket.create_connection(hasty.address) as sock:
        sock.sendall(SLOW[name])
        sock.settimeout(0.1)
        closed = False
        while not closed and time.monotonic() < begun + 8:
            try:
                sock.sendall(b"")
                closed = sock.recv(4096) == b""
                sock.sendall(b"a" if b"\r\n\r\n" in SLOW[name] else b"")
            except TimeoutError:
                continue
            except OSError:
                closed = True
    # a body has a second more, in which it is told; an idle connection five
    assert time.monotonic() - begun < (6.5 if name == "the next request" else 2.5)
    assert closed


def test_bytes_that_trickle_do_not_buy_time(hasty: Live) -> None:
    begun = time.monotonic()
    with socket.create_connection(hasty.address) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(100):
            time.sleep(0.05)
            try:
                sock.sendall(b"X-Slow: a\r\n")
            except OSError:
                break
    assert time.monotonic() - begun < 2.5


def test_a_late_body_is_told_why(hasty: Live) -> None:
    with socket.create_connection(hasty.address) as sock:
        sock.sendall(SLOW["a body without end"])
        assert b" 408 " in sock.recv(4096).split(b"\r\n")[0]


def test_what_takes_too_long_is_cut_off(hasty: Live) -> None:
    """A text ends where it is, and its reason is that of a text that is too long."""
    asked = {"model": "rnn", "prompt": "to", "max_tokens": 4000}
    answer = httpx.post(f"{hasty.url}/v1/completions", json=asked, timeout=10)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["finish_reason"] == "length"
    written = answer.json()["usage"]["completion_tokens"]
    assert written > 0
    if written == 4000:
        pytest.skip("this machine writes 4,000 tokens in time")
    assert soon(lambda: hasty.server.engine.writing == 0)
    streamed = {**asked, "stream": True}
    events = httpx.post(f"{hasty.url}/v1/completions", json=streamed, timeout=10).text
    assert events.endswith("data: [DONE]\n\n")
    assert soon(lambda: hasty.server.engine.writing == 0)


def test_a_full_queue_says_when_to_come_back(start: Start) -> None:
    """Sixteen prompts of four texts make the batch full; two more wait; the next is refused."""
    busy = start(limits=Limits(queued=2, waiting=10**6), only="rnn")
    asked = {"model": "rnn", "prompt": ["to"] * 16, "n": 4, "max_tokens": 4000}
    body = json.dumps(asked).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    request = f"{head}Content-Type: application/json\r\n\r\n".encode() + body
    engine = busy.server.engine
    with ExitStack() as open_until_the_end:
        for waiting in range(3):
            sock = open_until_the_end.enter_context(socket.create_connection(busy.address))
            sock.sendall(request)
            assert soon(lambda count=waiting: engine.writing == 64 and engine.queued == count, 20)
        answer = httpx.post(f"{busy.url}/v1/completions", json=asked, timeout=20)
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
        assert answer.json()["error"]["type"] == "rate_limit_error"
        with httpx.Client(base_url=busy.url, timeout=20) as client:  # one connection for both
            assert client.get("/health").status_code == 200
            assert client.post("/v1/completions", json=asked).json() == answer.json()
        with socket.create_connection(busy.address, timeout=20) as sock:
            sock.sendall(request[:2])  # it cannot be seen yet what this is, so the guard answers
            time.sleep(0.2)
            sock.sendall(request[2:])
            said = b"".join(iter(lambda: sock.recv(65536), b""))
        head, _, told = said.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        assert status.startswith("HTTP/1.1 429 ")
        assert json.loads(told) == answer.json()
        headers.pop("date", None)
        assert headers == {name: value.lower() for name, value in answer.headers.items()}
    assert soon(lambda: engine.queued == 0 and engine.writing == 0, 20)


def test_limits_must_hold_together() -> None:
    with pytest.raises(UserError, match="cannot hold one request"):
        Limits(rows=8)
    with pytest.raises(UserError, match="queued=0"):
        Limits(queued=0)


def test_every_answer_carries_the_headers_of_a_careful_server(client: httpx.Client) -> None:
    for path in ("/", "/health", "/nowhere", "/v1/models", "/static/studio.js"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "server" not in headers


def test_the_page_has_a_new_nonce_each_time_and_no_inline_script(client: httpx.Client) -> None:
    first, second = client.get("/"), client.get("/")
    policies = [each.headers["content-security-policy"] for each in (first, second)]
    assert policies[0] != policies[1]
    assert "unsafe-inline" not in policies[0]
    assert "unsafe-eval" not in policies[0]
    nonce = policies[0].split("'nonce-")[1].split("'")[0]
    assert f'nonce="{nonce}"' in first.text
    assert "<script>" not in first.text


@pytest.mark.parametrize(
    "path",
    [
        "/static/../http.py",
        "/static/%2e%2e/http.py",
        "/static/..%2fhttp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/look/../../core/errors.py",
        "/static/studio.html",
        "/static/",
        "/static/%00",
    ],
)
def test_no_path_leads_out_of_the_static_folder(path: str, live: Live) -> None:
    with socket.create_connection(live.address) as sock:
        sock.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answer.split(b"\r\n")[0].split()[1] in (b"404", b"400")
