"""Attention of a task's model: each site gets its labels by the names of its axes."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.attention import Attend, Location, ScaledDot, record
from regard.core.axes import Axis, Frames, Sentences, as_axis
from regard.core.errors import UserError
from regard.core.inputs import Input, Text
from regard.decode.beam import Beam
from regard.inference.attention import attention_of, to_the_source
from regard.look import Payload
from regard.models.language.attention_rnn_lm import AttentionRNNLM
from regard.models.language.lstmn import LSTMN
from regard.models.language.neural_cache import NeuralCache
from regard.models.language.pointer_lm import PointerLM
from regard.models.language.rnn_lm import RNNLM
from regard.models.text.han import HAN
from regard.models.translation.transformer import Transformer
from regard.tasks.abilities import Reading, Translates

LETTERS = "abcdef"


@dataclass(frozen=True)
class Toy:
    """A task that does nothing but read."""

    axes: dict[str, Axis]
    run: Callable[[nn.Module], object]
    rows: tuple[int, ...] = ()
    takes: tuple[type[Input], ...] = field(default=(Text,))

    def parse(self, line: str, where: str) -> Input:
        """The line as it is."""
        return Text(line)

    def read(self, model: nn.Module, given: Input) -> Reading:
        """One pass of the model."""
        with torch.no_grad():
            self.run(model)
        return Reading(axes=self.axes, rows=self.rows)


class Recogniser(nn.Module):
    """Frames attend to frames, tokens to tokens, tokens to frames."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = Attend(ScaledDot(4), axes=("frame", "frame"))
        self.output = Attend(ScaledDot(4), axes=("target", "prefix"))
        self.cross = Attend(ScaledDot(4), kind="alignment", axes=("target", "frame"))

    def forward(self, frames: Tensor, tokens: Tensor) -> Tensor:
        """What the tokens read."""
        own = self.heard(frames, self.heard.remember(frames, frames))
        asked = self.output(tokens, self.output.remember(tokens, tokens))
        read: Tensor = self.cross(asked, self.cross.remember(own, own))
        return read


def test_as_many_frames_as_tokens_get_the_right_labels_on_each_axis() -> None:
    count = len(LETTERS)
    frames, tokens = Frames.regular(count, 0.1), as_axis(LETTERS)
    model = Recogniser()
    states = torch.randn(2, 1, 1, count, 4)
    task = Toy({"frame": frames, "target": tokens}, lambda model: model(*states))
    every = {each.site: each for each in attention_of(task, model, Text("x"), "*")}
    assert (every["heard"].queries, every["heard"].keys) == (frames, frames)
    assert (every["cross"].queries, every["cross"].keys) == (tokens, frames)
    assert every["output"].queries == tokens
    assert every["output"].keys.labels == ("<s>", *LETTERS[:-1])
    default = attention_of(task, model, Text("x"))
    assert {each.site for each in default} == set(every), "without a glob: all that is recorded"
    assert default[0].site == "cross", "from the output to the source first"
    (drawn,) = to_the_source(default)
    assert drawn.site == "cross"


def test_an_axis_without_labels_is_named() -> None:
    states = torch.randn(2, 1, 1, 3, 4)
    task = Toy({"target": as_axis("abc")}, lambda model: model(*states))
    with pytest.raises(UserError, match=r"'cross' attends over 'frame', .* only for target"):
        attention_of(task, Recogniser(), Text("x"), "cross")


@pytest.mark.usefixtures("as_users_run_it")
def test_nothing_and_too_much_are_refused_before_the_model_runs() -> None:
    task = Toy({}, lambda model: pytest.fail("it ran"))
    with pytest.raises(UserError, match="the text is empty"):
        attention_of(task, Recogniser(), Text("  "))
    with pytest.raises(UserError, match="at most 20,000 are allowed"):
        attention_of(task, Recogniser(), Text("x" * 20_001))


def small(kind: type, **more: object) -> nn.Module:
    model: nn.Module = kind(kind.Config(width=8, **more), vocabulary=10)  # type: ignore[attr-defined]
    return model.eval()


def read_letters(model: nn.Module, sites: str | None = None) -> tuple[Payload, ...]:
    """What a language model attends to in six letters."""
    tokens = torch.arange(len(LETTERS))[None]
    task = Toy({"position": as_axis(LETTERS)}, lambda model: model({"tokens": tokens}, None))
    return attention_of(task, model, Text(LETTERS), sites)


def recorded(model: nn.Module) -> list[Tensor]:
    """The weights of each call, head by head alike."""
    with torch.no_grad(), record(model) as tape:
        model({"tokens": torch.arange(len(LETTERS))[None]}, None)
    return [call.weights[0, 0] for call in tape]


def test_a_pointer_has_its_sentinel_before_the_words() -> None:
    model = small(PointerLM, memory=3)
    (payload,) = read_letters(model)
    assert payload.queries.labels == tuple(LETTERS)
    assert payload.keys.labels == ("<sentinel>", *LETTERS)
    assert payload.axes == ("position", "sentinel")
    np.testing.assert_array_equal(payload.matrix, recorded(model)[0].numpy())
    shown = [
        [label for label, w in zip(payload.keys, row, strict=True) if w] for row in payload.matrix
    ]
    assert shown[0] == ["<sentinel>", "a"], "the first word, and no word that is to come"
    assert shown[4] == ["<sentinel>", "c", "d", "e"]


