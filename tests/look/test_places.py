"""Pictures over an image, under a sound and of a memory: weights and labels at their places."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.patches import Rectangle

from regard.core.axes import Frames, Patches, Slots, Steps
from regard.core.errors import UserError
from regard.core.inputs import Image
from regard.look import Payload, alignment, draw
from regard.look.picture import default_view
from regard.look.places import UNLIT, image_figure, patch_mask, sound_figure
from tests.look.hostile import TOKENS

WORDS = ("red", "green", "blue", "white")


def four_colours() -> Patches:
    """Two by two colours, 16 pixels each."""
    colours = torch.tensor([[200, 30, 30], [30, 160, 60], [30, 60, 200], [250, 250, 250]])
    small = colours.to(torch.uint8).T.reshape(3, 2, 2)
    pixels = small.repeat_interleave(16, 1).repeat_interleave(16, 2)
    return Patches.grid(2, 2, width=32, height=32, picture=Image(pixels).data_address())


def test_each_query_has_the_image_with_its_own_light() -> None:
    payload = Payload.of(torch.eye(4), WORDS, four_colours(), site="cross")
    figure = image_figure(payload, payload.strongest)
    assert [axes.get_xlabel() for axes in figure.axes] == [*WORDS]
    for query, axes in enumerate(figure.axes):
        shown = np.asarray(axes.images[0].get_array())[8::16, 8::16].reshape(4, 3)
        plain = np.array([[200, 30, 30], [30, 160, 60], [30, 60, 200], [250, 250, 250]]) / 255
        faded = UNLIT * plain + 1 - UNLIT
        expected = np.where(np.arange(4)[:, None] == query, plain, faded)
        np.testing.assert_allclose(shown, expected, atol=1e-3)
        (frame,) = (each for each in axes.patches if isinstance(each, Rectangle))
        assert (*frame.get_xy(), frame.get_width(), frame.get_height()) == payload.keys.boxes[query]
    FigureCanvasAgg(figure).draw()


def test_without_an_image_patches_are_shades_on_one_scale() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.8, 0.0, 0.2, 0.0]])
    figure = image_figure(Payload.of(weights, "ab", Patches.grid(2, 2, width=8, height=4)))
    for query, axes in enumerate(figure.axes[:2]):
        image = axes.images[0]
        assert image.get_clim() == pytest.approx((0.0, 0.8))
        high, wide = image.get_array().shape
        assert wide == 2 * high, "the shape of the image"
        corners = image.get_array()[[1, 1, -2, -2], [1, -2, 1, -2]]
        np.testing.assert_allclose(corners, weights[query])


def test_a_mask_has_the_weights_at_their_boxes_and_nothing_elsewhere() -> None:
    boxes = ((0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 2.0, 2.0), (1.0, 1.0, 2.0, 2.0))
    patches = Patches(labels=("[class]", "a", "b"), boxes=boxes, width=4, height=4)
    mask = patch_mask(patches, np.array([0.9, 0.3, 0.5], dtype=np.float32), (4, 4))
    expected = [[0.3, 0.3, 0, 0], [0.3, 0.5, 0.5, 0], [0, 0.5, 0.5, 0], [0, 0, 0, 0]]
    np.testing.assert_allclose(mask, expected, atol=1e-6)


def test_frames_are_rows_of_shades_at_their_times_under_the_envelope() -> None:
    times = ((0.5, 0.75), (0.0, 0.25), (0.25, 0.5))
    frames = Frames(labels=("c", "a", "b"), times=times, envelope=(0.0, 1.0, 0.5))
    weights = torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]])
    figure = sound_figure(Payload.of(weights, ["x", "y"], frames, site="align"))
    below, above, _ = figure.axes
    (mesh,) = (each for each in below.collections if isinstance(each, QuadMesh))
    np.testing.assert_allclose(mesh.get_array().reshape(2, 3), weights[:, [1, 2, 0]])
    np.testing.assert_allclose(mesh.get_coordinates()[0, :, 0], [0.0, 0.25, 0.5, 0.75])
    assert [label.get_text() for label in below.get_yticklabels()] == ["x", "y"]
    assert below.get_ylim()[0] > below.get_ylim()[1], "the first query is at the top"
    (wave,) = above.collections
    assert wave.get_paths()[0].vertices[:, 1].max() == 1.0
    assert above.get_xlim() == below.get_xlim() == (0.0, 0.75)
    assert above.get_title() == "align"


def test_a_spectrogram_stands_where_the_envelope_would() -> None:
    frames = Frames.regular(4, 0.5, picture=four_colours().picture)
    figure = sound_figure(Payload.of(torch.eye(4), WORDS, frames))
    (image,) = figure.axes[1].images
    assert tuple(image.get_extent()) == (0.0, 2.0, 0, 1)
    FigureCanvasAgg(figure).draw()


def test_a_sound_without_its_wave_has_only_shades() -> None:
    figure = sound_figure(Payload.of(torch.eye(4), WORDS, Frames.regular(4, 0.5)))
    assert len(figure.axes) == 2, "the weights, and their scale"


def test_a_memory_has_slots_downward_and_steps_across() -> None:
    payload = Payload.of(torch.eye(3)[:2], Steps.of(2), Slots.of(3), kind="memory")
    turned = payload.transpose()
    assert (turned.queries, turned.keys) == (Slots.of(3), Steps.of(2))
    assert turned.axes == ("slot", "step")
    assert turned.matrix.tolist() == payload.matrix.T.tolist()
    assert turned.transpose().matrix.tolist() == payload.matrix.tolist()


@pytest.mark.parametrize("form", ["png", "svg", "pdf", "html"])
def test_the_view_of_the_input_is_drawn_in_every_form(tmp_path: Path, form: str) -> None:
    hostile = tuple(TOKENS.values())
    grid = Patches.grid(1, len(hostile), width=len(hostile), height=1)
    axes = (
        replace(grid, labels=hostile),
        replace(Frames.regular(len(hostile), 0.1), labels=hostile),
        Slots(labels=hostile),
    )
    for axis in axes:
        payload = Payload.of(torch.eye(len(hostile)), hostile, axis)
        assert default_view([payload]) == "input"
        path = tmp_path / f"{axis.kind}.{form}"
        draw([payload], path, view="input")
        assert path.stat().st_size > 3000
        assert b"<script>alert" not in path.read_bytes()


@pytest.mark.usefixtures("as_users_run_it")
def test_what_cannot_be_drawn_over_the_input_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    with pytest.raises(UserError, match="over an image, a sound or a memory, and 'x' attends to"):
        draw([Payload.of(torch.eye(2), "ab", "cd", site="x")], path, view="input")
    many = Payload.of(torch.full((300, 4), 0.25), ["q"] * 300, four_colours())
    with pytest.raises(UserError, match="300 queries, and a picture has room for 256"):
        alignment(many, path)
    broken = replace(four_colours(), picture="data:image/png;base64,AAAA")
    with pytest.raises(UserError, match="cannot be read"):
        alignment(Payload.of(torch.eye(4), WORDS, broken), path)
    with pytest.raises(UserError, match="must have one key"):
        alignment(Payload.of(torch.eye(4), WORDS, four_colours()), path, marked=[4, 0, 0, 0])
    assert not path.exists()
