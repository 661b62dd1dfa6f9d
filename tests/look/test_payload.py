"""The record that pictures are drawn from."""

import json
from collections.abc import Callable

import numpy as np
import pytest
import torch

from regard.attention.tape import KINDS
from regard.core.axes import AXES, Axis, as_axis
from regard.core.errors import UserError
from regard.look import Payload, rollout
from tests.core.test_axes import EXAMPLES

EVEN = np.full((2, 2, 3), 1 / 3, dtype=np.float32)


def whole() -> Payload:
    return Payload(
        weights=torch.rand(2, 3, 4).numpy(),
        queries=as_axis(("a", "<b>", "\n")),
        keys=as_axis(("x", "", "中", "👩‍👧")),
        site="decoder.0.cross",
        kind="cross",
        heads=(1, 5),
        step=7,
        rows=(2, 0, 1),
    )


def test_json_gives_back_the_same_bits() -> None:
    before = whole()
    after = Payload.from_json(before.to_json())
    assert after.weights.dtype == np.float32
    assert np.array_equal(after.weights, before.weights)
    names = ("queries", "keys", "axes", "site", "kind", "heads", "step", "rows")
    assert [getattr(after, name) for name in names] == [getattr(before, name) for name in names]


@pytest.mark.parametrize("axis", EXAMPLES.values(), ids=EXAMPLES)
def test_json_carries_axes_of_every_kind(axis: Axis) -> None:
    weights = torch.rand(2, len(axis))
    after = Payload.from_json(Payload.of(weights, ["q", "r"], axis).to_json())
    assert after.keys == axis
    assert type(after.keys) is AXES[axis.kind]


def test_lists_of_labels_in_a_file_are_tokens() -> None:
    value = json.loads(Payload.of([[1.0]], "a", "b").to_json())
    value.update(queries=["a"], keys=["b"])
    del value["axes"]
    after = Payload.from_json(json.dumps(value))
    assert (after.queries, after.keys) == (as_axis("a"), as_axis("b"))
    assert after.axes == ("target", "source")


def test_half_a_letter_does_not_make_a_file_that_nobody_can_read() -> None:
    payload = Payload.of([[1.0]], ["\ud83d"], ["a\udc00b"])
    after = Payload.from_json(payload.to_json())
    assert (after.queries.labels, after.keys.labels) == (("\ufffd",), ("a\ufffdb",))


def test_json_is_strict_and_short() -> None:
    text = Payload.of([[0.1, 0.9]], ["q"], ["a", "b"]).to_json()
    assert json.loads(text, parse_constant=pytest.fail)["weights"] == [[[0.1, 0.9]]]
    assert "0.1,0.9" in text


@pytest.mark.parametrize(
    "weights",
    [
        torch.tensor([[0.25, 0.75]], dtype=torch.bfloat16, requires_grad=True),
        torch.tensor([[0.25, 0.75]], dtype=torch.float64),
        np.array([[0.25, 0.75]]),
        [[0.25, 0.75]],
    ],
    ids=["bfloat16 with gradient", "float64", "numpy", "lists"],
)
def test_numbers_of_any_home_become_the_same_payload(weights: object) -> None:
    payload = Payload.of(weights, ["q"], ["a", "b"])
    assert payload.weights.tolist() == [[[0.25, 0.75]]]
    assert payload.heads is None


def test_a_payload_is_a_copy_that_cannot_be_changed() -> None:
    weights = torch.full((1, 2, 2), 0.5)
    payload = Payload.of(weights, "ab", "cd")
    weights.zero_()
    assert payload.matrix.tolist() == [[0.5, 0.5], [0.5, 0.5]]
    with pytest.raises(ValueError, match="read-only"):
        payload.weights[0, 0, 0] = 1.0


def test_a_head_is_taken_by_the_number_it_has_in_the_model() -> None:
    payload = whole()
    head = payload.head(5)
    assert np.array_equal(head.weights, payload.weights[1:])
    assert (head.heads, head.title) == ((5,), "decoder.0.cross, head 5, step 7")
    assert payload.title == "decoder.0.cross, mean of 2 heads, step 7"
    with pytest.raises(UserError, match="head 0 is not here; heads: 1, 5"):
        payload.head(0)


def test_the_matrix_is_the_mean_of_the_heads_and_the_strongest_its_largest() -> None:
    payload = Payload.of([[[1.0, 0.0, 0.0]], [[0.0, 0.0, 0.5]]], ["q"], "abc")
    assert payload.matrix.tolist() == [[0.5, 0.0, 0.25]]
    assert payload.strongest == (0,)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_attention_names_its_axes(kind: str) -> None:
    assert Payload.of([[1.0]], "a", "b", kind=kind).axes == KINDS[kind]