def test_a_cache_has_the_word_that_followed_each_state() -> None:
    source = RNNLM(RNNLM.Config(width=8, layers=1), vocabulary=10)
    config = NeuralCache.Config(source="", size=2)
    (payload,) = read_letters(NeuralCache(config, 10, source=source).eval())
    assert payload.keys.labels == tuple(LETTERS[1:])
    shown = [
        [label for label, w in zip(payload.keys, row, strict=True) if w] for row in payload.matrix
    ]
    assert shown == [[], ["b"], ["b", "c"], ["c", "d"], ["d", "e"], ["e", "f"]]


@pytest.mark.parametrize("tape", [2, 35])
def test_the_tape_of_an_lstmn_moves_along_the_words(tape: int) -> None:
    model = small(LSTMN, tape=tape)
    (payload,) = read_letters(model)
    check_moving(payload, recorded(model), tape)


@pytest.mark.parametrize("memory", [2, 35])
@pytest.mark.parametrize("score", ["location", "additive", "coverage"])
def test_the_memory_of_an_rnn_moves_along_the_words(score: str, memory: int) -> None:
    model = small(AttentionRNNLM, layers=1, memory=memory, score=score)
    (payload,) = read_letters(model)
    if isinstance(model.attend.score, Location):  # type: ignore[union-attr]
        check_moving(payload, recorded(model), memory)
    for query, row in zip(payload.queries, payload.matrix, strict=True):
        place = LETTERS.index(query)
        attended = [label for label, weight in zip(payload.keys, row, strict=True) if weight]
        assert attended == [*LETTERS[max(0, place - memory) : place]]


def check_moving(payload: Payload, steps: list[Tensor], memory: int) -> None:
    """Each step has the weights it was recorded with, at the letters right before it."""
    assert payload.queries.labels == tuple(LETTERS[1:])
    assert payload.keys.labels == tuple(LETTERS[:-1])
    for place, (row, step) in enumerate(zip(payload.matrix, steps, strict=True), start=1):
        expected = np.zeros(len(LETTERS) - 1, dtype=np.float32)
        expected[max(0, place - memory) : place] = step[0].numpy()
        np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize("parts", [(0, 0, 1, 1), (0, 1, 2, 3), (0, 0, 0, 0)])
def test_words_are_attended_by_sentences_and_sentences_by_the_document(
    parts: tuple[int, ...],
) -> None:
    """Also where there are as many sentences as words, or one sentence."""
    model = HAN(HAN.Config(width=6, hidden=4, attention=4), 10, 2).eval()
    count = max(parts) + 1
    words = as_axis("wxyz")
    sentences = Sentences(labels=tuple(f"sentence {at}" for at in range(count)))
    whole = Sentences(labels=("good 0.9",))
    batch = {
        "tokens": torch.tensor([[4, 5, 6, 7]]),
        "lengths": torch.tensor([4]),
        "parts": torch.tensor([parts]),
    }
    axes = {"position": words, "sentence": sentences, "text": whole}
    found = attention_of(Toy(axes, lambda model: model(batch)), model, Text("x"))
    assert [(each.queries, each.keys) for each in found] == [
        (sentences, words),
        (whole, sentences),
    ]


def test_a_translator_has_source_target_and_prefix() -> None:
    model = Transformer(
        Transformer.Config(width=8, heads=2, encoder_layers=1, decoder_layers=1), 10, 10
    ).eval()
    source = {"source": torch.tensor([[4, 5, 6]]), "source_lengths": torch.tensor([3])}
    tokens = torch.tensor([[2, 7, 8]])

    def steps(model: nn.Module) -> None:
        state = model.start(source)  # type: ignore[operator]
        for each in tokens[0]:
            _, state = model.step(each[None], state)  # type: ignore[operator]

    axes: dict[str, Axis] = {"source": as_axis("uvw"), "target": as_axis("xyz")}
    task = Toy(axes, steps, rows=(0, 0, 0))
    found = {each.site: each for each in attention_of(task, model, Text("x"), "*")}
    labels = {site: (each.queries.labels, each.keys.labels) for site, each in found.items()}
    assert labels == {
        "encoder.0.attention": (("u", "v", "w"), ("u", "v", "w")),
        "decoder.0.attention": (("x", "y", "z"), ("<s>", "x", "y")),
        "decoder.0.cross": (("x", "y", "z"), ("u", "v", "w")),
    }
    with torch.no_grad(), record(model) as tape:
        model({**source, "tokens": tokens})
    for site, payload in found.items():
        np.testing.assert_allclose(payload.weights, tape.weights(site)[0].numpy(), atol=1e-6)


@dataclass(frozen=True)
class ToySearch(Toy):
    """A translator whose search has a coverage penalty."""

    beam: Beam = field(default=Beam(width=2, coverage=0.2))
    search_batch: int = 1

    def length(self, given: Input) -> int:
        """Of no use here."""
        raise NotImplementedError

    translate = pieces = source_axis = length

    def read(
        self,
        model: nn.Module,
        given: Input,
        weights: Callable[[object], Tensor] | None = None,
    ) -> Reading:
        """Steps, after each of which the search needs its attention weights."""
        assert weights is not None
        with torch.no_grad():
            for _ in range(3):
                self.run(model)
                LAST.append(weights(None))
        return Reading(axes=self.axes, rows=(0, 0, 0))


LAST: list[Tensor] = []


def test_a_search_with_coverage_gets_the_attention_of_each_step() -> None:
    LAST.clear()
    source = torch.randn(1, 1, 5, 4)
    axes: dict[str, Axis] = {"frame": Frames.regular(5, 0.1), "target": as_axis("xyz")}
    task = ToySearch(axes, lambda model: model(source, torch.randn(1, 1, 1, 4)))
    assert isinstance(task, Translates)
    (payload,) = attention_of(task, Recogniser(), Text("x"), "cross")
    np.testing.assert_array_equal(payload.matrix, torch.cat(LAST).numpy())
