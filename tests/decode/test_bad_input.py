"""Bad input gets a UserError that names the values and what is allowed."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.core.errors import UserError
from regard.decode import GenerationRequest, Greedy, Sampling, Stream, generate, stream_text
from regard.models.language.gpt import GPT
from tests.decode.fakes import Counting, Fixed, Hashing, Narrow

pytestmark = pytest.mark.usefixtures("as_users_run_it")

NAN, INF = math.nan, math.inf


def tiny_gpt() -> GPT:
    return GPT(GPT.Config(width=8, heads=2, layers=1, context=5), vocabulary=9).eval()


def empty() -> object:
    prompts = torch.zeros(2, 0, dtype=torch.int64)
    return Stream(Counting(()), {"tokens": prompts}, prompts, GenerationRequest(max_tokens=1))


class Silent(Counting):
    """Can read only two tokens, and says so when it is too late."""

    def after(self, read: Tensor) -> Tensor:
        if read.shape[1] > 2:
            raise UserError(f"{read.shape[1]} tokens do not fit")
        return super().after(read)


class LateNan(Hashing):
    """One row of it diverges in the third step."""

    def after(self, read: Tensor) -> Tensor:
        logits = super().after(read)
        logits[-1, 4] = NAN if read.shape[1] == 4 else 0.0
        return logits


def diverging(policy: Greedy | Sampling) -> object:
    return generate(LateNan(()), [[1, 1], [2, 2]], GenerationRequest(policy=policy, max_tokens=5))


FEW = GenerationRequest(max_tokens=3)
LATE = "prompt 1: the model's logits after 4 tokens are not finite"

CASES: dict[str, tuple[Callable[[], object], str]] = {
    # settings
    "temperature 0": (
        lambda: Sampling(temperature=0),
        "temperature=0 must be a finite number above zero; to always .* use greedy decoding",
    ),
    "temperature below 0": (lambda: Sampling(temperature=-1.5), "temperature=-1.5 must be a fin"),
    "temperature nan": (lambda: Sampling(temperature=NAN), "temperature=nan must be a finite"),
    "temperature inf": (lambda: Sampling(temperature=INF), "temperature=inf must be a finite"),
    "top_p 0": (lambda: Sampling(top_p=0.0), "top_p=0.0 must be above 0 and at most 1"),
    "top_p above 1": (lambda: Sampling(top_p=1.01), "top_p=1.01 must be above 0 and at most 1"),
    "top_p below 0": (lambda: Sampling(top_p=-0.1), "top_p=-0.1 must be above 0 and at most 1"),
    "top_p nan": (lambda: Sampling(top_p=NAN), "top_p=nan must be above 0 and at most 1"),
    "top_k below 0": (lambda: Sampling(top_k=-1), "top_k=-1 must be a whole number, or 0 for all"),
    "top_k a part": (lambda: Sampling(top_k=2.5), "top_k=2.5 must be a whole number"),  # type: ignore[arg-type]
    "min_p above 1": (lambda: Sampling(min_p=1.5), "min_p=1.5 must be from 0, .* to 1"),
    "min_p below 0": (lambda: Sampling(min_p=-0.5), "min_p=-0.5 must be from 0, .* to 1"),
    "penalty 0": (lambda: Sampling(repetition_penalty=0), "repetition_penalty=0 must be a finite"),
    "greedy penalty": (lambda: Greedy(repetition_penalty=-2), "repetition_penalty=-2 must be a f"),
    "samples": (
        lambda: GenerationRequest(samples=0),
        "samples=0 must be a whole number above zero",
    ),
    "max_tokens": (
        lambda: GenerationRequest(max_tokens=0),
        "max_tokens=0 must be a whole number above",
    ),
    "max_rows": (
        lambda: GenerationRequest(max_rows=0),
        "max_rows=0 must be a whole number above zero",
    ),
    "alternatives": (
        lambda: GenerationRequest(alternatives=-1),
        "alternatives=-1 must be 0 or more",
    ),
    # prompts
    "an empty prompt": (
        lambda: generate(Counting(()), [[1], [], [2]], FEW),
        "prompt 1 is empty: it needs at least one token",
    ),
    "a prompt of no tokens": (empty, r"prompts \[batch, tokens\] of \[2, 0\] are empty"),
    "a prompt longer than the context": (
        lambda: generate(Narrow(()), [[1], [1] * 11], FEW),
        "the prompt has 11 tokens, but the context only 10",
    ),
    "a prompt longer than the context of a Transformer": (
        lambda: generate(tiny_gpt(), [[1] * 7], FEW),
        "the prompt has 7 tokens, but the context only 5",
    ),
    "a context that is full without warning": (
        lambda: generate(Silent(()), [[1]], FEW),
        "3 tokens do not fit",
    ),
    "more tokens than fit": (
        lambda: generate(Narrow(()), [[1] * 9], FEW),
        "max_tokens=3 is too many: after a prompt of 9 tokens a context of 10 leaves 2",
    ),
    "no limit anywhere": (
        lambda: generate(Counting(()), [[1]], GenerationRequest()),
        "max_tokens is required",
    ),
    # the vocabulary
    "a stop token that is none": (
        lambda: generate(Fixed([0.0] * 5), [[1]], GenerationRequest(max_tokens=1, stop={5})),
        "stop token 5 is not in the vocabulary, which goes from 0 to 4",
    ),
    "more alternatives than tokens": (
        lambda: generate(Fixed([0.0] * 5), [[1]], GenerationRequest(max_tokens=1, alternatives=6)),
        "alternatives=6 is more than the 5 tokens of the vocabulary",
    ),
    # stop strings
    "an empty stop string": (
        lambda: list(stream_text(Counting(()), [[1]], object(), FEW, stops=["a", ""])),  # type: ignore[arg-type]
        r"stop strings must be a list of non-empty strings: \['a', ''\]",
    ),
    "one stop string instead of a list": (
        lambda: list(stream_text(Counting(()), [[1]], object(), FEW, stops="end")),  # type: ignore[arg-type]
        "stop strings must be a list of non-empty strings: 'end'",
    ),
    # models that have gone wrong
    "greedy, not a number": (lambda: diverging(Greedy()), LATE),
    "sampling, not a number": (lambda: diverging(Sampling(top_p=0.9)), LATE),
    "nothing to choose": (
        lambda: generate(Fixed([-INF, -INF]), [[1]], FEW),
        "prompt 0: the model's logits after 1 tokens are not finite",
    ),
    "infinitely sure": (
        lambda: generate(
            Fixed([INF, 0.0]), [[1]], GenerationRequest(policy=Sampling(), max_tokens=1)
        ),
        "prompt 0: the model's logits after 1 tokens are not finite",
    ),
}


@pytest.mark.parametrize(("act", "message"), CASES.values(), ids=CASES)
def test_bad_input_is_named(act: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        act()


def test_all_prompts_are_checked_before_the_model_works() -> None:
    model = Narrow(())
    with pytest.raises(UserError, match="11 tokens"):
        generate(model, [[1], [2], [1] * 11], GenerationRequest())
    assert model.sizes == []
