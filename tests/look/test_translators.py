"""Real translators: what a hypothesis looked at in a beam is what it looks at alone."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from regard.attention import record
from regard.look import Payload, follow_hypothesis, join_steps, payloads
from regard.models.translation.bahdanau import Bahdanau
from regard.models.translation.luong import Luong
from regard.models.translation.transformer import Transformer

SOURCE, TARGET = tuple("abcde"), tuple("wxyz")
LENGTHS = (5, 3)
BEAMS = 3

TRANSLATORS: dict[str, tuple[Callable[[], nn.Module], dict[str, tuple[bool, bool]]]] = {
    "bahdanau": (
        lambda: Bahdanau(Bahdanau.Config(width=4, hidden=8), 10, 12),
        {"attend": (True, False)},
    ),
    "luong": (
        lambda: Luong(Luong.Config(width=8, layers=1), 10, 12),
        {"attend": (True, False)},
    ),
    "transformer": (
        lambda: Transformer(
            Transformer.Config(width=8, heads=2, encoder_layers=1, decoder_layers=2), 10, 12
        ),
        {"decoder.*.cross": (True, False), "decoder.*.attention": (True, True)},
    ),
}
"""How each is built; and for each glob of sites, whether queries and keys are of the target."""


def labels_of(name: str, sentence: int) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    words = {True: TARGET, False: SOURCE[: LENGTHS[sentence]]}
    sites = TRANSLATORS[name][1]
    return {glob: (words[query], words[key]) for glob, (query, key) in sites.items()}


def source_batch() -> dict[str, Tensor]:
    return {"source": torch.randint(4, 10, (2, 5)), "source_lengths": torch.tensor(LENGTHS)}


def same(found: tuple[Payload, ...], expected: tuple[Payload, ...]) -> None:
    assert [each.site for each in found] == [each.site for each in expected]
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine.weights, other.weights, atol=1e-5)
        assert (mine.queries, mine.keys) == (other.queries, other.keys)


@pytest.fixture(params=TRANSLATORS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("sentence", [0, 1])
def test_joined_steps_look_where_the_whole_target_does(name: str, sentence: int) -> None:
    model = TRANSLATORS[name][0]().eval()
    source, tokens = source_batch(), torch.randint(4, 10, (2, 4))
    with torch.no_grad(), record(model) as whole:
        model({**source, "tokens": tokens})
    with torch.no_grad(), record(model) as steps:
        state = model.start(source)
        for t in range(4):
            _, state = model.step(tokens[:, t], state)
    labels = labels_of(name, sentence)
    same(join_steps(steps, labels, row=sentence), join_steps(whole, labels, row=sentence))


@pytest.mark.parametrize("sentence", [0, 1])
def test_a_hypothesis_is_followed_through_a_beam_that_changes_places(
    name: str, sentence: int
) -> None:
    model = TRANSLATORS[name][0]().eval()
    source = source_batch()
    written, came_from = [torch.randint(4, 10, (2,))], [torch.arange(2)]
    with torch.no_grad(), record(model) as tape:
        state = model.start(source)
        _, state = model.step(written[0], state)
        for t in range(1, 4):
            live = 1 if t == 1 else BEAMS
            parents = torch.randint(live, (2, BEAMS)) + live * torch.arange(2)[:, None]
            came_from.append(parents.flatten())
            state = state.select(parents.flatten())
            written.append(torch.randint(4, 10, (2 * BEAMS,)))
            _, state = model.step(written[t], state)
    for last in range(sentence * BEAMS, (sentence + 1) * BEAMS):
        rows = [last]
        for parents in came_from[:0:-1]:
            rows.insert(0, int(parents[rows[0]]))
        tokens = torch.stack([written[t][row] for t, row in enumerate(rows)])[None]
        alone = {each: values[sentence : sentence + 1] for each, values in source.items()}
        with torch.no_grad(), record(model) as whole:
            model({**alone, "tokens": tokens})
        labels = labels_of(name, sentence)
        found = follow_hypothesis(tape, labels, rows=rows, beams=BEAMS)
        same(found, join_steps(whole, labels))
        assert {each.rows for each in found} == {tuple(rows)}


def test_all_sites_of_a_transformer_have_their_words() -> None:
    model = TRANSLATORS["transformer"][0]().eval()
    with record(model) as tape:
        model({**source_batch(), "tokens": torch.randint(4, 10, (2, 4))})
    labels = labels_of("transformer", 0) | {"encoder.*": (SOURCE, SOURCE)}
    found = payloads(tape, labels)
    assert [(each.site, len(each.queries), len(each.keys)) for each in found] == [
        (site, *tape.weights(site).shape[2:]) for site in tape.sites
    ]
