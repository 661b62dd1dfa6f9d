"""Text as it comes: all pieces together are the text of all tokens, up to the stop string."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models
from torch import Tensor

from regard.data.text.tokeniser import TOKENISERS, Tokeniser, train_tokeniser
from regard.decode import (
    GenerationRequest,
    Greedy,
    IncrementalText,
    Sampling,
    TokenDecoder,
    stream_text,
)
from regard.decode.text_stream import REPLACEMENT_CHARACTER
from tests.decode.fakes import Counting, Fixed, Hashing

LINES = ["the cat sat on the mat", "Ünïcödé 語 🙂🙂 it's 42", "a the <unk> 語語", "ab abc cab"]


def blank_first() -> Tokenizer:
    """As sentencepiece writes: a blank begins each word, and the first one is not shown."""
    words = ["▁the", "▁cat", "s", "▁", "語", "▁a", "b"]
    pipeline = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="s"))
    pipeline.decoder = decoders.Metaspace()
    return pipeline


DECODERS: dict[str, Tokeniser] = {
    **{kind: train_tokeniser(kind, LINES) for kind in TOKENISERS},
    "blank first": Tokeniser(blank_first()),
}
# Few letters, so that stop strings begin, fail and overlap.
STOPS = st.lists(
    st.text("ab c\n", min_size=1, max_size=4)
    | st.sampled_from(["語", "🙂a", REPLACEMENT_CHARACTER, "the cat"]),
    max_size=3,
)


# Any tokens, and those of text, so that whole characters and words come up too.
PARTS = st.lists(
    st.sampled_from(["the ", "cat", "語", "🙂", "ab", "c", "\n"]) | st.integers(0, 10**6),
    max_size=60,
)


def ids_of(decoder: Tokeniser, parts: list[str | int]) -> list[int]:
    tokens = ([p % decoder.vocabulary] if isinstance(p, int) else decoder.encode(p) for p in parts)
    return [token for each in tokens for token in each]


def cut(text: str, stops: Sequence[str]) -> str:
    """Up to the stop string that is complete first; of two that end together, the longer."""
    for end in range(1, len(text) + 1):
        sizes = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if sizes:
            return text[: end - max(sizes)]
    return text


def pieces_of(pieces: IncrementalText, ids: Sequence[int]) -> list[str]:
    return [*(pieces.push(token) for token in ids), pieces.end()]


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
@given(parts=PARTS, stops=STOPS)
@example(parts=["the ", *[0] * 40, "cat"], stops=[])  # padding shows nothing, but blanks go on
@example(
    parts=["mat"], stops=["mat", "a"]
)  # both are complete with one token, one before the other
def test_pieces_together_are_the_text_up_to_the_stop_string(
    decoder: Tokeniser, parts: list[str | int], stops: list[str]
) -> None:
    ids = ids_of(decoder, parts)
    pieces = IncrementalText(decoder, stops=stops)
    whole = decoder.decode(ids)
    assert "".join(pieces_of(pieces, ids)) == cut(whole, stops)
    assert pieces.stopped == (cut(whole, stops) != whole)


@pytest.mark.parametrize("decoder", DECODERS.values(), ids=DECODERS)
@given(before=st.sampled_from(["the cat", "a", "語 語\n", "ab " * 20]), parts=PARTS)
def test_pieces_after_a_prompt_go_on_where_its_text_ends(
    decoder: Tokeniser, before: str, parts: list[str | int]
) -> None:
    prompt, ids = decoder.encode(before), ids_of(decoder, parts)
    text = "".join(pieces_of(IncrementalText(decoder, after=prompt), ids))
    assert decoder.decode(prompt) + text == decoder.decode(prompt + ids)


@pytest.mark.parametrize("kind", ["byte", "bpe"])
@given(text=st.text(st.sampled_from("aé語🙂\u0301"), max_size=30))
@example(text="🙂" * 30)
def test_no_piece_has_half_a_character_and_each_comes_as_soon_as_it_can(
    kind: str, text: str
) -> None:
    decoder = DECODERS[kind]
    ids = decoder.encode(text)
    pieces, given_out = IncrementalText(decoder), ""
    for count, token in enumerate(ids, start=1):
        given_out += pieces.push(token)
        assert given_out == decoder.decode(ids[:count]).rstrip(REPLACEMENT_CHARACTER)
    assert pieces.end() == ""


@given(text=st.text("ab", max_size=40), stops=STOPS)
def test_only_what_may_become_a_stop_string_is_held_back(text: str, stops: list[str]) -> None:
    decoder = DECODERS["byte"]
    pieces, given_out, seen = IncrementalText(decoder, stops=stops), "", ""
    for letter, token in zip(text, decoder.encode(text), strict=True):
        given_out, seen = given_out + pieces.push(token), seen + letter
        if pieces.stopped:
            break
        held = seen[len(given_out) :]
        assert not held or any(stop.startswith(held) for stop in stops)
        longer = range(len(given_out))
        assert not any(stop.startswith(seen[at:]) for at in longer for stop in stops)


def test_bytes_that_never_become_a_character_are_shown() -> None:
    decoder = DECODERS["byte"]
    wrong = [decoder.encode("é")[0]] * 40
    out = pieces_of(IncrementalText(decoder), wrong)
    assert "".join(out) == REPLACEMENT_CHARACTER * 40
    assert len("".join(out[:20])) >= 16, "not all at the end"


def test_a_token_costs_the_same_late_in_a_text() -> None:
    """No piece is made from many more tokens than the newest few."""

    class Noting:
        longest = 0

        def decode(self, ids: Sequence[int], /) -> str:
            self.longest = max(self.longest, len(ids))
            return DECODERS["bpe"].decode(ids)

    noting = Noting()
    ids = DECODERS["bpe"].encode("the cat sat on the 語 mat\n" * 50)
    assert "".join(pieces_of(IncrementalText(noting), ids)) == DECODERS["bpe"].decode(ids)
    assert noting.longest < 50


# --- with a model


class Letters:
    """Code points as tokens."""

    def decode(self, ids: Sequence[int], /) -> str:
        return "".join(chr(each) for each in ids)


def read(
    decoder: TokenDecoder,
    model: Fixed,
    prompts: list[list[int]],
    request: GenerationRequest,
    **more,
):
    """Text, tokens and reason of every row."""
    texts: dict = {}
    for piece in stream_text(model, prompts, decoder, request, **more):
        text, tokens, reason = texts.get(piece.row, ("", [], None))
        assert reason is None, "nothing comes after the end"
        texts[piece.row] = (text + piece.text, [*tokens, piece.token], piece.reason)
    return texts


def test_a_stop_string_ends_a_row_and_the_others_go_on() -> None:
    model = Counting((), vocabulary=128)
    request = GenerationRequest(max_tokens=8)
    texts = read(Letters(), model, [[ord("a")], [ord("A")]], request, stops=["de", "z"])
    assert list(texts.values()) == [
        ("bc", [*b"bcde"], "stop"),
        ("BCDEFGHI", [*b"BCDEFGHI"], "length"),
    ]
    assert model.sizes == [2, 2, 2, 2, 1, 1, 1, 1]


def test_a_stop_token_is_no_text_but_lets_out_what_was_held_back() -> None:
    request = GenerationRequest(max_tokens=8, stop={ord("e")})
    model = Counting((), vocabulary=128)
    texts = read(Letters(), model, [[ord("a")]], request, stops=["cdx"])
    assert list(texts.values()) == [("bcd", [*b"bcde"], "stop")]


def test_the_longest_text_lets_out_what_was_held_back() -> None:
    model = Counting((), vocabulary=128)
    texts = read(Letters(), model, [[ord("a")]], GenerationRequest(max_tokens=3), stops=["cdx"])
    assert list(texts.values()) == [("bcd", [*b"bcd"], "length")]


@pytest.mark.parametrize("policy", [Greedy(), Sampling(seed=3)])
@pytest.mark.parametrize("stops", [[], ["e"], ["語", "a "]])
def test_streamed_text_is_the_text_of_the_streamed_tokens(
    policy: Greedy | Sampling, stops: list[str]
) -> None:
    decoder = DECODERS["byte"]
    prompts = [decoder.encode(text) for text in ("the", "cat sat", "語", "mat")]
    model = Hashing((), vocabulary=decoder.vocabulary)
    request = GenerationRequest(
        policy=policy, max_tokens=60, samples=2, first=7, stop={decoder.eos}
    )
    texts = read(decoder, model, prompts, request, stops=stops)
    assert len(texts) == 8
    for row, (text, tokens, reason) in texts.items():
        prompt = prompts[row.prompt - 7]
        whole = decoder.decode(prompt + tokens)[len(decoder.decode(prompt)) :]
        assert text == cut(whole, stops)
        ended = text != whole or tokens[-1] == decoder.eos
        assert reason == ("stop" if ended else "length")


def test_pieces_carry_the_log_probabilities_of_their_tokens() -> None:
    model = Counting((), vocabulary=128)
    request = GenerationRequest(max_tokens=2, alternatives=2)
    pieces = list(stream_text(model, [[ord("a")]], Letters(), request))
    logs = torch.nn.functional.one_hot(torch.tensor(5), 128).float().log_softmax(-1)
    for piece in pieces:
        assert piece.log_probability == pytest.approx(logs[5].item())
        assert piece.alternatives is not None
        assert piece.alternatives[0] == (piece.token, piece.log_probability)
        assert piece.alternatives[1][1] == pytest.approx(logs[0].item())


def test_text_can_be_left_off_at_any_time() -> None:
    class Endless(Counting):
        def after(self, read: Tensor) -> Tensor:
            return torch.nn.functional.one_hot(read[:, -1], 128).float()

    stream = stream_text(Endless(()), [[ord("a")]], Letters(), GenerationRequest(max_tokens=10**6))
    assert [next(stream).text for _ in range(3)] == ["a", "a", "a"]
