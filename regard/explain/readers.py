"""The models of each task as the audit reads them: what is judged, where it stands, what it reads.

A text is judged by its class, a document by its words or by its sentences, a tagger word by word, a
translator step by step, a language model by the word that comes next.
"""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention import record
from regard.attention.tape import sites_of
from regard.core.errors import UserError
from regard.core.protocols import Batch
from regard.data import BucketBatches
from regard.explain.attention_reader import Attended
from regard.explain.head_layers import Stack
from regard.explain.reader import Reader
from regard.explain.sampling import (
    BATCH,
    Asked,
    at_most,
    at_place,
    drawn,
    embedding_of,
    marks,
    placed,
    self_sites,
    shown,
    site_of,
    steps,
)
from regard.inference.translate import TO_THE_SOURCE
from regard.outputs.classes import Classes
from regard.outputs.next_token import NextTokens
from regard.outputs.tags import Tags
from regard.runs.run import Run
from regard.tasks.classify import Classification
from regard.tasks.language_model import LanguageModelling
from regard.tasks.tag import Tagging
from regard.tasks.task import Split
from regard.tasks.translate import Translation

_Made = tuple[Reader, Iterator[Batch]]
"""A reader, and what it is to read."""


# classification ---------------------------------------------------------------------------------


def of_classification(run: Run, asked: Asked, split: Split) -> _Made:
    """A text at a time: which words, or which sentences, its class came from."""
    task, model = run.task, run.model
    assert isinstance(task, Classification)
    examples = task.numbers(split)
    if len(set(examples.classes.tolist())) == 1:
        (only,) = set(examples.classes.tolist())
        raise UserError(
            f"{run.folder}: all {split} texts are {task.labels[only]!r}; with one class there is "
            "nothing to explain"
        )
    chosen = drawn(len(examples.texts), asked)
    lengths = [examples.texts.lengths[each] for each in chosen.tolist()]
    batches = BucketBatches(
        lengths, lambda numbers: examples.gather(chosen[numbers]), seed=0, batch=BATCH
    )
    every = placed((batches.batch(0, each) for each in range(len(batches))), model)
    site = site_of(run, asked.site)
    return classifier(model, site, asked.head, task, shown(batches, model)), every


def classifier(
    model: nn.Module, site: str, head: int | None, task: Classification, some: Batch
) -> Attended:
    """A reader of texts; `some` of them show what the site looks at."""
    special = marks(task.tokeniser)
    predict = _logits_of(model)
    reader = Attended(
        model, site, embedding_of(model, some), predict, head=head, special=special,
        stack=text_stack(model),
    )  # fmt: skip
    with torch.no_grad(), record(model, site) as tape:
        model(some)
    queries, keys = tape[site][0].weights.shape[2:]
    if task.data.sentences != "none" and keys != some["tokens"].shape[1]:
        return Sentences(reader, sentence_vectors(model, site))
    grouped = "parts" if task.data.sentences != "none" and queries > 1 else None
    looked = (tape[site][0].weights > 0).flatten(1, 2).any(1)  # [B,T]
    second = some["parts"] == 1
    first_only = task.reading.pairs and not (looked & second).any()
    return Attended(
        model, site, reader.embedding, predict, head=head, special=special, grouped=grouped,
        only=(lambda batch: batch["parts"] == 0) if first_only else None, stack=reader.stack,
    )  # fmt: skip


def _logits_of(model: nn.Module) -> Callable[[Batch], Tensor]:
    """What predicts the logits of classes."""
    return lambda batch: Classes.of(model, batch).logits


def text_stack(model: nn.Module) -> Stack | None:
    """The layers under a class, read by what pools them, or else from the first token."""
    layers, known = self_sites(model), sites_of(model)
    if not layers:
        return None
    pools = [name for name, site in known.items() if site.kind == "pool"]

    def pooled(batch: Batch) -> Tensor:
        with torch.no_grad(), record(model, pools[-1]) as tape:
            model(batch)
        return tape[pools[-1]][0].weights.mean((1, 2))

    def first(batch: Batch) -> Tensor:
        return at_place(torch.zeros_like(batch["lengths"]), batch["tokens"].shape[1])

    return Stack(model, _logits_of(model), layers, pooled if pools else first)


