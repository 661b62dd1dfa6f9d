"""Everything that can be drawn of a run: its attention, its gradients, its positions, its training.

Attention needs a text; so do gradients. Positions belong to the model and curves to the log, which
a run has from its first update on.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor, nn

from regard.core.errors import UserError, choose
from regard.explain.gradient_reach import gradient_reach
from regard.layers.position import Learned, Rotary, Sinusoidal
from regard.look import curves, draw, positions
from regard.look import reach as draw_reach
from regard.look.picture import DRAWINGS
from regard.runs.run import load, read_config
from regard.tasks.abilities import ReachesBack, unsupported

_LONGEST = 128
"""Positions that are drawn: beyond them nothing new is to be seen."""


def view_run(
    folder: Path,
    text: str | None,
    view: str | None,
    output: Path | None,
    *,
    site: str | None = None,
    heads: Sequence[int] | None = None,
    device: str = "auto",
) -> tuple[Path, str]:
    """Draw one view of a run; where it went, and what is on it."""
    known = {**DRAWINGS, **_OTHERS}
    if view is not None:
        choose("view", view, known)
    if view in _OTHERS:
        path = output or Path(f"{view}.png")
        return path, _OTHERS[view](folder, text, path, device)
    path = output or Path("attention.html")
    asked = _needed(text, view or "attention")
    found = load(folder, device).look(asked, site, heads or None)
    draw(found, path, title=asked, view=view)
    return path, ", ".join(each.site for each in found)


def _needed(text: str | None, view: str) -> str:
    """The text, which this view cannot do without."""
    if text is None:
        raise UserError(
            f'say what the model is to read: regard look RUN "a text" --view {view}; '
            "without a text there are the views curves and positions"
        )
    return text


def _of_curves(folder: Path, text: str | None, path: Path, device: str) -> str:
    """How the training went, or goes."""
    read_config(folder)
    curves(folder / "log.jsonl", path)
    return "losses, validation and learning rate"


def _of_positions(folder: Path, text: str | None, path: Path, device: str) -> str:
    """The position encodings of the model."""
    name, table = position_table(load(folder, device).model)
    positions(table[:_LONGEST], path)
    return name


def _of_reach(folder: Path, text: str | None, path: Path, device: str) -> str:
    """How far gradients reach, with attention and without."""
    run = load(folder, device)
    if not isinstance(run.task, ReachesBack):
        raise unsupported(folder, run.recipe.task, "the view reach")
    found = gradient_reach(run.task, run.model, run.task.parse(_needed(text, "reach"), "text"))
    draw_reach(found.norms, found.axis, path)
    return ", ".join(found.norms)


_OTHERS: dict[str, Callable[[Path, str | None, Path, str], str]] = {
    "curves": _of_curves,
    "positions": _of_positions,
    "reach": _of_reach,
}
"""Views that are not of attention, each with what it draws them from."""


def position_table(model: nn.Module) -> tuple[str, Tensor]:
    """The first position encodings of a model by name, `[T,D]`."""
    for name, module in model.named_modules():
        if isinstance(module, Sinusoidal | Learned):
            return name, module.table.detach()
        if isinstance(module, Rotary):
            return name, module.table.flatten(1)  # [T,2E]: cosines, then sines
    raise UserError(f"{type(model).__name__} has no position encodings: it reads in order")
