"""Translations, predictions, attention, interventions and curves over HTTP."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from regard.core.inputs import Text
from regard.look import Payload
from regard.look.compact import pack
from regard.look.log_curves import MOST_POINTS, training_curves
from regard.runs.run import Run
from tests.look.hostile import TOKENS
from tests.serve.live import Live, soon

TRANSLATORS = ["bahdanau", "transformer"]
LANGUAGE_MODELS = ["gpt", "rnn"]
LINES = ["3 mai 1998", "", "12 July 2026", "den 4. August 2001"]


@pytest.mark.parametrize("name", TRANSLATORS)
def test_translations_are_those_of_the_run(
    name: str, client: httpx.Client, opened: dict[str, Run]
) -> None:
    made = client.post("/api/translate", json={"model": name, "text": LINES}).json()
    assert [each["text"] for each in made["translations"]] == opened[name].translate(LINES)
    assert made["translations"][1] == {
        "text": "",
        "score": None,
        "others": [],
        "truncated": False,
    }
    one = client.post("/api/translate", json={"model": name, "text": LINES[0], "n": 3}).json()
    (best,) = one["translations"]
    assert best["text"] == made["translations"][0]["text"]
    assert len(best["others"]) == 2
    assert best["score"] < 0


def test_translations_of_many_clients_are_searched_together(live: Live) -> None:
    kinds = live.server.engine.runs["bahdanau"]
    _, task = kinds.translator
    calls: list[int] = []
    translate = type(task).translate

    def counted(self, model, lines, **given):  # type: ignore[no-untyped-def]
        calls.append(len(lines))
        return translate(self, model, lines, **given)

    def ask(line: str) -> str:
        body = {"model": "bahdanau", "text": line}
        answer = httpx.post(f"{live.url}/api/translate", json=body, timeout=30)
        return str(answer.json()["translations"][0]["text"])

    lines = [f"{day} July 20{day:02}" for day in range(1, 25)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(task), "translate", counted)
        with ThreadPoolExecutor(24) as pool:
            found = list(pool.map(ask, lines))
    assert sum(calls) == 24
    assert len(calls) < 20
    alone = [each.text for each in task.translate(kinds.trained, [Text(line) for line in lines])]
    assert found == alone


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_a_language_model_says_what_comes_next(
    name: str, client: httpx.Client, opened: dict[str, Run]
) -> None:
    said = client.post("/api/predict", json={"model": name, "text": "to be"}).json()
    assert said["tokens"] == ["t", "o", " ", "b", "e"]
    chances = [each["probability"] for each in said["choices"]]
    assert chances == sorted(chances, reverse=True)
    assert sum(chances) == pytest.approx(1, abs=1e-4)  # the vocabulary has fewer than 20
    asked = {"model": name, "prompt": "to be", "max_tokens": 1, "temperature": 0}
    best = client.post("/v1/completions", json=asked).json()["choices"][0]["text"]
    assert said["choices"][0]["text"] == best


def test_attention_is_that_of_the_run(client: httpx.Client, opened: dict[str, Run]) -> None:
    for name, text in (("gpt", "to be"), ("bahdanau", LINES[0])):
        expected = opened[name].look(text)
        body = {"model": name, "text": text, "form": "plain"}
        made = client.post("/api/attention", json=body).json()
        found = [Payload.from_json(json.dumps(each)) for each in made["payloads"]]
        assert [each.site for each in found] == [each.site for each in expected]
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.weights == pytest.approx(theirs.weights, abs=1e-6)
            assert (ours.queries, ours.keys) == (theirs.queries, theirs.keys)
        body["form"] = "packed"
        assert client.post("/api/attention", json=body).json() == pack(expected, title=text)


def test_sites_and_heads_can_be_chosen(client: httpx.Client) -> None:
    body = {"model": "gpt", "text": "to be", "form": "plain", "sites": "layers.1.*", "heads": [1]}
    (payload,) = client.post("/api/attention", json=body).json()["payloads"]
    assert payload["heads"] == [1]
    assert payload["site"] == "layers.1.attention"
    answer = client.post("/api/attention", json={**body, "sites": "layer.9"})
    assert answer.status_code == 422
    assert "Known: layers.0.attention" in answer.json()["error"]["message"]
    answer = client.post("/api/attention", json={**body, "heads": [7]})
    assert answer.status_code == 422
    assert "head 7" in answer.json()["error"]["message"]


def test_attention_can_be_shown_with_edits(client: httpx.Client) -> None:
    body = {"model": "gpt", "text": "to be", "form": "plain"}
    plain = client.post("/api/attention", json=body).json()["payloads"]
    body["edits"] = [{"site": "layers.0.*", "how": "uniform"}]
    edited = client.post("/api/attention", json=body).json()["payloads"]
    assert edited[0]["weights"][0][1] == pytest.approx([0.5, 0.5, 0, 0, 0])
    assert plain[0]["weights"][0][1] != pytest.approx([0.5, 0.5, 0, 0, 0])
    assert edited[1]["weights"] != plain[1]["weights"]  # the layer after it reads what was changed


def test_every_run_has_an_example_that_it_can_read(client: httpx.Client) -> None:
    found = {run["name"]: run["example"] for run in client.get("/api/runs").json()["runs"]}
    assert set(found) >= {"gpt", "bahdanau", "transformer"}
    for name in ("gpt", "bahdanau", "transformer"):
        assert found[name]
        answer = client.post("/api/predict", json={"model": name, "text": found[name]})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    "edit",
    [
        {"site": "layers.*", "how": "off"},
        {"site": "layers.0.*", "how": "off", "heads": [1]},
        {"site": "layers.*", "how": "uniform"},
        {"site": "layers.1.*", "how": "permuted", "heads": [0, 1], "seed": 5},
        {"site": "layers.1.*", "how": "row", "query": 4, "weights": [1.0]},
        {"site": "layers.0.*", "how": "row", "query": 2, "weights": [0, 0, 1.0], "heads": [0]},
    ],
    ids=lambda edit: f"{edit['how']} {edit.get('heads', 'all')}",
)
def test_an_edit_changes_what_is_said_and_then_is_gone(
    edit: dict[str, object], client: httpx.Client
) -> None:
    body = {"model": "gpt", "text": "to be", "edits": [edit]}
    made = client.post("/api/intervene", json=body).json()
    said = client.post("/api/predict", json={"model": "gpt", "text": "to be"}).json()
    assert made["before"] == said
    assert made["after"]["choices"] != said["choices"]
    same = client.post("/api/intervene", json={**body, "edits": []}).json()
    assert same["after"] == said


def test_a_row_that_is_drawn_as_it_was_changes_nothing(
    client: httpx.Client, opened: dict[str, Run]
) -> None:
    weights = opened["gpt"].look("to be", "layers.0.*", [1])[0].weights[0]
    edits = [
        {"site": "layers.0.*", "how": "row", "heads": [1], "query": q, "weights": row.tolist()}
        for q, row in enumerate(weights)
    ]
    body = {"model": "gpt", "text": "to be", "edits": edits}
    made = client.post("/api/intervene", json=body).json()
    for before, after in zip(made["before"]["choices"], made["after"]["choices"], strict=True):
        assert after["text"] == before["text"]
        assert after["probability"] == pytest.approx(before["probability"], abs=1e-5)


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_step_of_a_translator_can_be_made_to_look_elsewhere(
    name: str, client: httpx.Client, opened: dict[str, Run]
) -> None:
    """Only from the drawn step on may the translation change; that step is the one that looks."""
    run = opened[name]
    site = run.look(LINES[0])[0].site
    rows = [[0.0] * key + [1.0] for key in (0, 4, 9)]
    edits = [{"site": site, "how": "row", "query": 3, "weights": row} for row in rows]
    for edit in edits:
        body = {"model": name, "text": LINES[0], "edits": [edit]}
        made = client.post("/api/intervene", json=body).json()
        assert made["after"]["labels"][:3] == made["before"]["labels"][:3]
    answer = client.post(
        "/api/intervene",
        json={"model": name, "text": LINES[0], "edits": [{**edits[0], "heads": [9]}]},
    )
    assert answer.status_code == 422
    assert "heads 0 to" in answer.json()["error"]["message"]


def test_a_model_without_attention_says_so(client: httpx.Client) -> None:
    for path, more in (("attention", {}), ("intervene", {"edits": [{"site": "*", "how": "off"}]})):
        answer = client.post(f"/api/{path}", json={"model": "rnn", "text": "to be", **more})
        assert answer.status_code == 422
        assert "no attention" in answer.json()["error"]["message"]


def test_what_a_run_cannot_do_is_said(client: httpx.Client) -> None:
    asked = {
        "/api/translate": {"model": "gpt", "text": "to be"},
        "/v1/completions": {"model": "bahdanau", "prompt": "to be"},
    }
    for path, body in asked.items():
        answer = client.post(path, json=body)
        assert answer.status_code == WRONG[path[:3]]
        assert answer.json()["error"]["code"] == "wrong_task"
    for path in ("/api/predict", "/api/attention"):
        assert client.post(path, json={"model": "new", "text": "to"}).status_code == 409
        assert client.post(path, json={"model": "none", "text": "to"}).status_code == 404


ASKING = {
    "/v1/completions": ("gpt", "prompt", {"max_tokens": 2}),
    "/api/predict": ("gpt", "text", {}),
    "/api/attention": ("gpt", "text", {}),
    "/api/intervene": ("gpt", "text", {"edits": [{"site": "*", "how": "uniform"}]}),
    "/api/translate": ("bahdanau", "text", {}),
}


WRONG = {"/ap": 422, "/v1": 400}
"""The status of a wrong value: OpenAI's clients expect 400."""


