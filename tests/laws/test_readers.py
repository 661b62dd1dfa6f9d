"""Laws of models that read a memory of facts or an episode of examples, over the whole table."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import Tensor, nn

from regard.attention import intervene, permuted, record
from regard.core.config import parse
from regard.core.protocols import Batch
from regard.models import MODELS
from regard.outputs.classes import Classes
from regard.outputs.output import ModelOutput
from regard.outputs.policy import ActionPolicy
from tests.laws.families import FAMILIES

V, SLOTS = 12, 6
COUNTS = (4, 2, 0, 1)
"""The facts of each story; one has none."""
NAMES = FAMILIES["readers"]

STORY_ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "memn2n": ("memn2n", {"width": 6, "hops": 2}),
    "memn2n, layerwise": ("memn2n", {"width": 6, "hops": 3, "tying": "layerwise"}),
    "memn2n, bag": ("memn2n", {"width": 6, "encoding": "bag", "temporal": False}),
    "memn2n, facts alone": ("memn2n", {"width": 6, "empty_slots": False}),
    "memn2n, copies": ("memn2n", {"width": 6, "hops": 2, "copies": 3}),
    "dmn": ("dmn", {"width": 6, "episodes": 2}),
    "dmn, 2016": (
        "dmn",
        {"width": 6, "facts": "words", "read": "gated_gru", "gates": "sigmoid", "update": "gru"},
    ),
    "dmn, soft": ("dmn", {"width": 6, "read": "soft"}),
}
EPISODE_ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "snail": ("snail", {"channels": [3, 4], "width": 5, "filters": 4, "layout": "ATA",
                        "attention": [[6, 3], [6, 3]]}),
    "snail, convolutions": ("snail", {"channels": [3], "width": 5, "filters": 4, "layout": "TTA",
                                      "attention": [[4, 4]]}),
}  # fmt: skip
POLICY_ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "snail_policy": (
        "snail_policy",
        {"width": 5, "filters": 4, "layout": "AT", "attention": [[6, 3]]},
    ),
}
ROWS = {**STORY_ROWS, **EPISODE_ROWS, **POLICY_ROWS}

CHANGED: dict[str, object] = {
    "width": 4,
    "hops": 3,
    "tying": "layerwise",
    "encoding": "bag",
    "temporal": False,
    "empty_slots": False,
    "copies": 2,
    "init_range": 0.7,
    "episodes": 3,
    "facts": "words",
    "read": "soft",
    "gates": "sigmoid",
    "update": "gru",
    "dropout": 0.4,
    "channels": [4, 4],
    "layout": "TAA",
    "filters": 5,
    "attention": [[5, 3], [6, 3]],
    "entropy_weight": 0.5,
}
ONE_ATTENTION = {"layout": "TA", "attention": [[5, 3]]}
"""Instead, for the row with one attention block."""
"""Another value for every field, which must make another model."""


def built(row: str, **changed: object) -> nn.Module:
    torch.manual_seed(1)
    name, given = ROWS[row]
    kind = MODELS[name]
    config = parse(vars(kind)["Config"], {**given, **changed})
    return kind(config, **sizes(row))


def sizes(row: str) -> dict[str, int]:
    if row in STORY_ROWS:
        return {"vocabulary": V, "slots": SLOTS}
    if row in POLICY_ROWS:
        return {"arms": 3, "steps": 6}
    return {"ways": 3, "shots": 1, "colours": 1, "size": 8}


def stories(extra: int = 0) -> dict[str, Tensor]:
    """Four stories, one without facts; with `extra` memories and words of padding."""
    torch.manual_seed(2)
    rows, facts, words = len(COUNTS), max(COUNTS), 3
    drawn = torch.randint(4, V, (rows, facts, words))
    held = torch.zeros(rows, facts + extra, words + extra).long()
    for row, count in enumerate(COUNTS):
        held[row, :count, :words] = drawn[row, :count]
    held[0, 1, 2] = 0  # a shorter sentence
    counts = torch.tensor(COUNTS)
    ages = (counts[:, None] - torch.arange(facts + extra)).clamp_min(0)
    question = F.pad(torch.randint(4, V, (rows, 2)), (0, extra))
    classes = torch.tensor([4, 5, 6, 7])
    return {
        "facts": held, "ages": ages, "counts": counts, "question": question, "classes": classes,
    }  # fmt: skip


def episodes(queries: int = 2) -> dict[str, Tensor]:
    """Three episodes of three classes with one example each."""
    torch.manual_seed(2)
    images = torch.rand(3, 3 + queries, 1, 8, 8)
    labels = torch.stack([torch.randperm(3) for _ in range(3)])
    return {"images": images, "labels": labels, "classes": torch.tensor([[0, 2]] * 3)}


def pulls() -> dict[str, Tensor]:
    """Two episodes of six steps with three arms."""
    torch.manual_seed(2)
    return {
        "observations": torch.rand(2, 6, 5),
        "actions": torch.randint(3, (2, 6)),
        "returns": torch.rand(2, 6) + 1,
    }


def batch(row: str) -> dict[str, Tensor]:
    if row in POLICY_ROWS:
        return pulls()
    return stories() if row in STORY_ROWS else episodes()


def logits(model: nn.Module, given: Batch) -> Tensor:
    output = model(given)
    assert isinstance(output, Classes | ActionPolicy)
    return output.logits


def loss(model: nn.Module, given: Batch) -> Tensor:
    return ModelOutput.of(model, given).loss(given)


def test_every_model_is_in_the_table() -> None:
    assert {name for name, _ in ROWS.values()} == set(NAMES)
    assert all(ROWS[name][0] == name for name in NAMES), "the plain one goes by the name alone"


@pytest.mark.parametrize("row", STORY_ROWS)
def test_padding_and_batch_mates_change_nothing(row: str) -> None:
    model = built(row).eval()
    with torch.no_grad():
        whole, wider = logits(model, stories()), logits(model, stories(extra=2))
        torch.testing.assert_close(wider, whole, atol=1e-5, rtol=1e-5)
        for place, count in enumerate(COUNTS):
            alone = {name: each[place : place + 1] for name, each in stories().items()}
            alone |= {name: alone[name][:, : max(1, count)] for name in ("facts", "ages")}
            torch.testing.assert_close(logits(model, alone)[0], whole[place], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("row", EPISODE_ROWS)
def test_queries_and_episodes_do_not_see_one_another(row: str) -> None:
    model, whole = built(row).eval(), episodes()
    with torch.no_grad():
        together = logits(model, whole).unflatten(0, (3, 2))  # [B,Q,N]
        for place in range(3):
            for query in range(2):
                images = whole["images"][place : place + 1, [0, 1, 2, 3 + query]]
                labels = whole["labels"][place : place + 1]
                one = logits(model, {"images": images, "labels": labels})
                torch.testing.assert_close(one[0], together[place, query], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("row", STORY_ROWS)
def test_a_story_without_facts_leaves_everything_finite(row: str) -> None:
    empty = {name: each[2:3] for name, each in stories(extra=1).items()}
    for given in (stories(extra=2), empty):
        model = built(row).train()
        total = loss(model, given)
        total.backward()
        assert total.isfinite()
        for name, each in model.named_parameters():
            assert each.grad is None or each.grad.isfinite().all(), name


@pytest.mark.parametrize("row", ROWS)
def test_every_parameter_is_reached_by_the_loss(row: str) -> None:
    model = built(row).train()
    loss(model, batch(row)).backward()
    unreached = [
        n for n, each in model.named_parameters() if each.grad is None or not each.grad.any()
    ]
    assert unreached == []


@pytest.mark.parametrize("row", ROWS)
def test_recording_changes_nothing_and_an_edit_does(row: str) -> None:
    model, given = built(row).eval(), batch(row)
    with torch.no_grad():
        before = logits(model, given)
        with record(model) as tape:
            after = logits(model, given)
        with intervene(model, {"*": permuted(3)}):
            edited = logits(model, given)
    assert torch.equal(before, after)
    assert not torch.allclose(before, edited)
    assert len(tape)
    if row not in STORY_ROWS or "2016" in row:
        return
    steps = torch.cat([call.weights for call in tape], 2)  # [B,1,hops,M]
    for place, count in enumerate(COUNTS):
        empty = steps.shape[3] - max(COUNTS)  # a key for the empty slots of MemN2N, before facts
        expected = torch.full_like(steps[place, 0, :, 0], float(count > 0 or empty))
        torch.testing.assert_close(steps[place, 0].sum(1), expected)
        assert not steps[place, 0, :, count + empty :].any()


@pytest.mark.parametrize("row", ROWS)
def test_a_saved_model_loads_to_the_same_bits(row: str) -> None:
    model, other = (
        built(row).eval(),
        built(row, init_range=0.9) if row in STORY_ROWS else built(row),
    )
    other.load_state_dict(load(save(model.state_dict())))
    with torch.no_grad():
        assert torch.equal(logits(model, batch(row)), logits(other.eval(), batch(row)))


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (row, field)
        for row in ROWS
        if ROWS[row][0] == row
        for field in vars(MODELS[row])["Config"].model_fields
    ],
)
def test_every_field_of_the_config_makes_a_difference(row: str, field: str) -> None:
    changed = {**CHANGED, **ONE_ATTENTION} if row in POLICY_ROWS else CHANGED
    one, other = built(row), built(row, **{field: changed[field]})
    shapes = [{n: tuple(p.shape) for n, p in each.named_parameters()} for each in (one, other)]
    if shapes[0] != shapes[1]:
        return
    losses = []
    for model in (one, other):
        torch.manual_seed(3)
        losses.append(loss(model.train(), batch(row)))
    assert not torch.equal(*losses)


@pytest.mark.parametrize("row", [*STORY_ROWS, *EPISODE_ROWS])
def test_a_few_are_learnt_by_heart(row: str, as_users_run_it: None) -> None:
    steady = {"dropout": 0.0} if ROWS[row][0] == "dmn" else {}
    model, given = built(row, **steady), batch(row)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    first = loss(model, given).item()
    for _ in range(80):
        optimiser.zero_grad()
        loss(model, given).backward()
        optimiser.step()
    assert loss(model, given).item() < 0.5 * first
