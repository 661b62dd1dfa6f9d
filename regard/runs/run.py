"""A run: a folder with a recipe, what came of it, and all that is needed to go on or to use it.

`recipe.toml` and `config.json` say what it is, `tokenizer.json` and `model.safetensors` are what it
learned, `log.jsonl` and `metrics.json` how well, `README.md` is its card, `state/` its checkpoints.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

import regard
from regard.core.atomic import os_errors_as_user_errors
from regard.core.device import device_of_rank, peak_bytes
from regard.core.errors import UserError, choose, nearest
from regard.core.inputs import Input
from regard.core.protocols import Batches
from regard.decode import Piece, Request, Sampling
from regard.inference.workers import translate
from regard.layers.quantise import WEIGHTS, quantise
from regard.look import Payload
from regard.models import MODELS
from regard.runs.recipe import Recipe, parsed, shipped, text_in
from regard.runs.transfer import lines, taken
from regard.tasks import TASKS
from regard.tasks.abilities import ShowsAttention, require
from regard.tasks.task import Answer, OpenTask, Split
from regard.tasks.translate import Translation
from regard.train import durable
from regard.train.evaluate import FirstBatch, evaluate
from regard.train.loop import TrainingResult, train
from regard.train.parallel.world import process_group
from regard.train.weights import load_weights

_DRAWN = Request(policy=Sampling(), max_tokens=50)
"""What is written if nothing is said: fifty tokens, drawn as the model would have them."""

SOURCE = "source"
"""The folder in a run that holds the run it began with."""

_FORMAT = 1
"""Of the run folder; a folder of a later format is refused rather than misread."""


@runtime_checkable
class Writes(Protocol):
    """A task whose models go on from a prompt."""

    def write(
        self, model: nn.Module, prompt: str, request: Request, stops: Sequence[str] = ()
    ) -> Iterator[Piece]:
        """Texts that go on from a prompt, piece by piece."""
        ...


@runtime_checkable
class Predicts(Protocol):
    """A task whose models say something of each text."""

    def inputs(self, path: str) -> list[tuple[str, ...]]:
        """The texts of a file."""
        ...

    def parted(self, line: str, where: str) -> tuple[str, ...]:
        """The text of a line, in one part or two; `where` is what errors call it."""
        ...

    def answers(self, model: nn.Module, texts: Sequence[Sequence[str]]) -> list[Answer]:
        """What the model says of each text."""
        ...

    def predict(self, model: nn.Module, lines: Sequence[str]) -> list[Answer]:
        """What the model says of each line."""
        ...


@dataclass(frozen=True)
class Run:
    """A run that is open: its recipe, its task and its model."""

    folder: Path
    recipe: Recipe
    task: OpenTask
    model: nn.Module
    began: tuple[str, ...] = ()
    """What there is to say of how the model began: what it took of another run, say."""
    weights: str = "float32"
    """How the model's weights are held."""

    def train(self) -> TrainingResult:
        """Train, or go on training, and leave everything in the folder."""
        validation = self.task.evaluation("validation")

        def validate() -> Mapping[str, float]:
            return self.measured(validation)

        with process_group(next(self.model.parameters()).device) as world:
            batches = self.task.batches()
            mine = batches if world.size == 1 else batches.shard(world.rank, world.size)
            result = train(
                self.model, self.task, mine, self.recipe.train, self.folder, validate=validate
            )
            if world.is_main and result.outcome != "interrupted":
                self.measure(result)
            world.barrier()
        return result

    def check(self) -> None:
        """Refuse what would be refused later: data to measure on, a metric to watch, a batch."""
        held = {each: self.task.evaluation(each) for each in self.task.splits if each != "train"}
        with torch.random.fork_rng(devices=[]):
            figures = self.measured(FirstBatch(held["validation"]))
        if self.recipe.train.monitor != "loss":
            choose("metric", self.recipe.train.monitor, figures)

    def measured(self, batches: Batches) -> dict[str, float]:
        """The metrics of the task over some batches."""
        return self.task.metrics(evaluate(self.model, self.task, batches).metrics())

    def measure(self, result: TrainingResult) -> dict[str, dict[str, float]]:
        """Evaluate what was trained on every split there is; write metrics.json and the card."""
        measured: tuple[Split, ...] = ("validation", "test")
        figures: dict[str, dict[str, float]] = {
            each: self.evaluate(each) for each in measured if each in self.task.splits
        }
        about = {
            "outcome": result.outcome,
            "updates": result.update,
            "seconds": result.seconds,
            "parameters": sum(each.numel() for each in self.model.parameters()),
            "peak_bytes": peak_bytes(next(self.model.parameters()).device),
        }
        write_json(self.folder / "metrics.json", {**figures, "training": about})
        write_text(self.folder / "README.md", _card(self, figures, result))
        return figures

    def evaluate(self, split: Split = "validation", workers: int | None = 1) -> dict[str, float]:
        """Every metric of the task over a whole split; translated by workers, as `translate` does.

        Of None as workers there are as many as is usual for so much.
        """
        metrics = self.measured(self.task.evaluation(split))
        self.model.eval()
        if workers == 1 or not isinstance(self.task, Translation):
            return {**metrics, **self.task.score(self.model, split)}
        done = self.task.outputs_by(lambda lines: self.translate(lines, workers, split), split)
        return {**metrics, **self.task.compared(done)}

    def write(
        self, prompt: str, request: Request = _DRAWN, stops: Sequence[str] = ()
    ) -> Iterator[Piece]:
        """Texts that go on from a prompt, piece by piece; the prompt is not repeated."""
        if not isinstance(self.task, Writes):
            raise UserError(f"{self.folder}: a run of {self.recipe.task} does not go on from text")
        yield from self.task.write(self.model, prompt, request, stops)

    def translate(
        self, lines: Sequence[str], workers: int | None = 1, name: str = "input"
    ) -> list[str]:
        """The best translation of each line, by this process or by so many others.

        Those have the weights that are in the folder. `name` is what warnings call the lines.
        """
        every = translate(self, lines, name=name, workers=workers, chunk=max(1, len(lines)))
        return [each.text for each in every]

    @property
    def predicts(self) -> Predicts:
        """Its task, if that says something of each text."""
        if not isinstance(self.task, Predicts):
            raise UserError(f"{self.folder}: a run of {self.recipe.task} does not predict")
        return self.task

    def predict(self, lines: Sequence[str]) -> list[Answer]:
        """What the model says of each line: a class, or a tag for each word."""
        return self.predicts.predict(self.model, lines)

    def look(
        self, given: Input | str, sites: str | None = None, heads: Sequence[int] | None = None
    ) -> tuple[Payload, ...]:
        """The attention weights of the model for an input, for regard.look to draw.

        A string is a line as `task.parse` takes it. `sites` is a glob of names in the model;
        without it, the sites from an output to its source, or else all.
        """
        from regard.inference.attention import attention_of

        task = require(self.task, ShowsAttention, "attention", self.recipe.task, str(self.folder))
        parsed = task.parse(given, "input") if isinstance(given, str) else given
        return attention_of(task, self.model, parsed, sites, heads)


