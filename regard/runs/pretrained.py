"""Checkpoints of other projects as runs, and runs as their checkpoints.

A folder of transformers becomes an ordinary run, which can predict, show its attention, be audited,
served and fine-tuned.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory

import torch
from jaxtyping import Float
from torch import Tensor

from regard import hub
from regard.core.device import pick_device
from regard.core.errors import UserError
from regard.core.inputs import Text
from regard.data.text.pipeline import MASK
from regard.data.text.tokeniser import Tokeniser
from regard.hub import tokenisers
from regard.hub.download import locate_checkpoint
from regard.hub.family import ModelToWrite
from regard.hub.hints import folder_notes
from regard.hub.spm_pair import TokeniserPair, read_pair, write_pair
from regard.hub.store import SHARD_BYTES
from regard.layers.text_encoder import real_of
from regard.models.text.bert import BERT
from regard.runs.digests import write_digests
from regard.runs.pooling import POOLING, read_pooling, write_pooling
from regard.runs.recipe import Recipe, build_recipe, config_values, set_value
from regard.runs.run import Run, limited, write_run_folder, write_text
from regard.tasks import TASKS
from regard.tasks.abilities import EncodesTexts, HasLabels
from regard.tasks.task import LABELS, OpenTask, write_labels
from regard.train import durable
from regard.train.weights import named_weights


def from_pretrained(
    name: str | Path,
    *,
    architecture: str | None = None,
    changes: Sequence[str] = (),
    download: bool = False,
    device: str = "auto",
) -> Run:
    """A checkpoint folder as a run that is open; nothing is written.

    `architecture` reads it as another than its config says: a BertForPreTraining as a BertModel,
    say. `changes` are those of `--set`, such as `data.text=["premise", "hypothesis"]` for pairs.
    `download` allows a name of the Hugging Face hub in place of a folder.
    """
    folder = locate_checkpoint(name, download=download)
    loaded = hub.read_checkpoint(folder, architecture)
    recipe = _recipe_of(loaded, folder.resolve().name, changes)
    sides, of_tokenisers = _sides_of(folder, loaded)
    with TemporaryDirectory() as held:
        for file, tokeniser in sides.items():
            tokeniser.save(Path(held) / file)
        if loaded.plan.labels:
            write_labels(Path(held) / LABELS, loaded.plan.labels)
        task = recipe.task_class.open(recipe.data, folder, Path(held))
    for size, count in task.sizes.items():
        if count != loaded.plan.sizes[size]:
            raise UserError(
                f"{folder}: the tokeniser has {size}={count}, and the model "
                f"{loaded.plan.sizes[size]}; this tokeniser belongs to another model"
            )
    _check_ends(folder, loaded, sides)
    told = (
        *loaded.notes,
        *of_tokenisers,
        *folder_notes(folder),
        *_told_of(folder, loaded, sides),
    )
    task = limited(task, loaded.model)
    return Run(folder, recipe, task, loaded.model.to(pick_device(device)), told)


def import_run(run: Run, folder: Path, data: Path) -> Run:
    """Leave a checkpoint that was opened as a run in a folder of its own."""
    about = "imported from a checkpoint of transformers. Nothing was measured here."
    return leave(run, folder, data, about)


def leave(run: Run, folder: Path, data: Path, about: str) -> Run:
    """Leave an open run in a folder of its own; its card says what it is about."""
    if (folder / "recipe.toml").exists():
        raise UserError(f"{folder}: there is a run already; choose another folder with -o")
    folder.mkdir(parents=True, exist_ok=True)
    # The recipe, which makes a folder a run, comes last.
    durable.replace_file(
        folder / "model.safetensors", durable.tensor_pieces(named_weights(run.model))
    )
    write_text(folder / "README.md", _card(run, about))
    if (run.folder / "1_Pooling").is_dir() or (run.folder / POOLING).exists():
        write_pooling(folder, read_pooling(run.folder))
    write_run_folder(folder, run.recipe, run.task, data, None)
    write_digests(folder)
    return Run(folder, run.recipe, run.task, run.model, run.began)


def save_pretrained(
    run: Run,
    folder: Path,
    *,
    family: str | None = None,
    dtype: str = "float32",
    shard_bytes: int = SHARD_BYTES,
) -> list[Path]:
    """Write a run as a folder that transformers loads: weights, config and tokeniser."""
    if (problem := run.task.checkpoint_problem()) is not None:
        raise UserError(f"{run.folder}: {problem}")
    specials = specials_of(run.task)
    ours = ModelToWrite(
        kind=run.recipe.kind,
        model=run.model,
        sizes=run.task.sizes,
        labels=run.task.labels if isinstance(run.task, HasLabels) else (),
        specials=specials,
        data=config_values(run.recipe.data),
    )
    chosen, config, _ = hub.choose_family(ours, family)
    files = hub.write_checkpoint(
        ours, folder, family=chosen.name, dtype=dtype, shard_bytes=shard_bytes
    )
    longest = config.get("max_position_embeddings", config.get("n_positions", 512))
    _write_tokenisers(run.task, folder, chosen.name, int(str(longest)))
    return files


def sentence_vectors(run: Run, texts: Sequence[str]) -> Float[Tensor, "B D"]:
    """One vector for each text, pooled as its folder has it: else the mean, of unit length.

    Texts are near in meaning if the product of their vectors is near one, for encoders that were
    trained to that end.
    """
    if not isinstance(run.model, BERT) or not isinstance(run.task, EncodesTexts):
        raise UserError(f"{run.folder}: vectors of sentences are those of a bert")
    device = next(run.model.parameters()).device
    encoded = run.task.encode([Text(text) for text in texts])
    batch = {name: each.to(device) for name, each in encoded.items()}
    with torch.no_grad():
        states = run.model.encoder(batch)  # [B,T,D]
    real = real_of(batch)
    assert real is not None
    return read_pooling(run.folder).apply(states, real)


def usage_of(run: Run) -> str:
    """What to do with a run: a command that its model can answer."""
    model, usage = run.model, run.task.usage
    if isinstance(model, BERT) and not model.config.words:
        follows = "printf 'Ann came.\\tShe sat down.\\n' | regard predict {run}"
        alone = "regard look {run} 'What a film.' -o seen.html"
        usage = follows if model.config.next_sentence else alone
    return usage.format(run=quote(str(run.folder)))


def _recipe_of(loaded: hub.LoadedCheckpoint, name: str, changes: Sequence[str]) -> Recipe:
    """A recipe that stands for a checkpoint, with what fine-tuning it would begin with."""
    plan = loaded.plan
    tables: dict[str, object] = {
        "task": plan.task,
        "about": {
            "title": f"{name}, a {loaded.family} from elsewhere",
            "paper": "whoever trained it: see the folder it came from",
            "minutes": 1.0,
        },
        "data": {**TASKS[plan.task].checkpoint_data(_context_of(loaded)), **plan.data},
        "model": {"kind": plan.kind, **config_values(plan.model)},
        "train": {"epochs": 3, "optimiser": {"name": "adamw", "lr": 3e-5}, "clip": 1.0},
    }
    for change in changes:
        set_value(tables, change)
    return build_recipe(tables)


def _context_of(loaded: hub.LoadedCheckpoint) -> int:
    """The most tokens that a model can read."""
    limit: object = getattr(loaded.model, "context_limit", None)
    encoder = dict(loaded.model.named_children()).get("encoder")
    found = (
        limit if limit is not None else getattr(getattr(encoder, "config", None), "context", 512)
    )
    return int(str(found))


def _sides_of(
    folder: Path, loaded: hub.LoadedCheckpoint
) -> tuple[dict[str, Tokeniser], tuple[str, ...]]:
    """The tokenisers of a checkpoint by the files that a run keeps them in, and what to tell."""
    sizes = loaded.plan.sizes
    if "source_vocabulary" in sizes:
        pair = read_pair(folder, sizes["source_vocabulary"], sizes["vocabulary"])
        return {"tokenizer.json": pair.target, "source.tokenizer.json": pair.source}, ()
    found = tokenisers.read_folder_tokeniser(folder, loaded.family, sizes["vocabulary"])
    return {"tokenizer.json": found.tokeniser}, found.notes


def _check_ends(folder: Path, loaded: hub.LoadedCheckpoint, sides: Mapping[str, Tokeniser]) -> None:
    """Refuse outputs that end at other tokens than that of the tokeniser."""
    ends, target = loaded.plan.ends, sides["tokenizer.json"]
    if ends and ends != (target.eos,):
        raise UserError(
            f"{folder}: eos_token_id={list(ends)}, but outputs end only at the end token of the "
            f"tokeniser here, which is {target.eos}; set eos_token_id to it"
        )


def _told_of(
    folder: Path, loaded: hub.LoadedCheckpoint, sides: Mapping[str, Tokeniser]
) -> Sequence[str]:
    """What there is to say of tokenisers; a masked language model without a mask is refused."""
    guesses = isinstance(loaded.model, BERT) and loaded.model.config.words
    if guesses and any(each.special_token(MASK) is None for each in sides.values()):
        raise UserError(
            f"{folder}: the tokeniser has no mask token, and the model guesses hidden words; name "
            "one as mask_token in tokenizer_config.json, or take the encoder alone with "
            "--architecture"
        )
    bare = {(tokenisers.unused_ids(each), each.vocabulary) for each in sides.values()}
    return [
        f"{count:,} of {rows:,} rows of the embedding have no token"
        for count, rows in sorted(bare)
        if count
    ]


def _write_tokenisers(task: OpenTask, folder: Path, family: str, longest: int) -> None:
    """Leave the tokenisers of a task as a family has them."""
    if not task.tokenisers:
        raise UserError("this task has no tokeniser that could be written")
    first, *others = task.tokenisers
    if others:
        write_pair(TokeniserPair(first, *others), folder, longest)
    else:
        own = tokenisers.gpt_classifier_tokeniser(first) if task.adds_special_tokens else first
        tokenisers.write_tokeniser(own, folder, family, longest)


def specials_of(task: OpenTask) -> Mapping[str, int]:
    """The numbers of special tokens, those that a task's tokeniser has."""
    found: dict[str, int] = {}
    for role in ("pad", "unk", "bos", "eos"):
        try:
            number = getattr(task.reads, role)
        except UserError:
            continue
        found[role] = int(number)
    return found


def _card(run: Run, about: str) -> str:
    """The card of a run that was not trained here as it is."""
    parameters = sum(each.numel() for each in run.model.parameters())
    return "\n".join(
        [
            f"# {run.recipe.about.title}",
            "",
            f"A `{run.recipe.kind}` of {parameters:,} parameters, {about}",
            "",
            *(f"- {note}" for note in run.began),
            "",
        ]
    )
