"""Charts: the numbers of a log, of systems and of positions are those on the canvas."""

import json
from math import isnan
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.core.errors import UserError
from regard.look.chart import bars_by_length_figure, curves_figure, positions_figure
from regard.look.plot import bars_by_length, positions

LINES: list[dict[str, object]] = [
    {"update": 10, "epoch": 0.1, "loss": 3.0, "lr": 0.1, "norm": 1.0},
    {"update": 20, "loss": None, "lr": 0.2},
    {"update": 20, "validation": {"loss": 2.5, "perplexity": 12.2}},
    {"update": 20, "note": "resumed"},
    {"update": 30, "loss": 2.0, "lr": 0.1},
    {"update": 30, "validation": {"loss": 2.1, "perplexity": None}},
]


def log_of(folder: Path, *lines: str) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_curves_have_the_points_of_the_log(tmp_path: Path) -> None:
    figure = curves_figure(log_of(tmp_path, *map(json.dumps, LINES)))
    losses, perplexity, rate = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "loss", "validation perplexity", "learning rate",
    ]  # fmt: skip
    training, validation = losses.lines
    assert list(training.get_xdata()) == [10, 20, 30]
    assert list(training.get_ydata())[::2] == [3.0, 2.0]
    assert isnan(training.get_ydata()[1]), "what was no number is a gap"
    assert list(validation.get_xdata()) == [20, 30]
    assert list(validation.get_ydata()) == [2.5, 2.1]
    assert perplexity.lines[0].get_ydata()[0] == 12.2
    assert list(rate.lines[0].get_ydata()) == [0.1, 0.2, 0.1]


def test_a_line_that_is_still_being_written_is_passed_over(tmp_path: Path) -> None:
    path = log_of(tmp_path, json.dumps(LINES[0]))
    with path.open("a") as file:
        file.write('{"update": 20, "lo')
    assert curves_figure(path).axes[0].lines[0].get_xdata() == [10]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("not json", r"log\.jsonl:2: .*must be JSON"),
        ("[]", r"log\.jsonl:2: .*object with a whole \"update\""),
        ('{"loss": 1.0}', r"log\.jsonl:2: .*\"update\""),
        ('{"update": 2, "loss": "low"}', r"log\.jsonl:2: loss must be a number or null, not 'low'"),
        ('{"update": 2, "validation": 3}', r"log\.jsonl:2: \"validation\" must be an object"),
        ('{"update": 2, "validation": {"bleu": true}}', "validation bleu must be a number"),
    ],
)
def test_a_line_that_is_no_line_of_a_log_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        curves_figure(log_of(tmp_path, '{"update": 1, "loss": 1.0}', line, '{"update": 3}'))


def test_a_log_that_is_missing_empty_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot be read as a log: .*No such file"):
        curves_figure(tmp_path / "log.jsonl")
    with pytest.raises(UserError, match="nothing to draw yet"):
        curves_figure(log_of(tmp_path, '{"update": 1, "note": "begun"}'))
    (tmp_path / "log.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(UserError, match="cannot be read as a log"):
        curves_figure(tmp_path / "log.jsonl")


def test_bars_stand_in_groups_and_are_as_high_as_the_scores() -> None:
    systems = {"with attention": [30.0, 28.0], "$without_{": [29.0, None]}
    figure = bars_by_length_figure(systems, [(1, 10), (11, 11)], score="BLEU", sentences=[1200, 3])
    axes = figure.axes[0]
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert heights[0] == [30.0, 28.0]
    assert heights[1][0] == 29.0
    assert isnan(heights[1][1])
    middles = [[bar.get_x() + bar.get_width() / 2 for bar in bars] for bars in axes.containers]
    assert middles[0][0] < 0 < middles[1][0] < 0.5 < middles[0][1] < 1 < middles[1][1]
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["1–10\n(1,200)", "11\n(3)"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(systems)


@pytest.mark.parametrize(
    ("systems", "lengths", "sentences", "message"),
    [
        ({}, [(1, 2)], None, "at least one system"),
        ({"a": []}, [], None, "at least one system and one span"),
        ({"a": [1.0]}, [(1, 2), (3, 4)], None, "'a' has 1 numbers for 2 spans"),
        ({"a": [1.0, 2.0]}, [(1, 2), (3, 4)], [5], "'sentences' has 1 numbers for 2"),
        ({"a": [1.0, 2.0]}, [(1, 10), (10, 20)], None, "must go up and not overlap"),
        ({"a": [1.0]}, [(4, 3)], None, "must go up"),
    ],
)
def test_bars_that_do_not_fit_their_spans_are_refused(
    tmp_path: Path,
    systems: dict[str, list[float]],
    lengths: list[tuple[int, int]],
    sentences: list[int] | None,
    message: str,
) -> None:
    with pytest.raises(UserError, match=message):
        bars_by_length(systems, lengths, tmp_path / "bars.png", sentences=sentences)
    assert list(tmp_path.iterdir()) == []


def test_positions_are_shown_as_they_are_and_compared() -> None:
    table = torch.randn(7, 4).numpy()
    codes, alike = (axes.images[0] for axes in positions_figure(table).axes[:2])
    assert np.array_equal(codes.get_array(), table)
    assert codes.get_clim() == (-np.abs(table).max(), np.abs(table).max())
    expected = torch.nn.functional.cosine_similarity(
        torch.tensor(table)[:, None], torch.tensor(table)[None], dim=2
    )
    np.testing.assert_allclose(alike.get_array(), expected, atol=1e-6)


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    "table",
    [torch.ones(3), torch.ones(2, 0), torch.ones(1, 2, 3), torch.tensor([[1.0, torch.nan]])],
    ids=["flat", "empty", "deep", "nan"],
)
def test_what_is_no_table_of_positions_is_refused(tmp_path: Path, table: torch.Tensor) -> None:
    with pytest.raises(UserError, match=r"finite numbers, \[positions, width\]"):
        positions(table, tmp_path / "positions.png")
