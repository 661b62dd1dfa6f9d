"""What is checked of a recipe before anything is written, so that a run that starts can also end.

The model must fit the task, and the training settings the model and the number of batches; one
batch to learn from and one to measure on are tried.
"""

import inspect
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import nn

from regard.core.config import Config
from regard.core.errors import UserError, choose
from regard.models import MODELS
from regard.runs.recipe import Figure, Recipe
from regard.tasks.task import OpenTask
from regard.train.evaluate import FirstBatch, on_device
from regard.train.lora import adapted_layers
from regard.train.optimise import build_optimiser
from regard.train.parallel.world import World
from regard.train.plan import Plan
from regard.train.trackers import TRACKERS

if TYPE_CHECKING:
    from regard.runs.run import Run


def check_kind_of_output(recipe: Recipe) -> None:
    """Raise if the model returns something else than the task learns from; reads no data."""
    needed, returned = recipe.task_class.output, _returned(recipe.model_class)
    if returned is not None and not issubclass(returned, needed):
        raise UserError(
            f"{_wrong_model(recipe)}: it returns {returned.__name__}, and the task needs "
            f"{needed.__name__}; {_models_for(recipe.task_class, None)}"
        )


def check_constructor(recipe: Recipe, sizes: Mapping[str, object]) -> None:
    """Raise if the model cannot be built from its config and the sizes of its task."""
    model = recipe.model_class
    if (problem := _constructor_problem(model, recipe.model, sizes)) is None:
        return
    if recipe.kind in MODELS:
        raise UserError(f"{_wrong_model(recipe)}; {_models_for(recipe.task_class, sizes)}")
    given = ", ".join(["config", *(f"{name}=..." for name in sizes)])
    raise UserError(
        f"{recipe.kind}: the task builds its models as {model.__name__}({given}), but this one "
        f"takes {inspect.signature(model)}: {problem}"
    )


def check_run(run: "Run", world: World) -> dict[str, float]:
    """Raise for whatever would end the training later; returns the metrics of one batch."""
    task, settings, model = run.task, run.recipe.train, run.model
    if settings.lora is not None:
        adapted_layers(model, settings.lora)
    for name in settings.trackers:
        if find_spec(name) is None:
            raise UserError(
                f"train.{name}=true needs the package {name}: pip install {TRACKERS[name][1]}"
            )
    batches = task.batches()
    mine = batches if world.size == 1 else batches.shard(world.rank, world.size)
    device = next(model.parameters()).device
    Plan(settings, len(mine)).check(can_validate=True, device=device)
    build_optimiser(settings.optimiser, model, settings.stages)
    held = {each: task.evaluation(each) for each in task.splits if each != "train"}
    with torch.random.fork_rng(devices=[]):
        _try_training_batch(run, on_device(mine.batch(0, 0), device))
        figures = run.measured(FirstBatch(held["validation"]))
        if settings.monitor != "loss":
            choose("metric", settings.monitor, figures)
        if run.recipe.figure is not None:
            _check_figure(run, run.recipe.figure, figures)
    return figures


def _try_training_batch(run: "Run", batch: Mapping[str, torch.Tensor]) -> None:
    """The loss of a batch as training computes it; the buffers of the model stay as they were."""
    buffers = {name: each.clone() for name, each in run.model.named_buffers()}
    trains = run.model.training
    try:
        with torch.no_grad():
            run.task.loss(run.model.train(), batch, None)
    finally:
        run.model.train(trains)
        for name, each in run.model.named_buffers():
            if name in buffers:
                each.copy_(buffers[name])


def _check_figure(run: "Run", figure: Figure, validation: Mapping[str, float]) -> None:
    """Raise if the figure will not be measured, as far as that can be told before training."""
    choose("split of figure", figure.split, dict.fromkeys(run.task.splits))
    if not scores_predictions(run.task):
        choose("metric of figure", figure.metric, validation)


def scores_predictions(task: OpenTask) -> bool:
    """Has it metrics of whole predictions? To compute them takes long without training."""
    return type(task).score is not OpenTask.score


def _wrong_model(recipe: Recipe) -> str:
    return f"model.kind={recipe.kind!r} is no model for task {recipe.task!r}"


def _models_for(task: type[OpenTask], sizes: Mapping[str, object] | None) -> str:
    """The names of the models for a task, for an error."""
    fitting = [
        name
        for name, model in MODELS.items()
        if issubclass(_returned(model) or object, task.output)
        and (sizes is None or _constructor_problem(model, Config(), sizes) is None)
    ]
    return f"models for it: {', '.join(fitting)}" if fitting else "no model of ours is for it"


def _returned(model: type[nn.Module]) -> type | None:
    """What a model returns, by the annotation of its `forward`; None if there is none."""
    returned: object = inspect.signature(model.forward).return_annotation
    return (
        returned if isinstance(returned, type) and returned is not inspect.Signature.empty else None
    )


def _constructor_problem(
    model: type[nn.Module], config: Config, sizes: Mapping[str, object]
) -> str | None:
    """Why a model cannot be built with these arguments; None if it can."""
    known = inspect.signature(model)
    needed = {name for name, each in known.parameters.items() if each.default is each.empty}
    extra = {} if "source" not in needed or "source" in sizes else {"source": None}
    try:
        known.bind(config, **{**extra, **sizes})
    except TypeError as error:
        return str(error)
    return None
