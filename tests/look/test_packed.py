"""Packed payloads: the numbers come back, within what each head says, and within the bytes."""

import base64
import json
import zlib

import numpy as np
import pytest
import torch

from regard.core.axes import Axis, Patches, axis_from_json
from regard.core.errors import UserError
from regard.look import Payload, as_json, pack
from regard.look.compact import FLAT, LEVELS, MOST_POSITIONS, last_diagonal
from regard.look.measure import MEASURES, distance, entropy, place_correlation
from tests.core.test_axes import EXAMPLES
from tests.look.hostile import TOKENS


def unpacked(made: dict, site: int, head: int) -> tuple[np.ndarray, int]:
    """What the browser makes of a head, written once more; and its levels."""
    entry = made["sites"][site]
    rows, columns = (len(made["axes"][entry[side]]["labels"]) for side in ("queries", "keys"))
    data = zlib.decompress(base64.b64decode(entry["weights"][head]), -15)
    levels = entry["levels"][head]
    stored = np.tri(rows, columns, entry["reach"], dtype=bool)
    peaks = np.frombuffer(data[: 4 * rows], "<f4")
    rest = np.frombuffer(data[4 * rows :], "u1")
    if levels == FLAT:
        return stored * peaks[:, None], levels
    if levels > 255:
        high, low = rest.reshape(2, -1).astype(int)
        numbers = 256 * high + low
    elif levels > 15:
        numbers = rest.astype(int)
    else:
        numbers = np.stack([rest & 15, rest >> 4], 1).ravel().astype(int)
    table = np.zeros((rows, columns))
    table[stored] = numbers[: stored.sum()]
    return table * peaks[:, None] / levels, levels


def softmax(*shape: int, spread: float = 2.0, causal: bool = False) -> torch.Tensor:
    scores = spread * torch.randn(*shape)
    above = torch.ones(shape[-2:], dtype=torch.bool).triu(1)
    return (scores.masked_fill(above, float("-inf")) if causal else scores).softmax(-1)


SHAPES = {
    "a head": softmax(1, 1, 1),
    "wide": softmax(2, 3, 50),
    "high": softmax(2, 50, 3),
    "causal": softmax(3, 40, 40, causal=True),
    "heads that reach differently far": torch.stack([torch.eye(6), torch.ones(6, 6).tril(2)]),
    "nothing": torch.zeros(1, 4, 4),
    "a row of nothing": torch.eye(5)[None] * torch.tensor([1.0, 0, 1, 0, 1])[:, None],
    "large": 1000 * torch.rand(1, 6, 6),
    "tiny": 1e-30 * torch.rand(1, 6, 6),
}


@pytest.mark.parametrize("budget", [10**7, 3000, 300, 0])
@pytest.mark.parametrize("name", SHAPES)
def test_weights_come_back_as_exactly_as_their_levels_say(name: str, budget: int) -> None:
    weights = SHAPES[name]
    labels = [[str(at) for at in range(count)] for count in weights.shape[1:]]
    made = json.loads(as_json(pack([Payload.of(weights, *labels)], budget=budget)))
    for head, expected in enumerate(weights.double().numpy()):
        found, levels = unpacked(made, 0, head)
        if levels == FLAT:
            np.testing.assert_allclose(found.sum(axis=1), expected.sum(axis=1), rtol=1e-5)
            continue
        allowed = expected.max(axis=1, keepdims=True) * (0.5 / levels + 1e-6)
        assert (np.abs(found - expected) <= allowed).all()
        assert ((found == 0) | (expected > 0)).all(), "nothing comes from nothing"


def test_what_has_room_is_exact_and_what_has_none_is_rounded() -> None:
    small = pack([Payload.of(softmax(2, 20, 20), "a" * 20, "b" * 20)])
    assert small["sites"][0]["levels"] == [65535, 65535]
    squeezed = pack([Payload.of(softmax(2, 200, 200), "a" * 200, "b" * 200)], budget=20_000)
    assert all(3 <= levels <= 63 for levels in squeezed["sites"][0]["levels"])


