"""ONNX: a model as a graph that ONNX Runtime and others compute; batch and length stay free.

Encoders of text with whatever is on top of them read `tokens` `[batch, length]` and `lengths`
`[batch]`, and `parts` where there are segments; a GPT reads `tokens`, without a cache. Every head
that a model has is an output; one that has none gives its states. The file is run once on inputs of
other sizes than it was traced with, and what it says is compared with ours.
"""

import logging
import warnings
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.layers.text_encoder import TextEncoder
from regard.models.language.gpt import GPT
from regard.outputs.classes import Classes
from regard.outputs.masked_lm import MaskedLMOutput
from regard.outputs.next_token import NextTokens
from regard.outputs.spans import Spans
from regard.outputs.tags import Tags

if TYPE_CHECKING:
    from collections.abc import Iterator

_MISSING = "ONNX needs onnx, onnxscript and onnxruntime: pip install 'regard[export]'"

_TOLERANCE = 1e-3
"""The most by which any number may differ; more is a graph that computes something else."""


class GPTGraph(nn.Module):
    """A GPT as a function of tokens."""

    def __init__(self, model: GPT) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """The logits of the next token after each."""
        return NextTokens.of(self.model, {"tokens": tokens}).logits()


class EncoderGraph(nn.Module):
    """An encoder of text, and what is on top of it, as a function of tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, lengths: Tensor, parts: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The logits of all heads, or states without a head; `named_outputs` has their names."""
        return tuple(self.named_outputs(tokens, lengths, parts).values())

    def named_outputs(
        self, tokens: Tensor, lengths: Tensor, parts: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The same by name."""
        real = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        batch = {"tokens": tokens, "lengths": lengths, "allowed": real}
        output = self.model(batch if parts is None else {**batch, "parts": parts})
        if isinstance(self.model, TextEncoder):
            return {"states": output}
        return output_tensors(output)


def output_tensors(output: object) -> dict[str, Tensor]:
    """The tensors of a model's output by name: logits, or states of a model without a head."""
    match output:
        case Classes():
            return {"logits": output.logits}
        case Tags():
            return {"logits": output.scores}
        case Spans():
            return {"logits": torch.stack((output.first, output.last), 2)}
        case MaskedLMOutput():
            words = None if output.words is None else output.words.logits()
            heads = {"logits": words, "next_sentence": output.next_sentence}
            bare = {"states": output.states, "pooled": output.pooled}
            return _present(heads) or _present(bare)
    raise TypeError(f"no tensors of {type(output).__name__}")


def _present(tensors: dict[str, Tensor | None]) -> dict[str, Tensor]:
    return {name: each for name, each in tensors.items() if each is not None}


def export_onnx(model: nn.Module, path: Path) -> float:
    """Write the model as a file; the largest difference to our own output."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 torch needs it, with a less clear error
    except ModuleNotFoundError:
        raise UserError(_MISSING) from None
    adapted, example = _adapted_to(model.eval())
    context = _limit_of(model)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length", min=2, max=context)
    free = {
        name: {0: batch, 1: length} if t.dim() == 2 else {0: batch} for name, t in example.items()
    }
    with _quiet(), torch.no_grad():
        names = (
            list(adapted.named_outputs(**example))
            if isinstance(adapted, EncoderGraph)
            else ["logits"]
        )
        made = torch.onnx.export(
            adapted,
            kwargs=dict(example),
            dynamo=True,
            dynamic_shapes=free,
            input_names=list(example),
            output_names=names,
            verbose=False,
        )
    assert made is not None
    made.save(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return max(onnx_difference(adapted, session, rows, min(long, context)) for rows, long in _SIZES)


_SIZES = ((1, 2), (2, 11), (5, 6))
"""Rows and tokens that a file is tried with."""


def _adapted_to(model: nn.Module) -> tuple[nn.Module, Mapping[str, Tensor]]:
    """The model as a function of tensors, and an example of them."""
    if isinstance(model, GPT):
        return GPTGraph(model), random_inputs(("tokens",), 3, min(7, _limit_of(model)))
    encoder = _encoder_of(model)
    if encoder is None:
        raise UserError(
            f"ONNX is for encoders of text and for GPT here, not for a {type(model).__name__}"
        )
    names = ("tokens", "lengths", "parts") if encoder.config.segments else ("tokens", "lengths")
    return EncoderGraph(model), random_inputs(names, 3, min(7, _limit_of(model)))


def _encoder_of(model: nn.Module) -> TextEncoder | None:
    """The encoder that a model has."""
    found = model if isinstance(model, TextEncoder) else dict(model.named_children()).get("encoder")
    return found if isinstance(found, TextEncoder) else None


def _limit_of(model: nn.Module) -> int:
    """The most tokens that it can read."""
    if isinstance(model, GPT):
        return model.context_limit
    encoder = _encoder_of(model)
    assert encoder is not None
    return encoder.config.context


def random_inputs(names: tuple[str, ...], rows: int, length: int) -> dict[str, Tensor]:
    """Made-up inputs of these names; the first tokens of any vocabulary will do."""
    made = torch.Generator().manual_seed(rows * length)
    every = {
        "tokens": torch.randint(0, 5, (rows, length), generator=made),
        "lengths": torch.randint(1, length + 1, (rows,), generator=made),
        "parts": torch.randint(0, 2, (rows, length), generator=made),
    }
    every["lengths"][0] = length
    return {name: every[name] for name in names}


def onnx_difference(adapted: nn.Module, session: object, rows: int, length: int) -> float:
    """The largest difference at real tokens between the file's output and ours."""
    names = tuple(each.name for each in session.get_inputs())  # type: ignore[attr-defined]
    given = random_inputs(names, rows, length)
    theirs = session.run(  # type: ignore[attr-defined]
        None, {name: each.numpy() for name, each in given.items()}
    )
    with torch.no_grad():
        output = adapted(**given)
    ours = output if isinstance(output, tuple) else (output,)
    largest = 0.0
    for one, other in zip(ours, theirs, strict=True):
        off = (one - torch.from_numpy(other)).abs()
        if "lengths" in given and off.dim() == 3:  # the output at padding has no meaning
            off = off[torch.arange(length) < given["lengths"][:, None]]
        largest = max(largest, float(off.max()))
    if not largest <= _TOLERANCE:
        raise UserError(
            f"the ONNX file computes something else than the model: off by {largest:.2g}"
        )
    return largest


@contextmanager
def _quiet() -> "Iterator[None]":
    """Without the messages of torch's exporter about packages that are not needed."""
    logger = logging.getLogger("torch.onnx")
    before, logger.level = logger.level, logging.ERROR
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
