"""Attention weights over the input itself: an image for each query, frames under their sound.

An image is bright where a query attends, and faded elsewhere, as in figure 2 of Xu et al. (2015).
"""

import base64
import io
from collections.abc import Sequence
from math import ceil

import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from PIL import Image as Pillow

from regard.core.axes import Frames, Patches
from regard.core.errors import UserError
from regard.look.figure import (
    GREY,
    INK,
    ORANGE,
    SHADES,
    SOFT,
    font_for,
    heading,
    printable,
    scale_beside,
    sheet,
)
from regard.look.matrix import check_marked, largest_weight, write_queries
from regard.look.payload import Payload

_SIDE = 1.5
"""Inches of the longer side of a small image."""
_CAPTION = 0.3
"""Inches under it."""
_PIXELS = 320
"""Of the longer side, at most: a small image needs no more."""
_ACROSS = 6
_MOST = 256
"""Small images on a sheet."""
UNLIT = 0.16
"""What is left of an image where nothing is attended to."""
_WAVE, _ROW, _WIDE = 1.1, 0.22, 8.0
"""Inches: the height of the sound, the height of a row of weights, the width of both."""


def read_picture(address: str) -> UInt8[np.ndarray, "H W 3"] | None:
    """The image of a `data:` address, no larger than it is drawn; None if there is none."""
    if not address:
        return None
    try:
        with Pillow.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))) as file:
            picture = file.convert("RGB")
    except (OSError, ValueError, Pillow.DecompressionBombError):
        raise UserError(f"the picture of an axis cannot be read: {address[:40]}...") from None
    picture.thumbnail((_PIXELS, _PIXELS))
    return np.asarray(picture)


def patch_mask(
    patches: Patches, weights: Float[np.ndarray, "K"], shape: tuple[int, int]
) -> Float[np.ndarray, "H W"]:
    """The weight of the patch at each pixel of an image drawn in this shape; 0 without a patch."""
    mask = np.zeros(shape, dtype=np.float32)
    down, across = shape[0] / patches.height, shape[1] / patches.width
    for (left, top, width, height), weight in zip(patches.boxes, weights, strict=True):
        rows = slice(round(top * down), round((top + height) * down))
        columns = slice(round(left * across), round((left + width) * across))
        mask[rows, columns] = np.maximum(mask[rows, columns], weight)
    return mask


def image_figure(payload: Payload, marked: Sequence[int] | None = None) -> Figure:
    """A small image for each query, bright where the query attends."""
    patches = payload.keys
    assert isinstance(patches, Patches)
    queries, keys = payload.matrix.shape
    if queries > _MOST:
        raise UserError(
            f"site {payload.site!r} has {queries} queries, and a picture has room for {_MOST} "
            "images: draw a page, or some of the rows"
        )
    path = None if marked is None else check_marked(marked, queries, keys)
    picture = read_picture(patches.picture)
    longer = max(patches.width, patches.height)
    wide, tall = _SIDE * patches.width / longer, _SIDE * patches.height / longer + _CAPTION
    columns = min(queries, _ACROSS)
    rows = ceil(queries / columns)
    figure = sheet(columns * wide * 1.08, rows * tall)
    most = largest_weight([payload.matrix])
    labels = printable(payload.queries)
    for query in range(queries):
        row, column = divmod(query, columns)
        box = (
            column / columns,
            1 - (row + 1 - _CAPTION / tall) / rows,
            1 / (1.08 * columns),
            (1 - _CAPTION / tall) / rows,
        )
        axes = figure.add_axes(box)
        shown = _paint(axes, patches, payload.matrix[query], most, picture)
        axes.set_xlabel(
            labels[query], fontproperties=font_for([labels[query]], 9.0), color=INK,
            parse_math=False, labelpad=2,
        )  # fmt: skip
        if path is not None:
            _frame(axes, patches, path[query])
    title = heading(payload.title)
    figure.suptitle(
        title, fontproperties=font_for([title], 11.0), color=INK, parse_math=False, x=0, y=1.0,
        ha="left", va="bottom",
    )  # fmt: skip
    if picture is None:
        scale_beside(figure, shown, most)
    else:
        note = f"in each: where this {payload.axes[0]} attends; full brightness is {most:.2g}"
        figure.text(0, 0, note, ha="left", va="top", fontsize=9, color=SOFT)
    return figure