def asked(client: httpx.Client, path: str, text: str) -> httpx.Response:
    """With escapes for whatever UTF-8 has no bytes for."""
    name, field, more = ASKING[path]
    body = json.dumps({"model": name, field: text, **more})
    return client.post(path, content=body, headers={"content-type": "application/json"})


@pytest.mark.parametrize("path", ASKING)
def test_texts_that_broke_others_are_read_or_refused(path: str, client: httpx.Client) -> None:
    for name, text in TOKENS.items():
        answer = asked(client, path, text)
        assert answer.status_code in (200, WRONG[path[:3]]), name
        if answer.status_code != 200:
            assert answer.json()["error"]["message"]
        if any(0xD800 <= ord(letter) < 0xE000 for letter in text):
            assert answer.status_code == WRONG[path[:3]]


@pytest.mark.parametrize("path", ASKING)
def test_a_million_letters_are_refused_at_once(path: str, client: httpx.Client) -> None:
    answer = asked(client, path, "a" * 999_000)
    assert answer.status_code == WRONG[path[:3]]
    assert answer.json()["error"]["code"] == "text_too_long"
    assert answer.elapsed.total_seconds() < 2


def test_an_answer_does_not_wait_for_an_acknowledgement(client: httpx.Client) -> None:
    """Headers and body are two writes; without TCP_NODELAY the second waits 40 ms on Linux."""
    seconds = []
    for _ in range(20):
        begin = time.perf_counter()
        client.get("/health")
        seconds.append(time.perf_counter() - begin)
    assert min(seconds[1:]) < 0.03


