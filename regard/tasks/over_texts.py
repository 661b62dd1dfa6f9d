"""A model over numbered texts, in batches of about one length, and word vectors to begin with."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.core.mode import eval_mode
from regard.core.protocols import Batch
from regard.data import BucketBatches, Tokeniser, train_tokeniser
from regard.data.text.encoding import EncodedTexts
from regard.data.text.vectors import read_vectors
from regard.tasks.task import found

_log = logging.getLogger(__name__)


@runtime_checkable
class TakesVectors(Protocol):
    """A layer whose table of words can begin with vectors from elsewhere."""

    def initialise_vectors(self, vectors: Float[Tensor, "V D"], known: Bool[Tensor, "V"]) -> None:
        """Take those that are known; others stay as drawn."""
        ...


def learnt(
    kind: str, texts: Iterable[str], vocabulary: int | None, min_frequency: int
) -> Tokeniser:
    """A tokeniser learnt from texts, unless it is to be that of a run to begin with."""
    if kind == "source":
        raise UserError('tokeniser = "source" is that of a run to begin with: set model.source')
    return train_tokeniser(kind, texts, vocabulary, min_frequency)


def batches_over(
    model: nn.Module, texts: EncodedTexts, rows: int
) -> Iterator[tuple[Int[Tensor, "B"], Batch]]:
    """Every text once, as a batch where the model is, with the numbers of its texts.

    The model is in evaluation mode meanwhile and nothing is kept for a backward pass.
    """
    if not len(texts):
        return
    device = next(model.parameters()).device
    batches = BucketBatches(texts.lengths, texts.gather, seed=0, batch=rows)
    with eval_mode(model), torch.no_grad():
        for index in range(len(batches)):
            batch = batches.batch(0, index)
            yield (
                batches.numbers(0, index),
                {name: each.to(device) for name, each in batch.items()},
            )


def report_truncated(texts: EncodedTexts, where: Sequence[str], *, strict: bool) -> None:
    """One warning for all texts that were truncated, with the first of them; an error if strict."""
    cut = (texts.full_lengths > texts.tokens.lengths).nonzero()[:, 0].tolist()
    if not cut:
        return
    first, (full, kept) = cut[0], (texts.full_lengths.tolist(), texts.tokens.lengths.tolist())
    long = f"{where[first]}: {full[first]:,} tokens, of which the model reads {kept[first]:,}"
    if strict:
        raise UserError(f"{long}; shorten the text, or set data.strict = false to truncate it")
    warn_once(f"{long}; {len(cut):,} of {len(full):,} texts are truncated")


@cache
def warn_once(text: str) -> None:
    """Log a warning, if this process has not logged it before."""
    _log.warning("%s", text)


def check_window(window: int, context: int) -> None:
    """Raise if training windows are longer than the model can read."""
    if window > context:
        raise UserError(
            f"data.window={window} is more than the {context} tokens that the model can read; "
            "lower data.window, or raise the model's context"
        )


def placed_with(model: nn.Module, batch: Batch) -> Batch:
    """A batch on the device of a model."""
    device = next(model.parameters()).device
    return {name: each.to(device) for name, each in batch.items()}


def initialise_word_vectors(
    model: nn.Module, tokeniser: Tokeniser, folder: Path, path: str, origin: str
) -> list[str]:
    """Give the model's words the vectors of a file; how many of them were found in it.

    A word that is not there may be there in lower case.
    """
    tables = [each for each in model.modules() if isinstance(each, TakesVectors)]
    if not tables:
        raise UserError(f"a {type(model).__name__} has no table that takes word vectors")
    words = [tokeniser.decode([number]) for number in range(tokeniser.vocabulary)]
    wanted = {form for word in words for form in (word, word.lower()) if word}
    kept = read_vectors(found(folder, path, origin), wanted)
    places = [kept.places.get(word, kept.places.get(word.lower(), -1)) for word in words]
    rows = torch.tensor(places)
    known = rows >= 0
    for table in tables:
        table.initialise_vectors(kept.table[rows.clamp_min(0)], known)
    return [f"vectors: {path} has {int(known.sum()):,} of {tokeniser.vocabulary:,} words"]
