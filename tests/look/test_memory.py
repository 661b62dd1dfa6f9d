"""Pictures of memories: panels for heads and tables, as files and as a page."""

from pathlib import Path

import pytest
import torch

from regard.core.config import parse
from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.inference.attention import attention_of
from regard.look.memory import memory_figure
from regard.look.payload import Payload
from regard.look.picture import default_view, draw
from regard.models import MODELS
from regard.tasks.algorithm import AlgorithmData, AlgorithmTask


def found(name: str, **config: object) -> tuple[Payload, ...]:
    given = {
        "algorithm": {"name": "copy", "bits": 3},
        "lengths": [1, 4],
        "validation": 4,
        "test": 4,
    }
    task = AlgorithmTask.open(parse(AlgorithmData, given), Path("."))
    torch.manual_seed(1)
    model = MODELS[name](MODELS[name].Config(slots=5, width=4, hidden=6, **config), **task.sizes)
    return attention_of(task, model, Text("3"))


def test_a_dnc_has_its_heads_usage_gates_and_links() -> None:
    payloads = found("dnc", read_heads=2)
    shapes = {each.site: each.weights.shape for each in payloads}
    assert shapes == {
        "write": (1, 7, 5),
        "read": (2, 7, 5),
        "usage": (1, 7, 5),
        "free gates": (1, 7, 2),
        "links": (1, 5, 5),
    }
    assert payloads[0].queries.labels[3:5] == ("end", "out 1")
    assert default_view(payloads) == "memory"
    figure = memory_figure(payloads)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["write", "read, head 0", "read, head 1", "usage", "free gates", "links"]
    write, links = figure.axes[0], figure.axes[-1]
    assert write.images[0].get_array().shape == (5, 7)  # slots down, steps across
    assert links.images[0].get_array().shape == (5, 5)


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_a_memory_is_drawn_as_a_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"memory.{ending}"
    draw(found("ntm"), path, view="memory")
    text = path.read_bytes()
    assert len(text) > 5000
    if ending == "svg":
        assert b"image" in text
    if ending == "html":
        assert b'"slots"' in text


def test_a_site_alone_has_no_tables() -> None:
    given = found("sam", heads=2)
    assert {each.site for each in given} == {"write", "read"}
    with pytest.raises(UserError, match="needs at least one payload"):
        memory_figure([])
