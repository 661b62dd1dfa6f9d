"""Laws of generation over real models and over fakes that show one thing each."""

import math
from collections import Counter
from collections.abc import Callable
from itertools import chain

import pytest
import torch
from torch import Tensor, nn

from regard.core.protocols import Batch
from regard.decode import (
    GenerationRequest,
    Greedy,
    SampleId,
    Sampling,
    Stream,
    collect_texts,
    generate,
)
from regard.decode.policy import sample_tokens
from regard.models.language.gpt import GPT
from regard.models.language.rnn_lm import RNNLM
from tests.decode.fakes import Counting, Fixed, Hashing, Narrow, Read

VOCABULARY = 30
PROMPTS = [[3, 1, 4], [1], [5, 9, 2], [6, 5, 3, 5, 8], [9], [7, 9, 3]]
"""Of three lengths, out of order."""

CLOSE = {"atol": 5e-5, "rtol": 0.0}
"""Large weights make an Elman network enlarge the rounding of every step."""

Model = RNNLM | GPT


def lively(model: Model) -> Model:
    """With larger weights than training begins with, or every text would be one token repeated."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)
    return model.eval()


def rnn(cell: str) -> Model:
    config = RNNLM.Config(cell=cell, width=12, layers=2, dropout=0.0, init_range=0.5)
    return lively(RNNLM(config, VOCABULARY))


def gpt(position: str) -> Model:
    config = GPT.Config(width=16, heads=2, layers=2, context=40, position=position)
    return lively(GPT(config, VOCABULARY))


MODELS: dict[str, Callable[[], Model]] = {
    **{cell: lambda cell=cell: rnn(cell) for cell in ("elman", "lstm")},
    **{at: lambda at=at: gpt(at) for at in ("learned", "rotary")},
}

POLICIES = {
    "greedy": Greedy(),
    "greedy with a penalty": Greedy(repetition_penalty=1.3),
    "plain": Sampling(seed=5),
    "every rule": Sampling(
        seed=6, temperature=1.4, top_k=12, top_p=0.95, min_p=0.01, repetition_penalty=1.1
    ),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]()


def whole(model: nn.Module, tokens: list[int]) -> Tensor:
    """Log-probabilities at every position, from one pass over the whole sequence."""
    with torch.no_grad():
        prediction = model({"tokens": torch.tensor([tokens])})
        return prediction.logits()[0].log_softmax(-1)


def tokens_of(texts: list[list]) -> list[list[list[int]]]:
    return [[text.tokens for text in each] for each in texts]


# --- with models


def test_greedy_is_the_best_token_of_a_whole_pass_each_time(model: Model) -> None:
    texts = generate(model, PROMPTS, GenerationRequest(max_tokens=15))
    for prompt, (text,) in zip(PROMPTS, texts, strict=True):
        read = list(prompt)
        for _ in range(15):
            read.append(int(whole(model, read)[-1].argmax()))
        assert text.tokens == read[len(prompt) :]
        assert text.reason == "length"
    assert len({tuple(text.tokens) for (text,) in texts}) > 1, "a test that could fail"


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_log_probabilities_are_the_models_own(model: Model, policy: Greedy | Sampling) -> None:
    request = GenerationRequest(policy=policy, max_tokens=10, samples=2, alternatives=3)
    for prompt, texts in zip(PROMPTS, generate(model, PROMPTS, request), strict=True):
        for text in texts:
            logs = whole(model, prompt + text.tokens)[len(prompt) - 1 : -1]
            expected = logs.gather(1, torch.tensor(text.tokens)[:, None]).squeeze(1)
            torch.testing.assert_close(torch.tensor(text.log_probabilities), expected, **CLOSE)
            best = logs.topk(3)
            given = torch.tensor(text.alternatives)
            torch.testing.assert_close(given[..., 1], best.values, **CLOSE)
            assert given[..., 0].long().tolist() == best.indices.tolist()


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_text_depends_on_its_seed_alone_and_not_on_batch_mates(
    model: Model, policy: Greedy | Sampling
) -> None:
    together = generate(model, PROMPTS, GenerationRequest(policy=policy, max_tokens=8, samples=3))
    again = generate(model, PROMPTS, GenerationRequest(policy=policy, max_tokens=8, samples=3))
    assert again == together
    few = generate(
        model, PROMPTS, GenerationRequest(policy=policy, max_tokens=8, samples=3, max_rows=4)
    )
    assert few == together
    for number, prompt in enumerate(PROMPTS):
        alone = GenerationRequest(policy=policy, max_tokens=8, samples=1, first=number)
        assert generate(model, [prompt], alone)[0] == together[number][:1]


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_shorter_text_is_the_beginning_of_a_longer_one(policy: Greedy | Sampling) -> None:
    short, long = (
        generate(Hashing(()), PROMPTS, GenerationRequest(policy=policy, max_tokens=most))
        for most in (40, 150)
    )
    for (brief,), (full,) in zip(short, long, strict=True):
        assert full.tokens[:40] == brief.tokens


def test_another_seed_another_text() -> None:
    texts = [
        tokens_of(
            generate(
                Hashing(()), [[1, 2]], GenerationRequest(policy=Sampling(seed=seed), max_tokens=30)
            )
        )
        for seed in range(5)
    ]
    assert len({str(text) for text in texts}) == 5


def test_samples_and_equal_prompts_draw_for_themselves() -> None:
    request = GenerationRequest(policy=Sampling(), max_tokens=30, samples=3)
    texts = tokens_of(generate(Hashing(()), [[1, 2], [1, 2]], request))
    assert len({tuple(text) for each in texts for text in each}) == 6


NEARLY_GREEDY = {
    "top_k=1": Sampling(top_k=1),
    "top_p near 0": Sampling(top_p=1e-9),
    "min_p=1": Sampling(min_p=1.0),
    **{f"temperature={t}": Sampling(temperature=t) for t in (1e-4, 1e-40, 5e-324)},
}


@pytest.mark.parametrize("policy", NEARLY_GREEDY.values(), ids=NEARLY_GREEDY)
def test_sampling_from_the_best_token_alone_is_greedy(model: Model, policy: Sampling) -> None:
    greedy = generate(model, PROMPTS, GenerationRequest(max_tokens=12))
    assert generate(model, PROMPTS, GenerationRequest(policy=policy, max_tokens=12)) == greedy


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_sampling_leaves_training_as_it_was(model: Model, policy: Greedy | Sampling) -> None:
    random = torch.get_rng_state()
    stream = Stream(
        model,
        {"tokens": torch.tensor([[1, 2]])},
        torch.tensor([[1, 2]]),
        GenerationRequest(policy=policy, max_tokens=4),
    )
    for _ in stream:
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()
        prediction = model({"tokens": torch.tensor([[1, 2, 3]])})
        prediction.nll(torch.tensor([[2, 3, 4]])).backward()
    assert torch.equal(torch.get_rng_state(), random)


# --- chances


def chi_square_limit(freedom: int) -> float:
    """What chi-square exceeds once in 10,000 times (Wilson & Hilferty 1931; 3.719 is normal's)."""
    part = 2 / (9 * freedom)
    return freedom * (1 - part + 3.719 * math.sqrt(part)) ** 3


LOGITS = (0.3, 2.0, -math.inf, -1.0, 1.1, 0.0, -0.7, 0.3, -4.0)

CHANCES: dict[str, tuple[Sampling, list[float]]] = {
    "plain": (Sampling(), [math.exp(each) for each in LOGITS]),
    "temperature": (Sampling(temperature=2.0), [math.exp(each / 2) for each in LOGITS]),
    "top_k": (Sampling(top_k=2), [math.exp(each) * (each > 1) for each in LOGITS]),
    "min_p": (Sampling(min_p=0.1), [math.exp(each) * (each > -0.3) for each in LOGITS]),
    # Of 15.5 in all, 2.0 has 7.4, 1.1 has 3.0, each 0.3 has 1.3: the first two have 0.67.
    "top_p": (Sampling(top_p=0.66), [math.exp(each) * (each > 1) for each in LOGITS]),
}


@pytest.mark.parametrize(("policy", "chances"), CHANCES.values(), ids=CHANCES)
def test_tokens_are_drawn_as_often_as_their_chance(policy: Sampling, chances: list[float]) -> None:
    request = GenerationRequest(policy=policy, max_tokens=100, samples=100, max_rows=1000)
    counts: Counter[int] = Counter()
    for texts in generate(Fixed(LOGITS), [[0], [1]], request):
        for text in texts:
            counts.update(text.tokens)
    expected = [20_000 * chance / sum(chances) for chance in chances]
    assert all(not counts[token] for token, count in enumerate(expected) if not count)
    parts = [(counts[token] - n) ** 2 / n for token, n in enumerate(expected) if n]
    assert sum(parts) < chi_square_limit(len(parts) - 1)


@pytest.mark.parametrize("rows", ["prompts", "samples", "steps", "seeds"])
def test_what_is_drawn_in_one_place_says_nothing_of_another(rows: str) -> None:
    """Pairs of neighbours are as frequent as chance has it, in every direction."""
    model = Fixed([0.0, 0.0, 0.0])

    def text(seed: int, prompts: int, samples: int, tokens: int) -> list[int]:
        request = GenerationRequest(policy=Sampling(seed=seed), max_tokens=tokens, samples=samples)
        texts = generate(model, [[0]] * prompts, request)
        return [token for each in texts for one in each for token in one.tokens]

    many = 600
    drawn_there = {
        "prompts": lambda: text(0, many, 1, 1),
        "samples": lambda: text(0, 1, many, 1),
        "steps": lambda: text(0, 1, 1, many),
        "seeds": lambda: [token for seed in range(many) for token in text(seed, 1, 1, 1)],
    }[rows]()
    pairs = Counter(zip(drawn_there[:-1:2], drawn_there[1::2], strict=False))
    n = sum(pairs.values()) / 9
    assert sum((pairs[a, b] - n) ** 2 / n for a in range(3) for b in range(3)) < chi_square_limit(8)


@pytest.mark.parametrize("at", [0.0, 0.5, 1 - 2.0**-53])
def test_a_token_without_a_chance_is_never_drawn(at: float) -> None:
    logits = torch.full((1, 1001), -math.inf)
    logits[0, 500] = torch.randn(())
    assert sample_tokens(logits, torch.tensor([at], dtype=torch.float64)).tolist() == [500]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_logits_of_any_precision_can_be_drawn_from(dtype: torch.dtype) -> None:
    class Other(Hashing):
        def after(self, read: Tensor) -> Tensor:
            return super().after(read).to(dtype)

    request = GenerationRequest(policy=Sampling(top_p=0.9), max_tokens=20, alternatives=2)
    ((text,),) = generate(Other(()), [[1]], request)
    assert len(text.tokens) == 20


# --- ends


def test_rows_that_are_done_leave_and_the_others_go_on() -> None:
    model = Counting(())
    request = GenerationRequest(max_tokens=6, stop={12, 31})
    texts = generate(model, [[10], [20], [30], [7]], request)
    assert tokens_of(texts) == [
        [[11, 12]],
        [[21, 22, 23, 24, 25, 26]],
        [[31]],
        [[8, 9, 10, 11, 12]],
    ]
    assert [text.reason for (text,) in texts] == ["stop", "length", "stop", "stop"]
    assert model.sizes == [4, 3, 2, 2, 2, 1]


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_row_writes_the_same_whenever_the_others_leave(
    model: Model, policy: Greedy | Sampling
) -> None:
    endless = generate(model, PROMPTS, GenerationRequest(policy=policy, max_tokens=12, samples=2))
    stop = {endless[2][0].tokens[2], endless[3][0].tokens[4]}
    ended = generate(
        model, PROMPTS, GenerationRequest(policy=policy, max_tokens=12, samples=2, stop=stop)
    )
    lengths = set()
    for full, text in zip(chain(*endless), chain(*ended), strict=True):
        until = next((n for n, token in enumerate(full.tokens, 1) if token in stop), None)
        assert text.tokens == full.tokens[:until]
        assert text.reason == ("length" if until is None else "stop")
        lengths.add(until)
    assert len(lengths) > 1, "a test that could fail"


def test_a_stop_token_at_the_last_step_is_a_stop() -> None:
    ((text,),) = generate(Counting(()), [[1]], GenerationRequest(max_tokens=2, stop={3}))
    assert (text.tokens, text.reason) == ([2, 3], "stop")


def test_a_row_can_be_sent_away() -> None:
    model = Counting(())
    prompts = torch.tensor([[10], [20], [30]])
    stream = Stream(model, {"tokens": prompts}, prompts, GenerationRequest(max_tokens=3))
    assert next(stream).rows == [SampleId(0), SampleId(1), SampleId(2)]
    stream.leave([SampleId(1)])
    assert next(stream).tokens == [12, 32]
    rest = collect_texts(stream)
    assert {row: text.tokens for row, text in rest.items()} == {
        SampleId(0): [13],
        SampleId(2): [33],
    }
    assert next(stream, None) is None
    assert model.sizes == [3, 2, 2]


def test_a_stream_whose_rows_were_all_sent_away_is_over() -> None:
    model = Counting(())
    prompts = torch.tensor([[10]])
    stream = Stream(model, {"tokens": prompts}, prompts, GenerationRequest(max_tokens=3))
    stream.leave(stream.rows)
    assert list(stream) == []
    assert model.sizes == []


def test_a_model_that_says_how_much_it_reads_is_filled_exactly() -> None:
    texts = generate(Narrow(()), [[1], [1] * 9, [1] * 10], GenerationRequest())
    assert [(len(text.tokens), text.reason) for (text,) in texts] == [
        (10, "length"),
        (2, "length"),
        (1, "length"),
    ]


def test_a_transformer_is_filled_exactly() -> None:
    texts = generate(gpt("rotary"), [[1], [1] * 39, [1] * 40], GenerationRequest(policy=Sampling()))
    assert [len(text.tokens) for (text,) in texts] == [40, 2, 1]


def test_a_prompt_is_read_once_however_many_samples() -> None:
    class Noting(Counting):
        def start(self, source: Batch) -> Read:
            reads.append(len(source["tokens"]))
            return super().start(source)

    reads: list[int] = []
    texts = generate(Noting(()), [[1, 2], [5, 5]], GenerationRequest(max_tokens=2, samples=3))
    assert reads == [2]
    assert tokens_of(texts) == [[[3, 4]] * 3, [[6, 7]] * 3]


def test_no_prompts_no_texts() -> None:
    assert generate(Counting(()), [], GenerationRequest(max_tokens=2)) == []


def test_log_probabilities_are_computed_only_when_asked_for() -> None:
    ((text,),) = generate(Counting(()), [[1]], GenerationRequest(max_tokens=2))
    assert text.log_probabilities is None
    assert text.alternatives is None
    ((text,),) = generate(Counting(()), [[1]], GenerationRequest(max_tokens=2, alternatives=0))
    assert len(text.log_probabilities) == 2
    assert text.alternatives is None
