"""What is on the canvas: the numbers, the words, and room for both."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from regard.core.errors import UserError
from regard.look import Payload
from regard.look.figure import ORANGE, printable
from regard.look.matrix import alignment_figure, grid_figure
from regard.look.text import LEAST, flow_figure, heat_figure
from tests.look.hostile import TOKENS, letters

WORDS = ["The", "agreement", "on", "the", "European", "Economic", "Area", "was", "signed", "."]


def random_payload(queries: list[str], keys: list[str], heads: int = 1) -> Payload:
    weights = torch.randn(heads, len(queries), len(keys)).mul(3).softmax(-1)
    return Payload.of(weights, queries, keys, site="decoder.cross")


def causal_payload(words: list[str]) -> Payload:
    weights = torch.rand(len(words), len(words)).tril()
    return Payload.of(weights / weights.sum(1, keepdim=True), words, words, kind="self")


def texts_on(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def drawn(figure: Figure) -> FigureCanvasAgg:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas


def test_the_alignment_matrix_has_the_numbers_and_the_words() -> None:
    payload = random_payload(list("1998-05-03"), list("vendredi 3 mai 1998"), heads=3)
    axes = alignment_figure(payload).axes[0]
    assert np.array_equal(axes.images[0].get_array(), payload.weights.mean(0))
    assert [label.get_text() for label in axes.get_yticklabels()] == list("1998-05-03")
    assert [label.get_text() for label in axes.get_xticklabels()] == list("vendredi␣3␣mai␣1998")
    assert axes.xaxis.get_ticks_position() == "top"
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("target", "source")
    assert axes.get_title() == "decoder.cross, mean of 3 heads"
    # The first query is at the top, and no weight is a lighter shade than nothing.
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert axes.images[0].get_clim() == (0.0, payload.matrix.max())


def test_the_numbers_of_a_small_matrix_are_written_in_and_those_of_a_large_one_are_not() -> None:
    axes = alignment_figure(Payload.of([[0.25, 0.75], [1.0, 0.0]], "ab", "cd")).axes[0]
    assert texts_on(axes) == [".25", ".75", "1.00"]
    assert texts_on(alignment_figure(random_payload(WORDS, [*WORDS, "!"])).axes[0]) == []


def test_the_chosen_path_is_framed_where_it_is() -> None:
    payload = random_payload(WORDS, WORDS)
    axes = alignment_figure(payload, payload.strongest).axes[0]
    frames = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    places = [(frame.get_x() + 0.5, frame.get_y() + 0.5) for frame in frames]
    assert places == [(key, query) for query, key in enumerate(payload.strongest)]
    assert {frame.get_edgecolor() for frame in frames} == {(*to_rgb(ORANGE), 1.0)}
    assert not alignment_figure(payload).axes[0].patches


def to_rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))


@pytest.mark.parametrize("shape", [(5, 5), (60, 60), (3, 60), (60, 3), (1, 1), (150, 150)])
@pytest.mark.parametrize("word", ["a", "agreement"])
def test_words_are_large_enough_to_read_and_do_not_overlap(
    shape: tuple[int, int], word: str
) -> None:
    queries, keys = ([f"{word}{i}" for i in range(count)] for count in shape)
    figure = alignment_figure(random_payload(queries, keys))
    renderer = drawn(figure).get_renderer()
    axes = figure.axes[0]
    down = [text.get_window_extent(renderer) for text in axes.get_yticklabels()]
    assert all(above.y0 >= below.y1 - 1 for above, below in pairwise(down))
    across = list(axes.get_xticklabels())
    # Turned words lie side by side: what is between them is measured square to the way they run.
    turn = np.radians(across[0].get_rotation())
    places = axes.transData.transform([(x, 0) for x in axes.get_xticks()])[:, 0]
    for text in across:
        text.set_rotation(0)
    boxes = [text.get_window_extent(renderer) for text in across]
    for (left, right), (box, other) in zip(pairwise(places), pairwise(boxes), strict=True):
        room = (right - left) * np.sin(turn) if turn else right - left
        needed = max(box.height, other.height) if turn else (box.width + other.width) / 2
        assert needed <= room * 1.05
    sizes = [text.get_fontsize() for text in (*across, *axes.get_yticklabels())]
    assert min(sizes) >= 8
    assert max(figure.get_size_inches()) <= 22


def test_labels_of_a_very_long_axis_are_those_of_their_rows() -> None:
    words = [f"w{i}" for i in range(500)]
    axes = alignment_figure(random_payload(words, words)).axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert 100 <= len(labels) < 500
    assert labels == [words[int(tick)] for tick in axes.get_yticks()]


def test_a_grid_has_every_head_of_every_layer_on_one_scale() -> None:
    layers = [random_payload(WORDS, WORDS[:5], heads=3) for _ in range(2)]
    figure = grid_figure(layers)
    panels = [axes for axes in figure.axes if axes.images and axes.get_label() != "<colorbar>"]
    assert len(panels) == 6
    expected = [weights for layer in layers for weights in layer.weights]
    for axes, weights in zip(panels, expected, strict=True):
        assert np.array_equal(axes.images[0].get_array(), weights)
    most = max(float(layer.weights.max()) for layer in layers)
    assert {axes.images[0].get_clim() for axes in panels} == {(0.0, most)}
    assert [axes.get_title() for axes in panels[:3]] == ["head 0", "head 1", "head 2"]
    boxes = [axes.get_position() for axes in panels]
    assert boxes[0].x0 < boxes[1].x0
    assert boxes[0].y0 > boxes[3].y0


def test_heads_that_were_not_recorded_leave_their_place_empty() -> None:
    full = random_payload(WORDS, WORDS, heads=3)
    figure = grid_figure([full, full.head(2)])
    places = [axes.get_position().x0 for axes in figure.axes]
    assert places[3] == places[2], "head 2 stands under head 2"


def shades_of(axes: Axes) -> PatchCollection:
    (found,) = [each for each in axes.collections if isinstance(each, PatchCollection)]
    return found


def test_text_heat_shades_each_earlier_word_by_its_weight() -> None:
    payload = causal_payload(WORDS)
    axes = heat_figure(payload).axes[0]
    earlier = [payload.matrix[q, k] for q in range(10) for k in range(q + 1)]
    assert np.array_equal(shades_of(axes).get_array(), earlier)
    rows = [[WORDS[q], *WORDS[: q + 1]] for q in range(10)]
    assert texts_on(axes) == [word for row in rows for word in row]


def test_text_heat_of_a_source_has_all_of_it_in_every_row() -> None:
    payload = random_payload(["un", "deux"], WORDS * 3)
    axes = heat_figure(payload).axes[0]
    assert np.array_equal(shades_of(axes).get_array(), payload.matrix.flatten())
    assert texts_on(axes) == ["un", *WORDS * 3, "deux", *WORDS * 3]
    left, right = axes.get_xlim()
    assert all(left <= text.get_position()[0] <= right for text in axes.texts)
    assert len({text.get_position()[1] for text in axes.texts}) == 4, "two lines for each"


def test_links_are_as_heavy_as_the_weights_and_join_the_right_words() -> None:
    payload = Payload.of([[0.0, 1.0], [0.5, 0.5 * LEAST], [0.25, 0.0]], "abc", "xy")
    axes = flow_figure(payload).axes[0]
    (links,) = [each for each in axes.collections if isinstance(each, LineCollection)]
    assert links.get_array().tolist() == [0.25, 0.5, 1.0]
    heavy = links.get_linewidths()
    assert heavy[0] < heavy[1] < heavy[2]
    places = {text.get_text(): text.get_position() for text in axes.texts}
    for line, (key, query) in zip(links.get_segments(), ["xc", "xb", "ya"], strict=True):
        assert line[0][1] == pytest.approx(places[key][1])
        assert line[-1][1] == pytest.approx(places[query][1])
        assert places[key][0] < line[0][0] < line[-1][0] < places[query][0]


PICTURES: dict[str, Callable[[Payload], Figure]] = {
    "alignment": alignment_figure,
    "grid": lambda payload: grid_figure([payload]),
    "heat": heat_figure,
    "flow": flow_figure,
}


@pytest.mark.parametrize("picture", PICTURES)
def test_hostile_tokens_are_drawn_without_a_warning(picture: str) -> None:
    tokens = list(TOKENS.values())
    payload = Payload.of(torch.eye(len(tokens)), tokens, tokens, site="$x_{ 中\n<b>")
    figure = PICTURES[picture](payload)
    drawn(figure)
    texts = [text.get_text() for text in figure.findobj(Text)]
    if picture != "grid":
        assert set(printable(tokens)) <= set(texts)
    assert max(map(len, texts)) < 80
    ours = [text for text in figure.findobj(Text) if "$" in text.get_text()]
    assert ours
    assert not any(text.get_parse_math() for text in ours)


def test_letters_from_all_over_unicode_are_drawn_without_a_warning() -> None:
    payload = random_payload(letters(0, 60), letters(1, 60))
    drawn(alignment_figure(payload))


@pytest.mark.parametrize("picture", PICTURES)
def test_weights_that_are_all_zero_are_a_picture_too(picture: str) -> None:
    drawn(PICTURES[picture](Payload.of(torch.zeros(2, 3), "ab", "xyz")))


@pytest.mark.parametrize("marked", [[0], [0, 1, 2], [0, 3], [0, -1]])
def test_a_path_that_is_not_one_key_for_each_query_is_refused(marked: list[int]) -> None:
    with pytest.raises(UserError, match="one key, 0 to 2, for each of the 2 queries"):
        alignment_figure(Payload.of(torch.ones(2, 3), "ab", "xyz"), marked)


def test_a_grid_of_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="at least one payload"):
        grid_figure([])
