"""A completion ends with the token that ends a document, if its recipe stops there."""

from dataclasses import dataclass, replace

import httpx
import pytest
import torch
from torch import Tensor, nn

from regard.core.protocols import Batch
from regard.inference.predict import served
from regard.runs.run import Run
from regard.serve import Served
from regard.tasks.language_model import LanguageModelling
from tests.serve.conftest import Start


@dataclass(frozen=True)
class Count:
    """How many tokens each row has written."""

    written: Tensor

    def select(self, rows: Tensor) -> "Count":
        return Count(self.written[rows])


class EndsAfter(nn.Module):
    """Writes one token three times, the end token, and the first one again."""

    def __init__(self, vocabulary: int, token: int, end: int) -> None:
        super().__init__()
        self.vocabulary, self.token, self.end = vocabulary, token, end
        self.scale = nn.Parameter(torch.ones(()))

    def start(self, source: Batch) -> Count:
        return Count(torch.zeros(len(source["tokens"]), dtype=torch.int64))

    def step(self, tokens: Tensor, state: Count) -> tuple[Tensor, Count]:
        chosen = torch.where(state.written == 3, self.end, self.token)
        logits = 20.0 * nn.functional.one_hot(chosen, self.vocabulary) * self.scale
        return logits, Count(state.written + 1)


def with_end(run: Run, stop_at_end: bool) -> Served:
    """The run with a model that writes an end."""
    task = run.task
    assert isinstance(task, LanguageModelling)
    words = task.tokeniser
    (token,) = words.encode("b")
    return replace(
        served(run),
        opened=replace(task, data=task.data.model_copy(update={"stop_at_end": stop_at_end})),
        model=EndsAfter(words.vocabulary, token, words.eos).eval(),
    )


@pytest.mark.parametrize("stop_at_end", [True, False])
def test_nothing_is_written_after_the_end_token(
    stop_at_end: bool, opened: dict[str, Run], start: Start
) -> None:
    live = start(other=with_end(opened["gpt"], stop_at_end))
    asked = {"model": "gpt", "prompt": "to", "max_tokens": 9, "temperature": 0, "n": 2}
    answer = httpx.post(f"{live.url}/v1/completions", json=asked).json()
    for choice in answer["choices"]:
        assert choice["text"].count("b") == (3 if stop_at_end else 8)
        assert choice["finish_reason"] == ("stop" if stop_at_end else "length")
    assert answer["usage"]["completion_tokens"] == 2 * (4 if stop_at_end else 9)