@pytest.mark.parametrize("path", ["/api/predict", "/api/attention", "/api/intervene"])
def test_an_empty_text_is_refused(path: str, client: httpx.Client) -> None:
    for text in ("", " \n\t"):
        answer = asked(client, path, text)
        assert answer.status_code == 422
        assert answer.json()["error"]["code"] == "empty_text"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"model": 3}',
        b'{"model": "gpt", "prompt": {"a": 1}}',
        b'{"model": "gpt", "prompt": "a", "temperature": NaN}',
        b'{"model": "gpt", "prompt": "a", "temperature": 1e999}',
        b'{"model": "gpt", "prompt": "a", "seed": ' + b"9" * 5000 + b"}",
        b'{"model": "\\ud800", "prompt": "a"}',
        b'{"\\ud800": 1}',
    ],
)
def test_a_body_that_is_none_is_refused_in_words(body: bytes, client: httpx.Client) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post("/v1/completions", content=body, headers=headers)
    assert answer.status_code in (400, 404, 422)
    assert answer.json()["error"]["message"]


def test_the_curves_of_a_run(client: httpx.Client, live: Live) -> None:
    made = client.get("/api/runs/gpt/curves").json()
    assert [update for update, _ in made["curves"]["train/loss"]] == [1, 2]
    assert made["trained"]
    assert client.get("/api/runs/new/curves").json() == {
        "run": "new",
        "trained": False,
        "curves": {},
    }
    assert client.get("/api/runs/none/curves").status_code == 404


