"""From recorded calls to payloads: whole batches, steps of a decoder, hypotheses of a beam."""

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from regard.attention import START, Attend, Call, ScaledDot, Tape, causal, padding, record
from regard.attention.tape import KINDS, AxisPair
from regard.core.axes import Frames, Slots, Steps, as_axis
from regard.core.errors import UserError
from regard.layers import SelfAttention
from regard.look import Payload, ancestry, follow_hypothesis, join_steps, on_axes, payloads

SOURCE, TARGET = ("un", "chat", "noir"), ("a", "black", "cat", ".")


def call(
    weights: Tensor,
    rows: Sequence[int] = (),
    site: str = "cross",
    kind: str = "cross",
    axes: AxisPair | None = None,
) -> Call:
    heads = tuple(range(weights.shape[1]))
    places = tuple(rows) or tuple(range(weights.shape[2]))
    return Call(
        site=site,
        kind=kind,
        weights=weights,
        heads=heads,
        rows=places,
        axes=KINDS[kind] if axes is None else axes,
    )


def tape_of(*calls: Call, rows: tuple[int, ...] | None = None) -> Tape:
    tape = Tape(tuple({each.site for each in calls}), None, rows)
    for each in calls:
        tape.add(each)
    return tape


def random_weights(*shape: int) -> Tensor:
    return torch.randn(shape).softmax(-1)


def test_a_recorded_batch_gives_each_row_its_own_words_and_no_padding() -> None:
    layer = SelfAttention(8, heads=2)
    texts = [("a", "b", "c", "d"), ("e", "f")]
    real = padding(torch.tensor([4, 2]))
    with record(layer) as tape:
        layer(torch.randn(2, 4, 8), real)
    for row, words in enumerate(texts):
        (payload,) = payloads(tape, {"*": (words, words)}, row=row)
        kept = tape.weights("attend")[row, :, : len(words), : len(words)]
        assert torch.equal(torch.from_numpy(payload.weights.copy()), kept)
        assert (payload.queries.labels, payload.keys.labels) == (words, words)
        assert (payload.site, payload.kind, payload.heads) == ("attend", "self", (0, 1))
        assert payload.step is None


def test_chosen_heads_and_rows_keep_their_numbers_and_their_words() -> None:
    layer = SelfAttention(8, heads=4)
    with record(layer, heads=[2], rows=[-1, 1]) as tape:
        layer(torch.randn(1, 4, 8), causal())
    (payload,) = payloads(tape, {"*": (TARGET, TARGET)})
    assert payload.heads == (2,)
    assert payload.queries.labels == (".", "black")


def test_joined_steps_are_what_the_whole_sequence_gives() -> None:
    attend = Attend(ScaledDot(4), kind="self")
    x = torch.randn(2, 2, 4, 4)
    whole = attend.remember(x, x)
    with record(attend) as tape:
        attend(x, whole, causal())
    (at_once,) = payloads(tape, {"*": (TARGET, TARGET)}, row=1)
    with record(attend) as tape:
        past = START
        for t in range(4):
            seen = attend.remember(x[:, :, : t + 1], x[:, :, : t + 1])
            _, past = attend.step(x[:, :, t : t + 1], seen, causal(), past)
    (steps,) = join_steps(tape, {"*": (TARGET, TARGET)}, row=1)
    assert steps.weights == pytest.approx(at_once.weights, abs=1e-6)
    assert steps.queries.labels == TARGET
    singles = payloads(tape, {"*": (TARGET, TARGET)}, row=1)
    assert [(each.step, each.queries.labels, each.keys.labels) for each in singles] == [
        (t, (TARGET[t],), TARGET[: t + 1]) for t in range(4)
    ]


def test_steps_that_all_call_themselves_the_first_are_counted_on() -> None:
    steps = [random_weights(2, 1, 1, 3) for _ in TARGET]
    tape = tape_of(*(call(weights) for weights in steps))
    (payload,) = join_steps(tape, {"cross": (TARGET, SOURCE)})
    assert payload.queries.labels == TARGET
    assert payload.matrix.tolist() == [step[0, 0, 0].tolist() for step in steps]
    assert [each.queries.labels for each in payloads(tape, {"cross": (TARGET, SOURCE)})] == [
        (word,) for word in TARGET
    ]


def test_steps_after_a_sentence_has_ended_are_left_out() -> None:
    tape = tape_of(*(call(random_weights(2, 1, 1, 3)) for _ in range(6)))
    (payload,) = join_steps(tape, {"*": (TARGET, SOURCE)})
    assert payload.matrix.shape == (4, 3)


def test_labels_go_to_the_sites_their_glob_names_and_the_last_glob_counts() -> None:
    tape = tape_of(
        call(random_weights(1, 1, 3, 3), site="encoder.0", kind="self"),
        call(random_weights(1, 1, 4, 3), site="decoder.0.cross"),
        call(random_weights(1, 1, 4, 4), site="decoder.0.self", kind="self"),
    )
    found = payloads(tape, {"decoder.*": (TARGET, TARGET), "*.cross": (TARGET, SOURCE)})
    assert [(each.site, each.keys.labels) for each in found] == [
        ("decoder.0.cross", SOURCE),
        ("decoder.0.self", TARGET),
    ]


