"""Documents on two levels, and confusions: what is on the canvas."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from regard.core.errors import UserError
from regard.look import Payload, confusion, draw
from regard.look.document import BAR, document_figure
from regard.look.matrix import confusion_figure
from regard.look.picture import default_view
from tests.look.hostile import TOKENS

WORDS = ["The", "plot", "is", "thin", "."]
SENTENCES = ("The plot", "is thin .")


def levels() -> tuple[Payload, Payload]:
    words = [[0.25, 0.75, 0.0, 0.0, 0.0], [0.0, 0.0, 0.125, 0.625, 0.25]]
    return (
        Payload.of(words, SENTENCES, WORDS, site="word_pool", kind="pool"),
        Payload.of([[0.36, 0.64]], ["bad 0.9"], SENTENCES, site="sentence_pool", kind="pool"),
    )


def test_words_are_as_dark_as_they_and_their_sentence_weigh() -> None:
    axes = document_figure(*levels()).axes[0]
    (shades,) = [each for each in axes.collections if isinstance(each, PatchCollection)]
    expected = [0.25 * 0.6, 0.75 * 0.6, 0.125 * 0.8, 0.625 * 0.8, 0.25 * 0.8]
    assert np.asarray(shades.get_array()).tolist() == pytest.approx(expected)
    bars = [each.get_width() for each in axes.patches if isinstance(each, Rectangle)]
    assert bars == pytest.approx([0.36 * BAR, 0.64 * BAR])
    texts = [each.get_text() for each in axes.texts]
    assert [text for text in texts if text in WORDS] == WORDS
    assert {"0.36", "0.64"} <= set(texts)


def test_each_sentence_stands_below_the_one_before() -> None:
    axes = document_figure(*levels()).axes[0]
    heights = {each.get_text(): each.get_position()[1] for each in axes.texts}
    assert heights["The"] == heights["plot"] < heights["is"] == heights["thin"]


def test_the_view_that_fits_is_chosen(tmp_path: Path, as_users_run_it: None) -> None:
    both = levels()
    assert default_view(both) == "document"
    assert default_view(both[1:]) == "text"
    assert default_view([Payload.of([[1.0]], ["a"], ["b"])]) == "matrix"
    assert default_view([both[0], Payload.of([[1.0]], ["a"], ["b"])]) == "heads"
    for name in ("both.png", "both.svg", "both.html"):
        draw(both, tmp_path / name, title="thin")
        assert (tmp_path / name).stat().st_size > 2000
    draw(both, tmp_path / "asked.html", view="document")


def test_a_document_of_one_level_is_refused(tmp_path: Path, as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="which only a model of two levels attends to"):
        draw(levels()[:1], tmp_path / "a.png", view="document")
    other = Payload.of([[1.0]], ["bad"], ["The plot"], site="sentence_pool", kind="pool")
    with pytest.raises(UserError, match="not two levels of one document"):
        document_figure(levels()[0], other)


def test_a_confusion_has_its_counts_and_its_classes(tmp_path: Path) -> None:
    axes = confusion_figure(["cat", "dog"], np.array([[3.0, 1.0], [0.0, 0.0]])).axes[0]
    assert [each.get_text() for each in axes.texts] == ["3", "1", "0", "0"]
    assert [each.get_text() for each in axes.get_yticklabels()] == ["cat", "dog"]
    shares = np.asarray(axes.images[0].get_array())
    assert shares.tolist() == [[0.75, 0.25], [0.0, 0.0]]
    names = list(TOKENS.values())
    confusion(names, np.eye(len(names)).tolist(), tmp_path / "hostile.png")
    assert (tmp_path / "hostile.png").stat().st_size > 2000
