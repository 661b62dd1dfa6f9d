"""Recording and editing: the right weights, from the right sites, and nothing else disturbed."""

import ast
import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import regard.attention
from regard.attention import (
    Attend,
    Dot,
    Look,
    causal,
    frozen,
    intervene,
    only_rows,
    padding,
    permuted,
    record,
    sites_of,
    uniform,
    without,
)
from regard.attention.tape import AXIS_NAMES, KINDS
from regard.core.errors import UserError
from regard.layers import Cache, DecoderBlock, EncoderBlock

B, T, S, D, H = 2, 5, 4, 16, 4


class Translator(nn.Module):
    """Two encoder and two decoder layers of our parts, as any model here is made."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(EncoderBlock(D, H, 24) for _ in range(2))
        self.decoder = nn.ModuleList(DecoderBlock(D, H, 24) for _ in range(2))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        for block in self.encoder:
            source = block(source)
        for block in self.decoder:
            target = block(target, block.cross.remember(source), causal())
        return target


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(B, S, D), torch.randn(B, T, D)


def test_sites_have_readable_names() -> None:
    assert list(sites_of(Translator())) == [
        "encoder.0.attention",
        "encoder.1.attention",
        "decoder.0.attention",
        "decoder.0.cross",
        "decoder.1.attention",
        "decoder.1.cross",
    ]


def test_only_the_chosen_sites_heads_and_rows_are_kept() -> None:
    model, inputs = Translator(), batch()
    with record(model) as everything:
        model(*inputs)
    with record(model, sites="decoder.*.cross", heads=[2, 0], rows=[-1, 1]) as tape:
        model(*inputs)
    assert tape.sites == ("decoder.0.cross", "decoder.1.cross")
    for site in tape.sites:
        (call,) = tape[site]
        assert (call.kind, call.axes) == ("cross", ("target", "source"))
        assert (call.heads, call.rows) == ((2, 0), (T - 1, 1))
        whole = everything.weights(site)
        assert whole.shape == (B, H, T, S)
        torch.testing.assert_close(call.weights, whole[:, [2, 0]][:, :, [T - 1, 1]])


def test_rows_may_be_a_slice_and_sites_several() -> None:
    model, inputs = Translator(), batch()
    with record(model, sites=["encoder.1.*", "decoder.0.attention"], rows=slice(1, 3)) as tape:
        model(*inputs)
    assert tape.sites == ("encoder.1.attention", "decoder.0.attention")
    assert tape.weights("encoder.1.attention").shape == (B, H, 2, S)
    assert len(tape) == 2
    assert [call.rows for call in tape] == [(1, 2), (1, 2)]


def test_recorded_weights_are_those_used_when_computed_in_many_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, inputs = Translator(), batch()
    with record(model) as whole:
        model(*inputs)
    monkeypatch.setattr("regard.attention.attend.CHUNK_ELEMENTS", 1)
    with record(model) as chunked:
        model(*inputs)
    for one, other in zip(whole, chunked, strict=True):
        torch.testing.assert_close(one.weights, other.weights)


def test_decoder_steps_are_joined_explicitly() -> None:
    block = EncoderBlock(D, H, 24)
    x = torch.randn(B, T, D)
    with record(block) as whole:
        block(x, causal())
    cache = Cache()
    with record(block, heads=[1]) as steps:
        for part in x.split(1, dim=1):
            _, cache = block.step(part, cache, causal())
    assert [call.rows for call in steps["attention"]] == [(t,) for t in range(T)]
    joined = steps.join("attention")
    torch.testing.assert_close(joined, whole.weights("attention")[:, 1:2])
    with pytest.raises(UserError, match=r"made 5 calls: join them, tape.join\('attention'\)"):
        steps.weights("attention")


def test_calls_of_another_batch_are_not_joined() -> None:
    block = EncoderBlock(D, H, 24)
    with record(block) as tape:
        block(torch.randn(2, T, D))
        block(torch.randn(3, T, D))
    with pytest.raises(UserError, match="batch and heads differ"):
        tape.join("attention")


def test_nested_records_each_keep_their_own() -> None:
    model, inputs = Translator(), batch()
    with record(model, sites="encoder.*") as outer:
        with record(model, sites="decoder.*", heads=[0]) as inner:
            model(*inputs)
        model(*inputs)
    assert [len(outer[site]) for site in outer.sites] == [2, 2]
    assert len(inner) == 4
    assert inner.weights("decoder.0.cross").shape[1] == 1


def test_a_record_of_a_part_hears_the_part_alone() -> None:
    model, inputs = Translator(), batch()
    with record(model) as outer, record(model.decoder[1]) as inner:
        model(*inputs)
    assert inner.sites == ("attention", "cross")
    assert len(outer.sites) == 6
    assert torch.equal(inner.weights("cross"), outer.weights("decoder.1.cross"))


def test_attention_outside_the_recorded_model_raises() -> None:
    model, other = Translator(), EncoderBlock(D, H, 24)
    with pytest.raises(UserError, match="outside the models being recorded"), record(model):
        other(torch.randn(B, T, D))
    with record(model) as tape, record(other) as its_own:
        model(*batch())
        other(torch.randn(B, T, D))
    assert len(tape) == 6
    assert its_own.sites == ("attention",)


def test_an_empty_record_is_never_quiet() -> None:
    model = Translator()
    with pytest.raises(UserError, match="nothing was recorded"), record(model):
        pass
    with record(model) as tape:
        model.encoder[0](torch.randn(B, S, D))
    with pytest.raises(UserError, match=r"'decoder\.0\.cross' was listened to but made no call"):
        tape.weights("decoder.0.cross")
    with pytest.raises(UserError, match=r"did you mean 'encoder\.0\.attention'"):
        tape.weights("encoder.0.atention")


def test_an_error_inside_the_block_closes_the_record_and_comes_through() -> None:
    model, other = Translator(), EncoderBlock(D, H, 24)
    with pytest.raises(ZeroDivisionError), record(model):
        raise ZeroDivisionError
    assert other(torch.randn(B, T, D)).shape == (B, T, D)


def test_threads_do_not_hear_one_another() -> None:
    model, inputs = Translator(), batch()
    other = EncoderBlock(D, H, 24)
    barrier, heard, errors = threading.Barrier(2), [], []

    def recording() -> None:
        with record(model, heads=[0]) as tape:
            barrier.wait()
            for _ in range(20):
                model(*inputs)
        heard.append(len(tape))

    def working() -> None:
        try:
            barrier.wait()
            for _ in range(20):
                model(*inputs)
                other(torch.randn(B, T, D))
        except UserError as error:
            errors.append(error)

    threads = [threading.Thread(target=target) for target in (recording, working)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (heard, errors) == ([20 * 6], [])


def test_edits_change_the_weights_where_they_are_used() -> None:
    attend = Attend(Dot(4))
    query, key, value = torch.randn(B, H, T, 4), torch.randn(B, H, S, 4), torch.randn(B, H, S, 4)
    memory, real = attend.remember(key, value), padding(torch.tensor([S, 2]))
    own = attend.weights(query, memory, real)
    given = torch.rand(B, H, T, S)
    average = torch.stack((value[0].mean(1), value[1, :, :2].mean(1))).unsqueeze(2)
    keep = torch.tensor([1.0, 0.0, 1.0, 0.0]).view(H, 1, 1)
    expected = {
        "uniform": (uniform, average.expand(B, H, T, 4)),
        "frozen": (frozen(given), given @ value),
        "without": (without(1, -1), (own @ value) * keep),
        "as it is": (lambda weights, look: weights, own @ value),
    }
    for name, (edit, read) in expected.items():
        with intervene(attend, {"*": edit}):
            torch.testing.assert_close(attend(query, memory, real), read, msg=name)
    torch.testing.assert_close(attend(query, memory, real), own @ value)


def test_a_permutation_moves_weights_among_allowed_keys_alone() -> None:
    attend = Attend(Dot(4))
    query, key = torch.randn(1, 1, T, 4), torch.randn(1, 1, T, 4)
    memory, mask = attend.remember(key, key), causal()
    own = attend.weights(query, memory, mask)
    with intervene(attend, {"attend": permuted(seed=3)}), record(attend) as tape:
        attend(query, memory, mask)
        attend(query, memory, mask)
    first, second = (call.weights for call in tape["attend"])
    for moved in (first, second):
        assert (moved[~mask.table(T, T)] == 0).all()
        torch.testing.assert_close(moved.sort(-1).values, own.sort(-1).values)
    assert not torch.equal(first, second)
    with intervene(attend, {"attend": permuted(seed=3)}), record(attend) as again:
        attend(query, memory, mask)
    assert torch.equal(again.weights("attend"), first)


def test_edits_nest_from_the_outside_in_and_records_hear_the_result() -> None:
    attend = Attend(Dot(4))
    query = torch.randn(1, H, T, 4)
    memory = attend.remember(query, query)
    with (
        intervene(attend, {"*": uniform}),
        intervene(attend, {"*": only_rows([0], without(2))}),
        record(attend) as tape,
    ):
        attend(query, memory)
    weights = tape.weights("attend")
    assert (weights[:, 2, 0] == 0).all()
    torch.testing.assert_close(weights[:, 2, 1:], torch.full((1, T - 1, T), 1 / T))
    torch.testing.assert_close(weights[:, 0], torch.full((1, T, T), 1 / T))


def test_an_edit_knows_where_it_is_and_later_globs_win() -> None:
    model, inputs, seen = Translator(), batch(), []

    def spy(weights: Tensor, look: Look) -> Tensor:
        seen.append((look.site, look.kind, look.first, look.allowed is None))
        return weights

    with intervene(model, {"decoder.*": uniform, "decoder.0.*": spy}), record(model) as tape:
        model(*inputs)
    assert seen == [
        ("decoder.0.attention", "self", 0, False),
        ("decoder.0.cross", "cross", 0, True),
    ]
    torch.testing.assert_close(tape.weights("decoder.1.cross"), torch.full((B, H, T, S), 1 / S))


def test_gradients_reach_the_weights_through_an_edit() -> None:
    attend = Attend(Dot(4))
    query = torch.randn(1, 1, T, 4)
    memory, kept = attend.remember(query, query), []

    def keep(weights: Tensor, look: Look) -> Tensor:
        kept.append(weights.detach().requires_grad_())
        return kept[-1]

    with intervene(attend, {"*": keep}):
        attend(query, memory).sum().backward()
    torch.testing.assert_close(kept[0].grad, query.sum(3)[:, :, None].expand(1, 1, T, T))


def test_bad_requests_are_named(as_users_run_it: None) -> None:
    model, inputs = Translator(), batch()
    with pytest.raises(UserError, match=r"unknown site 'decoder.\*.crss': did you mean"):
        record(model, sites="decoder.*.crss").__enter__()
    with pytest.raises(UserError, match="unknown site 'enc'"):
        intervene(model, {"enc": uniform}).__enter__()
    with pytest.raises(UserError, match="Linear has no attention built from regard"):
        record(nn.Linear(2, 2)).__enter__()
    with (
        pytest.raises(UserError, match=r"head 4 is out of range: site 'encoder.0.attention' has 4"),
        record(model, heads=[4]),
    ):
        model(*inputs)
    with pytest.raises(UserError, match="row -9 is out of range"), record(model, rows=[-9]):
        model(*inputs)
    with (
        pytest.raises(UserError, match="has heads 0 to 3, not 7"),
        intervene(model, {"*": without(7)}),
    ):
        model(*inputs)
    with (
        pytest.raises(UserError, match=r"frozen weights are \[1, 1\], but site"),
        intervene(model, {"*": frozen(torch.ones(1, 1))}),
    ):
        model(*inputs)
    with (
        pytest.raises(UserError, match=r"was given .* and returned"),
        intervene(model, {"*": lambda weights, look: weights[..., :1]}),
    ):
        model(*inputs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_names_its_axes_or_has_those_of_its_kind(kind: str) -> None:
    key = torch.randn(1, 1, 3, 4)
    for attend, axes in (
        (Attend(Dot(4), kind=kind), KINDS[kind]),
        (Attend(Dot(4), kind=kind, axes=("word", "picture")), ("word", "picture")),
    ):
        with record(attend) as tape:
            attend(key, attend.remember(key, key))
        assert attend.axes == tape["attend"][0].axes == axes


def test_one_name_is_not_a_pair_of_axes(as_users_run_it: None) -> None:
    with pytest.raises(UserError, match="must name two axes"):
        Attend(Dot(4), axes=("position",))  # type: ignore[arg-type]


def axes_in(path: Path) -> list[tuple[str, ...]]:
    """The pairs of axes that a file of the package names."""
    pairs = (
        word.value
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        for word in node.keywords
        if word.arg == "axes" and isinstance(word.value, ast.Tuple)
    )
    return [
        tuple(
            each.value
            for part in pair.elts
            for each in ast.walk(part)
            if isinstance(each, ast.Constant)
        )
        for pair in pairs
    ]


def test_every_axis_of_the_package_is_explained() -> None:
    package = Path(regard.attention.__file__).parent.parent
    files = [path for folder in ("models", "layers") for path in (package / folder).rglob("*.py")]
    named = {name for path in files for pair in axes_in(path) for name in pair}
    assert {"sentence", "sentinel", "next", "earlier", "text"} <= named
    assert named <= AXIS_NAMES.keys()
    assert {name for pair in KINDS.values() for name in pair} <= AXIS_NAMES.keys()
