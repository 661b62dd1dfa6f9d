"""The real openai client: it completes, streams, cancels and gets errors that it understands."""

import openai
import pytest
import torch

from regard.decode import GenerationRequest, Greedy, Sampling
from regard.runs.run import Run
from tests.serve.live import Live, soon


@pytest.fixture
def ai(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)


def alone(
    run: Run, prompt: str, request: GenerationRequest, stops: list[str] | None = None
) -> list[str]:
    """What `regard generate` writes."""
    texts = [""] * request.samples
    for piece in run.generate(prompt, request, stops or []):
        texts[piece.row.sample] += piece.text
    return texts


def test_it_lists_the_runs(ai: openai.OpenAI) -> None:
    assert {each.id for each in ai.models.list()} >= {"gpt", "rnn", "bahdanau"}
    assert ai.models.retrieve("gpt").owned_by == "regard"
    with pytest.raises(openai.NotFoundError, match="did you mean 'gpt'"):
        ai.models.retrieve("gtp")


@pytest.mark.parametrize("name", ["gpt", "rnn"])
def test_completions_are_those_of_the_command_line(
    name: str, ai: openai.OpenAI, opened: dict[str, Run]
) -> None:
    made = ai.completions.create(
        model=name, prompt="to be", max_tokens=20, seed=7, n=3, temperature=0.8, top_p=0.9
    )
    policy = Sampling(seed=7, temperature=0.8, top_p=0.9)
    expected = alone(
        opened[name], "to be", GenerationRequest(policy=policy, max_tokens=20, samples=3)
    )
    assert [choice.text for choice in made.choices] == expected
    assert {choice.finish_reason for choice in made.choices} == {"length"}
    assert made.usage is not None
    assert (made.usage.prompt_tokens, made.usage.completion_tokens) == (5, 60)


def test_a_temperature_of_zero_is_greedy_and_stops_stop(
    ai: openai.OpenAI, opened: dict[str, Run]
) -> None:
    whole = alone(opened["gpt"], "to", GenerationRequest(policy=Greedy(), max_tokens=12))[0]
    made = ai.completions.create(
        model="gpt", prompt="to", max_tokens=12, temperature=0, stop=[whole[4:6], "never there"]
    )
    (choice,) = made.choices
    assert choice.finish_reason == "stop"
    assert choice.text == whole[: whole.index(whole[4:6])]


def test_a_stream_has_the_same_text_in_pieces(ai: openai.OpenAI) -> None:
    asked = {"model": "gpt", "prompt": "or", "max_tokens": 15, "seed": 3, "n": 2}
    whole = ai.completions.create(**asked)
    texts, reasons, chunks = ["", ""], [None, None], 0
    for chunk in ai.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    ):
        chunks += 1
        assert len(chunk.choices) <= 1  # clients read the first one alone
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
        usage = chunk.usage
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == ["length", "length"]
    assert chunks > 2
    assert usage == whole.usage


def test_log_probabilities_are_of_the_tokens_that_were_written(ai: openai.OpenAI) -> None:
    made = ai.completions.create(model="gpt", prompt="th", max_tokens=6, temperature=0, logprobs=2)
    (choice,) = made.choices
    logprobs = choice.logprobs
    assert logprobs is not None
    assert "".join(logprobs.tokens or ()) == choice.text
    assert logprobs.text_offset == [0, 1, 2, 3, 4, 5]
    assert logprobs.token_logprobs is not None
    assert logprobs.top_logprobs is not None
    for token, log, top in zip(
        logprobs.tokens or (), logprobs.token_logprobs, logprobs.top_logprobs, strict=True
    ):
        assert len(top) == 2
        assert max(top, key=lambda each: top[each]) == token
        assert top[token] == pytest.approx(log)
        assert log < 0


def test_several_prompts_and_an_echo(ai: openai.OpenAI) -> None:
    made = ai.completions.create(
        model="rnn", prompt=["to be", "or not to"], max_tokens=3, n=2, echo=True, seed=1
    )
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3]
    begins = ["to be", "to be", "or not to", "or not to"]
    texts = [choice.text for choice in made.choices]
    assert all(text.startswith(begin) for text, begin in zip(texts, begins, strict=True))
    assert {len(text) - len(begin) for text, begin in zip(texts, begins, strict=True)} <= {2, 3}


def test_tokens_are_a_prompt_too(ai: openai.OpenAI, opened: dict[str, Run]) -> None:
    ids = opened["gpt"].task.tokeniser.encode("to be")  # type: ignore[attr-defined]
    asked = {"model": "gpt", "max_tokens": 5, "seed": 2}
    text = ai.completions.create(prompt="to be", **asked).choices[0].text
    assert ai.completions.create(prompt=ids, **asked).choices[0].text == text
    assert ai.completions.create(prompt=[ids], **asked).choices[0].text == text
    with pytest.raises(openai.BadRequestError, match="not in the vocabulary"):
        ai.completions.create(prompt=[10**6], **asked)


def test_a_stream_that_is_closed_is_not_computed_any_more(ai: openai.OpenAI, live: Live) -> None:
    engine = live.server.engine
    stream = ai.completions.create(model="rnn", prompt="to", max_tokens=4000, stream=True)
    next(iter(stream))
    assert engine.writing == 1
    stream.close()
    assert soon(lambda: engine.writing == 0)


