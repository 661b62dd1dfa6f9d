"""Continuous batching: what a text becomes does not depend on who comes and goes beside it."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.core.config import parse
from regard.core.errors import UserError
from regard.decode import ContinuousBatch, GenerationRequest, Greedy, Sampling, Writer, stream_text
from regard.models import MODELS

V = 12
MODEL: dict[str, tuple[str, dict[str, object]]] = {
    "gpt": ("gpt", {"width": 16, "heads": 2, "layers": 2, "context": 24}),
    "rnn_lm": ("rnn_lm", {"width": 8}),
    "one that cannot join": ("lstmn", {"width": 8, "layers": 1, "tape": 4}),
}
POLICIES = [
    Greedy(),
    Greedy(repetition_penalty=1.5),
    Sampling(seed=3),
    Sampling(seed=4, temperature=0.7, top_k=5),
    Sampling(seed=5, repetition_penalty=1.3),
]


class Letters:
    """Every token is a letter."""

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(ord("a") + each) for each in ids)


def built(name: str) -> nn.Module:
    torch.manual_seed(1)
    kind, given = MODEL[name]
    return MODELS[kind](parse(MODELS[kind].Config, given), vocabulary=V).eval()


def asked(draw: random.Random) -> tuple[list[int], GenerationRequest, list[str]]:
    """A request unlike the others in everything."""
    prompt = [draw.randrange(V) for _ in range(draw.randint(1, 6))]
    request = GenerationRequest(
        policy=draw.choice(POLICIES),
        max_tokens=draw.randint(1, 15),
        samples=draw.randint(1, 3),
        stop={V - 1},
        alternatives=draw.choice([None, 0, 2]),
    )
    return prompt, request, draw.choice([[], ["ab", "cc"]])


Told = dict[int, tuple[str, str | None, list[float | None]]]


def alone(
    model: nn.Module, prompt: list[int], request: GenerationRequest, stops: list[str]
) -> Told:
    """For each sample its text, why it ended and its log-probabilities."""
    return told(list(stream_text(model, [prompt], Letters(), request, stops=stops)))


def told(pieces: list) -> Told:
    found: Told = {}
    for piece in pieces:
        text, _, logs = found.get(piece.row.sample, ("", None, []))
        logs = [*logs, piece.log_probability]
        found[piece.row.sample] = (text + piece.text, piece.reason, logs)
    return found


@pytest.mark.parametrize("name", MODEL)
def test_texts_are_what_they_are_alone_whoever_comes_and_goes(name: str) -> None:
    model, draw = built(name), random.Random(name)
    requests = [asked(draw) for _ in range(12)]
    batch = ContinuousBatch(model, Letters())
    owner: dict[Writer, int] = {}
    pieces: dict[int, list] = {number: [] for number in range(len(requests))}
    coming = list(range(len(requests)))
    while coming or len(batch):
        while coming and draw.random() < 0.5:
            number = coming.pop()
            owner.update((writer, number) for writer in batch.join(*requests[number]))
        for writer, piece in batch.step():
            pieces[owner[writer]].append(piece)
    for number, request in enumerate(requests):
        expected = alone(model, *request)
        found = told(pieces[number])
        assert found.keys() == expected.keys()
        for sample, (text, reason, logs) in expected.items():
            assert found[sample][:2] == (text, reason)
            if request[1].alternatives is not None:
                assert found[sample][2] == pytest.approx(logs, abs=1e-4)


def test_nothing_is_computed_for_those_who_left() -> None:
    model, sizes = built("gpt"), []
    step: Callable = model.step

    def counted(tokens: Tensor, state: object) -> object:
        sizes.append(len(tokens))
        return step(tokens, state)

    model.step = counted  # type: ignore[method-assign]
    batch = ContinuousBatch(model, Letters())
    (stays,) = batch.join([1], GenerationRequest(max_tokens=9))
    leaving = batch.join([1, 2], GenerationRequest(max_tokens=9, samples=3))
    never = batch.join([1, 2, 3], GenerationRequest(max_tokens=9))
    batch.leave(never)
    assert len(batch) == 4
    assert len(batch.step()) == 4
    assert sizes == [1, 3]  # of one token nothing is read before the first step
    batch.leave([*leaving[:2], *never])
    batch.step()
    assert sizes[2:] == [2]
    late = batch.join([1, 2, 3], GenerationRequest(max_tokens=1, samples=2))
    batch.leave(late[:1])
    batch.join([4, 5], GenerationRequest(max_tokens=1))
    batch.step()
    assert sizes[3:] == [4]  # whoever has read something is joined at once
    batch.leave(leaving)
    assert [writer for writer, _ in batch.step()] == [stays]
    batch.leave([stays])
    assert batch.step() == []
    assert len(batch) == 0


def test_a_text_without_finite_logits_ends_without_a_piece_and_the_others_go_on() -> None:
    class Torn:
        """A model that breaks after the letter b."""

        def select(self, rows: Tensor) -> "Torn":
            return self

        def start(self, source: object) -> "Torn":
            return self

        def join(self, states: object) -> "Torn":
            return self

        def step(self, tokens: Tensor, state: object) -> tuple[Tensor, "Torn"]:
            logits = torch.eye(V)[(tokens + 1) % V]
            logits[tokens == 1] = torch.nan
            return logits, self

    batch = ContinuousBatch(Torn(), Letters())
    (broken,) = batch.join([0], GenerationRequest(max_tokens=9))
    (whole,) = batch.join([5], GenerationRequest(max_tokens=3))
    assert {writer for writer, _ in batch.step()} == {broken, whole}
    assert batch.failed == []
    assert {writer for writer, _ in batch.step()} == {whole}
    assert batch.failed == [broken]
    assert len(batch) == 1
    assert [piece.reason for _, piece in batch.step()] == ["length"]


def test_what_does_not_fit_is_refused_before_it_joins(as_users_run_it: None) -> None:
    batch = ContinuousBatch(built("gpt"), Letters())
    with pytest.raises(UserError, match="the prompt has 25 tokens, but the context only 24"):
        batch.join([1] * 25, GenerationRequest())
    assert len(batch) == 0