@pytest.mark.parametrize("spread", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("causal", [True, False])
def test_the_budget_of_bytes_is_kept(spread: float, causal: bool) -> None:
    weights = softmax(16, 128, 128, spread=spread, causal=causal)
    # As many bytes for each weight as twelve layers of twelve heads of 512 tokens have.
    budget = int(4_200_000 * weights.numel() / (144 * 512**2))
    made = pack([Payload.of(weights, "a" * 128, "b" * 128)], budget=budget)
    spent = sum(len(base64.b64decode(each)) for each in made["sites"][0]["weights"])
    assert spent <= budget
    if causal or spread > 1.0:
        assert FLAT not in made["sites"][0]["levels"], "and something is left to see"


def test_sharp_heads_leave_room_for_blurred_ones() -> None:
    sharp, blurred = torch.eye(128)[None].expand(7, -1, -1), softmax(1, 128, 128, spread=0.5)
    labels = ["a"] * 128
    alone = pack([Payload.of(blurred, labels, labels)], budget=3000)
    among = pack([Payload.of(torch.cat([sharp, blurred]), labels, labels)], budget=8 * 3000)
    assert among["sites"][0]["levels"][-1] > alone["sites"][0]["levels"][0]


def test_zeros_above_the_diagonal_take_no_room() -> None:
    assert last_diagonal(np.tril(np.ones((2, 9, 9)))) == 0
    assert last_diagonal(np.ones((3, 7))) == 6
    assert last_diagonal(np.zeros((3, 7))) == -3
    shifted = np.tri(4, 9, 5)
    assert last_diagonal(shifted) == 5
    made = pack([Payload.of(shifted, "abcd", "abcdefghi")])
    np.testing.assert_allclose(unpacked(made, 0, 0)[0], shifted, atol=1e-6)


def test_labels_that_sites_share_are_there_once() -> None:
    sites = [Payload.of(torch.eye(3), "abc", "abc", site=name) for name in "xyz"]
    made = pack([*sites, Payload.of(torch.ones(3, 2), "abc", "de")])
    assert made["axes"] == [
        {"kind": "tokens", "labels": ["a", "b", "c"]},
        {"kind": "tokens", "labels": ["d", "e"]},
    ]
    assert [(site["queries"], site["keys"]) for site in made["sites"]] == [(0, 0)] * 3 + [(0, 1)]


@pytest.mark.parametrize("axis", EXAMPLES.values(), ids=EXAMPLES)
def test_axes_of_every_kind_are_sent(axis: Axis) -> None:
    made = pack([Payload.of(torch.ones(1, len(axis)), "q", axis)])
    sent = json.loads(as_json(made))
    assert sent == made, "plain values only"
    assert axis_from_json(sent["axes"][sent["sites"][0]["keys"]]) == axis


def test_axes_with_the_same_labels_in_other_places_are_not_one() -> None:
    one, other = Patches.grid(1, 2, width=8, height=4), Patches.grid(1, 2, width=4, height=4)
    made = pack([Payload.of(torch.eye(2), one, other)])
    assert len(made["axes"]) == 2
    assert (made["sites"][0]["queries"], made["sites"][0]["keys"]) == (0, 1)


def test_json_is_ascii_that_cannot_end_a_script_and_keeps_every_token() -> None:
    tokens = list(TOKENS.values())
    made = pack([Payload.of(torch.eye(len(tokens)), tokens, tokens)], title="</script>&\u2028")
    text = as_json(made)
    assert text.isascii()
    assert not set("<>&") & set(text)
    (axis,) = json.loads(text)["axes"]
    assert axis == {"kind": "tokens", "labels": [token[:500] for token in tokens]}


def test_what_a_page_cannot_hold_is_refused(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="nothing to show"):
        pack([])
    wide = MOST_POSITIONS + 1
    with pytest.raises(UserError, match=r"8,193 positions, .* at most 8,192"):
        pack([Payload.of(np.ones((1, wide)), ["a"], ["b"] * wide)])


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_is_finite_for_whatever_weights(name: str) -> None:
    for weights in SHAPES.values():
        for head in weights.numpy():
            assert np.isfinite(MEASURES[name](head))


def test_measures_are_what_they_are_said_to_be() -> None:
    rows = np.array([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]])
    assert entropy(rows) == pytest.approx((1.5 + 0) / 2)
    assert entropy(8 * rows) == pytest.approx(0.75), "rows are made to sum to one"
    assert distance(np.eye(3)[[1, 2, 2]]) == pytest.approx(2 / 3)
    looking_back = np.eye(6, k=-2)
    assert distance(looking_back) == pytest.approx(2.0), "rows that look at nothing say nothing"
    assert place_correlation(np.eye(5)) == 1.0
    assert place_correlation(np.eye(5)[::-1]) == -1.0
    assert tuple(sorted(LEVELS, reverse=True)) == LEVELS
