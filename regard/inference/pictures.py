"""Everything that can be drawn of a run: its attention, its gradients, its positions, its training.

Attention and gradients need an input: a text, or the path of an image or a sound. Positions belong
to the model and curves to the log, which a run has from its first update on.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor, nn

from regard.core.errors import UserError, choose
from regard.explain.gradient_reach import gradient_reach
from regard.inference.attention import to_the_source
from regard.layers.position import Learned, Rotary, Sinusoidal
from regard.look import Payload, curves, draw, positions
from regard.look import reach as draw_reach
from regard.look.picture import DRAWINGS
from regard.runs.run import load, read_run_config
from regard.tasks.abilities import ReachesBack, unsupported

_LONGEST = 128
"""Positions that are drawn at most."""


def view_run(
    folder: Path,
    line: str | None,
    view: str | None,
    output: Path | None,
    *,
    site: str | None = None,
    heads: Sequence[int] | None = None,
    device: str = "auto",
) -> tuple[Path, str]:
    """Draw one view of a run: the file, and what is on it. `line` is what the model reads."""
    known = {**DRAWINGS, **_OTHERS}
    if view is not None:
        choose("view", view, known)
    if view in _OTHERS:
        path = output or Path(f"{view}.png")
        return path, _OTHERS[view](folder, line, path, device)
    path = output or Path("attention.html")
    given = _require_line(line, view or "attention")
    found: tuple[Payload, ...] = load(folder, device).look(given, site, heads or None)
    if site is None and path.suffix.lower() != ".html":
        found = to_the_source(found)  # a picture has room for a few sites
    draw(found, path, title=given, view=view)
    return path, ", ".join(each.site for each in found)


def _require_line(line: str | None, view: str) -> str:
    """The input, without which there is no such view."""
    if line is None:
        raise UserError(
            f'the view {view} needs an input: regard look RUN "a text" --view {view}; '
            "without one there are the views curves and positions"
        )
    return line


def _of_curves(folder: Path, line: str | None, path: Path, device: str) -> str:
    """Losses over the training so far."""
    read_run_config(folder)
    curves(folder / "log.jsonl", path)
    return "losses, validation and learning rate"


def _of_positions(folder: Path, line: str | None, path: Path, device: str) -> str:
    """The position encodings of the model."""
    name, table = position_table(load(folder, device).model)
    positions(table[:_LONGEST], path)
    return name


def _of_reach(folder: Path, line: str | None, path: Path, device: str) -> str:
    """How far gradients reach, with attention and without."""
    run = load(folder, device)
    if not isinstance(run.task, ReachesBack):
        raise unsupported(folder, run.recipe.task, "the view reach")
    found = gradient_reach(
        run.task, run.model, run.task.parse(_require_line(line, "reach"), "input")
    )
    draw_reach(found.norms, found.axis, path)
    return ", ".join(found.norms)


_OTHERS: dict[str, Callable[[Path, str | None, Path, str], str]] = {
    "curves": _of_curves,
    "positions": _of_positions,
    "reach": _of_reach,
}
"""Views that are not of attention."""


def position_table(model: nn.Module) -> tuple[str, Tensor]:
    """The first position encodings of a model by name, `[T,D]`."""
    for name, module in model.named_modules():
        if isinstance(module, Sinusoidal | Learned):
            return name, module.table.detach()
        if isinstance(module, Rotary):
            return name, module.table.flatten(1)  # [T,2E]: cosines, then sines
    raise UserError(f"{type(model).__name__} has no position encodings")
