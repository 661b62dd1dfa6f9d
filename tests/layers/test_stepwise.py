"""A stepwise decoder gives the outputs, records and edits of its modules."""

import pytest
import torch
from torch import Tensor

from regard.attention import Past, causal, intervene, record, uniform
from regard.layers import (
    DecoderBlock,
    EncoderBlock,
    FeedForward,
    SelfAttention,
    SourceMemory,
    key_value_store,
    stepwise,
)
from regard.layers.cache import Cache
from regard.layers.key_value_store import KeyValueStore
from regard.layers.multihead import CrossAttention
from regard.layers.stepwise import StepSource, StepwiseDecoder

D, H, L, S = 16, 4, 3, 7
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def blocks(norm_first: bool = False, activation: str = "relu") -> list[DecoderBlock]:
    return [
        DecoderBlock(
            D,
            H,
            24,
            norm_first=norm_first,
            dropout=0.3,
            feedforward=FeedForward(D, 24, activation=activation, dropout=0.2),
        ).eval()
        for _ in range(L)
    ]


def source_of(layers: list[DecoderBlock], lengths: list[int]) -> SourceMemory:
    states = torch.randn(len(lengths), S, D)
    return SourceMemory.of(
        tuple(layer.cross.remember(states) for layer in layers),
        torch.tensor(lengths),
        attends=[layer.cross.attend for layer in layers],
    )


def by_modules(
    layers: list[DecoderBlock], x: Tensor, source: SourceMemory, caches: list[Cache]
) -> tuple[Tensor, list[Cache]]:
    """One position through the modules themselves."""
    x, grown = x[:, None], []
    for number, (layer, cache) in enumerate(zip(layers, caches, strict=True)):
        past = Past(first=cache.length)
        x, cache, _ = layer.step_shared(x, source, number, cache, causal(), past)
        grown.append(cache)
    return x[:, 0], grown


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("lengths", [[S, S], [S, 3, 1]])
@pytest.mark.parametrize("many", [0, 256])
def test_steps_are_those_of_the_modules_also_when_rows_are_chosen(
    norm_first: bool,
    activation: str,
    lengths: list[int],
    many: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stepwise, "MANY_QUERIES", many)  # both ways to compute the same
    monkeypatch.setattr(key_value_store, "FIRST_SIZE", 2)  # which is soon used up
    layers = blocks(norm_first, activation)
    n = len(lengths)
    with torch.inference_mode():
        source = source_of(layers, lengths)
        decoder = StepwiseDecoder.build(layers)
        assert decoder is not None
        prepared, store, caches = (
            StepSource.prepare(source),
            KeyValueStore(),
            [Cache() for _ in layers],
        )
        every = [
            torch.arange(n),
            torch.arange(n).repeat_interleave(3),  # three beams each
            torch.arange(3 * n).flip(0),  # other sentences in other places
            torch.tensor([0, 0, 2, 1, 1, 1]),
            torch.tensor([3, 4, 5]),
        ]
        for rows in every:
            prepared, store = prepared.select(rows), store.select(rows)
            source, caches = source.select(rows), [cache.select(rows) for cache in caches]
            for _ in range(2):
                x = torch.randn(len(rows), D)
                got, store = decoder(x.clone(), store, prepared)
                want, caches = by_modules(layers, x, source, caches)
                torch.testing.assert_close(got, want, **CLOSE)
        assert store.length == 10


def test_what_was_written_can_be_gone_on_with_twice() -> None:
    layers = blocks()
    with torch.inference_mode():
        prepared = StepSource.prepare(source_of(layers, [S, 4]))
        decoder = StepwiseDecoder.build(layers)
        assert decoder is not None
        first, second, third = torch.randn(3, 2, D)
        _, first_store = decoder(first, KeyValueStore(), prepared)
        want, _ = decoder(second, first_store, prepared)
        decoder(third, first_store, prepared)  # would overwrite the position if it could
        kept = first_store.select(torch.tensor([0, 1]))
        torch.testing.assert_close(decoder(second, kept, prepared)[0], want)
        torch.testing.assert_close(decoder(second, first_store, prepared)[0], want)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("many", [0, 256])
def test_recording_hears_the_weights_and_changes_nothing(
    beams: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stepwise, "MANY_QUERIES", many)
    layers = blocks()
    model = torch.nn.ModuleList(layers)
    with torch.inference_mode():
        rows = torch.arange(2).repeat_interleave(beams)
        source = source_of(layers, [S, 3]).select(rows)
        decoder, prepared = StepwiseDecoder.build(layers), StepSource.prepare(source)
        assert decoder is not None
        x, y = torch.randn(2, 2 * beams, D)
        plain = decoder(y, decoder(x, KeyValueStore(), prepared)[1], prepared)[0]
        with record(model) as tape:
            recorded = decoder(y, decoder(x, KeyValueStore(), prepared)[1], prepared)[0]
        assert torch.equal(recorded, plain)
        with record(model) as reference:
            caches = by_modules(layers, x, source, [Cache() for _ in layers])[1]
            by_modules(layers, y, source, caches)
        assert tape.sites == reference.sites
        assert len(tape.sites) == 2 * L
        for site in tape.sites:
            for call, want in zip(tape[site], reference[site], strict=True):
                torch.testing.assert_close(call.weights, want.weights, **CLOSE)
                assert (call.heads, call.rows, call.kind) == (want.heads, want.rows, want.kind)


@pytest.mark.parametrize("site", ["*.cross", "*.attention"])
def test_edits_are_obeyed(site: str) -> None:
    layers = blocks()
    model = torch.nn.ModuleList(layers)
    with torch.inference_mode():
        source = source_of(layers, [S, 3]).select(torch.tensor([0, 0, 1, 1]))
        decoder, prepared = StepwiseDecoder.build(layers), StepSource.prepare(source)
        assert decoder is not None
        x, y = torch.randn(2, 4, D)
        plain = decoder(y, decoder(x, KeyValueStore(), prepared)[1], prepared)[0]
        with intervene(model, {site: uniform}):
            got = decoder(y, decoder(x, KeyValueStore(), prepared)[1], prepared)[0]
            caches = by_modules(layers, x, source, [Cache() for _ in layers])[1]
            want = by_modules(layers, y, source, caches)[0]
        torch.testing.assert_close(got, want, **CLOSE)
        assert (got - plain).abs().max() > 1e-3


def test_what_has_to_be_called_is_not_taken_apart() -> None:
    def usable(block: DecoderBlock | EncoderBlock) -> bool:
        return StepwiseDecoder.build([block.eval()]) is not None

    with torch.no_grad():
        assert usable(DecoderBlock(D, H, 24))
        assert StepwiseDecoder.build([DecoderBlock(D, H, 24)]) is None, "in training"
        for own in ("additive", "relative_clipped"):
            assert not usable(DecoderBlock(D, H, 24, attention=SelfAttention(D, H, score=own)))
            assert not usable(EncoderBlock(D, H, 24, attention=SelfAttention(D, H, score=own)))
        cross = CrossAttention(D, H, weigh="sparsemax")
        assert not usable(DecoderBlock(D, H, 24, cross=cross))
        hooked = DecoderBlock(D, H, 24)
        hooked.cross.merge.register_forward_hook(lambda *_: None)
        assert not usable(hooked)
    assert not usable(DecoderBlock(D, H, 24)), "with gradients"
