"""Quantise: round the weights of a trained Transformer to 8-bit integers.

>>> from regard.models.language.gpt import GPT
>>> model = GPT(GPT.Config(width=32, heads=2, layers=1, context=8), vocabulary=20).eval()
>>> quantise_model(model, "int8")
5
>>> type(model.layers[0].attention.project).__name__
'Int8Linear'
"""

from torch import nn

from regard.core.errors import UserError, choose
from regard.kernels.int8 import Int8Linear, Int8Weights, QuantisedLinear
from regard.kernels.linear import is_linear
from regard.layers.block import DecoderBlock, EncoderBlock
from regard.layers.embedding import TokenEmbedding

WEIGHTS: dict[str, type[QuantisedLinear] | None] = {
    "float32": None,
    "int8": Int8Linear,
    "int8_weights": Int8Weights,
}
"""Forms of weights: unchanged; rounded, with inputs rounded too; rounded alone."""


def quantise_model(model: nn.Module, weights: str = "int8") -> int:
    """Round the weights of a trained model, in place, and return the number of changed layers.

    These are the projections of its blocks and the output layer, which do nearly all the work of a
    Transformer. Embeddings, norms and small heads stay as they are.
    """
    kind = choose("weights", weights, WEIGHTS)
    if kind is None:
        return 0
    changed = 0
    for block in list(model.modules()):
        if isinstance(block, EncoderBlock | DecoderBlock):
            changed += _quantise_block(block, kind)
    if not changed:
        raise UserError(
            f"weights={weights!r} is for Transformers: {type(model).__name__} has no such layers"
        )
    embed, output = dict(model.named_children()).get("embed"), getattr(model, "output", False)
    if output is None and isinstance(embed, TokenEmbedding):
        model.output = kind.quantise(embed.table.weight, None)  # no longer tied
        return changed + 1
    if is_linear(output):
        model.output = kind.quantise(output.weight, output.bias)
        return changed + 1
    return changed


def _quantise_block(block: nn.Module, kind: type[QuantisedLinear]) -> int:
    """Replace every linear layer of a block but those inside `Attend`; return their number."""
    linears = [
        (name, each)
        for name, each in block.named_modules()
        if is_linear(each) and "attend" not in name.split(".")
    ]
    for name, linear in linears:
        parent, _, own = name.rpartition(".")
        layer = kind.quantise(linear.weight, linear.bias)
        block.get_submodule(parent).register_module(own, layer)
    return len(linears)
