"""The rules: each against the processor of transformers, and laws over the whole table."""

import math
from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.generation import (
    LogitsProcessor,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from regard.decode import RULES, GenerationRequest, Greedy, Sampling, generate
from regard.decode.rules import active_rules
from tests.decode.fakes import Read

CASES: list[tuple[str, float, LogitsProcessor]] = [
    *(("repetition_penalty", v, RepetitionPenaltyLogitsProcessor(v)) for v in (0.5, 1.2, 5.0)),
    *(("temperature", v, TemperatureLogitsWarper(v)) for v in (0.1, 0.7, 1.9)),
    *(("top_k", v, TopKLogitsWarper(v)) for v in (1, 2, 40, 5000)),
    *(("top_p", v, TopPLogitsWarper(v)) for v in (1e-9, 0.1, 0.5, 0.9, 0.999)),
    *(("min_p", v, MinPLogitsWarper(v)) for v in (1e-6, 0.02, 0.5, 1.0)),
]
VALUES = {
    "repetition_penalty": st.floats(0.01, 100),
    "temperature": st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    "top_k": st.integers(1, 20),
    "top_p": st.floats(0, 1, exclude_min=True),
    "min_p": st.floats(0, 1, exclude_min=True),
}
# Few values, so that ties come up, and some that no finite number can be told from.
LOGITS = st.lists(
    st.sampled_from([-math.inf, -1e30, -3.0, -0.0, 0.5, 0.5 + 2**-20, 2.0, 90.0, 1e30]),
    min_size=1,
    max_size=9,
).filter(lambda values: max(values) > -math.inf)


def test_every_rule_is_compared_and_tried() -> None:
    assert {name for name, _, _ in CASES} == set(RULES) == set(VALUES)


@pytest.mark.parametrize("vocabulary", [7, 300, 3000])
@pytest.mark.parametrize("spread", [0.01, 1.0, 10.0])
@pytest.mark.parametrize(("name", "value", "theirs"), CASES)
def test_a_rule_is_that_of_transformers(
    name: str, value: float, theirs: LogitsProcessor, spread: float, vocabulary: int
) -> None:
    logits = torch.randn(5, vocabulary) * spread
    past = torch.randint(vocabulary, (5, 6))
    ours = RULES[name].apply(logits, value, past)
    expected = theirs(past, logits.clone())
    assert torch.equal(ours.isinf(), expected.isinf())
    torch.testing.assert_close(ours.softmax(-1), expected.softmax(-1), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", RULES)
@given(data=st.data())
def test_a_rule_leaves_the_likeliest_tokens_and_brings_none_back(
    name: str, data: st.DataObject
) -> None:
    logits = torch.tensor([data.draw(LOGITS)])
    past = torch.tensor([[data.draw(st.integers(0, logits.shape[1] - 1))]])
    ruled = RULES[name].apply(logits, data.draw(VALUES[name]), past)
    best = logits == logits.max()
    assert not ruled.isnan().any()
    assert (ruled[logits == -math.inf] == -math.inf).all()
    assert ruled.softmax(-1).sum().item() == pytest.approx(1)
    if name != "repetition_penalty":
        assert (ruled[best] == ruled.max()).all()
        assert (ruled[best] > -math.inf).all()


@given(data=st.data())
def test_all_rules_together_leave_something_to_draw(data: st.DataObject) -> None:
    ruled = torch.tensor([data.draw(LOGITS)])
    past = torch.zeros(1, 1, dtype=torch.int64)
    for rule in active_rules({name: data.draw(values) for name, values in VALUES.items()}):
        ruled = rule(ruled, past)
    assert ruled.softmax(-1).sum().item() == pytest.approx(1)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_does_not_change_the_logits_it_is_given(name: str) -> None:
    logits = torch.randn(2, 9)
    before = logits.clone()
    RULES[name].apply(logits, 0.5 if name != "top_k" else 2, torch.tensor([[1], [2]]))
    assert torch.equal(logits, before)


def test_a_setting_of_sampling_is_a_rule_of_the_table_and_off_by_default() -> None:
    settings = {field.name: field.default for field in fields(Sampling) if field.name != "seed"}
    assert settings == {name: rule.off for name, rule in RULES.items()}
    assert list(settings) == list(RULES)
    assert Sampling().rules == ()
    assert len(Sampling(top_k=3, temperature=0.5).rules) == 2
    assert Greedy().rules == ()


# --- the order in which they are applied


@pytest.fixture(scope="module")
def gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=60, n_positions=40, n_embd=16, n_layer=1, n_head=2, initializer_range=0.6
    )
    model = GPT2LMHeadModel(config).eval()
    model.generation_config.pad_token_id = 0
    model.generation_config.eos_token_id = None
    return model


class Foreign:
    """A model of transformers as a Stepper that reads everything again at every step."""

    def __init__(self, model: GPT2LMHeadModel) -> None:
        self.model = model

    def start(self, source: dict[str, Tensor]) -> Read:
        return Read(source["tokens"][:, :-1])

    def step(self, tokens: Tensor, state: Read) -> tuple[Tensor, Read]:
        read = torch.cat((state.tokens, tokens[:, None]), 1)
        return self.model(read).logits[:, -1], Read(read)


SETTINGS: list[dict[str, float]] = [
    {"temperature": 0.6, "top_k": 12, "top_p": 0.7, "min_p": 0.15, "repetition_penalty": 1.6},
    {"temperature": 2.5, "top_k": 30, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 0.7},
    {"temperature": 1.3, "top_p": 0.6},
    {"temperature": 0.4, "min_p": 0.3},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_rules_in_their_order_give_the_chances_of_transformers(
    gpt2: GPT2LMHeadModel, settings: dict[str, float]
) -> None:
    prompt = torch.tensor([[5, 17, 5], [40, 2, 31]])
    out = gpt2.generate(
        prompt,
        do_sample=True,
        max_new_tokens=8,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        **({"top_k": 0} | settings),
    )
    for step, (logits, scores) in enumerate(zip(out.logits, out.scores, strict=True)):
        for rule in active_rules(settings):
            logits = rule(logits, out.sequences[:, : prompt.shape[1] + step])
        torch.testing.assert_close(logits.softmax(-1), scores.softmax(-1), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("penalty", [1.0, 1.5])
def test_greedy_text_is_that_of_transformers(gpt2: GPT2LMHeadModel, penalty: float) -> None:
    prompts = [[5, 17, 5], [40, 2, 31]]
    theirs = gpt2.generate(
        torch.tensor(prompts), do_sample=False, max_new_tokens=20, repetition_penalty=penalty
    )
    request = GenerationRequest(policy=Greedy(repetition_penalty=penalty), max_tokens=20)
    ours = generate(Foreign(gpt2), prompts, request)
    assert [text.tokens for (text,) in ours] == theirs[:, 3:].tolist()
