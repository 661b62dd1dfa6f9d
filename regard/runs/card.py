"""What a notebook shows of a run: its model, its figures and its curves."""

import json
from pathlib import Path

from torch import nn

from regard.look.card import card
from regard.look.log_curves import training_curves
from regard.runs.recipe import Recipe


def run_card(folder: Path, recipe: Recipe, model: nn.Module) -> str:
    """A run as HTML."""
    parameters = sum(each.numel() for each in model.parameters())
    rows = [("model", f"{recipe.kind}, {parameters:,} parameters"), ("folder", str(folder))]
    try:
        measured = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        measured = {}
    for split in ("validation", "test"):
        figures = measured.get(split, {})
        if figures:
            rows.append(
                (split, ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
            )
    curves = training_curves(folder)
    shown: dict[str, list[tuple[int, float]]]
    shown = {name: curves[name] for name in ("train/loss", "validation/loss") if name in curves}
    return card(recipe.about.title, rows, shown)