WRONG: dict[str, tuple[dict[str, object], str, str | None]] = {
    "too many texts": ({"n": 5}, "n=5 is more than the 4", "n"),
    "too long an answer": ({"max_tokens": 64}, "together they may be 64", "max_tokens"),
    "too long a prompt": ({"prompt": "a" * 65}, "together they may be 64", "prompt"),
    "far too long a prompt": ({"prompt": "a" * 900_000}, "at most 100,000", "prompt"),
    "no prompt": ({"prompt": []}, "prompts were given", "prompt"),
    "too many prompts": ({"prompt": ["a"] * 17}, "17 prompts were given", "prompt"),
    "too many stops": ({"stop": ["a"] * 5}, "at most 4 texts", "stop"),
    "an empty stop": ({"stop": ""}, "at most 4 texts", "stop"),
    "a key nobody knows": ({"extra_body": {"wat": 1}}, "wat", "wat"),
    "a wish that is not granted": ({"presence_penalty": 1.5}, "presence_penalty", None),
    "a run that translates": ({"model": "bahdanau"}, "does not support generation", "model"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_an_error_with_words(name: str, ai: openai.OpenAI) -> None:
    given, words, param = WRONG[name]
    asked: dict[str, object] = {"model": "gpt", "prompt": "to", "max_tokens": 4, **given}
    with pytest.raises(openai.BadRequestError) as caught:
        ai.completions.create(**asked)  # type: ignore[call-overload]
    assert words in caught.value.message
    if param:
        assert caught.value.param == param
    assert caught.value.type == "invalid_request_error"


def test_a_run_that_is_not_trained_says_so(ai: openai.OpenAI) -> None:
    with pytest.raises(openai.ConflictError, match="not trained yet"):
        ai.completions.create(model="new", prompt="to")


def test_an_empty_prompt_is_the_end_of_a_line(ai: openai.OpenAI, opened: dict[str, Run]) -> None:
    text = (
        ai.completions.create(model="gpt", prompt="", max_tokens=8, temperature=0).choices[0].text
    )
    assert [text] == alone(opened["gpt"], "", GenerationRequest(policy=Greedy(), max_tokens=8))


@pytest.mark.parametrize("name", ["gpt", "rnn"])
def test_an_echo_with_log_probabilities_scores_the_prompt(
    name: str, ai: openai.OpenAI, opened: dict[str, Run]
) -> None:
    """As evaluation harnesses request it: no token is written."""
    text = "to be or not"
    made = ai.completions.create(
        model=name, prompt=[text, "be"], max_tokens=0, echo=True, logprobs=2, temperature=0
    )
    first, second = made.choices
    assert (first.text, second.text) == (text, "be")
    assert first.finish_reason == "length"
    assert made.usage is not None
    assert made.usage.completion_tokens == 0
    run, logs = opened[name], first.logprobs
    assert logs is not None
    ids = run.task.tokeniser.encode(text)  # type: ignore[attr-defined]
    assert logs.tokens == list(text)
    assert logs.text_offset == list(range(len(text)))
    assert logs.token_logprobs is not None
    assert logs.token_logprobs[0] is None
    state = run.model.start({"tokens": torch.tensor([ids[:1]])})
    for place in range(1, len(ids)):  # token by token
        logits, state = run.model.step(torch.tensor(ids[place - 1 : place]), state)
        expected = logits[0].log_softmax(-1)
        assert logs.token_logprobs[place] == pytest.approx(expected[ids[place]].item(), abs=1e-4)
        assert logs.top_logprobs is not None
        tops = logs.top_logprobs[place]
        assert max(tops.values()) == pytest.approx(expected.max().item(), abs=1e-4)
        assert len(tops) == 2


def test_an_echo_goes_on_with_what_is_written(ai: openai.OpenAI) -> None:
    asked = {"model": "gpt", "prompt": "to be", "max_tokens": 3, "temperature": 0, "logprobs": 1}
    plain = ai.completions.create(**asked).choices[0]
    echo = ai.completions.create(**asked, echo=True).choices[0]
    assert echo.text == "to be" + plain.text
    assert echo.logprobs is not None
    assert plain.logprobs is not None
    assert echo.logprobs.tokens[5:] == plain.logprobs.tokens
    assert echo.logprobs.token_logprobs[5:] == plain.logprobs.token_logprobs
    assert echo.logprobs.text_offset == list(range(len(echo.logprobs.tokens)))
    stream = ai.completions.create(**{**asked, "max_tokens": 0}, echo=True, stream=True)
    assert "".join(choice.text for chunk in stream for choice in chunk.choices) == "to be"
    alone = ai.completions.create(**{**asked, "max_tokens": 0, "logprobs": None}).choices[0]
    assert (alone.text, alone.finish_reason, alone.logprobs) == ("", "length", None)


def test_every_route_of_openai_has_its_errors(ai: openai.OpenAI, live: Live) -> None:
    with pytest.raises(openai.NotFoundError, match="did you mean"):
        ai.completions.create(model="gtp", prompt="to")
    with pytest.raises(openai.NotFoundError, match="did you mean"):
        ai.embeddings.create(model="gtp", input="to")
    with pytest.raises(openai.BadRequestError, match="vectors of sentences are those of a bert"):
        ai.embeddings.create(model="gpt", input="to")
    with pytest.raises(openai.BadRequestError, match="0 texts were given"):
        ai.embeddings.create(model="gpt", input=[])
    with pytest.raises(openai.ConflictError, match="not trained yet"):
        ai.embeddings.create(model="new", input="to")
    with pytest.raises(openai.NotFoundError, match="POST /v1/embeddings"):
        ai.chat.completions.create(model="gpt", messages=[{"role": "user", "content": "to"}])