def create(recipe: Recipe, folder: Path, data: Path, device: str = "auto") -> Run:
    """A new run in a folder that has none, with the initial weights of the recipe's seed."""
    if (folder / "recipe.toml").exists():
        raise UserError(
            f"{folder}: there is a run already; go on with `regard resume {folder}`, "
            "or choose another --name"
        )
    with process_group(device_of_rank(device)) as world:
        source = None if recipe.source is None else _source_run(recipe.source, device)
        known = source is not None and (source.recipe.task == recipe.task or recipe.reads_as_source)
        if not world.is_main:
            world.barrier()  # for what the first process writes, the tokenised text included
            _require_visible(folder, world.rank)
        saved = folder if not world.is_main else source.folder if source and known else None
        task = TASKS[recipe.task].open(recipe.data, data, saved)
        task = task if source is None else task.begun_with(source.task)
        model = built(recipe, task, source, device)
        began = () if source is None else _told_of(model, source, str(recipe.source))
        run = Run(folder, recipe, task, model, (*began, *task.initialise(model)))
        if world.is_main:
            task.batches()
            run.check()  # a folder that is written has a recipe that works
            write(folder, recipe, task, data, source)
            world.barrier()
    return run


def _require_visible(folder: Path, rank: int) -> None:
    """Raise if this process does not see the run folder that the first one has written."""
    if not (folder / "recipe.toml").exists():
        raise UserError(
            f"{folder}: process {rank} does not see the run folder that process 0 has written; "
            "on several machines, give --runs a folder that all of them share"
        )


def open_run(folder: str | Path, data: Path | None = None, device: str = "auto") -> Run:
    """A run as it lies in its folder, with the weights of its model if it has been trained."""
    folder = Path(folder)
    config = read_config(folder)
    recipe = parsed(read_text(folder / "recipe.toml"), str(folder / "recipe.toml"))
    if data is None and not isinstance(config.get("data"), str):
        raise UserError(f"{folder / 'config.json'}: names no data folder; give one with --data")
    task = TASKS[recipe.task].open(recipe.data, data or Path(str(config["data"])), folder)
    source = None if recipe.source is None else load(folder / SOURCE, device)
    task = task if source is None else task.begun_with(source.task)
    run = Run(folder, recipe, task, built(recipe, task, source, device))
    weights = folder / "model.safetensors"
    if weights.exists():
        load_weights(run.model, read_weights(weights), source=str(weights))
    else:
        task.initialise(run.model)
    return run


def load(
    folder: str | Path, device: str = "auto", data: Path | None = None, weights: str = "float32"
) -> Run:
    """A trained run, ready to predict; its weights may be rounded: `regard.layers.quantise` says how."""
    if Path(folder).is_dir() and not (Path(folder) / "model.safetensors").exists():
        raise UserError(
            f"{folder}: this run is not trained yet (it has no model.safetensors); "
            f"go on with `regard resume {folder}`"
        )
    kind = choose("weights", weights, WEIGHTS)
    run = open_run(folder, data, device if kind is None else "cpu")
    quantise(run.model.eval(), weights)
    return replace(run, weights=weights)


