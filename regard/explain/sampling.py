"""What is audited of a run, and which of its texts: what readers of all tasks have in common."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.tape import sites_of
from regard.core.errors import UserError, choose
from regard.core.protocols import Batch
from regard.data import BucketBatches, Tokeniser
from regard.data.text.pipeline import BOS, EOS, UNK
from regard.explain.tests import Settings
from regard.layers.embedding import TokenEmbedding
from regard.layers.word_features import Words
from regard.runs.run import Run
from regard.tasks.task import Split

BATCH = 32
"""Texts that are judged at a time."""
STEPS = 3
"""Words of a sentence, or steps of a translation, that are judged at most."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What is audited."""

    site: str | None = None
    """Its name in the model; the only one there is, if there is but one."""
    head: int | None = None
    tests: tuple[str, ...] = ()
    """All, if none is named."""
    split: Split | None = None
    """The last there is, unless one is named."""
    texts: int = 200
    """The most texts that are judged, drawn by the seed."""
    settings: Settings = Settings()  # noqa: RUF009 - frozen

    @property
    def draws(self) -> torch.Generator:
        """Chance, the same for the same seed."""
        return torch.Generator().manual_seed(self.settings.seed)


def site_of(run: Run, named: str | None, kinds: tuple[str, ...] | None = None) -> str:
    """The site that was named, or the only one, of those kinds if some are given."""
    every = sites_of(run.model)
    sites = [name for name, site in every.items() if kinds is None or site.kind in kinds]
    if named is not None:
        choose("site", named, every)
        return named
    if len(sites) != 1:
        raise UserError(
            f"{run.folder}: this model attends at several sites; choose one with --site: "
            f"{', '.join(sites or every)}"
        )
    return sites[0]


def self_sites(model: nn.Module) -> tuple[str, ...]:
    """The layers of self-attention, from the first to the last."""
    return tuple(name for name, site in sites_of(model).items() if site.kind == "self")


def embedding_of(
    model: nn.Module,
    some: Batch,
    tokens: str = "tokens",
    run: Callable[[Batch], object] | None = None,
) -> nn.Module:
    """The module that turns the tokens of a batch into vectors: what knows most of a word."""
    asked: list[nn.Module] = []

    def keep(module: nn.Module, given: tuple[object, ...]) -> None:
        if given and (given[0] is some[tokens] or isinstance(module, Words)):
            asked.append(module)

    known = [each for each in model.modules() if isinstance(each, _EMBEDDINGS)]
    hooks = [each.register_forward_pre_hook(keep) for each in known]
    try:
        with torch.no_grad():
            (run or model)(some)
    finally:
        for hook in hooks:
            hook.remove()
    for kind in _EMBEDDINGS:
        for module in asked:
            if isinstance(module, kind):
                return module
    raise UserError(f"a {type(model).__name__} has no vectors of words to ask for gradients")


_EMBEDDINGS = (Words, TokenEmbedding, nn.Embedding)
"""What gives words their vectors, the outermost first."""


def marks(tokeniser: Tokeniser) -> list[int]:
    """Tokens that mark where a text begins or ends; an unknown word is none of them."""
    special = set(tokeniser.special.nonzero()[:, 0].tolist())
    special |= {tokeniser.bos} if tokeniser.spelling(BOS) else set()
    special |= {tokeniser.eos} if tokeniser.spelling(EOS) else set()
    return sorted(special - ({tokeniser.unk} if tokeniser.spelling(UNK) else set()))


def at_place(place: Int[Tensor, "B"], width: int) -> Float[Tensor, "B T"]:
    """One at a position of each row.

    >>> at_place(torch.tensor([1]), 3).tolist()
    [[0.0, 1.0, 0.0]]
    """
    return (torch.arange(width, device=place.device) == place[:, None]).float()


def steps(
    counts: Int[Tensor, "B"], draws: torch.Generator, most: int = STEPS
) -> tuple[Int[Tensor, "N"], Int[Tensor, "N"]]:
    """Some positions of each row, at most so many: their rows and their places.

    >>> [part.tolist() for part in steps(torch.tensor([1, 0]), torch.Generator())]
    [[0], [0]]
    """
    pairs = [
        (row, place)
        for row, count in enumerate(counts.tolist())
        for place in torch.randperm(count, generator=draws)[:most].sort().values.tolist()
    ]
    both = torch.tensor(pairs, dtype=torch.int64).reshape(len(pairs), 2)
    return both[:, 0], both[:, 1]


def at_most(batches: Iterable[Batch], count: int) -> Iterator[Batch]:
    """So many rows in all, a few at a time."""
    left = count
    for batch in batches:
        rows = len(next(iter(batch.values())))
        for begin in range(0, min(rows, left), BATCH):
            some = slice(begin, min(begin + BATCH, left))
            yield {name: value[some] for name, value in batch.items()}
        left -= rows
        if left <= 0:
            return


def shown(batches: BucketBatches, model: nn.Module) -> Batch:
    """A few rows of middling length, to see what a model does with them."""
    batch = batches.batch(0, len(batches) // 2)
    few = {name: value[:4] for name, value in batch.items()}
    return next(placed(iter([few]), model))


def drawn(count: int, asked: Asked) -> Int[Tensor, "N"]:
    """The numbers of the texts that are judged, in order."""
    return torch.randperm(count, generator=asked.draws)[: asked.texts].sort().values


def placed(batches: Iterator[Batch], model: nn.Module) -> Iterator[Batch]:
    """Batches where the model is."""
    device = next(model.parameters()).device
    for batch in batches:
        yield {name: value.to(device) for name, value in batch.items()}