def sentence_vectors(model: nn.Module, site: str) -> nn.Module:
    """What makes vectors of sentences: the pooling before the site that looks at them."""
    sites = [name for name, each in sites_of(model).items() if each.kind == "pool"]
    below = sites[: sites.index(site)] if site in sites else []
    if not below:
        raise UserError(f"nothing below {site!r} makes vectors of sentences to ask for gradients")
    return model.get_submodule(below[-1])


class Sentences(Attended):
    """The second level of a document: sentences are judged, and taken out whole."""

    def __init__(self, words: Attended, vectors: nn.Module) -> None:
        super().__init__(words.model, words.site, vectors, words.predict, head=words.head)
        self.words = words

    def real(self, batch: Batch) -> Bool[Tensor, "B S"]:
        """The sentences that have words."""
        parts = batch["parts"]
        numbers = torch.arange(max(1, int(parts.max()) + 1), device=parts.device)
        return (parts[:, None] == numbers[:, None]).any(2)

    def judged(self, batch: Batch) -> Bool[Tensor, "B S"]:
        """All of them."""
        return self.real(batch)

    def kept(self, batch: Batch, keep: Bool[Tensor, "B S"]) -> Batch:
        """The words of these sentences."""
        parts = batch["parts"]
        return self.words.kept(batch, keep.gather(1, parts.clamp_min(0)) & (parts >= 0))


# taggers ----------------------------------------------------------------------------------------


def _of_tagging(run: Run, asked: Asked, split: Split) -> _Made:
    """A word at a time: which other words its tag came from."""
    task, model = run.task, run.model
    assert isinstance(task, Tagging)
    batches = task.evaluation(split)
    some = shown(batches, model)
    reader = Tagger(run, asked, embedding_of(model, some), marks(task.tokeniser))

    def words() -> Iterator[Batch]:
        draws = asked.draws
        for batch in (batches.batch(0, each) for each in range(len(batches))):
            first = batch.get("firsts")
            known = batch["words"] if first is not None else batch["lengths"]
            text, word = steps(known, draws)
            part = {name: value[text] for name, value in batch.items()}
            place = word if first is None else first[text, word]
            part = {name: part[name] for name in part if name not in ("words", "tags")}
            yield {**part, "place": place, **({} if first is None else {"firsts": place[:, None]})}

    return reader, placed(at_most(words(), asked.texts), model)


class Tagger(Attended):
    """A tagger, asked for the tag of the word at `place`, which is not judged and always stays."""

    def __init__(self, run: Run, asked: Asked, embedding: nn.Module, special: list[int]) -> None:
        model = run.model
        layers = self_sites(model)
        super().__init__(
            model,
            site_of(run, asked.site),
            embedding,
            self.tagged,
            head=asked.head,
            query=lambda batch: batch["place"],
            special=special,
            stack=Stack(
                model,
                self.tagged,
                layers,
                lambda batch: at_place(batch["place"], batch["tokens"].shape[1]),
            )
            if layers
            else None,
        )

    def tagged(self, batch: Batch) -> Float[Tensor, "B C"]:
        """The log-probabilities of the word's tags, whatever the others are."""
        one = torch.ones_like(batch["place"])
        output = Tags.of(self.model, {**batch, "words": one} if "firsts" in batch else batch)
        column = torch.zeros_like(one) if "firsts" in batch else batch["place"]
        rows = torch.arange(len(one), device=one.device)
        likely = output.probabilities()[rows, column]
        return likely.clamp_min(torch.finfo(likely.dtype).tiny).log()

    def judged(self, batch: Batch) -> Bool[Tensor, "B T"]:
        """All but the word itself."""
        positions = torch.arange(batch["tokens"].shape[1], device=batch["place"].device)
        return super().judged(batch) & (positions != batch["place"][:, None])

    def kept(self, batch: Batch, keep: Bool[Tensor, "B T"]) -> Batch:
        """The word moves with those before it."""
        stays = keep | ~self.judged(batch)
        place = stays.cumsum(1).gather(1, batch["place"][:, None])[:, 0] - 1
        moved = {**super().kept(batch, keep), "place": place}
        return {**moved, "firsts": place[:, None]} if "firsts" in batch else moved