def literally_followed(steps: list[Tensor], rows: list[int]) -> list[list[list[float]]]:
    """Row by row, head by head, with the layouts spelled out."""
    keys = max(step.shape[3] for step in steps[: len(rows)])
    found = []
    for head in range(steps[0].shape[1]):
        matrix = []
        for t, row in enumerate(rows):
            sharing = steps[t].shape[2]
            every = [
                steps[t][sentence, head, beam].tolist()
                for sentence in range(steps[t].shape[0])
                for beam in range(sharing)
            ]
            matrix.append(every[row] + [0.0] * (keys - len(every[row])))
        found.append(matrix)
    return found


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_hypothesis_is_followed_as_a_literal_loop_would(data: st.DataObject) -> None:
    sentences, beams, heads = (data.draw(st.integers(1, 3)) for _ in range(3))
    shared = data.draw(st.booleans())
    grows = data.draw(st.booleans())
    steps = []
    for t in range(data.draw(st.integers(1, 5))):
        live = 1 if t == 0 else beams
        keys = 2 + (t if grows else 0)
        shape = (sentences, heads, live, keys) if shared else (sentences * live, heads, 1, keys)
        steps.append(random_weights(*shape))
    length = data.draw(st.integers(1, len(steps)))
    rows = [data.draw(st.integers(0, step.shape[0] * step.shape[2] - 1)) for step in steps[:length]]
    found = ancestry(steps, rows, beams=beams if shared else 1)
    assert found.tolist() == literally_followed(steps, rows)


def test_a_followed_hypothesis_carries_its_words_and_its_ancestry() -> None:
    steps = [random_weights(2, 2, 1, 3), random_weights(2, 2, 4, 3), random_weights(2, 2, 4, 3)]
    tape = tape_of(*(call(step) for step in steps))
    (payload,) = follow_hypothesis(tape, {"*": (TARGET[:3], SOURCE)}, rows=[1, 6, 4], beams=4)
    assert payload.rows == (1, 6, 4)
    assert payload.queries.labels == TARGET[:3]
    expected = torch.stack([steps[0][1, :, 0], steps[1][1, :, 2], steps[2][1, :, 0]], dim=1)
    assert payload.weights.tolist() == expected.tolist()
    assert Payload.from_json(payload.to_json()).rows == (1, 6, 4)


def test_a_site_is_labelled_by_the_names_of_its_axes_and_not_by_sizes() -> None:
    """As many frames as tokens: only the names say which is which."""
    tokens, frames = as_axis(TARGET), Frames.regular(len(TARGET), 0.5)
    pairs = {
        "encoder": ("frame", "frame"),
        "decoder": ("target", "prefix"),
        "cross": ("target", "frame"),
        "back": ("frame", "target"),
    }
    tape = tape_of(
        *(call(random_weights(1, 2, 4, 4), site=site, axes=axes) for site, axes in pairs.items())
    )
    axes = {"target": tokens, "frame": frames}
    found = {each.site: each for each in on_axes(tape, axes)}
    assert {site: each.axes for site, each in found.items()} == pairs
    prefix = as_axis(("<s>", *TARGET[:-1]))
    assert {site: (each.queries, each.keys) for site, each in found.items()} == {
        "encoder": (frames, frames),
        "decoder": (tokens, prefix),
        "cross": (tokens, frames),
        "back": (frames, tokens),
    }


def test_steps_and_slots_have_numbers_without_a_task() -> None:
    steps = [random_weights(1, 1, 1, 3) for _ in range(2)]
    tape = tape_of(*(call(each, [t], kind="memory") for t, each in enumerate(steps)))
    (payload,) = on_axes(tape, {})
    assert (payload.queries, payload.keys) == (Steps.of(2), Slots.of(3))
    assert payload.matrix.tolist() == [step[0, 0, 0].tolist() for step in steps]


def test_keys_right_before_a_query_stand_at_their_own_places() -> None:
    """A memory of the last two states: what it held at each step moves along."""
    steps = [random_weights(1, 1, 1, count) for count in (1, 2, 2)]
    rows = (1, 2, 2)  # the last one is counted on: a full memory does not count further
    tape = tape_of(
        *(
            call(step, [row], kind="memory", axes=("position", "earlier"))
            for step, row in zip(steps, rows, strict=True)
        )
    )
    (payload,) = on_axes(tape, {"position": as_axis(TARGET)})
    assert payload.queries.labels == TARGET[1:]
    assert payload.keys.labels == TARGET[:-1]
    (a,), (b, c), (d, e) = (step.flatten().tolist() for step in steps)
    assert payload.matrix.tolist() == [[a, 0, 0], [b, c, 0], [0, d, e]]
    singles = payloads(tape, {"*": (TARGET, TARGET[:-1])})
    assert [each.keys.labels for each in singles] == [TARGET[:1], TARGET[:2], TARGET[1:3]]


