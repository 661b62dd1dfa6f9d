"""Inputs of other kinds than text: in base 64, with limits, and never from a path."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import pytest
import torch
from torch import nn

from regard.core.config import Config
from regard.core.inputs import Image, Input, Text
from regard.core.protocols import Batch, Batches, Carry, Loss
from regard.data.batch import ShardableBatches
from regard.look import Payload
from regard.serve import Served
from regard.serve.served_run import Change
from regard.tasks.abilities import Prediction
from regard.tasks.task import OpenTask, Split
from tests.serve.live import Live

pytest.importorskip("PIL")


class Pictures(OpenTask):
    """A task on images, of which there is only what a server uses."""

    @property
    def takes(self) -> tuple[type[Input], ...]:
        return (Image,)

    @property
    def sizes(self) -> dict[str, int]:
        raise NotImplementedError

    @property
    def splits(self) -> tuple[Split, ...]:
        raise NotImplementedError

    @classmethod
    def open(cls, data: Config, folder: Path, saved: Path | None = None) -> "Pictures":
        raise NotImplementedError

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def batches(self) -> ShardableBatches:
        raise NotImplementedError

    def evaluation(self, split: Split) -> Batches:
        raise NotImplementedError

    def loss(self, model: nn.Module, batch: Batch, carry: Carry | None) -> Loss:
        raise NotImplementedError

    def metrics(self, totals: Mapping[str, float]) -> dict[str, float]:
        raise NotImplementedError

    def length(self, given: Input) -> int:
        assert isinstance(given, Image)
        return int(given.pixels[0].numel())


def predict(given: Input, changes: Sequence[Change]) -> Prediction:
    return Prediction(text=f"{given.title}, {len(changes)} changes")


def look(
    given: Input, sites: str | None, heads: Sequence[int] | None, changes: Sequence[Change]
) -> tuple[Payload, ...]:
    return (Payload.of(torch.ones(1, 1, 1), ["what"], ["image"], site="attend", kind="pool"),)


@pytest.fixture(scope="module")
def pictures(start, tmp_path_factory: pytest.TempPathFactory) -> Live:  # type: ignore[no-untyped-def]
    run = Served(
        name="pictures",
        folder=tmp_path_factory.mktemp("pictures"),
        task="caption",
        kind="toy",
        title="Toy",
        opened=Pictures(),
        model=nn.Linear(1, 1),
        look=look,
        predict=predict,
        sites=("attend",),
    )
    return start(other=run)


def png(width: int, height: int) -> str:
    from PIL import Image as Pillow

    file = io.BytesIO()
    Pillow.new("RGB", (width, height)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def post(live: Live, path: str, **body: object) -> httpx.Response:
    return httpx.post(f"{live.url}{path}", json={"model": "pictures", **body}, timeout=30)


def test_an_image_is_predicted_changed_and_shown(pictures: Live) -> None:
    (run,) = httpx.get(f"{pictures.url}/api/runs").json()["runs"]
    assert (run["takes"], run["writes"], run["translates"]) == (["image"], False, False)
    image = png(4, 3)
    assert post(pictures, "/api/predict", input=image).json()["text"] == (
        "image of 4 x 3 pixels, 0 changes"
    )
    edits = [{"site": "*", "how": "off"}]
    made = post(pictures, "/api/intervene", input=image, kind="image", edits=edits).json()
    assert [made[when]["text"][-9:] for when in ("before", "after")] == ["0 changes", "1 changes"]
    shown = post(pictures, "/api/attention", input=image, form="plain").json()
    assert len(shown["payloads"]) == 1
    packed = post(pictures, "/api/attention", input=image).json()
    assert packed["title"] == "image of 4 x 3 pixels"


BAD: dict[str, tuple[dict[str, object], str, str | None]] = {
    "a text": ({"text": "a cat"}, "task caption takes an image, and was given a text", "text"),
    "a path": ({"text": "/etc/passwd"}, "takes an image, and was given a text", "text"),
    "another kind": (
        {"input": "AAAA", "kind": "sound"},
        "task caption takes an image, and was given a sound",
        "kind",
    ),
    "an unknown kind": ({"input": "AAAA", "kind": "imago"}, "did you mean 'image'", None),
    "a path as input": ({"input": "/etc/passwd"}, "expected an image as a file", "input"),
    "no base 64": ({"input": "%%%"}, "expected an image as a file in base 64", "input"),
    "no image": ({"input": "AAAA"}, "input: not an image that can be read", "input"),
    "parts": (
        {"input": [{"kind": "text", "input": "a"}]},
        "expected an image as a string",
        "input",
    ),
    "nothing": ({}, "give either text or input", None),
    "both": ({"text": "a", "input": "AAAA"}, "give either text or input", None),
    "a kind of text": ({"text": "a", "kind": "image"}, "kind is that of input", None),
    "too many pixels": ({"input": png(2500, 2000)}, "5,000,000 pixels; at most 4,000,000", "input"),
    "too long": ({"input": png(100, 100)}, "10,000 tokens; at most 4,096 can be read", "input"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_input_is_refused(case: str, pictures: Live) -> None:
    body, message, param = BAD[case]
    answer = post(pictures, "/api/predict", **body)
    assert answer.status_code == 422
    error = answer.json()["error"]
    assert message in error["message"]
    assert error["param"] == param


def test_a_task_without_an_ability_is_named(pictures: Live) -> None:
    for path, body, ability in (
        ("/v1/completions", {"prompt": "a"}, "generation"),
        ("/api/translate", {"input": png(2, 2)}, "translation"),
    ):
        error = post(pictures, path, **body).json()["error"]
        assert error["message"] == f"pictures: task caption does not support {ability}"


def test_a_text_run_refuses_an_image(client: httpx.Client) -> None:
    for path in ("/api/predict", "/api/translate", "/api/attention"):
        body = {"model": "bahdanau", "input": png(2, 2), "kind": "image"}
        error = client.post(path, json=body).json()["error"]
        assert error["message"] == "task translate takes a text, and was given an image"
    body = {"model": "bahdanau", "input": "3 mai", "kind": "text"}
    same = {"model": "bahdanau", "text": "3 mai"}
    for path in ("/api/predict", "/api/translate"):
        one, other = (client.post(path, json=each).json() for each in (body, same))
        assert one == other


def test_files_have_a_larger_body_and_texts_do_not(pictures: Live, live: Live) -> None:
    large = {"model": "bahdanau", "text": "a" * 1_500_000}
    assert httpx.post(f"{live.url}/api/predict", json=large, timeout=30).status_code == 413
    assert post(pictures, "/api/predict", input="A" * 1_500_000).status_code == 422


def test_the_studio_sends_a_file(pictures: Live, browser: object) -> None:
    page = browser.new_page()  # type: ignore[attr-defined]
    page.goto(pictures.url)
    page.wait_for_selector(".st-panel")
    assert page.is_hidden(".st-panel textarea")
    page.click(".st-go")
    page.wait_for_function("document.querySelector('.st-note').textContent.includes('image')")
    data = base64.b64decode(png(4, 3))
    page.set_input_files(
        ".st-panel input[type=file]", {"name": "a.png", "mimeType": "image/png", "buffer": data}
    )
    page.click(".st-go")
    page.wait_for_selector(".st-said > *")
    assert page.text_content(".st-before") == "image of 4 x 3 pixels, 0 changes"
    page.close()


def test_a_line_of_another_kind_is_the_path_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(base64.b64decode(png(4, 3)))
    task = Pictures()
    for given in (
        task.parse(f"{tmp_path / 'cat.png'}\n", "stdin:1"),
        *task.inputs(str(tmp_path / "cat.png")),
    ):
        assert given.title == "image of 4 x 3 pixels"
    assert not isinstance(given, Text)
