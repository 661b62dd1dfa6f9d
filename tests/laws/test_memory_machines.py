"""Laws of machines that read and write a memory, over the whole table."""

from collections.abc import Mapping

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from regard.attention import intervene, record
from regard.attention.edit import uniform
from regard.kernels.switch import disabled
from regard.models import MODELS
from regard.outputs.bits import Bits
from tests.laws.families import FAMILIES

NAMES = FAMILIES["memory machines"]
REMEMBERING = [name for name in NAMES if name != "sequence_lstm"]
B, T, INPUTS, OUTPUTS, SLOTS = 3, 7, 4, 2, 6

SMALL: dict[str, dict[str, object]] = {
    "sequence_lstm": {"hidden": 5, "layers": 2},
    "ntm": {"hidden": 7, "slots": SLOTS, "width": 5},
    "dnc": {"hidden": 7, "slots": SLOTS, "width": 5, "read_heads": 2},
    "sam": {"hidden": 7, "slots": SLOTS, "width": 5, "heads": 2, "nearest": 3},
}
OTHER: dict[str, dict[str, object]] = {
    "sequence_lstm": {"hidden": 6, "layers": 1},
    "ntm": {
        "controller": "feedforward",
        "hidden": 6,
        "slots": 4,
        "width": 3,
        "read_heads": 3,
        "write_heads": 2,
        "reach": 2,
        "initial": "learned",
    },
    "dnc": {"controller": "feedforward", "hidden": 6, "slots": 4, "width": 3, "read_heads": 3},
    "sam": {
        "controller": "feedforward",
        "hidden": 6,
        "slots": 4,
        "width": 3,
        "heads": 3,
        "nearest": 2,
        "index": "hashed",
    },
}
"""Another value for every field of every config: each must make a difference."""

MORE: dict[str, list[dict[str, object]]] = {
    "ntm": [
        {"slots": 1},
        {"slots": 2, "reach": 3},
        {"read_heads": 3, "write_heads": 2, "initial": "random"},
        {"controller": "feedforward", "initial": "learned"},
    ],
    "dnc": [{"slots": 1}, {"slots": 2, "controller": "feedforward"}],
    "sam": [
        {"slots": 1, "heads": 1},
        {"nearest": SLOTS},
        {"index": "hashed"},
        {"controller": "feedforward", "slots": 2},
    ],
}
"""Further configs, a memory of one slot among them."""

ROWS = [(name, {}) for name in NAMES] + [(name, more) for name in MORE for more in MORE[name]]


def made(name: str, changes: Mapping[str, object] | None = None) -> nn.Module:
    """A small one before training."""
    config = MODELS[name].Config(**{**SMALL[name], **(changes or {})})
    return MODELS[name](config, inputs=INPUTS, outputs=OUTPUTS)


def built(name: str, changes: Mapping[str, object] | None = None, seed: int = 3) -> nn.Module:
    """A small one in double, with weights large enough that everything matters."""
    torch.manual_seed(seed)
    model = made(name, changes).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    return model


def batch(rows: int = B, steps: int = T) -> dict[str, Tensor]:
    torch.manual_seed(2)
    return {
        "inputs": torch.randn(rows, steps, INPUTS).double(),
        "bits": torch.rand(rows, steps, OUTPUTS).double().round(),
        "scored": torch.rand(rows, steps) < 0.7,
    }


def heads_of(model: nn.Module) -> dict[str, int]:
    """The number of heads at each site."""
    config = model.config
    if hasattr(config, "heads"):
        return {"read": config.heads, "write": config.heads}
    return {"read": config.read_heads, "write": getattr(config, "write_heads", 1)}


