"""Word alignments of sentences and their given translations, by where a translator looks.

A translator reads both sides as in training and writes nothing; the target word looks at the source
words that it is said from. To align what a model writes itself, see translator.py.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import torch
from torch import nn

from regard.attention import record
from regard.core.mode import evaluating
from regard.data.text.parallel import encoded
from regard.inference.translate import Looking
from regard.tasks.alignment import Links, hard, merged, words_of
from regard.tasks.translate import Translation
from regard.tasks.translation_data import readable

_CHUNK = 1024
"""Pairs that are held at a time."""


def alignments(
    task: Translation,
    model: nn.Module,
    pairs: Iterable[tuple[str, str]],
    looking: Looking | None = None,
) -> Iterator[Links]:
    """The links of each pair, in their order; none where a side is empty."""
    looking, remaining = looking or Looking(), iter(pairs)
    while some := list(islice(remaining, _CHUNK)):
        yield from _chunk_of(task, model, some, looking)


def _chunk_of(
    task: Translation, model: nn.Module, pairs: Sequence[tuple[str, str]], looking: Looking
) -> list[Links]:
    """Some pairs, those of like length together."""
    read = [(readable(source, task.data), readable(target, task.data)) for source, target in pairs]
    known, _ = encoded(read, task.numbering, whole=True)
    there = [place for place, sides in enumerate(read) if all(side.strip() for side in sides)]
    there.sort(key=known.lengths.__getitem__)
    device = next(model.parameters()).device
    found: dict[int, Links] = {}
    for begin in range(0, len(there), task.data.evaluate_batch):
        places = there[begin : begin + task.data.evaluate_batch]
        batch = known.gather(torch.tensor(places))
        with (
            evaluating(model),
            torch.no_grad(),
            record(model, looking.names(model), heads=looking.heads) as tape,
        ):
            model({name: rows.to(device) for name, rows in batch.items()})
        looks = torch.cat([tape.join(site) for site in tape.sites], dim=1).mean(1)  # [B,T,S]
        for place, weights in zip(places, looks, strict=True):
            sides = zip(read[place], (task.numbering.source, task.numbering.target), strict=True)
            source, target = (words_of(tokeniser, text) for text, tokeniser in sides)
            found[place] = hard(merged(weights, source, target))
    return [found.get(place, frozenset()) for place in range(len(pairs))]
