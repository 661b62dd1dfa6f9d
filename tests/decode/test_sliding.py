"""A context that slides: texts of any length from a model that reads so many tokens."""

import pytest
import torch

from regard.decode import GenerationRequest, Greedy, generate
from regard.decode.sliding import SlidingStepper
from regard.models.language.gpt import GPT
from tests.decode.test_generate import lively

CONTEXT = 12


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(3)
    config = GPT.Config(width=16, heads=2, layers=2, context=CONTEXT, position="learned")
    built = lively(GPT(config, 30))
    assert isinstance(built, GPT)
    return built


def by_hand(model: GPT, prompt: list[int], count: int, drop: int) -> list[int]:
    """The whole model over the window, for every token; the window moves on by `drop` when full."""
    written, first = list(prompt), max(0, len(prompt) - CONTEXT)
    for _ in range(count):
        if len(written) - first > CONTEXT:
            first = len(written) - (CONTEXT + 1 - drop)
        with torch.no_grad():
            logits = model({"tokens": torch.tensor([written[first:]])}).logits()[0, -1]
        written.append(int(logits.argmax()))
    return written[len(prompt) :]


@pytest.mark.parametrize("drop", [1, 3, CONTEXT])
@pytest.mark.parametrize("length", [1, CONTEXT - 1, CONTEXT, CONTEXT + 1, 3 * CONTEXT])
def test_a_long_text_is_that_of_a_window_that_moves(model: GPT, length: int, drop: int) -> None:
    """With drop=1 this is what nanoGPT computes."""
    prompt = torch.randint(4, 30, (length,), generator=torch.Generator().manual_seed(1)).tolist()
    request = GenerationRequest(policy=Greedy(), max_tokens=40)
    stepper = SlidingStepper(model, CONTEXT, drop)
    ((found,),) = generate(stepper, [prompt], request)
    assert found.tokens == by_hand(model, prompt, 40, drop)


def test_rows_slide_together_and_leave_alone(model: GPT) -> None:
    prompts = [[5, 6, 7], [8, 9, 10], [11, 12, 13]]
    request = GenerationRequest(policy=Greedy(), max_tokens=30, stop=frozenset({4, 7}))
    stepper = SlidingStepper(model, CONTEXT)
    together = generate(stepper, prompts, request)
    for prompt, (text,) in zip(prompts, together, strict=True):
        ((alone,),) = generate(stepper, [prompt], request)
        assert text.tokens == alone.tokens