# translators ------------------------------------------------------------------------------------


def _of_translation(run: Run, asked: Asked, split: Split) -> _Made:
    """A step at a time, after the reference so far: which source tokens the next came from."""
    task, model = run.task, run.model
    assert isinstance(task, Translation)
    batches = task.evaluation(split)
    some = shown(batches, model)

    def predict(batch: Batch) -> Tensor:
        rows = torch.arange(len(batch["step"]), device=batch["step"].device)
        return NextTokens.of(model, batch).logits()[rows, batch["step"]]  # [B,V]

    site = site_of(run, asked.site, TO_THE_SOURCE)
    kind = sites_of(model)[site].kind
    reader = Attended(
        model, site, embedding_of(model, some, "source"), predict,
        head=asked.head,
        query=(lambda batch: batch["step"]) if kind in TO_THE_SOURCE else None,
        tokens="source", lengths="source_lengths", special=marks(task.numbering.source),
        along=("source", "source_extended"),
    )  # fmt: skip
    layers = tuple(name for name in self_sites(model) if _before_source(model, some, name))
    if layers and kind in TO_THE_SOURCE:
        reader.stack = Stack(model, predict, layers, lambda batch: reader.read(batch).weights)

    def targets() -> Iterator[Batch]:
        draws = asked.draws
        for batch in (batches.batch(0, each) for each in range(len(batches))):
            pair, step = steps((batch["targets"] >= 0).sum(1), draws)
            part = {name: value[pair] for name, value in batch.items() if name != "targets"}
            part["tokens"] = part["tokens"][:, : int(step.max()) + 1]  # what comes after is unread
            yield {**part, "step": step}

    return reader, placed(at_most(targets(), asked.texts), model)


def _before_source(model: nn.Module, some: Batch, site: str) -> bool:
    """Does this site look from source to source? Then it is asked before the target is read."""
    shape = (some["source"].shape[1],) * 2
    with torch.no_grad(), record(model) as tape:
        model({**some, "tokens": some["tokens"][:, :1]})
    return tuple(tape[site][0].weights.shape[2:]) == shape


# language models --------------------------------------------------------------------------------


def _of_language_model(run: Run, asked: Asked, split: Split) -> _Made:
    """Windows of a text: which of its words the next one came from."""
    task, model = run.task, run.model
    assert isinstance(task, LanguageModelling)
    batches = task.evaluation(split)

    def last(batch: Batch) -> Tensor:
        return batch["lengths"].clamp_min(1) - 1

    def predict(batch: Batch) -> Tensor:
        rows = torch.arange(len(batch["tokens"]), device=batch["tokens"].device)
        return NextTokens.of(model, batch).logits()[rows, last(batch)]  # [B,V]

    def windows() -> Iterator[Batch]:
        for index in range(len(batches)):
            tokens = batches.batch(0, index)["tokens"]
            yield {"tokens": tokens, "lengths": torch.full((len(tokens),), tokens.shape[1])}

    layers = self_sites(model)
    stack = Stack(
        model, predict, layers, lambda batch: at_place(last(batch), batch["tokens"].shape[1])
    )
    reader = Attended(
        model,
        site_of(run, asked.site),
        embedding_of(model, next(placed(windows(), model)), run=predict),
        predict,
        head=asked.head,
        query=last,
        stack=stack if layers else None,
    )
    return reader, placed(at_most(windows(), asked.texts), model)


READERS: dict[str, Callable[[Run, Asked, Split], _Made]] = {
    "classify": of_classification,
    "tag": _of_tagging,
    "translate": _of_translation,
    "language_model": _of_language_model,
}
"""How the models of each task are asked."""