def test_a_log_that_is_being_written_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('{"update": 1, "loss": 2.5}\nnot JSON\n[1]\n{"update": 2, "loss": null}\n')
    assert training_curves(tmp_path) == {"train/loss": [(1, 2.5)]}
    with log.open("a") as file:
        file.write('{"update": 3, "loss": 1.5}\n{"update": 4, "lo')
    assert training_curves(tmp_path) == {"train/loss": [(1, 2.5), (3, 1.5)]}
    with log.open("a") as file:
        file.write('ss": 1.0, "validation": {"loss": 3}}\n')
    assert training_curves(tmp_path)["train/loss"][-1] == (4, 1.0)
    log.write_text("".join(f'{{"update": {n}, "loss": 1.0}}\n' for n in range(1, 5000)))
    found = training_curves(tmp_path)["train/loss"]
    assert len(found) <= MOST_POINTS
    assert found[-1][0] == 4999


def test_what_there_is(client: httpx.Client) -> None:
    runs = {each["name"]: each for each in client.get("/api/runs").json()["runs"]}
    assert runs["gpt"]["writes"]
    assert runs["gpt"]["context"] == 64
    assert runs["gpt"]["sites"] == ["layers.0.attention", "layers.1.attention"]
    assert runs["bahdanau"]["translates"]
    assert not runs["new"]["trained"]
    assert client.get("/health").json() == {"status": "ok"}
    assert soon(lambda: client.get("/ready").json() == {"status": "ready"}, 20)


def test_a_path_that_does_not_exist_names_the_routes(client: httpx.Client) -> None:
    for method, path in (("GET", "/v1/engines"), ("POST", "/v1/chat/completions")):
        answer = client.request(method, path)
        assert answer.status_code == 404
        message = answer.json()["error"]["message"]
        assert message.startswith(f"{method} {path} does not exist; there are GET /v1/models,")
        assert "POST /v1/completions" in message
        assert "POST /api/translate" in message
    answer = client.get("/v1/completions")
    assert answer.status_code == 405
    assert "POST /v1/completions" in answer.json()["error"]["message"]


def test_metrics_count_requests_and_tokens(client: httpx.Client) -> None:
    def value(name: str) -> float:
        lines = client.get("/metrics").text.splitlines()
        return sum(float(each.rsplit(" ", 1)[1]) for each in lines if each.startswith(name))

    before = value("regard_tokens_total")
    asking = {"model": "gpt", "prompt": "to", "max_tokens": 7}
    assert client.post("/v1/completions", json=asking).status_code == 200
    assert value("regard_tokens_total") == before + 7
    assert value('regard_requests_total{route="/v1/completions",status="200"}') >= 1
    client.get("/some/path")
    assert value('regard_requests_total{route="other",status="404"}') >= 1
    assert value("regard_writing") == 0
