"""Charts: how a training went, how systems fare on long sentences, how far positions differ.

How numbers of many texts are spread: a dot for each, and a box around the middle half.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite, nan
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from regard.core.errors import UserError
from regard.look.figure import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    RED,
    SIDES,
    SKY,
    SOFT,
    font_for,
    heading,
    plain,
    printable,
    sheet,
)

COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
"""Of systems beside each other; with more than there are, they begin again with other hatching."""
_HATCHES = ("", "//", "..", "xx")


@dataclass
class Curve:
    """The points of one curve; what was no finite number is a gap."""

    updates: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def _read_log(path: Path) -> dict[str, Curve]:
    """The curves of a log.jsonl: `loss` and `lr` of training, and `validation NAME`.

    A last line that is still being written is passed over.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a log: {error}") from error
    found: dict[str, Curve] = {}
    for number, line in enumerate(text.splitlines(keepends=True), start=1):
        if not line.endswith("\n"):
            break
        for name, (update, value) in _points_of(line, f"{path}:{number}").items():
            curve = found.setdefault(name, Curve())
            curve.updates.append(update)
            curve.values.append(value)
    if not found:
        raise UserError(f"{path}: there is nothing to draw yet: no losses and no validation")
    return found


def _points_of(line: str, where: str) -> dict[str, tuple[int, float]]:
    """The points that one line of a log adds, by curve."""
    try:
        values = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: a line of a log must be JSON: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("update"), int):
        raise UserError(f'{where}: a line of a log must be an object with a whole "update"')
    validation = values.get("validation", {})
    if not isinstance(validation, dict):
        raise UserError(f'{where}: "validation" must be an object of numbers')
    drawn = {name: values[name] for name in ("loss", "lr") if name in values}
    drawn |= {f"validation {name}": value for name, value in validation.items()}
    points = {}
    for name, value in drawn.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UserError(f"{where}: {name} must be a number or null, not {value!r}")
        points[name] = (values["update"], nan if value is None else float(value))
    return points


def curves_figure(log: Path) -> Figure:
    """Losses together, every other metric for itself, and the learning rate below."""
    found = _read_log(log)
    losses: list[str] = [name for name in ("loss", "validation loss") if name in found]
    others = sorted(name for name in found if name not in ("loss", "lr", "validation loss"))
    panels = [("loss", losses)] if losses else []
    panels += [(name, [name]) for name in others]
    panels += [("learning rate", ["lr"])] if "lr" in found else []
    figure = sheet(7.5, 0.8 + 1.9 * len(panels))
    figure.set_layout_engine("constrained")
    stacked = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (title, names) in zip(stacked, panels, strict=True):
        plain(axes, title)
        for name in names:
            curve = found[name]
            seldom = name.startswith("validation")
            axes.plot(
                curve.updates,
                curve.values,
                color=SOFT if name == "lr" else ORANGE if seldom else BLUE,
                marker="o" if seldom or len(curve.updates) == 1 else None,
                markersize=4,
                linewidth=1.8,
                label="validation" if seldom else "training",
            )
        axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
        axes.set_axisbelow(True)
        if len(names) > 1:
            axes.legend(fontsize=9, frameon=False)
    stacked[-1].set_xlabel("update", fontsize=10, color=INK)
    return figure


