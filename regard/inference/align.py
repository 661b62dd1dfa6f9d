"""Word alignments of sentences and their given translations, by the attention of a translator.

The model reads both sides as in training and writes nothing; each target word is linked with the
source word that it attends to most. For the outputs of a model, see translate.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import torch
from torch import nn

from regard.attention import record
from regard.core.mode import eval_mode
from regard.data.text.alignment import Links
from regard.inference.translate import SiteChoice
from regard.tasks.abilities import AlignsWords

_CHUNK = 1024
"""Pairs that are held at a time."""


def alignments(
    task: AlignsWords,
    model: nn.Module,
    pairs: Iterable[tuple[str, str]],
    choice: SiteChoice | None = None,
) -> Iterator[Links]:
    """The links of each pair, in their order; none where a side is empty."""
    choice, remaining = choice or SiteChoice(), iter(pairs)
    while some := list(islice(remaining, _CHUNK)):
        yield from _align(task, model, some, choice)


def _align(
    task: AlignsWords, model: nn.Module, pairs: Sequence[tuple[str, str]], choice: SiteChoice
) -> list[Links]:
    """Some pairs, those of similar length together."""
    device = next(model.parameters()).device
    found: dict[int, Links] = {}
    for places, batch in task.pair_batches(pairs):
        with (
            eval_mode(model),
            torch.no_grad(),
            record(model, choice.names(model), heads=choice.heads) as tape,
        ):
            model({name: rows.to(device) for name, rows in batch.items()})
        means = torch.cat([tape.join(site) for site in tape.sites], dim=1).mean(1)  # [B,T,S]
        for place, weights in zip(places, means, strict=True):
            found[place] = task.link_words(weights, *pairs[place])
    return [found.get(place, frozenset()) for place in range(len(pairs))]
