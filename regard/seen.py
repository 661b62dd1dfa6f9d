"""Where a model looks while it reads or writes a text: payloads for pictures, whatever the task."""

from collections.abc import Callable

import torch
from torch import nn

from regard.attention import record
from regard.core.errors import UserError, choose
from regard.look import Payload
from regard.look import joined as joined_payloads
from regard.tasks.language_model import LanguageModelling
from regard.tasks.task import OpenTask
from regard.tasks.translate import Translation
from regard.translator import Looking, payloads, translations


def seen(
    name: str, task: OpenTask, model: nn.Module, text: str, looking: Looking
) -> tuple[Payload, ...]:
    """One payload for each site that was asked for; `name` is that of the task."""
    if not text.strip():
        raise UserError("there is nothing to look at: the text is empty")
    return choose("task to look at", name, SEEN)(task, model, text, looking)


def of_translation(
    task: OpenTask, model: nn.Module, text: str, looking: Looking
) -> tuple[Payload, ...]:
    """Where the best translation looked in its source."""
    assert isinstance(task, Translation)
    (line,) = translations(task, model, [text], looking=looking)
    return payloads(task, line)


def of_language_model(
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


SEEN: dict[str, Callable[[OpenTask, nn.Module, str, Looking], tuple[Payload, ...]]] = {
    "language_model": of_language_model,
    "translate": of_translation,
}
"""How the models of each task are looked into."""
