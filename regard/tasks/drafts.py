"""First recipes: what `regard recipe new` and `regard train --task` choose for a user's own files.

Each function reads the training files as its task will, and returns the tables of a recipe that
trains a sound model in minutes on two CPU cores.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

from regard.core.errors import UserError
from regard.data.text.conll import check_tags, read_conll, split_tag
from regard.data.text.files import display_name, missing_file_error, read_lines, uncompressed_name
from regard.data.text.labelled import LabelledText, labelled_form
from regard.data.text.parallel import ParallelText
from regard.data.text.source import form_of
from regard.data.text.table import TextColumns, find_columns, find_text, kind_of_labels
from regard.tasks.task import Draft

_CHARACTERS = 1_500_000
"""The size of a text, in characters, from which byte pairs are better than characters."""

_NOUNS = {"single_label": "classes", "multi_label": "labels", "regression": "one number each"}
_MONITORS: dict[str, dict[str, object]] = {
    "single_label": {"monitor": "accuracy", "better": "higher"},
    "multi_label": {"monitor": "micro_f1", "better": "higher"},
    "regression": {"monitor": "loss"},
}
"""What selects the best weights, by the kind of label."""

_BEST = {"clip": 5.0, "weights": "best", "seed": 1}


def _epochs(examples: int) -> int:
    """Passes over so many examples: about as many updates for small files as for middling ones.

    >>> [_epochs(count) for count in (50, 2_000, 7_000, 50_000, 1_000_000)]
    [30, 12, 6, 3, 2]
    """
    return next(
        (epochs for most, epochs in ((1000, 30), (3000, 12), (20_000, 6), (200_000, 3)) if
         examples <= most), 2
    )  # fmt: skip


def one_file(files: Sequence[str], task: str) -> str:
    """The single training file of a task that takes one."""
    if len(files) != 1:
        raise UserError(
            f"--task {task} takes one training file, not {len(files)}; name others with "
            "--validation and --test"
        )
    if not Path(files[0]).exists():
        raise missing_file_error(Path(files[0]))
    return files[0]


def classification_draft(files: Sequence[str], given: Mapping[str, object]) -> Draft:
    """Attention over words, which can be looked into; for pairs of texts, over a BiLSTM."""
    path = one_file(files, "classify")
    found = find_columns(path, given.get("text"), given.get("label"))
    form = labelled_form(path)
    problem, separator = _problem(path, form, found, given)
    source = LabelledText(path=path, text=found.text, label=found.label, separator=separator)
    examples = list(source.examples())
    named = ((each.label,) if isinstance(each.label, str) else each.label for each in examples)
    labels = Counter(name for each in named for name in each or ())
    words = sorted(sum(len(text.split()) for text in each.texts) for each in examples)
    if not words:
        raise UserError(f"{display_name(path)}: there are no examples in it")
    median, longest = words[len(words) // 2], words[min(len(words) - 1, len(words) * 19 // 20)]
    data: dict[str, object] = {"train": path}
    if found.text:
        data |= {"text": found.text[0] if len(found.text) == 1 else list(found.text)}
        data |= {"label": found.label}
    if problem != "single_label":
        data |= {"problem": problem}
        data |= {} if separator is None or form in ("jsonl", "line") else {"separator": separator}
    data |= {"words": "plain", "lowercase": True}
    batch = 8 if len(examples) <= 1000 else 32
    data |= {"max_length": max(32, longest), "batch": batch, "evaluate_batch": 128}
    shown = ", ".join(f"{label} {count}" for label, count in labels.most_common(8))
    more = f" and {len(labels) - 8} more" if len(labels) > 8 else ""
    if problem == "regression":
        numbers = [float(label) for label in labels]
        shown, more = f"numbers from {min(numbers):g} to {max(numbers):g}", ""
    notes = (
        f"{len(examples):,} examples ({form}); {_NOUNS[problem]}: {shown}{more}",
        f"half of the texts have up to {median} words, 95 of 100 up to {longest}",
    )
    train: dict[str, object] = {**_MONITORS[problem], **_BEST}
    # Of a pair, a state of one word by itself says nothing about the other text.
    apart = len(found.text) < 2
    return Draft(
        title="Attention over words" if apart else "BiLSTM with attention",
        data=data,
        model={
            "kind": "attention_pool",
            "cell": "none" if apart else "lstm",
            "width": 64,
            "hidden": 32 if apart else 128,
            "dropout": 0.3,
        },
        train={
            "epochs": max(3, _epochs(len(examples)) * 2 // 3),
            "optimiser": {"name": "adamw", "lr": 5e-3 if apart else 1e-3, "weight_decay": 0.01},
            "schedule": {"name": "cosine", "floor": 0.05},
            **train,
        },
        notes=notes,
    )


def _problem(
    path: str, form: str, found: TextColumns, given: Mapping[str, object]
) -> tuple[str, str | None]:
    """What the labels of a file are, unless it is given, and what is between several."""
    values: Sequence[str] = found.values
    if form == "line":
        many = any(line.count(" __label__") for _, (line,) in islice(read_lines(path), 2000))
        kind: tuple[str, str | None] = ("multi_label", ",") if many else ("single_label", None)
    else:
        kind = kind_of_labels(values) if values else ("single_label", None)
    problem = str(given.get("problem", kind[0]))
    if problem != "multi_label":
        return problem, None
    return problem, str(given.get("separator", kind[1] or ","))


def tagging_draft(files: Sequence[str], given: Mapping[str, object]) -> Draft:
    """A BiLSTM-CRF with characters; the scheme of the tags is found from the file."""
    path = one_file(files, "tag")
    columns = {name: int(str(given[name])) for name in ("word", "tag") if name in given}
    sentences = list(read_conll(path, **columns))
    if not sentences:
        raise UserError(f"{display_name(path)}: there are no sentences in it")
    tags = {tag for each in sentences for tag in each.tags}
    scheme = next(
        (
            name
            for name in ("iob2", "bioes", "iob1")
            if all(_fits(each.tags, name) for each in sentences)
        ),
        "none",
    )
    metric = "accuracy" if scheme == "none" else "f1"
    kinds = sorted(tags if scheme == "none" else {split_tag(each)[1] for each in tags} - {""})
    more = f" and {len(kinds) - 12} more" if len(kinds) > 12 else ""
    many = len(sentences) > 2000
    return Draft(
        title="BiLSTM-CRF with characters",
        data={
            "train": path,
            "scheme": scheme,
            "words": "plain",
            "lowercase": True,
            "digits": True,
            "min_frequency": 2 if many else 1,
            "batch": 32 if many else 8,
            "evaluate_batch": 128,
        },
        model={
            "kind": "bilstm_crf",
            "width": 100,
            "hidden": 150,
            "characters": "cnn",
            "spelling_width": 50,
            "dropout": 0.5,
        },
        train={
            "epochs": max(10, _epochs(len(sentences))),
            "optimiser": {"name": "adamw", "lr": 2e-3, "weight_decay": 1e-5},
            "schedule": {"name": "cosine", "floor": 0.02},
            "monitor": metric,
            "better": "higher",
            **_BEST,
        },
        notes=(
            f"{len(sentences):,} sentences; the word is the first column, the tag the last",
            f"tags in scheme {scheme}: {', '.join(kinds[:12])}{more}",
        ),
    )


def _fits(tags: Sequence[str], scheme: str) -> bool:
    """Are the tags of a sentence valid in a scheme?"""
    from regard.data.text.conll import TaggedSentence

    try:
        check_tags(TaggedSentence("", 1, tuple(tags), tuple(tags)), scheme)
    except UserError:
        return False
    return True


def translation_draft(files: Sequence[str], given: Mapping[str, object]) -> Draft:
    """A Transformer over joint byte pairs; of few pairs, a smaller one."""
    fields: list[str | int] | None = None
    if len(files) == 1 and form_of(files[0]) != "plain":
        chosen = given.get("fields")
        fields = list(chosen) if isinstance(chosen, list) else _two_fields(files[0])
    if len(files) != 2 and fields is None:
        raise UserError(
            "--task translate takes two files, source and target, one sentence a line in each, or "
            f"one .tsv or .jsonl with both; {len(files)} given"
        )
    pair = None if fields is None else (fields[0], fields[1])
    pairs = list(ParallelText(paths=tuple(files), fields=pair).pairs())
    lengths = sorted(max(len(each.source.split()), len(each.target.split())) for each in pairs)
    large = len(pairs) > 5000
    data: dict[str, object] = {"train": list(files)}
    data |= {} if fields is None else {"fields": fields}
    data |= {
        "validation": 0.05,
        "tokeniser": "bpe",
        "joint": True,
        "vocabulary": 8000 if large else 2000,
        "tokens_per_batch": 4096 if large else 1024,
        "evaluate_batch": 128,
        "smoothing": 0.1,
        "search": {"width": 4, "length_penalty": "average", "alpha": 1.0},
    }
    return Draft(
        title="Transformer",
        data=data,
        model={
            "kind": "transformer",
            "width": 128,
            "hidden": 256,
            "heads": 4,
            "encoder_layers": 3,
            "decoder_layers": 3,
            "dropout": 0.2,
            "shared": "all",
        },
        train={
            "epochs": max(10, 2 * _epochs(len(pairs))),
            "optimiser": {"name": "adam", "lr": 3e-3, "betas": [0.9, 0.98]},
            "schedule": {"name": "inverse_square_root", "warmup": 1000 if large else 200},
            "weights": "best",
            "seed": 1,
        },
        notes=(f"{len(pairs):,} pairs; half of them have up to {lengths[len(pairs) // 2]} words",),
    )


def _two_fields(path: str) -> list[str | int]:
    """The two columns of a TSV, or the first two fields of a JSONL, that hold the sides."""
    if form_of(path) == "tsv":
        return [1, 2]
    from regard.data.text.files import parse_json_object

    number, (line,) = next(iter(read_lines(path)))
    names = list(parse_json_object(line, f"{display_name(path)}:{number}"))
    if len(names) < 2:
        raise UserError(f"{display_name(path)}:{number}: two fields are needed, source and target")
    return [names[0], names[1]]


def language_draft(files: Sequence[str], given: Mapping[str, object]) -> Draft:
    """A small GPT: over characters, or over byte pairs if there is much text."""
    path = one_file(files, "language_model")
    name = uncompressed_name(path)
    data: dict[str, object] = {"train": path}
    if form_of(path) != "plain":
        data |= {"field": given.get("field") or find_text(path)}
    size = sum(len(line) + 1 for _, (line,) in islice(read_lines(path), 100_000))
    large = size > _CHARACTERS
    data |= {
        "tokeniser": "bpe" if large else "char",
        **({"vocabulary": 4096} if large else {}),
        "batch": 16,
        "window": 64,
        "order": "random",
        "evaluate_batch": 64,
    }
    return Draft(
        title="GPT over " + ("byte pairs" if large else "characters"),
        data=data,
        model={"kind": "gpt", "width": 128, "heads": 4, "layers": 4, "context": 64, "bias": False},
        train={
            "updates": 3000 if large else 2000,
            "optimiser": {"name": "adamw", "lr": 2e-3, "betas": [0.9, 0.99], "weight_decay": 0.1},
            "schedule": {"name": "cosine", "warmup": 100, "floor": 0.1},
            "clip": 1.0,
            "evaluate_every": 250,
            "save_every": 250,
            "weights": "best",
            "seed": 1,
        },
        notes=(f"{Path(name).name}: {size:,} characters" + (" or more" if large else ""),),
    )