BAD: dict[str, tuple[Callable[[], object], str]] = {
    "flat": (lambda: Payload.of([0.5, 0.5], "ab", "cd"), r"\[heads, queries, keys\].*not \[2\]"),
    "batch": (lambda: Payload.of(torch.ones(1, 1, 2, 2), "ab", "cd"), r"not \[1, 1, 2, 2\]"),
    "number": (lambda: Payload.of(1.0, "a", "b"), r"not \[\]"),
    "no keys": (lambda: Payload.of(torch.ones(2, 0), "ab", ""), "at least one of each"),
    "ragged": (lambda: Payload.of([[1.0], [0.5, 0.5]], "ab", "cd"), "rows of one length"),
    "text": (lambda: Payload.of("weights", "a", "b"), "table of numbers.*str 'weights'"),
    "queries": (lambda: Payload.of(EVEN, "abc", "xyz"), "3 labels for 2 queries"),
    "keys": (lambda: Payload.of(EVEN, "ab", "xy"), "2 labels for 3 keys: give one text for each"),
    "labels": (
        lambda: Payload.of(EVEN, "ab", [1, 2, 3]),
        "labels of an axis must be texts, not int '1'",
    ),
    "kind": (lambda: Payload.of(EVEN, "ab", "xyz", kind="corss"), "did you mean 'cross'"),
    "nan": (
        lambda: Payload.of([[0.5, float("nan")]], "a", "bc"),
        r"finite.*nan \(head 0, query 0, key 1\)",
    ),
    "negative": (lambda: Payload.of([[0.5, -0.5]], "a", "bc"), "at least 0.*-0.5"),
    "tensor": (
        lambda: Payload(weights=torch.ones(1, 1, 1), queries=as_axis("a"), keys=as_axis("b")),
        r"not a Tensor: make it with Payload.of",
    ),
    "heads": (
        lambda: Payload(weights=EVEN, queries=as_axis("ab"), keys=as_axis("xyz"), heads=(0,)),
        r"2 heads of weights, but heads=\(0,\)",
    ),
    "rows": (
        lambda: Payload(weights=EVEN, queries=as_axis("ab"), keys=as_axis("xyz"), rows=(0,)),
        r"2 queries, but rows=\(0,\)",
    ),
    "not json": (lambda: Payload.from_json("{"), "must be JSON"),
    "no object": (lambda: Payload.from_json("[]"), "JSON object, not a list"),
    "unknown key": (
        lambda: Payload.from_json(whole().to_json().replace('"site"', '"sites"')),
        "site is missing; unknown key 'sites': did you mean 'site'",
    ),
    "nan in json": (
        lambda: Payload.from_json(whole().to_json().replace('"step":7', '"step":NaN')),
        "step=",
    ),
}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("name", BAD)
def test_what_is_no_payload_is_refused_with_what_to_do(name: str) -> None:
    make, message = BAD[name]
    with pytest.raises(UserError, match=message):
        make()


def layers(count: int, heads: int, words: int) -> list[Payload]:
    scores = torch.randn(count, heads, words, words)
    return [
        Payload.of(weights, "abcdefgh"[:words], "abcdefgh"[:words], site=f"{i}", kind="self")
        for i, weights in enumerate(scores.softmax(-1))
    ]


@pytest.mark.parametrize(("count", "heads", "words"), [(1, 1, 1), (1, 3, 4), (4, 2, 5), (12, 1, 8)])
def test_rollout_is_the_loop_of_the_paper(count: int, heads: int, words: int) -> None:
    given = layers(count, heads, words)
    flowed = [[float(i == j) for j in range(words)] for i in range(words)]
    for layer in given:
        mixed = []
        for i in range(words):
            row = [0.5 * float(layer.weights[:, i, j].mean()) for j in range(words)]
            row[i] += 0.5
            mixed.append([each / sum(row) for each in row])
        flowed = [
            [sum(mixed[i][m] * flowed[m][j] for m in range(words)) for j in range(words)]
            for i in range(words)
        ]
    found = rollout(given)
    np.testing.assert_allclose(found.matrix, flowed, atol=1e-6)
    np.testing.assert_allclose(found.matrix.sum(axis=1), 1.0, atol=1e-6)
    assert (found.kind, found.keys) == ("self", given[0].keys)


def test_rollout_normalises_rows_that_do_not_sum_to_one_and_keeps_empty_ones() -> None:
    layer = Payload.of([[0.0, 3.0], [0.0, 0.0]], "ab", "ab", kind="self")
    assert rollout([layer]).matrix.tolist() == [[0.25, 0.75], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "at least one layer"),
        ([Payload.of([[1.0]], "a", "a")], "kind 'cross'"),
        ([*layers(1, 1, 2), *layers(1, 1, 3)], "3 queries and 3 keys"),
        ([Payload.of([[0.5, 0.5]], "a", "ab", kind="self")], "1 queries and 2 keys"),
    ],
    ids=["none", "cross", "lengths", "oblong"],
)
def test_rollout_refuses_what_is_no_stack_of_self_attention(
    given: list[Payload], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        rollout(given)
