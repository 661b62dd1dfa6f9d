"""What is the Transformer's own: sharing, bounds, initialisation, and beams that share."""

import pytest
import torch
from torch import nn

from regard.core.errors import UserError
from regard.core.protocols import Bounded, Stepper
from regard.models.translation.transformer import Transformer, TransformerStepState

V = 40
SOURCE = {
    "source": torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]]),
    "source_lengths": torch.tensor([4, 2]),
    "tokens": torch.tensor([[2, 4, 9], [2, 7, 7]]),
}


def model(source_vocabulary: int = V, **changes: object) -> Transformer:
    given: dict[str, object] = {"width": 16, "heads": 2, "encoder_layers": 1, "decoder_layers": 2}
    return Transformer(Transformer.Config(**{**given, **changes}), V, source_vocabulary).eval()


@pytest.mark.parametrize(("shared", "tables"), [("none", 3), ("decoder", 2), ("all", 1)])
def test_shared_tables_are_one_parameter(shared: str, tables: int) -> None:
    built = model(shared=shared)
    assert sum(p.shape == (V, 16) for p in built.parameters()) == tables
    assert sum(t.shape == (V, 16) for t in built.state_dict().values()) == tables


def test_one_table_for_two_vocabularies_is_refused() -> None:
    with pytest.raises(UserError, match=r"source has 41 words and the target 40; use shared='dec"):
        model(41, shared="all")


def test_only_learned_positions_bound_it(as_users_run_it: None) -> None:
    free, bound = model(context=2), model(position="learned", context=2)
    assert not isinstance(free, Bounded)
    assert isinstance(bound, Bounded)
    assert bound.context_limit == 2
    assert isinstance(free, Stepper)
    free(SOURCE)
    with pytest.raises(UserError, match="only 2 were learned"):
        bound(SOURCE)


def test_it_begins_as_fairseq_does() -> None:
    built = model(width=64, heads=4, hidden=96, shared="none", position="learned")
    square, halved, oblong = (6 / 128) ** 0.5, (6 / 128 / 2) ** 0.5, (6 / 160) ** 0.5
    bounds = {
        "attention.project": halved,  # one table of queries, keys and values
        "attention.merge": square,
        "cross.query": halved,
        "cross.key": halved,
        "cross.value": halved,
        "cross.merge": square,
        "feedforward.widen": oblong,
        "feedforward.narrow": oblong,
    }
    found = {
        name.partition(".")[2]: part.weight
        for name, part in built.decoder.named_modules()
        if isinstance(part, nn.Linear)
    }
    assert set(found) == set(bounds)
    for name, weight in found.items():
        assert 0.97 * bounds[name] < weight.abs().max() <= bounds[name], name
        assert weight.std().item() == pytest.approx(bounds[name] / 3**0.5, rel=0.05), name
    tables = built.embed.table, built.source_embed.table, built.output, built.position
    for table in tables:
        (weight,) = table.parameters()
        assert weight.std().item() == pytest.approx(1 / 8, rel=0.1)
    assert all(not p.any() for name, p in built.named_parameters() if name.endswith("project.bias"))


def test_a_step_reads_the_source_no_more_and_beams_share_it() -> None:
    built = model()
    with torch.no_grad():
        start = built.start(SOURCE)
        state = start.select(torch.tensor([0, 0, 0, 1, 1, 1]))
        for token in (2, 9, 4):
            _, state = built.step(torch.full((6,), token), state)
            state = state.select(torch.tensor([1, 0, 0, 5, 5, 3]))
    assert isinstance(start, TransformerStepState)
    assert isinstance(state, TransformerStepState)
    assert state.source.source.memories is start.source.source.memories
    assert state.source.flat is start.source.flat


def test_an_unknown_score_or_activation_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'scaled_dot'"):
        model(cross_score="scaled_dott")
    with pytest.raises(UserError, match="did you mean 'relu'"):
        model(activation="rellu")