def _told_of(model: nn.Module, source: Run, name: str) -> list[str]:
    """What the model took of the run it begins with, and what not, by name."""
    return lines(taken(model, read_weights(source.folder / "model.safetensors")), name)


def _source_run(folder: str, device: str) -> Run:
    """The trained run that a model begins with; if it is not there, how to come by it."""
    if not (Path(folder) / "model.safetensors").exists():
        name = Path(folder).name
        how = f"`regard train {name}`" if name in shipped() else "training it"
        raise UserError(
            f"{folder}: this recipe begins with the run in this folder, which is not there or not "
            f"trained; come by it with {how}, or give another with --set model.source=FOLDER"
        )
    return load(folder, device)


def built(recipe: Recipe, task: OpenTask, source: Run | None, device: str) -> nn.Module:
    """The recipe's model with its initial weights, or with those of the run it begins with."""
    torch.manual_seed(recipe.train.seed)
    kind = MODELS[recipe.kind]
    begun = {} if source is None else {"source": source.model}
    return kind(recipe.model, **task.sizes, **begun).to(device_of_rank(device))


def data_folder(given: Path | None) -> Path:
    """Where data are looked for: as given, else REGARD_DATA, else here."""
    return given or Path(os.environ.get("REGARD_DATA", "."))


def write(folder: Path, recipe: Recipe, task: OpenTask, data: Path, source: Run | None) -> None:
    """Set up a run folder; its recipe comes last, since it is what makes the folder a run.

    A run that the model begins with is copied, all but what it was trained by, so that the folder
    is whole without it.
    """
    config = {
        "format": _FORMAT,
        "regard": regard.__version__,
        "task": recipe.task,
        "model": recipe.kind,
        **task.sizes,
        "data": str(data.resolve()),
    }
    kept = replace(recipe, data=task.data_kept(recipe.data))
    with os_errors_as_user_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        task.save(folder)
        if source is not None:
            training = shutil.ignore_patterns("state", "log.jsonl", "tensorboard")
            shutil.copytree(source.folder, folder / SOURCE, ignore=training, dirs_exist_ok=True)
        write_json(folder / "config.json", config)
        write_text(folder / "recipe.toml", kept.to_toml())


def read_config(folder: Path) -> dict[str, object]:
    """config.json of a run, if the folder is one and of a format we know."""
    path = folder / "config.json"
    if not path.exists():
        near = nearest(folder.name, [each.name for each in folder.parent.glob("*")])
        hint = f"; did you mean {folder.parent / near}?" if near and near != folder.name else ""
        raise UserError(f"{folder}: this is no run folder (it has no config.json){hint}")
    config = read_json(path)
    if "model_type" in config and "format" not in config:
        raise UserError(
            f"{folder}: this is a checkpoint of transformers, not a run; make a run of it with "
            f"`regard import {folder} -o runs/{folder.resolve().name}`"
        )
    found = config.get("format")
    if type(found) is not int or found < 1:
        raise UserError(
            f"{path}: format is {found!r}, which regard does not write; is this the file of a run?"
        )
    if found > _FORMAT:
        raise UserError(
            f"{path}: format {found} is newer than this regard knows ({_FORMAT}); update regard"
        )
    return config


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path}: not a whole safetensors file ({error})") from None


def read_text(path: Path) -> str:
    """The text of a file that a run must have."""
    if not path.exists():
        raise UserError(f"{path}: this file of the run is missing")
    return text_in(path)


def read_json(path: Path) -> dict[str, object]:
    """The JSON object in a file that a run must have."""
    text = read_text(path)
    try:
        held: object = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from None
    if not isinstance(held, dict):
        raise UserError(f"{path}: not a JSON object; this is no file that regard has written")
    return held


def write_text(path: Path, text: str) -> None:
    """Write a whole file or leave the one that is there."""
    durable.replace_file(path, [text.encode()])


def write_json(path: Path, values: Mapping[str, object]) -> None:
    """Write a JSON file."""
    write_text(path, json.dumps(values, indent=2) + "\n")


def _card(run: Run, figures: Mapping[str, Mapping[str, float]], result: TrainingResult) -> str:
    """The model card: what it is, what it was trained on, what was measured."""
    recipe = run.recipe
    parameters = sum(each.numel() for each in run.model.parameters())
    rows = [
        f"| {split} | {', '.join(f'{name} {value:.4f}' for name, value in values.items())} |"
        for split, values in figures.items()
    ]
    return "\n".join(
        [
            f"# {recipe.about.title}",
            "",
            f"A `{recipe.kind}` of {parameters:,} parameters after {recipe.about.paper}, trained "
            f"for {result.update:,} updates in {result.seconds / 60:.1f} minutes "
            "on the data that `recipe.toml` names.",
            "",
            "| split | measured |",
            "| --- | --- |",
            *rows,
            "",
            *(f"- {note}" for note in run.task.notes()),
            "",
            f"Made by regard {regard.__version__} from the recipe in `recipe.toml`.",
            "",
        ]
    )
