"""Where a run looks while it reads or writes a text: payloads for pictures, whatever the task."""

from collections.abc import Callable

import torch

from regard.attention import record
from regard.core.errors import UserError, choose
from regard.look import Payload
from regard.look import joined as joined_payloads
from regard.run import Run
from regard.tasks.language_model import LanguageModelling
from regard.tasks.translate import Translation
from regard.translator import Looking, payloads, translations


def seen(run: Run, text: str, looking: Looking) -> tuple[Payload, ...]:
    """One payload for each site that was asked for."""
    if not text.strip():
        raise UserError("there is nothing to look at: the text is empty")
    return choose("task to look at", run.recipe.task, SEEN)(run, text, looking)


def of_translation(run: Run, text: str, looking: Looking) -> tuple[Payload, ...]:
    """Where the best translation looked in its source."""
    assert isinstance(run.task, Translation)
    (line,) = translations(run.task, run.model, [text], looking=looking)
    return payloads(run.task, line)


def of_language_model(run: Run, text: str, looking: Looking) -> tuple[Payload, ...]:
    """Where each token of a text looked among those before it."""
    assert isinstance(run.task, LanguageModelling)
    tokeniser = run.task.tokeniser
    ids = tokeniser.encode(text)
    labels = [text[begin:end] for begin, end in tokeniser.offsets(text)]
    tokens = torch.tensor([ids], device=next(run.model.parameters()).device)
    with torch.no_grad(), record(run.model, looking.sites or "*", heads=looking.heads) as tape:
        run.model(tokens, None)
    found: list[Payload] = []
    for site in tape.sites:
        keys = max(call.weights.shape[3] for call in tape[site])
        # a pointer has its sentinel before the words, a cache begins with the second word
        named = ["<sentinel>", *labels] if keys > len(labels) else labels[len(labels) - keys :]
        found += joined_payloads(tape, {site: (labels, named)})
    return tuple(found)


SEEN: dict[str, Callable[[Run, str, Looking], tuple[Payload, ...]]] = {
    "language_model": of_language_model,
    "translate": of_translation,
}
"""How a run of each task is looked into."""