def logits(model: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
    return Bits.of(model, given).logits


def test_every_model_is_in_these_tables() -> None:
    assert set(SMALL) == set(OTHER) == set(NAMES)
    assert set(MORE) == set(REMEMBERING)


@pytest.mark.parametrize(("name", "changes"), ROWS)
def test_the_future_never_reaches_the_past(name: str, changes: dict[str, object]) -> None:
    model, whole = built(name, changes), batch()
    other = {**whole, "inputs": whole["inputs"].clone()}
    other["inputs"][:, 4:] += 1
    before, after = logits(model, whole), logits(model, other)
    assert torch.equal(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


@pytest.mark.parametrize(("name", "changes"), ROWS)
def test_batch_mates_never_matter(name: str, changes: dict[str, object]) -> None:
    model, whole = built(name, changes), batch()
    together = logits(model, whole)
    for row in range(B):
        alone = logits(model, {"inputs": whole["inputs"][row : row + 1]})
        torch.testing.assert_close(alone[0], together[row])


@pytest.mark.parametrize("name", REMEMBERING)
def test_steps_equal_the_whole_and_a_state_is_a_value(name: str) -> None:
    model, whole = built(name), batch()
    drives = model.controller.drive(whole["inputs"])
    states, found = [model.start(B)], []
    for drive in drives:
        both, state = model.step(drive, states[-1])
        states.append(state)
        found.append(model.output(both))
    torch.testing.assert_close(torch.stack(found, 1), logits(model, whole))
    rows = torch.tensor([2, 0])
    for at in (0, 3):  # an earlier state goes on as it did, in other rows too
        both, _ = model.step(drives[at], states[at])
        assert torch.equal(model.output(both), found[at])
        both, _ = model.step(drives[at][rows], states[at].select(rows))
        torch.testing.assert_close(model.output(both), found[at][rows])


@pytest.mark.parametrize(("name", "changes"), [row for row in ROWS if row[0] in REMEMBERING])
def test_record_has_every_head_of_every_step(name: str, changes: dict[str, object]) -> None:
    model, whole = built(name, changes), batch()
    plain = logits(model, whole)
    with record(model) as tape:
        recorded = logits(model, whole)
    assert torch.equal(plain, recorded)
    config = model.config
    heads = heads_of(model)
    assert set(tape.sites) == {"read", "write"}
    for site, count in heads.items():
        weights = tape.join(site)
        assert weights.shape == (B, count, T, config.slots)
        assert [call.rows for call in tape[site]] == [(step,) for step in range(T)]
        assert (weights >= 0).all()
        assert (weights.sum(3) <= 1 + 1e-9).all()
    if changes.get("index") == "hashed":
        return  # with kernels off all slots are compared, not only those of the same hash
    with disabled(), record(model) as other:
        torch.testing.assert_close(logits(model, whole), plain)
    for site in tape.sites:
        torch.testing.assert_close(other.join(site), tape.join(site))


@pytest.mark.parametrize("name", REMEMBERING)
@pytest.mark.parametrize("site", ["read", "write"])
def test_an_edit_of_any_head_at_any_step_is_what_the_machine_uses(name: str, site: str) -> None:
    model, whole = built(name), batch()
    plain = logits(model, whole)
    with intervene(model, {site: uniform}), record(model) as tape:
        edited = logits(model, whole)
    share = torch.full_like(tape.join(site), 1 / SLOTS)
    torch.testing.assert_close(tape.join(site), share)
    assert not torch.allclose(plain, edited)
    for step in range(T - 1):

        def late(weights: Tensor, look: object, step: int = step) -> Tensor:
            return uniform(weights, look) if look.first == step else weights

        with intervene(model, {site: late}):
            found = logits(model, whole)
        assert torch.allclose(found[:, :step], plain[:, :step])
        assert not torch.allclose(found[:, step:], plain[:, step:])
    with intervene(model, {site: lambda weights, look: weights}):
        torch.testing.assert_close(logits(model, whole), plain)


@pytest.mark.parametrize(("name", "changes"), ROWS)
def test_a_whole_sequence_has_the_gradient_of_its_differences(
    name: str, changes: dict[str, object]
) -> None:
    model, whole = built(name, changes), batch(2, 3)
    names, values = zip(*model.named_parameters(), strict=True)

    def run(inputs: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(model, given, ({"inputs": inputs},)).logits

    inputs = whole["inputs"].requires_grad_()
    assert torch.autograd.gradcheck(run, (inputs, *values), fast_mode=True)


@pytest.mark.parametrize("name", NAMES)
def test_kernels_off_have_the_same_gradients(name: str) -> None:
    model, whole = built(name), batch()

    def gradients() -> list[Tensor]:
        model.zero_grad()
        Bits.of(model, whole).loss(whole).backward()
        return [each.grad.clone() for each in model.parameters()]

    with_kernels = gradients()
    with disabled():
        for one, other in zip(gradients(), with_kernels, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_learns(name: str) -> None:
    model, whole = built(name), batch()
    Bits.of(model, whole).loss(whole).backward()
    for key, each in model.named_parameters():
        assert each.grad is not None, key
        assert each.grad.abs().sum() > 0, key


@pytest.mark.parametrize(
    ("name", "field"),
    [(name, field) for name in NAMES for field in MODELS[name].Config.model_fields],
)
def test_every_field_of_a_config_makes_a_difference(name: str, field: str) -> None:
    assert field in OTHER[name], "a new field needs another value in the table"
    found = [logits(built(name, changes), batch()) for changes in ({}, {field: OTHER[name][field]})]
    assert (found[0] - found[1]).abs().max() > 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_model_loads_to_the_same_bits(name: str) -> None:
    model, other, whole = built(name), built(name, seed=4), batch()
    assert not torch.equal(logits(model, whole), logits(other, whole))
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(logits(model, whole), logits(other, whole))


@pytest.mark.parametrize(("name", "changes"), ROWS)
@pytest.mark.parametrize("scale", [0.0, 10.0])
def test_no_step_is_ever_nan(name: str, changes: dict[str, object], scale: float) -> None:
    model = made(name, changes)
    for each in model.parameters():
        nn.init.normal_(each, std=scale)
    given = {"inputs": torch.randn(2, 100, INPUTS) * scale}
    found = logits(model, given)
    assert found.isfinite().all()
    found.sum().backward()
    assert all(each.grad.isfinite().all() for each in model.parameters() if each.grad is not None)


@pytest.mark.parametrize("name", REMEMBERING)
def test_thousands_of_steps_stay_finite_and_weights_stay_weights(
    name: str, as_users_run_it: None
) -> None:
    torch.manual_seed(1)
    model = made(name)
    for each in model.parameters():
        nn.init.normal_(each, std=1.5)
    with torch.no_grad(), record(model) as tape:
        found = logits(model, {"inputs": torch.randn(1, 3000, INPUTS)})
    assert found.isfinite().all()
    for site in tape.sites:
        weights = tape.join(site)[:, :, -100:]
        assert (weights >= 0).all()
        assert (weights.sum(3) < 1 + 1e-4).all()