def bars_by_length_figure(
    systems: Mapping[str, Sequence[float | None]],
    lengths: Sequence[tuple[int, int | None]],
    *,
    score: str,
    sentences: Sequence[int] | None,
) -> Figure:
    """One group of bars for each span of lengths, one bar for each system."""
    _check_bars(systems, lengths, sentences)
    figure = sheet(max(6.0, 0.35 * len(lengths) * (len(systems) + 1)), 3.6)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    plain(axes, "")
    each = 0.8 / len(systems)
    places = np.arange(len(lengths))
    names = [heading(name) for name in systems]
    for order, (name, values) in enumerate(zip(names, systems.values(), strict=True)):
        axes.bar(
            places - 0.4 + (order + 0.5) * each,
            [nan if value is None else value for value in values],
            width=0.92 * each,
            color=COLOURS[order % len(COLOURS)],
            hatch=_HATCHES[order // len(COLOURS) % len(_HATCHES)],
            edgecolor="white",
            linewidth=0,
            label=name,
        )
    texts = [
        f"{first}+" if last is None else f"{first}–{last}" if first < last else f"{first}"
        for first, last in lengths
    ]
    if sentences is not None:
        texts = [f"{text}\n({count:,})" for text, count in zip(texts, sentences, strict=True)]
    axes.set_xticks(places, texts)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(heading(score), fontsize=10, color=INK, parse_math=False)
    below = "words in the source" + (" (sentences of that length)" if sentences else "")
    axes.set_xlabel(below, fontsize=10, color=INK)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    legend = axes.legend(
        prop=font_for(names, 9.0), frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=4
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _check_bars(
    systems: Mapping[str, Sequence[float | None]],
    lengths: Sequence[tuple[int, int | None]],
    sentences: Sequence[int] | None,
) -> None:
    """As many scores as there are spans, and spans that go up."""
    if not systems or not lengths:
        raise UserError("bars by length need at least one system and one span of lengths")
    ends = [end for first, last in lengths for end in (first, inf if last is None else last)]
    if ends != sorted(ends) or any(b <= a for a, b in zip(ends[1::2], ends[2::2], strict=False)):
        raise UserError(f"spans of lengths must go up and not overlap, not {list(lengths)}")
    counted = {**systems, "sentences": sentences} if sentences is not None else systems
    for name, values in counted.items():
        if values is None or len(values) != len(lengths):
            raise UserError(
                f"{name!r} has {len(values or ())} numbers for {len(lengths)} spans of lengths"
            )


def positions_figure(table: np.ndarray) -> Figure:
    """The vector of each position as a row of shades, and how alike the positions are."""
    if table.ndim != 2 or 0 in table.shape or not np.isfinite(table).all():
        raise UserError(
            "position encodings must be finite numbers, [positions, width]; these are "
            f"{list(table.shape)}"
        )
    figure = sheet(11.0, 4.6)
    figure.set_layout_engine("constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.3, 1])
    most = float(np.abs(table).max()) or 1.0
    codes = left.imshow(
        table, cmap=SIDES, vmin=-most, vmax=most, aspect="auto", interpolation="nearest"
    )
    plain(left, "the vector of each position")
    left.set_xlabel("dimension", fontsize=10, color=INK)
    left.set_ylabel("position", fontsize=10, color=INK)
    lengths = np.linalg.norm(table, axis=1, keepdims=True)
    units = table / np.where(lengths > 0, lengths, 1.0)  # [T,D]
    alike = right.imshow(
        units @ units.T, cmap=SIDES, vmin=-1, vmax=1, aspect="auto", interpolation="nearest"
    )
    plain(right, "how alike two positions are (cosine)")
    right.set_xlabel("position", fontsize=10, color=INK)
    for axes, image in ((left, codes), (right, alike)):
        axes.spines[:].set_visible(False)
        bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02, aspect=26)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, labelsize=8.5, labelcolor=SOFT)
    return figure


def reach_figure(lengths: Mapping[str, Sequence[float]], labels: Sequence[str]) -> Figure:
    """How long the gradient is at each token that was read, on a scale of powers of ten."""
    _check_reach(lengths, labels)
    figure = sheet(min(14.0, max(6.0, 0.24 * len(labels))), 3.8)
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    plain(axes, "how far the gradient of one prediction reaches")
    for order, (name, values) in enumerate(lengths.items()):
        axes.plot(
            range(len(labels)),
            [value if value > 0 else nan for value in values],
            color=COLOURS[order % len(COLOURS)],
            marker="o" if len(labels) <= 80 else None,
            markersize=4,
            linewidth=1.8,
            label=heading(name),
        )
    if any(value > 0 for values in lengths.values() for value in values):
        axes.set_yscale("log")
    every = max(1, len(labels) // 56)
    texts = printable(labels[::every])
    axes.set_xticks(
        range(0, len(labels), every), texts, fontproperties=font_for(texts, 9.0), parse_math=False,
        rotation=0 if max(map(len, texts)) < 3 else 90,
    )  # fmt: skip
    axes.set_ylabel("length of the gradient", fontsize=10, color=INK)
    axes.set_xlabel("token that was read", fontsize=10, color=INK)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(fontsize=9, frameon=False)
    return figure


def _check_reach(lengths: Mapping[str, Sequence[float]], labels: Sequence[str]) -> None:
    """A finite length for each token, and at least one token."""
    if not lengths or not labels:
        raise UserError("a reach needs at least one curve over at least one token")
    for name, values in lengths.items():
        if len(values) != len(labels) or not all(isfinite(value) for value in values):
            raise UserError(
                f"{name!r} must have a finite length for each of the {len(labels)} tokens, and has "
                f"{sum(isfinite(value) for value in values)} of {len(values)}"
            )


def spread_figure(columns: Mapping[str, Sequence[float]]) -> Figure:
    """One row for each column; values that are not finite are left out."""
    if not columns:
        raise UserError("there is nothing to draw: no columns")
    figure = sheet(7.5, 0.7 + 0.42 * len(columns))
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    plain(axes, "")
    heights = np.random.default_rng(0)  # the same dots for the same numbers
    for order, values in enumerate(columns.values()):
        known = np.asarray([value for value in values if np.isfinite(value)])
        place = len(columns) - 1 - order
        colour = COLOURS[order % len(COLOURS)]
        jitter = heights.uniform(-0.28, 0.28, len(known))
        axes.plot(known, place + jitter, ".", color=colour, alpha=0.35, markersize=4)
        if len(known):
            low, middle, high = np.quantile(known, [0.25, 0.5, 0.75])
            axes.plot([low, high], [place, place], color=INK, linewidth=5, alpha=0.35)
            axes.plot([middle], [place], "|", color=INK, markersize=15, markeredgewidth=2.2)
    names = [heading(name) for name in columns]
    axes.set_yticks(range(len(columns) - 1, -1, -1), names, fontsize=9.5)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.6, len(columns) - 0.4)
    axes.grid(axis="x", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    return figure
