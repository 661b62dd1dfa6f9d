"""Stepwise layers give what the modules give, for every kind of layer."""

from dataclasses import dataclass
from typing import TypeVar

import pytest
import torch
from torch import nn

from regard.attention import intervene, record, uniform
from regard.layers.block import EncoderBlock
from regard.layers.cache import Cache
from regard.layers.feedforward import GatedFeedForward
from regard.layers.key_value_store import KeyValueStore
from regard.layers.multihead import SelfAttention
from regard.layers.position import Rotary
from regard.layers.stepwise import StepwiseDecoder


@dataclass(frozen=True)
class Kind:
    """What a layer may have of its own."""

    norm_first: bool = True
    key_heads: int = 4
    score: str = "scaled_dot"
    rotary: bool = False
    gated: bool = False

    def block(self) -> EncoderBlock:
        """Such a layer, whose normalisation is not the identity."""
        torch.manual_seed(1)
        attention = SelfAttention(
            16,
            4,
            key_heads=self.key_heads,
            score=self.score,
            rotary=Rotary(4) if self.rotary else None,
        )
        feedforward = GatedFeedForward(16, 24) if self.gated else None
        block = EncoderBlock(
            16,
            4,
            24,
            dropout=0.5,
            norm_first=self.norm_first,
            attention=attention,
            feedforward=feedforward,
        )
        return shaken(block)


M = TypeVar("M", bound=nn.Module)


def shaken(module: M) -> M:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    return module.double().eval()


KINDS = {
    "before": Kind(),
    "after": Kind(norm_first=False),
    "shared keys": Kind(key_heads=2),
    "rotary": Kind(rotary=True),
    "cosine": Kind(score="cosine"),
    "gated": Kind(gated=True),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_layer_taken_apart_steps_as_the_whole_one(kind: Kind) -> None:
    blocks = [kind.block(), kind.block()]
    with torch.no_grad():
        lean = StepwiseDecoder.build(blocks)
        assert lean is not None
        apart, caches = KeyValueStore(by_row=False), [Cache(), Cache()]
        for step in range(40):  # more than there is room for at first
            x = torch.randn(3, 16, dtype=torch.float64)
            got, apart = lean(x.clone(), apart)
            wanted = x[:, None]
            for number, block in enumerate(blocks):
                wanted, caches[number] = block.step(wanted, caches[number])
            torch.testing.assert_close(got, wanted[:, 0], msg=f"step {step}")
            if step in (3, 20):
                rows = torch.tensor([2, 0, 0])
                apart, caches = apart.select(rows), [cache.select(rows) for cache in caches]


def test_a_layer_taken_apart_is_recorded_and_edited_as_the_whole_one() -> None:
    block = KINDS["before"].block()
    x = torch.randn(3, 2, 16, dtype=torch.float64)
    with torch.no_grad():
        lean = StepwiseDecoder.build([block])
        assert lean is not None
        _, first_store = lean(x[:, 0].clone(), KeyValueStore())
        (cache,) = first_store.caches()
        with record(block) as tape:
            recorded, _ = lean(x[:, 1], first_store)
        plain, _ = lean(x[:, 1], first_store)
        assert torch.equal(recorded, plain)
        with record(block) as whole:
            block.step(x[:, 1:], cache)
        (call,), (wanted,) = tape["attention"], whole["attention"]
        assert call.rows == wanted.rows == (1,)
        torch.testing.assert_close(call.weights, wanted.weights)
        with intervene(block, {"attention": uniform}):
            evened, _ = lean(x[:, 1], first_store)
            other, _ = block.step(x[:, 1:], cache)
        torch.testing.assert_close(evened, other[:, 0])
        assert not torch.allclose(evened, plain)
