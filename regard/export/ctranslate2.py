"""CTranslate2: a GPT or a translator as a folder that its fast decoders in C++ read.

Weights are float32, and tokens are called as our tokenisers call them. How likely some made-up
texts are is asked there and here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.core.errors import UserError
from regard.layers.block import DecoderBlock, EncoderBlock
from regard.layers.feedforward import FeedForward
from regard.models.language.gpt import GPT, with_biases
from regard.models.translation.transformer import Transformer
from regard.outputs.next_token import NextTokens

if TYPE_CHECKING:
    from ctranslate2.specs import TransformerDecoderModelSpec, TransformerSpec

_MISSING = "this needs CTranslate2: pip install 'regard[export]'"

_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
"""Our activations by their names."""

_TOLERANCE = 1e-2
"""The most by which a log-probability may differ; more is another model."""

_PLAIN = {"scaled_dot", "softmax"}
"""The only attention that it has."""


def export_ctranslate2(
    model: nn.Module,
    folder: Path,
    *,
    words: Sequence[str],
    source_words: Sequence[str] = (),
    specials: dict[str, int],
) -> float:
    """Write a model; the largest difference between log-probabilities, theirs and ours.

    `words` are the names of its tokens, `specials` the numbers of bos, eos and unk. For a
    translator `source_words` are those of the other side.
    """
    try:
        import ctranslate2.specs  # noqa: F401 whether it is there
    except ModuleNotFoundError:
        raise UserError(_MISSING) from None
    model = with_biases(model)
    _refuse(model)
    assert isinstance(model, GPT | Transformer)
    named_words = _distinct(words)
    if isinstance(model, GPT):
        spec = _gpt_spec(model)
        spec.register_vocabulary(named_words)
    else:
        spec = _translator_spec(model)
        spec.register_source_vocabulary(_distinct(source_words))
        spec.register_target_vocabulary(named_words)
        spec.config.decoder_start_token = named_words[specials["bos"]]
    norm = next(each for each in model.modules() if isinstance(each, nn.LayerNorm))
    spec.config.layer_norm_epsilon = norm.eps
    for role in ("bos", "eos", "unk"):
        if role in specials:
            setattr(spec.config, f"{role}_token", named_words[specials[role]])
    spec.validate()
    spec.optimize(quantization=None)
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))
    off = ctranslate2_difference(
        model, folder, words=words, source_words=source_words, specials=specials
    )
    if not off <= _TOLERANCE:
        raise UserError(
            f"{folder}: CTranslate2 says something else than the model: off by {off:.2g}"
        )
    return off


def _gpt_spec(model: GPT) -> "TransformerDecoderModelSpec":
    """A language model as CTranslate2 describes one."""
    from ctranslate2 import specs

    c, before = model.config, model.config.norm == "before"
    spec = specs.TransformerDecoderModelSpec.from_config(
        c.layers, c.heads, pre_norm=before, activation=_activation(c.activation)
    )
    _fill_side(spec.decoder, model.embed.table, model.position, model.layers)
    _fill_end(spec.decoder, model, before)
    spec.decoder.scale_embeddings = False
    return spec


def _translator_spec(model: Transformer) -> "TransformerSpec":
    """A translator as CTranslate2 describes one."""
    from ctranslate2 import specs

    c, before = model.config, model.config.norm == "before"
    spec = specs.TransformerSpec.from_config(
        (c.encoder_layers, c.decoder_layers),
        c.heads,
        pre_norm=before,
        activation=_activation(c.activation),
    )
    embed = model.embed if model.source_embed is None else model.source_embed
    _fill_side(spec.encoder, embed.table, model.source_position, model.encoder)
    _fill_side(spec.decoder, model.embed.table, model.position, model.decoder)
    if before:
        _same(spec.encoder.layer_norm, model.source_norm)
    _fill_end(spec.decoder, model, before)
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = c.scaled
    return spec


def _activation(name: str) -> object:
    """One of ours by their name."""
    from ctranslate2.specs import common_spec

    found: object = getattr(common_spec.Activation, _ACTIVATIONS[name])
    return found


def _refuse(model: nn.Module) -> None:
    """An error that says what CTranslate2 cannot hold."""
    if not isinstance(model, GPT | Transformer):
        raise UserError(f"CTranslate2 is for gpt and transformer, not for a {type(model).__name__}")
    config = model.config
    chosen = {name: getattr(config, name) for name in type(config).model_fields}
    odd = [
        f"{name}={value!r}"
        for name, value in chosen.items()
        if (name.endswith(("score", "weigh")) and value not in _PLAIN)
        or (name == "activation" and value not in _ACTIVATIONS)
        or (name == "key_heads" and value not in (None, config.heads))
        or (name == "heads_left" and value is not None)
        or (name == "bias" and not value)
        or (name == "position" and value == "rotary")
    ]
    if odd:
        raise UserError(f"CTranslate2 cannot hold a model with {', '.join(odd)}")


def _fill_side(
    side: object, table: nn.Embedding, position: nn.Module | None, blocks: nn.ModuleList
) -> None:
    """Embeddings, positions and layers."""
    embeddings = side.embeddings  # type: ignore[attr-defined]
    (embeddings[0] if isinstance(embeddings, list) else embeddings).weight = _numbers(table.weight)
    places = getattr(position, "table", None)
    assert isinstance(places, Tensor)
    side.position_encodings.encodings = _numbers(places)  # type: ignore[attr-defined]
    for layer, block in zip(side.layer, blocks, strict=True):  # type: ignore[attr-defined]
        assert isinstance(block, EncoderBlock | DecoderBlock)
        assert isinstance(block.feedforward, FeedForward)
        _same(layer.self_attention.linear[0], block.attention.project)
        _same(layer.self_attention.linear[1], block.attention.merge)
        _same(layer.self_attention.layer_norm, block.around_attention.norm)
        _same(layer.ffn.linear_0, block.feedforward.widen)
        _same(layer.ffn.linear_1, block.feedforward.narrow)
        _same(layer.ffn.layer_norm, block.around_feedforward.norm)
        if isinstance(block, DecoderBlock):
            _same(layer.attention.linear[0], block.cross.query)
            _joined(layer.attention.linear[1], block.cross.key, block.cross.value)
            _same(layer.attention.linear[2], block.cross.merge)
            _same(layer.attention.layer_norm, block.around_cross.norm)


def _fill_end(side: object, model: GPT | Transformer, before: bool) -> None:
    """The last norm and the output layer."""
    if before:
        _same(side.layer_norm, model.norm)  # type: ignore[attr-defined]
    table = model.embed.table if model.output is None else model.output
    side.projection.weight = _numbers(table.weight)  # type: ignore[attr-defined]
    bias = getattr(model, "bias", None)
    if isinstance(bias, Tensor):
        side.projection.bias = _numbers(bias)  # type: ignore[attr-defined]


def _same(spec: object, module: nn.Module) -> None:
    """A linear layer or a norm."""
    names = ("gamma", "beta") if isinstance(module, nn.LayerNorm) else ("weight", "bias")
    for name, weight in zip(names, module.parameters(), strict=True):
        setattr(spec, name, _numbers(weight))


def _joined(spec: object, *modules: nn.Linear) -> None:
    """Several linear layers one under another."""
    for name in ("weight", "bias"):
        weights = [module.get_parameter(name).detach() for module in modules]
        setattr(spec, name, _numbers(torch.cat(weights)))


def _numbers(weight: Tensor) -> object:
    """A weight as NumPy has it."""
    return weight.detach().float().contiguous().numpy()


def _distinct(words: Sequence[str]) -> list[str]:
    """Names of tokens, none twice and none empty, each fit for a line.

    >>> _distinct(["a", "", "a", "b c"])
    ['a', '<1>', '<2>', 'b c']
    """
    seen: set[str] = set()
    named = []
    for number, word in enumerate(words):
        fit = word if word and word not in seen and word.isprintable() else f"<{number}>"
        seen.add(fit)
        named.append(fit)
    return named


def ctranslate2_difference(
    model: GPT | Transformer,
    folder: Path,
    *,
    words: Sequence[str],
    source_words: Sequence[str] = (),
    specials: dict[str, int],
) -> float:
    """The largest difference between log-probabilities of made-up texts, theirs and ours."""
    import ctranslate2

    made = torch.Generator().manual_seed(0)
    length = min(9, model.config.context - 2)
    tokens = torch.randint(0, len(words), (3, length), generator=made)
    by_name = _named(tokens, _distinct(words))
    if isinstance(model, GPT):
        generator = ctranslate2.Generator(str(folder), device="cpu", compute_type="float32")
        theirs = generator.score_batch(by_name)
        with torch.no_grad():
            ours = NextTokens.of(model, {"tokens": tokens[:, :-1]}).log_probability(tokens[:, 1:])
    else:
        source = torch.randint(0, len(source_words), (3, length), generator=made)
        translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32")
        theirs = translator.score_batch(_named(source, _distinct(source_words)), by_name)
        first, last = (torch.full((3, 1), specials[role]) for role in ("bos", "eos"))
        batch = {
            "source": source,
            "source_lengths": torch.full((3,), length),
            "tokens": torch.cat((first, tokens), 1),
        }
        with torch.no_grad():
            ours = NextTokens.of(model, batch).log_probability(torch.cat((tokens, last), 1))
    told = torch.tensor([list(each.log_probs) for each in theirs])  # [B,T]
    return float((told - ours).abs().max())


def _named(tokens: Int[Tensor, "B T"], words: Sequence[str]) -> list[list[str]]:
    """Tokens by name."""
    return [[words[number] for number in row] for row in tokens.tolist()]