def _paint(
    axes: Axes,
    patches: Patches,
    weights: Float[np.ndarray, "K"],
    most: float,
    picture: UInt8[np.ndarray, "H W 3"] | None,
) -> AxesImage:
    """One image as bright as its patches are attended to; without an image, their shades."""
    extent = (0, patches.width, patches.height, 0)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set(color=GREY, linewidth=0.5)
    if picture is None:
        scale = _PIXELS / max(patches.width, patches.height)
        shape = (max(1, round(patches.height * scale)), max(1, round(patches.width * scale)))
        mask = patch_mask(patches, weights, shape)
        return axes.imshow(mask, cmap=SHADES, vmin=0.0, vmax=most, extent=extent, aspect="auto")
    light = patch_mask(patches, weights, picture.shape[:2])[..., None] / most  # [H,W,1]
    light = UNLIT + (1 - UNLIT) * light
    return axes.imshow(light * (picture / 255) + 1 - light, extent=extent, aspect="auto")


def _frame(axes: Axes, patches: Patches, key: int) -> None:
    """A frame around the chosen patch."""
    left, top, width, height = patches.boxes[key]
    frame = Rectangle((left, top), width, height, fill=False, edgecolor=ORANGE, linewidth=1.8)
    frame.set_clip_on(False)
    axes.add_patch(frame)


def sound_figure(payload: Payload) -> Figure:
    """Every query as a row of shades along the time of its frames, under the sound itself."""
    frames = payload.keys
    assert isinstance(frames, Frames)
    order = sorted(range(len(frames)), key=lambda at: frames.times[at][0])
    begin, end = frames.span
    edges = np.array([*(frames.times[at][0] for at in order), end])
    has_sound = bool(frames.envelope or frames.picture)
    below = max(1, len(payload.queries)) * _ROW
    height = below + (_WAVE + 0.1) * has_sound
    figure = sheet(_WIDE, height)
    axes = figure.add_axes((0, 0, 1, below / height))
    most = largest_weight([payload.matrix])
    mesh = axes.pcolormesh(
        edges, np.arange(len(payload.queries) + 1) - 0.5, payload.matrix[:, order], cmap=SHADES,
        vmin=0.0, vmax=most,
    )  # fmt: skip
    axes.invert_yaxis()
    axes.set_xlim(begin, max(end, begin + 1e-6))
    write_queries(axes, payload.queries, _ROW)
    axes.tick_params(labelsize=9, labelcolor=INK, length=0)
    axes.spines[:].set(color=GREY, linewidth=0.5)
    axes.set_xlabel(f"{payload.axes[1]}, seconds", fontsize=9, color=SOFT)
    axes.set_ylabel(payload.axes[0], fontsize=9, color=SOFT)
    top = axes
    if has_sound:
        top = figure.add_axes((0, 1 - _WAVE / height, 1, _WAVE / height), sharex=axes)
        _paint_sound(top, frames)
    title = heading(payload.title)
    top.set_title(title, fontproperties=font_for([title], 11.0), color=INK, parse_math=False)
    scale_beside(figure, mesh, most)
    return figure


def _paint_sound(axes: Axes, frames: Frames) -> None:
    """The spectrogram if there is one, else the envelope on both sides of silence."""
    begin, end = frames.span
    picture = read_picture(frames.picture)
    axes.set_yticks([])
    axes.tick_params(labelbottom=False, length=0)
    axes.spines[:].set(color=GREY, linewidth=0.5)
    if picture is not None:
        axes.imshow(picture, extent=(begin, end, 0, 1), aspect="auto")
        return
    times = np.linspace(begin, end, len(frames.envelope))
    loud = np.array(frames.envelope)
    axes.fill_between(times, -loud, loud, color=ORANGE, linewidth=0)
