"""One client's heavy requests neither hold up others nor fill the memory."""

import json
import socket
import threading
import time
from contextlib import ExitStack
from dataclasses import replace

import httpx
import pytest

from regard.serve import Limits, Served
from regard.serve.engine import Engine
from regard.serve.errors import Refused
from regard.serve.job import Asking
from regard.serve.metrics import Metrics
from tests.serve.conftest import Start
from tests.serve.live import soon

LONG = "the 3rd of May, 1998 " * 40


def test_a_short_request_does_not_wait_for_long_ones(
    start: Start, runs: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = [each for each in runs if each.name == "bahdanau"]
    live, kind = start(other=run, also="gpt"), type(run.trained)
    step, done = kind.step, list[float]()

    def slow(model: object, *given: object) -> object:
        time.sleep(0.2)
        return step(model, *given)

    monkeypatch.setattr(kind, "step", slow)
    heavy = {"model": "bahdanau", "text": [LONG], "beam": 16}

    def ask() -> None:
        answer = httpx.post(f"{live.url}/api/translate", json=heavy, timeout=120)
        assert answer.status_code == 200, answer.text
        done.append(time.monotonic())

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for each in threads:
        each.start()
    while not live.server.engine._turns:
        time.sleep(0.01)
    asked = {"model": "gpt", "prompt": "to", "max_tokens": 4, "temperature": 0}
    answer = httpx.post(f"{live.url}/v1/completions", json=asked, timeout=60)
    assert answer.status_code == 200, answer.text
    assert not done, "the long ones should still be at work"
    for each in threads:
        each.join()
    assert len(done) == 2


def test_work_is_bounded_by_tokens_and_beam(client: httpx.Client) -> None:
    asked = {"model": "bahdanau", "text": ["a" * 4000] * 64, "beam": 16}
    answer = client.post("/api/translate", json=asked)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "too_much_work"
    assert "256,000 tokens searched with a beam of 16" in answer.json()["error"]["message"]


def test_work_that_waits_for_a_run_is_bounded(start: Start) -> None:
    live = start(limits=Limits(waiting=300_000), only="rnn")
    engine = live.server.engine
    asked = {"model": "rnn", "prompt": ["to"] * 16, "n": 4, "max_tokens": 4000}
    body = json.dumps(asked).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    request = f"{head}Content-Type: application/json\r\n\r\n".encode() + body
    with ExitStack() as open_until_the_end:
        for waiting in range(2):
            sock = open_until_the_end.enter_context(socket.create_connection(live.address))
            sock.sendall(request)
            assert soon(lambda count=waiting: engine.writing == 64 and engine.queued == count, 20)
        refused = httpx.post(f"{live.url}/v1/completions", json=asked, timeout=60)
        assert refused.status_code == 429
        assert "256,032 tokens are waiting" in refused.json()["error"]["message"]
    assert soon(lambda: engine.queued == 0 and engine.writing == 0, 20)


def test_texts_that_keep_too_much_memory_are_refused(start: Start) -> None:
    live = start(limits=Limits(state_bytes=100_000), only="gpt")
    asked = {"model": "gpt", "prompt": "to be", "max_tokens": 50, "n": 4}
    answer = httpx.post(f"{live.url}/v1/completions", json=asked)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "too_much_work"
    answer = httpx.post(f"{live.url}/v1/completions", json={**asked, "n": 1, "max_tokens": 3})
    assert answer.status_code == 200


def test_one_run_leaves_half_of_the_queue_to_others(start: Start) -> None:
    live = start(limits=Limits(queued=4, waiting=10**6))
    engine = live.server.engine
    asked = {"model": "rnn", "prompt": ["to"] * 16, "n": 4, "max_tokens": 4000}
    body = json.dumps(asked).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    request = f"{head}Content-Type: application/json\r\n\r\n".encode() + body
    with ExitStack() as open_until_the_end:
        for waiting in range(3):
            sock = open_until_the_end.enter_context(socket.create_connection(live.address))
            sock.sendall(request)
            assert soon(lambda count=waiting: engine.writing == 64 and engine.queued == count, 20)
        refused = httpx.post(f"{live.url}/v1/completions", json=asked, timeout=60)
        assert refused.status_code == 429
        assert "2 requests are waiting for 'rnn'" in refused.json()["error"]["message"]
        short = {"model": "gpt", "prompt": "to", "max_tokens": 2}
        assert httpx.post(f"{live.url}/v1/completions", json=short, timeout=60).status_code == 200
    assert soon(lambda: engine.queued == 0 and engine.writing == 0, 20)


def test_what_waits_too_long_is_told_to_come_back(
    runs: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(runs, Limits(), Metrics())
    monkeypatch.setattr(engine, "_tell", lambda news: [each() for each in news])
    jobs = [Asking("gpt", object(), "to", lambda given: list(given)) for _ in range(2)]
    for job in jobs:
        engine.submit(job)
    jobs[0].deadline = 0.0
    engine._expire()
    assert engine.queued == 1
    with pytest.raises(Refused, match="this request has waited too long") as caught:
        jobs[0].answer.result(0)
    assert caught.value.status == 429
    assert not jobs[1].answer.done()


def test_an_input_that_is_cut_is_told(runs: list[Served], start: Start) -> None:
    (run,) = [each for each in runs if each.name == "bahdanau"]
    data = run.opened.data  # type: ignore[attr-defined]
    cut = data.model_copy(update={"max_length": 8, "too_long": "cut"})
    opened = replace(run.opened, data=cut)  # type: ignore[type-var]
    live = start(other=replace(run, opened=opened))
    asked = {"model": "bahdanau", "text": ["3 May 98", "3 May 1998"]}
    made = httpx.post(f"{live.url}/api/translate", json=asked).json()["translations"]
    assert [each["truncated"] for each in made] == [False, True]
    one = {"model": "bahdanau", "text": "3 May 1998"}
    assert httpx.post(f"{live.url}/api/predict", json=one).json()["truncated"] is True


def test_special_tokens_are_text_unless_they_are_allowed(runs: list[Served], start: Start) -> None:
    (run,) = [each for each in runs if each.name == "gpt"]
    asked = {"model": "gpt", "prompt": "to<eos>", "max_tokens": 1, "temperature": 0}
    counts = {}
    for special in (False, True):
        live = start(other=replace(run, special=special))
        made = httpx.post(f"{live.url}/v1/completions", json=asked).json()
        counts[special] = made["usage"]["prompt_tokens"]
    assert counts == {False: 7, True: 3}
