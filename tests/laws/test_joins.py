"""Laws of joined states: texts of any lengths go on as one batch as they would alone."""

import pytest
import torch
from torch import Tensor, nn

from regard.core.config import parse
from regard.core.protocols import Joins, Selectable
from regard.models import MODELS
from regard.models.language.gpt import GPTStepState

V = 11
SMALL: dict[str, tuple[str, dict[str, object]]] = {
    "rnn_lm": ("rnn_lm", {"width": 8, "layers": 2}),
    "rnn_lm, gru": ("rnn_lm", {"width": 8, "layers": 1, "cell": "gru"}),
    "gpt": ("gpt", {"width": 16, "heads": 4, "layers": 2, "context": 16}),
    "gpt, rotary": ("gpt", {"width": 16, "heads": 2, "context": 16, "position": "rotary"}),
    "gpt, sinusoidal": ("gpt", {"width": 16, "heads": 2, "context": 16, "position": "sinusoidal"}),
    "gpt, shared keys": ("gpt", {"width": 16, "heads": 4, "key_heads": 2, "context": 16}),
}


def built(kind: str, given: dict[str, object]) -> nn.Module:
    model = MODELS[kind](parse(MODELS[kind].Config, given), vocabulary=V).eval()
    assert isinstance(model, Joins)
    return model


def begun(model: Joins, length: int) -> tuple[Tensor, Selectable]:
    """A text after its first step."""
    prompt = torch.randint(V, (1, length))
    logits, state = model.step(prompt[:, -1], model.start({"tokens": prompt}))
    return logits, state


def apart(model: Joins, states: list, tokens: Tensor) -> tuple[Tensor, list]:
    """A step of each text alone."""
    both = [model.step(token[None], state) for token, state in zip(tokens, states, strict=True)]
    return torch.cat([logits for logits, _ in both]), [state for _, state in both]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_texts_that_join_and_leave_go_on_as_they_would_alone(name: str, gradients: bool) -> None:
    """With gradients a step goes through the layers, without them through its faster form."""
    model = built(*SMALL[name])
    with torch.inference_mode(not gradients):
        states = [begun(model, length)[1] for length in (5, 2, 1)]
        together = model.join(states)
        for _ in range(3):
            tokens = torch.randint(V, (3,))
            expected, states = apart(model, states, tokens)
            logits, together = model.step(tokens, together)
            torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
        # the longest leaves, two others join
        states = [*states[1:], begun(model, 8)[1], begun(model, 3)[1]]
        together = model.join([together.select(torch.tensor([1, 2])), *states[2:]])
        for _ in range(3):
            tokens = torch.randint(V, (4,))
            expected, states = apart(model, states, tokens)
            logits, together = model.step(tokens, together)
            torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in SMALL if name.startswith("gpt")])
def test_room_is_as_long_as_the_longest_that_is_left(name: str) -> None:
    model = built(*SMALL[name])
    with torch.inference_mode():
        together = model.join([begun(model, length)[1] for length in (9, 4, 2)])
        assert together.length == 9
        assert together.select(torch.tensor([2, 1])).length == 4
        one = together.select(torch.tensor([2]))
        kept = one.store if isinstance(one, GPTStepState) else one.caches[0]
        assert kept.empty is None


@pytest.mark.parametrize("choice", [{"score": "relative_clipped"}, {"weigh": "sparsemax"}])
def test_attention_that_may_mind_positions_is_not_joined(choice: dict[str, object]) -> None:
    model = built("gpt", {"width": 16, "heads": 2, "context": 16, **choice})
    with torch.inference_mode():
        assert model.join([begun(model, 3)[1], begun(model, 5)[1]]) is None


@pytest.mark.parametrize("name", SMALL)
def test_a_model_that_has_read_nothing_has_nothing_to_join(name: str) -> None:
    model = built(*SMALL[name])
    assert model.join([model.start({"tokens": torch.zeros(1, 1, dtype=torch.long)})] * 2) is None
