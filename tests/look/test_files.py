"""Pictures as files: whole or not at all, the same bytes every time, and without pyplot."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest
import torch
from matplotlib.figure import Figure

from regard.core.axes import Axis
from regard.core.errors import UserError
from regard.look import (
    Payload,
    alignment,
    bars_by_length,
    curves,
    flow,
    grid,
    heat,
    positions,
)
from tests.core.test_axes import EXAMPLES
from tests.look.hostile import TOKENS

STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}

PAYLOAD = Payload.of(
    torch.linspace(0, 1, 24).view(2, 3, 4), ["a", "$b", "中"], ["<x>", " ", "😀", "مرحبا"]
)


def over(axis: Axis) -> Payload:
    return Payload.of(torch.linspace(0, 1, 2 * len(axis)).view(2, -1), ["$b", "中"], axis)


def curves_of_a_log(path: Path) -> None:
    log = path.with_name("log.jsonl")
    log.write_text('{"update": 1, "loss": 2.0, "lr": 0.1}\n{"update": 2, "loss": 1.0, "lr": 0.1}\n')
    curves(log, path)


PICTURES: dict[str, Callable[[Path], None]] = {
    "alignment": lambda path: alignment(PAYLOAD, path, marked=PAYLOAD.strongest),
    "over an image": lambda path: alignment(over(EXAMPLES["patches"]), path),
    "under a sound": lambda path: alignment(over(EXAMPLES["frames"]), path),
    "memory by time": lambda path: alignment(over(EXAMPLES["slots"]), path),
    "grid": lambda path: grid([PAYLOAD, PAYLOAD], path),
    "heat": lambda path: heat(PAYLOAD, path),
    "flow": lambda path: flow(PAYLOAD, path),
    "curves": curves_of_a_log,
    "bars_by_length": lambda path: bars_by_length({"a": [1.0]}, [(1, 9)], path),
    "positions": lambda path: positions(torch.eye(3), path),
}


@pytest.mark.parametrize("suffix", STARTS)
@pytest.mark.parametrize("name", PICTURES)
def test_the_same_numbers_are_the_same_bytes(tmp_path: Path, name: str, suffix: str) -> None:
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    PICTURES[name](first)
    PICTURES[name](second)
    assert first.read_bytes().startswith(STARTS[suffix])
    assert first.read_bytes() == second.read_bytes()


def test_a_style_of_the_users_changes_neither_the_picture_nor_itself(tmp_path: Path) -> None:
    alignment(PAYLOAD, tmp_path / "plain.svg")
    loud = {"axes.facecolor": "black", "text.color": "pink", "font.size": 30, "axes.grid": True}
    with matplotlib.rc_context(loud):
        alignment(PAYLOAD, tmp_path / "loud.svg")
        assert {name: matplotlib.rcParams[name] for name in loud} == loud
    assert (tmp_path / "plain.svg").read_bytes() == (tmp_path / "loud.svg").read_bytes()


def test_threads_draw_what_one_would(tmp_path: Path) -> None:
    alone = tmp_path / "alone.svg"
    alignment(PAYLOAD, alone)
    paths = [tmp_path / f"{i}.svg" for i in range(4)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda path: alignment(PAYLOAD, path), paths))
    assert {path.read_bytes() for path in paths} == {alone.read_bytes()}


@pytest.mark.parametrize("suffix", STARTS)
def test_hostile_tokens_make_whole_files(tmp_path: Path, suffix: str) -> None:
    tokens = list(TOKENS.values())
    path = tmp_path / f"hostile{suffix}"
    alignment(Payload.of(torch.eye(len(tokens)), tokens, tokens), path)
    assert path.stat().st_size > 10_000
    if suffix == ".svg":
        tags = {element.tag.split("}")[1] for element in ElementTree.parse(path).iter()}
        assert "script" not in tags
        assert "path" in tags


def test_a_picture_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "alignment.png"
    path.write_bytes(b"old")

    def torn(self: Figure, file: object, **rest: object) -> None:
        file.write(b"half of it")  # type: ignore[attr-defined]
        raise RuntimeError("torn")

    monkeypatch.setattr(Figure, "savefig", torn)
    with pytest.raises(RuntimeError, match="torn"):
        alignment(PAYLOAD, path)
    assert [each.name for each in tmp_path.iterdir()] == ["alignment.png"]
    assert path.read_bytes() == b"old"


def test_a_folder_that_is_not_there_is_made_and_one_that_cannot_be_is_told(tmp_path: Path) -> None:
    alignment(PAYLOAD, str(tmp_path / "new" / "alignment.PNG"))
    assert (tmp_path / "new" / "alignment.PNG").read_bytes().startswith(STARTS[".png"])
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        alignment(PAYLOAD, tmp_path / "file" / "alignment.png")


@pytest.mark.parametrize("name", ["alignment", "alignment.jpg", ".png", "alignment.png.gz"])
def test_a_file_of_another_kind_is_refused_before_anything_is_drawn(
    tmp_path: Path, name: str
) -> None:
    with pytest.raises(UserError, match=r"must end in one of \.pdf, \.png, \.svg"):
        alignment(PAYLOAD, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_no_figure_is_left_open_with_pyplot(tmp_path: Path) -> None:
    alignment(PAYLOAD, tmp_path / "alignment.png")
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


def test_without_matplotlib_payloads_work_and_pictures_say_what_to_install() -> None:
    script = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from regard.core.errors import UserError\n"
        "from regard.look import Payload, alignment\n"
        "payload = Payload.of([[1.0]], 'a', 'b')\n"
        "try:\n    alignment(payload, 'alignment.png')\n"
        "except UserError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "pictures need the package matplotlib: pip install 'regard[look]'\n", done
