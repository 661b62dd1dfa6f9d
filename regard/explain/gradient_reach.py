"""How far gradients reach: what a prediction owes to each token that was read, with attention and
without.

The gradient of the log-probability of one token with respect to the embedding of each token that
was read, as a length (Bengio, Simard and Frasconi 1994 asked the same of plain RNNs). Of a language
model it is the token after the last one; of a translator, the last token of its translation. To see
what attention adds, the same model is asked again while all attention reads nothing: what is left
reached its place through the recurrence alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import intervene
from regard.attention.tape import Look, Site
from regard.core.errors import UserError, choose
from regard.core.inputs import Text
from regard.core.protocols import Batch
from regard.data.text.parallel import encoded
from regard.inference.attention import check_readable
from regard.inference.translate import source_labels
from regard.outputs.next_token import NextTokens
from regard.tasks.language_model import LanguageModelling
from regard.tasks.task import OpenTask
from regard.tasks.translate import Translation

WITH, WITHOUT, ALONE = "with attention", "without attention", "no attention in it"


@dataclass(frozen=True)
class Reach:
    """The length of the gradient at each token that was read, by what was left in the model."""

    labels: tuple[str, ...]
    lengths: dict[str, tuple[float, ...]]


def reach(name: str, task: OpenTask, model: nn.Module, text: str) -> Reach:
    """How far the gradient of one prediction reaches into a text; `name` is that of the task."""
    check_readable(Text(text))
    labels, tokens, predict = choose("task with a reach", name, _READ)(task, model, text)
    if not any(isinstance(module, Site) for module in model.modules()):
        return Reach(labels, {ALONE: gradient_lengths(model, tokens, predict)})
    whole = gradient_lengths(model, tokens, predict)
    with intervene(model, {"*": nothing}):
        rest = gradient_lengths(model, tokens, predict)
    return Reach(labels, {WITH: whole, WITHOUT: rest})


def nothing(weights: Tensor, look: Look) -> Tensor:
    """An edit: every key weighs nothing, and no gradient passes."""
    return torch.zeros_like(weights)


_Predict = Callable[[], Float[Tensor, ""]]
"""Runs the model and gives the log-probability of one token."""


def gradient_lengths(
    model: nn.Module, tokens: Int[Tensor, "1 S"], predict: _Predict
) -> tuple[float, ...]:
    """The length of the gradient at the embedding of each of these tokens."""
    with torch.enable_grad(), _embedded(model, tokens) as found:
        value = predict()
        if not found:
            raise UserError(f"{type(model).__name__} has no embedding that reads this text whole")
        (gradient,) = torch.autograd.grad(value, [found[0]], materialize_grads=True)
    return tuple(gradient[0].float().norm(dim=-1).tolist())


@contextmanager
def _embedded(model: nn.Module, tokens: Int[Tensor, "1 S"]) -> Iterator[list[Tensor]]:
    """The vectors of these tokens as the model looks them up, in their order, with a gradient."""
    found: list[Tensor] = []

    def note(module: nn.Module, given: tuple[Tensor, ...], vectors: Tensor) -> Tensor | None:
        if found or given[0].shape != tokens.shape:
            return None
        backwards = not torch.equal(given[0], tokens) and torch.equal(given[0], tokens.flip(1))
        leaf = vectors.detach().flip(1) if backwards else vectors.detach()
        found.append(leaf.requires_grad_())
        return leaf.flip(1) if backwards else leaf

    hooks = [
        module.register_forward_hook(note)
        for module in model.modules()
        if isinstance(module, nn.Embedding)
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


Read = tuple[tuple[str, ...], Int[Tensor, "1 S"], _Predict]
"""The texts of the tokens that are read, their numbers, and what asks the model."""


def _of_language_model(task: OpenTask, model: nn.Module, text: str) -> Read:
    """The token that the model thinks comes next."""
    assert isinstance(task, LanguageModelling)
    device = next(model.parameters()).device
    tokens = torch.tensor([task.tokeniser.encode(text)], device=device)
    labels = tuple(text[begin:end] for begin, end in task.tokeniser.offsets(text))

    def predict() -> Tensor:
        logits = NextTokens.of(model, {"tokens": tokens}).logits()[0, -1]
        return logits.log_softmax(0).max()

    return labels, tokens, predict


def _of_translation(task: OpenTask, model: nn.Module, text: str) -> Read:
    """The last token of the best translation."""
    assert isinstance(task, Translation)
    (translated,) = task.translate(model, [text])
    pairs, _ = encoded([(text, translated.text)], task.numbering, whole=True)
    device = next(model.parameters()).device
    last = max(int(pairs.target.lengths[0]) - 2, 0)  # before the end of the sentence
    batch: Batch = {name: each.to(device) for name, each in pairs.gather(torch.tensor([0])).items()}

    def predict() -> Tensor:
        return NextTokens.of(model, batch).log_probability(batch["targets"])[0, last]

    return tuple(source_labels(task, text)), batch["source"], predict


_READ: dict[str, Callable[[OpenTask, nn.Module, str], Read]] = {
    "language_model": _of_language_model,
    "translate": _of_translation,
}
"""How the models of each task are asked."""
