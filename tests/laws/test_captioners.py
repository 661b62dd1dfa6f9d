"""Laws of captioners: models that write a sentence about the places of an image."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.attention import intervene, record, uniform
from regard.attention.tape import sites_of
from regard.core.padding import IGNORE
from regard.models import MODELS
from tests.laws.families import FAMILIES

NAMES = FAMILIES["captioners"]
B, N, T, V, C = 3, 6, 5, 11, 7
PAD, BOS = 0, 2
WRITTEN = torch.tensor([5, 2, 4])

ATTENDING: dict[str, object] = {"width": 6, "hidden": 8, "project": 5}
ROWS: dict[str, tuple[str, dict[str, object]]] = {
    "show_and_tell": ("show_and_tell", {"width": 6, "hidden": 8}),
    "show_and_tell, tied": ("show_and_tell", {"width": 6, "hidden": 8, "tied": True}),
    "show_attend_tell": ("show_attend_tell", ATTENDING),
    "show_attend_tell, other": (
        "show_attend_tell",
        {**ATTENDING, "project": 0, "gate": False, "doubly": 0.0, "score": "bilinear"},
    ),
    "show_attend_tell, weights that are carried on": (
        "show_attend_tell",
        {**ATTENDING, "score": "coverage", "weigh": "sparsemax"},
    ),
    "hard_attend_tell": ("hard_attend_tell", ATTENDING),
    "hard_attend_tell, other": (
        "hard_attend_tell",
        {**ATTENDING, "baseline": "learned", "reward": "step", "doubly": 0.5},
    ),
}
"""Small models, by a label: the name in MODELS and a config."""

OTHER: dict[str, dict[str, object]] = {
    "show_and_tell": {
        "width": 4, "hidden": 6, "dropout": 0.4, "tied": True, "init_range": 0.5,
    },
    "show_attend_tell": {
        "width": 4, "hidden": 6, "dropout": 0.4, "tied": True, "init_range": 0.5, "project": 4,
        "score": "bilinear", "weigh": "sparsemax", "gate": False, "doubly": 3.0,
    },
    "hard_attend_tell": {
        "width": 4, "hidden": 6, "dropout": 0.4, "tied": True, "init_range": 0.5, "project": 4,
        "score": "bilinear", "weigh": "sparsemax", "gate": False, "doubly": 3.0,
        "reward": "step", "baseline": "none", "entropy": 0.7, "expectation": 1.0,
    },
}  # fmt: skip
"""For each field of a config a value other than the plain one's."""


def made(name: str, config: Mapping[str, object]) -> nn.Module:
    return MODELS[name](MODELS[name].Config(**config), vocabulary=V, features=C)


def built(label: str) -> nn.Module:
    torch.manual_seed(3)
    name, config = ROWS[label]
    return made(name, config).eval()


def batch() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(4, V, (B, T), generator=generator)
    tokens[:, 0] = BOS
    targets = torch.randint(3, V, (B, T), generator=generator)
    over = torch.arange(T) >= WRITTEN[:, None]
    return {
        "patches": torch.randn(B, N, C, generator=generator),
        "tokens": tokens.masked_fill(over, PAD),
        "targets": targets.masked_fill(over, IGNORE),
    }


def stepped(model: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
    state, rows = model.start(given), []
    for tokens in given["tokens"].unbind(1):
        logits, state = model.step(tokens, state)
        rows.append(logits)
    return torch.stack(rows, 1)


def test_every_captioner_is_in_these_tables() -> None:
    assert {name for name, _ in ROWS.values()} == set(NAMES) == set(OTHER)


@pytest.mark.parametrize("label", ROWS)
def test_steps_equal_the_whole(label: str) -> None:
    model, given = built(label), batch()
    torch.testing.assert_close(stepped(model, given), model(given).logits(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("label", ROWS)
def test_rows_of_a_beam_share_their_image(label: str) -> None:
    model, given = built(label), batch()
    rows = torch.tensor([0, 0, 1, 1, 2, 2])
    alone = stepped(model, given)
    state = model.start(given).select(rows)
    for step, tokens in enumerate(given["tokens"].unbind(1)):
        logits, state = model.step(tokens[rows], state)
        torch.testing.assert_close(logits, alone[rows, step], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("label", ROWS)
def test_the_future_and_batch_mates_never_matter(label: str) -> None:
    model, given = built(label), batch()
    whole = model(given).logits()
    one = {name: each[1:2] for name, each in given.items()}
    torch.testing.assert_close(model(one).logits()[0], whole[1], atol=1e-5, rtol=1e-5)
    other = {**given, "tokens": given["tokens"].clone()}
    other["tokens"][:, 3:] = 9
    torch.testing.assert_close(model(other).logits()[:, :3], whole[:, :3], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("label", ROWS)
def test_every_place_of_the_image_matters(label: str) -> None:
    if "hard" in label:
        pytest.skip("hard attention reads one place a step")
    model, given = built(label), batch()
    given["patches"].requires_grad_()
    model(given).logits().square().sum().backward()
    assert (given["patches"].grad.abs().sum((0, 2)) > 0).all()


@pytest.mark.parametrize("label", ROWS)
def test_padding_of_targets_has_no_loss(label: str) -> None:
    model, given = built(label).train(), batch()
    wider = {
        "patches": given["patches"],
        "tokens": torch.cat((given["tokens"], torch.full((B, 2), PAD)), 1),
        "targets": torch.cat((given["targets"], torch.full((B, 2), IGNORE)), 1),
    }
    if "hard" in label:
        model.config = model.config.model_copy(update={"expectation": 1.0})
    torch.manual_seed(0)
    expected = model(given).loss(given)
    torch.manual_seed(0)
    torch.testing.assert_close(model(wider).loss(wider), expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("label", [label for label in ROWS if "attend" in label])
def test_recording_changes_nothing_and_edits_do(label: str) -> None:
    model, given = built(label), batch()
    plain = model(given).logits()
    with record(model) as tape:
        assert torch.equal(model(given).logits(), plain)
    (site,) = tape.sites
    weights = tape.join(site)
    assert weights.shape == (B, 1, T, N)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, 1, T))
    assert sites_of(model)[site].axes == ("target", "patch")
    if "hard" not in label:
        with intervene(model, {"*": uniform}):
            assert not torch.allclose(model(given).logits(), plain)


@pytest.mark.parametrize("label", ROWS)
def test_a_saved_model_loads_to_the_same_bits(label: str, tmp_path: Path) -> None:
    model, given = built(label), batch()
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    torch.manual_seed(99)
    name, config = ROWS[label]
    other = made(name, config).eval()
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(other(given).logits(), model(given).logits())


@pytest.mark.parametrize(
    ("name", "field"), [(name, each) for name in NAMES for each in MODELS[name].Config.model_fields]
)
def test_every_field_of_a_config_makes_a_difference(name: str, field: str) -> None:
    assert field in OTHER[name], "a new field needs another value in the table"

    def begun(changes: Mapping[str, object]) -> tuple[dict[str, torch.Size], Tensor]:
        torch.manual_seed(1)
        model = made(name, {**ROWS[name][1], **changes}).train()
        return {key: each.shape for key, each in model.state_dict().items()}, model(batch()).loss(
            batch()
        )

    shapes, loss = begun({})
    other_shapes, other = begun({field: OTHER[name][field]})
    assert shapes != other_shapes or (loss - other).abs() > 1e-5