def test_a_sentinel_comes_before_all_positions_and_a_cache_begins_with_the_second() -> None:
    pointed = random_weights(1, 1, 4, 5)
    cached = random_weights(1, 1, 4, 3)
    tape = tape_of(
        call(pointed, [1, 2, 3, 4], site="p", kind="pointer", axes=("position", "sentinel")),
        call(cached, site="c", kind="pointer", axes=("position", "next")),
    )
    pointer, cache = on_axes(tape, {"position": as_axis(TARGET)})
    assert pointer.queries.labels == cache.queries.labels == TARGET
    assert pointer.keys.labels == ("<sentinel>", *TARGET)
    assert cache.keys.labels == TARGET[1:]
    assert pointer.matrix.tolist() == pointed[0, 0].tolist()
    assert cache.matrix.tolist() == cached[0, 0].tolist()


def test_with_the_rows_of_a_search_only_what_attends_from_the_target_is_followed() -> None:
    encoder = random_weights(1, 1, 3, 3)
    steps = [random_weights(1, 1, 1, 3), random_weights(1, 1, 2, 3)]
    own = [random_weights(1, 1, 1, 1), random_weights(2, 1, 1, 2)]
    tape = tape_of(
        call(encoder, site="encoder", kind="self", axes=("source", "source")),
        *(call(step) for step in steps),
        *(call(step, site="own", kind="self", axes=("target", "prefix")) for step in own),
    )
    axes = {"target": as_axis(TARGET[:2]), "source": as_axis(SOURCE)}
    found = {each.site: each for each in on_axes(tape, axes, rows=[0, 1], beams=2)}
    assert found["encoder"].matrix.tolist() == encoder[0, 0].tolist()
    assert found["cross"].matrix.tolist() == [
        steps[0][0, 0, 0].tolist(),
        steps[1][0, 0, 1].tolist(),
    ]
    assert found["own"].matrix.tolist() == [[1.0, 0.0], own[1][1, 0, 0].tolist()]
    assert found["own"].keys.labels == ("<s>", TARGET[0])


def test_an_axis_that_has_no_labels_is_an_error_that_names_it() -> None:
    tape = tape_of(call(random_weights(1, 1, 4, 3), axes=("target", "patch")))
    message = "'cross' attends over 'patch', and there are labels only for target, source"
    with pytest.raises(UserError, match=message):
        on_axes(tape, {"target": as_axis(TARGET), "source": as_axis(SOURCE)})


def one() -> Tape:
    return tape_of(call(random_weights(2, 1, 4, 3)))


def three_steps() -> Tape:
    return tape_of(*(call(random_weights(4, 1, 1, 3)) for _ in range(3)))


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "site": (lambda: payloads(one(), {"corss": (TARGET, SOURCE)}), "did you mean 'cross'"),
    "row": (lambda: payloads(one(), {"*": (TARGET, SOURCE)}, row=2), r"row 2 .* \(rows 0 to 1\)"),
    "from the end": (lambda: join_steps(one(), {"*": (TARGET, SOURCE)}, row=-1), "row -1"),
    "few keys": (
        lambda: payloads(one(), {"*": (TARGET, SOURCE[:2])}),
        "3 keys, and those beyond the 2 .* no padding",
    ),
    "many keys": (lambda: payloads(one(), {"*": (TARGET, TARGET)}), "3 keys, but 4 labels"),
    "many queries": (lambda: payloads(one(), {"*": ("abcde", SOURCE)}), "4 queries, but 5 labels"),
    "no queries": (lambda: payloads(one(), {"*": ("", SOURCE)}), "labels for 0 of them only"),
    "many steps": (lambda: join_steps(three_steps(), {"*": (TARGET, SOURCE)}), "3 queries, but 4"),
    "twice": (
        lambda: join_steps(
            tape_of(call(random_weights(2, 1, 4, 3)), call(random_weights(2, 1, 4, 3))),
            {"*": (TARGET, SOURCE)},
        ),
        "start over.*payloads",
    ),
    "long ancestry": (
        lambda: follow_hypothesis(three_steps(), {"*": (TARGET, SOURCE)}, rows=[0, 0, 0, 0]),
        "4 rows needs a call for each, and 3",
    ),
    "no ancestry": (lambda: ancestry([random_weights(1, 1, 1, 3)], []), "0 rows"),
    "words of another": (
        lambda: follow_hypothesis(three_steps(), {"*": (TARGET, SOURCE)}, rows=[0, 0]),
        "4 labels for 2 queries",
    ),
    "row of a step": (
        lambda: follow_hypothesis(three_steps(), {"*": (TARGET[:3], SOURCE)}, rows=[0, 4, 0]),
        "step 1: row 4 is out of range: there are 4",
    ),
    "a prompt": (
        lambda: ancestry([random_weights(2, 1, 5, 3)], [0], beams=4),
        r"step 0: weights of \[2, 1, 5, 3\].*at most beams=4",
    ),
    "beams": (lambda: ancestry([random_weights(2, 1, 1, 3)], [0], beams=0), "beams=0 must be"),
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("name", BAD)
def test_labels_and_rows_that_do_not_fit_are_refused(name: str) -> None:
    make, message = BAD[name]
    with pytest.raises(UserError, match=message):
        make()
