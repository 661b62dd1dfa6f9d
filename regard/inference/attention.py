"""Where a model looks while it reads or writes a text: payloads for pictures, whatever the task."""

from collections.abc import Callable

import torch
from torch import nn

from regard.attention import record
from regard.core.errors import UserError, choose
from regard.core.protocols import Batch
from regard.inference.translate import Looking, payloads, translations
from regard.look import Payload
from regard.look import joined as joined_payloads
from regard.tasks.answer import Answering
from regard.tasks.classify import Classification
from regard.tasks.language_model import LanguageModelling
from regard.tasks.masked_lm import MaskedLM
from regard.tasks.tag import Tagging
from regard.tasks.task import OpenTask
from regard.tasks.translate import Translation

_LONGEST = 20_000
"""Letters of a text, so that weights of all its tokens fit into memory."""


def seen(
    name: str, task: OpenTask, model: nn.Module, text: str, looking: Looking
) -> tuple[Payload, ...]:
    """One payload for each site that was asked for; `name` is that of the task."""
    readable(text)
    return choose("task to look at", name, SEEN)(task, model, text, looking)


def readable(text: str) -> str:
    """The text, if there is one and it is not longer than a table of weights can be."""
    if not text.strip():
        raise UserError("there is nothing to look at: the text is empty")
    if len(text) > _LONGEST:
        raise UserError(
            f"a text of {len(text):,} letters cannot be looked at, only of {_LONGEST:,} at most: "
            "every token looks at every other"
        )
    return text


def _of_translation(
    task: OpenTask, model: nn.Module, text: str, looking: Looking
) -> tuple[Payload, ...]:
    """Where the best translation looked in its source."""
    assert isinstance(task, Translation)
    (line,) = translations(task, model, [text], looking=looking)
    return payloads(task, line)


def _of_language_model(
    task: OpenTask, model: nn.Module, text: str, looking: Looking
) -> tuple[Payload, ...]:
    """Where each token of a text looked among those before it."""
    assert isinstance(task, LanguageModelling)
    tokeniser = task.tokeniser
    ids = tokeniser.encode(text)
    labels = [text[begin:end] for begin, end in tokeniser.offsets(text)]
    tokens = torch.tensor([ids], device=next(model.parameters()).device)
    with torch.no_grad(), record(model, looking.sites or "*", heads=looking.heads) as tape:
        model(tokens, None)
    found: list[Payload] = []
    for site in tape.sites:
        keys = max(call.weights.shape[3] for call in tape[site])
        # a pointer has its sentinel before the words, a cache begins with the second word
        named = ["<sentinel>", *labels] if keys > len(labels) else labels[len(labels) - keys :]
        found += joined_payloads(tape, {site: (labels, named)})
    return tuple(found)


def _of_classification(
    task: OpenTask, model: nn.Module, text: str, looking: Looking
) -> tuple[Payload, ...]:
    """Where a classifier looked: at words, and in a document at sentences too."""
    assert isinstance(task, Classification)
    parts = task.parted(text, "text")
    batch, words, sentences = task.shown(parts)
    (answer,) = task.answers(model, [parts])
    return _read_by(model, batch, looking, words, sentences, answer.text.replace("\t", " "))


def _of_tagging(
    task: OpenTask, model: nn.Module, text: str, looking: Looking
) -> tuple[Payload, ...]:
    """Where a tagger looked, word by word."""
    assert isinstance(task, Tagging)
    words = task.words_of(text)
    batch, tokens = task.shown(words)
    return _read_by(model, batch, looking, tokens, [], text)


def _of_masked_lm(
    task: OpenTask, model: nn.Module, text: str, looking: Looking
) -> tuple[Payload, ...]:
    """Where each token looked while hidden words were guessed."""
    assert isinstance(task, MaskedLM)
    batch, tokens = task.shown(text.split("\t", 1))
    return _read_by(model, batch, looking, tokens, [], text)


def _read_by(
    model: nn.Module,
    batch: Batch,
    looking: Looking,
    words: list[str],
    sentences: list[str],
    whole: str,
) -> tuple[Payload, ...]:
    """What is recorded while a model reads one text: each axis is words, sentences or the whole."""
    device = next(model.parameters()).device
    placed = {name: each.to(device) for name, each in batch.items()}
    with torch.no_grad(), record(model, looking.sites or "*", heads=looking.heads) as tape:
        model(placed)

    def named(count: int, *, looks: bool) -> list[str]:
        if count == 1 and looks:
            return [whole]
        return words if count == len(words) else sentences

    found: list[Payload] = []
    two_levels = len(tape.sites) == 2 and bool(sentences)  # of words, then of sentences
    for place, site in enumerate(tape.sites):
        queries, keys = tape[site][-1].weights.shape[2:]
        # Where every sentence has one word, sentences ask words and the whole asks sentences.
        least = 0 if two_levels and place == 0 else 1
        asked = sentences if keys == len(words) and queries == len(sentences) > least else None
        labels = (asked or named(queries, looks=True), named(keys, looks=False))
        found += joined_payloads(tape, {site: labels})
    return tuple(found)


def _of_answering(
    task: OpenTask, model: nn.Module, text: str, looking: Looking
) -> tuple[Payload, ...]:
    """Where question and passage, apart by a tab, looked at each other."""
    assert isinstance(task, Answering)
    batch, tokens = task.shown(task.parted(text, "text"))
    return _read_by(model, batch, looking, tokens, [], text)


SEEN: dict[str, Callable[[OpenTask, nn.Module, str, Looking], tuple[Payload, ...]]] = {
    "language_model": _of_language_model,
    "translate": _of_translation,
    "classify": _of_classification,
    "tag": _of_tagging,
    "masked_lm": _of_masked_lm,
    "answer": _of_answering,
}
"""How the models of each task are looked into."""
