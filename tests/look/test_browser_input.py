"""The page over an image, a sound, notes and a memory, in Chromium: colours where the weights are.

Every test fails if the page reports an error or asks for anything but itself (conftest.py).
"""

import csv
import io
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from regard.core.axes import Frames, Notes, Patches, Slots, Steps
from regard.core.inputs import Image
from regard.look import Payload
from tests.look.conftest import Open, Opened
from tests.look.hostile import TOKENS

WORDS = ("a", "red", "square", "on", "blue", ".")
RED, GREEN, BLUE, WHITE = (200, 30, 30), (30, 160, 60), (30, 60, 200), (250, 250, 250)


def checkered() -> Patches:
    """An image of two by two colours, 16 pixels each, as patches with a class token in front."""
    pixels = torch.zeros(3, 32, 32, dtype=torch.uint8)
    for at, colour in enumerate((RED, GREEN, BLUE, WHITE)):
        row, column = divmod(at, 2)
        place = (slice(None), slice(16 * row, 16 * row + 16), slice(16 * column, 16 * column + 16))
        pixels[place] = torch.tensor(colour, dtype=torch.uint8)[:, None, None]
    grid = Patches.grid(2, 2, width=32, height=32, picture=Image(pixels).data_address())
    return replace(
        grid, labels=("[class]", *grid.labels), boxes=((0.0, 0.0, 0.0, 0.0), *grid.boxes)
    )


def described() -> Payload:
    """Each word attends mostly to one patch; the first one to the class token."""
    weights = torch.full((2, len(WORDS), 5), 0.02)
    for word, patch in enumerate((0, 1, 2, 3, 4, 1)):
        weights[:, word, patch] = 0.92
    return Payload.of(weights, WORDS, checkered(), site="decoder.cross")


def colour_at(page: Opened, box: str) -> tuple[int, ...]:
    """The colour of the canvas in the middle of a box that the view computes."""
    script = f"""() => {{
      const view = regard.view(), ratio = view.canvas.width / view.plane.clientWidth;
      const [x, y, width, height] = view.ground.{box};
      const middle = [(x + width / 2) * ratio, (y + height / 2) * ratio];
      return Array.from(view.canvas.getContext("2d").getImageData(...middle, 1, 1).data);
    }}"""
    return tuple(page.do(script))[:3]  # type: ignore[arg-type]


def test_the_image_is_bright_where_the_chosen_word_attends(opened: Open) -> None:
    page = opened([described()])
    assert page.do("() => regard.state.view") == "input", "an image is shown as one"
    for word, patch, colour in ((1, 1, RED), (2, 2, GREEN), (3, 3, BLUE)):
        page.set(query=word)
        found = colour_at(page, f"box({patch})")
        assert np.abs(np.array(found) - colour).max() < 12, "as bright as the image itself"
        faint = colour_at(page, f"box({1 + patch % 3})")
        assert min(faint) > 180, "and faded elsewhere"
    page.set(query=2)
    page.keep("image")


def test_pointing_at_a_word_shows_where_it_attends_and_a_patch_who_attends_to_it(
    opened: Open,
) -> None:
    page = opened([described()])
    page.page.locator(".rg-others .rg-token").nth(3).hover()
    page.do("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))")
    assert np.abs(np.array(colour_at(page, "box(3)")) - BLUE).max() < 12
    assert "on: where it attends" in (page.page.locator(".rg-hint").text_content() or "")
    assert page.do("() => regard.state.query") is None, "pointing does not choose"
    box = page.do("() => regard.view().ground.box(2)")
    page.page.locator(".rg-plane canvas").click(
        position={"x": box[0] + box[2] / 2, "y": box[1] + box[3] / 2}  # type: ignore[index]
    )
    assert page.do("() => regard.state.key") == 2
    page.do("() => new Promise((done) => setTimeout(done, 250))")  # colours change slowly
    shades = page.page.locator(".rg-others .rg-token").evaluate_all(
        "(chips) => chips.map((chip) => getComputedStyle(chip).backgroundColor)"
    )
    assert shades.index(min(shades, key=brightness)) == 2, "the word that attends to this patch"
    told = page.page.locator(".rg-tip dd").all_text_contents()
    assert "0,1" in told


def brightness(colour: str) -> int:
    return sum(int(each) for each in colour.removeprefix("rgb(").removesuffix(")").split(","))


def test_a_position_without_a_place_is_a_word_under_the_image(opened: Open) -> None:
    page = opened([described()])
    (chip,) = page.page.locator(".rg-unplaced .rg-token").all()
    assert chip.text_content() == "[class]"
    script = "(chip) => getComputedStyle(chip).backgroundColor"
    page.set(query=0)
    dark = brightness(chip.evaluate(script))
    page.set(query=1)
    assert brightness(chip.evaluate(script)) > dark + 200


def test_patches_that_attend_to_each_other_are_asked_on_the_image(opened: Open) -> None:
    grid = replace(checkered().take([1, 2, 3, 4]))
    weights = torch.eye(4)[[3, 2, 1, 0]]
    page = opened([Payload.of(weights, grid, grid, kind="self")])
    box = page.do("() => regard.view().ground.box(0)")
    page.page.locator(".rg-plane canvas").click(
        position={"x": box[0] + box[2] / 2, "y": box[1] + box[3] / 2}  # type: ignore[index]
    )
    assert page.do("() => regard.state.query") == 0
    page.page.mouse.move(5, 5)
    page.do("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 30)))")
    assert np.abs(np.array(colour_at(page, "box(3)")) - WHITE).max() < 6
    assert min(colour_at(page, "box(1)")) > 180
    page.keep("patches")


def test_without_a_picture_patches_have_the_colours_of_their_weights(opened: Open) -> None:
    grid = Patches.grid(2, 3, width=30, height=20)
    page = opened([Payload.of([[0.0, 0.1, 0.2, 0.3, 0.4, 1.0]], "q", grid)])
    page.set(query=0)
    shades = [sum(colour_at(page, f"box({at})")) for at in range(6)]
    assert shades == sorted(shades, reverse=True)
    assert len(set(shades)) == 6


def spoken(frames: int = 24, words: tuple[str, ...] = WORDS) -> Payload:
    """Each word attends to its share of the time."""
    envelope = [abs(float(np.sin(at / 9) * np.sin(at / 2.3))) for at in range(400)]
    axis = Frames.regular(frames, 0.125, envelope=envelope)
    centre = (torch.arange(len(words)) + 0.5) * frames / len(words)
    away = (torch.arange(frames) + 0.5)[None] - centre[:, None]
    return Payload.of((-(away**2) / 4).softmax(1), words, axis, site="decoder.align")


def test_frames_are_shaded_under_their_sound(opened: Open) -> None:
    payload = spoken()
    page = opened([payload])
    page.keep("sound")
    for word, frame in enumerate(payload.strongest):
        page.set(query=word)
        script = """() => { const view = regard.view(), ratio = view.canvas.width
            / view.plane.clientWidth, ground = view.ground;
          return ground.axis.times.map((_, at) => { const [x, width] = ground.span(at);
            const place = [(x + width / 2) * ratio, (ground.y + 4) * ratio, 1, 1];
            const data = view.canvas.getContext("2d").getImageData(...place).data;
            return data[0] + data[1] + data[2]; }); }"""
        shades = page.do(script)
        assert shades.index(min(shades)) == frame  # type: ignore[attr-defined,type-var]
    spot = page.do("""() => { const { ground } = regard.view(), [x, width] = ground.span(5);
      return [x + width / 2, ground.rowsFrom + 1.5 * ground.rowHeight]; }""")
    page.page.locator(".rg-plane canvas").click(position={"x": spot[0], "y": spot[1]})  # type: ignore[index]
    assert page.do("() => [regard.state.query, regard.state.key]") == [1, 5]
    assert page.page.locator(".rg-tip dd").all_text_contents()[:2] == ["red", payload.keys[5]]


def test_as_many_frames_as_tokens_still_have_the_right_labels(opened: Open) -> None:
    payload = spoken(frames=len(WORDS))
    page = opened([payload])
    assert page.do("() => regard.labels()") == {"queries": [*WORDS], "keys": [*payload.keys]}
    assert page.page.locator(".rg-others .rg-token").all_text_contents() == [*WORDS]


def test_a_memory_is_shown_by_time(opened: Open) -> None:
    weights = torch.zeros(5, 7)
    for step, slot in enumerate((0, 2, 4, 6, 1)):
        weights[step, slot] = 1.0
    payload = Payload.of(weights, Steps.of(5), Slots.of(7), kind="memory", site="controller.read")
    page = opened([payload])
    script = """([step, slot]) => { const view = regard.view(), { ground } = view;
      const ratio = view.canvas.width / view.plane.clientWidth;
      const x = (ground.x + (step + 0.5) * ground.cellWide) * ratio;
      const y = (ground.y + (slot + 0.5) * ground.cellHigh) * ratio;
      const data = view.canvas.getContext("2d").getImageData(x, y, 1, 1).data;
      return data[0] + data[1] + data[2]; }"""
    dark = [[page.do(script, [step, slot]) for slot in range(7)] for step in range(5)]
    assert [row.index(min(row)) for row in dark] == [0, 2, 4, 6, 1]  # type: ignore[type-var]
    page.set(query=2)
    page.keep("memory")
    assert page.page.locator(".rg-step-name").text_content() == "step"


def test_notes_lie_by_time_and_pitch(opened: Open) -> None:
    notes = tuple((60 + 2 * at, float(at), 1.0) for at in range(5))
    axis = Notes(labels=("C4", "D4", "E4", "F#4", "G#4"), notes=notes)
    page = opened([Payload.of([[0.0, 0.1, 0.2, 0.4, 1.0]], "q", axis)])
    page.set(query=0)
    shades = [sum(colour_at(page, f"box({at})")) for at in range(5)]
    assert shades == sorted(shades, reverse=True)
    first, last = (page.do(f"() => regard.view().ground.box({at})") for at in (0, 4))
    assert first[0] < last[0]  # type: ignore[index]
    assert first[1] > last[1], "a higher note is higher"  # type: ignore[index]


def test_queries_with_places_are_shown_by_key(opened: Open) -> None:
    weights = torch.eye(5)[:, [0, 2, 1, 3, 4]]
    page = opened([Payload.of(weights, checkered(), WORDS[:5])])
    assert page.do("() => regard.state.view") == "input"
    page.set(key=2)
    assert np.abs(np.array(colour_at(page, "box(1)")) - RED).max() < 12
    assert "what attends to it" in (page.page.locator(".rg-hint").text_content() or "")


def test_texts_have_no_view_of_the_input(opened: Open) -> None:
    both = [described(), Payload.of(torch.eye(3), "abc", "abc", site="text")]
    page = opened(both)
    assert page.page.locator("[role=tab]:visible").all_text_contents()[-1] == "Input"
    page.set(site=1)
    assert page.do("() => regard.state.view") == "matrix"
    assert "Input" not in page.page.locator("[role=tab]:visible").all_text_contents()
    page.page.keyboard.press("5")
    assert page.do("() => regard.state.view") == "matrix"
    page.set(site=0)
    page.page.keyboard.press("5")
    page.page.wait_for_function("() => regard.state.view === 'input'")


@pytest.mark.parametrize("view", ["matrix", "heads", "links", "text", "input"])
def test_every_view_has_labels_of_any_kind_as_text(opened: Open, view: str) -> None:
    """Labels that are markup, of every kind of axis, in every view, on the screen and in files."""
    hostile = tuple(TOKENS.values())
    count = len(hostile)
    axes = [
        replace(Patches.grid(1, count, width=count, height=1), labels=hostile),
        replace(Frames.regular(count, 0.1), labels=hostile),
        Slots(labels=hostile),
        Notes(labels=hostile, notes=tuple((60 + at, float(at), 1.0) for at in range(count))),
    ]
    for axis in axes:
        page = opened([Payload.of(torch.eye(count), hostile, axis)], view=view)
        page.do("() => new Promise((done) => setTimeout(done, 30))")
        scripts = page.page.locator("script:not([nonce]):not([type='application/json'])")
        assert scripts.count() == 0
        if view == "input":
            ElementTree.fromstring(page.exported("svg"))
            assert page.exported("png").startswith(b"\x89PNG")
            rows = list(csv.reader(io.StringIO(page.exported("csv").decode())))
            assert len(rows) == count + 1
        page.page.close()


def test_a_picture_that_cannot_be_read_leaves_its_patches(opened: Open) -> None:
    broken = replace(checkered(), picture="data:image/png;base64,AAAA")
    page = opened([Payload.of(torch.eye(5), WORDS[:5], broken)])
    page.set(query=1)
    assert sum(colour_at(page, "box(1)")) < sum(colour_at(page, "box(2)"))


def test_the_keyboard_goes_from_word_to_word(opened: Open) -> None:
    page = opened([described()])
    page.page.locator(".rg-plane canvas").focus()
    for expected in (0, 1, 2):
        page.page.keyboard.press("ArrowDown")
        page.page.wait_for_function(f"() => regard.state.query === {expected}")
    page.page.keyboard.press("ArrowUp")
    page.page.wait_for_function("() => regard.state.query === 1")


def test_labels_of_an_axis_are_searched(opened: Open) -> None:
    page = opened([described()])
    page.page.keyboard.press("/")
    page.page.keyboard.type("blue")
    assert page.page.locator(".rg-others .rg-found").all_text_contents() == ["blue"]
