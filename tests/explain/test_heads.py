"""Layers of several heads: each method against the same written out."""

import numpy as np
import pytest
import torch
from torch import Tensor

from regard.attention import intervene, record
from regard.attention.edit import frozen, without
from regard.core.protocols import Batch
from regard.explain.build import find_layers
from regard.explain.head_layers import LayerRecord, LayerStack, relevance, score_heads, value_norms
from regard.layers.block import EncoderBlock
from regard.look import Payload
from regard.look.measure import rollout
from regard.models.text.text_transformer import TextTransformer
from regard.tasks.abilities import Subject

BATCH = {
    "tokens": torch.tensor([[4, 5, 6, 7], [8, 9, 0, 0]]),
    "lengths": torch.tensor([4, 2]),
    "parts": torch.tensor([[0, 0, 0, 0], [0, 0, -1, -1]]),
}
SUBJECT = Subject(predict=lambda model, batch: model(batch).logits, padding={"parts": -1})
SITES = ("layers.0.attention", "layers.1.attention")


@pytest.fixture
def stack() -> LayerStack:
    torch.manual_seed(3)
    config = TextTransformer.Config(width=8, heads=2, hidden=8, layers=2)
    model = TextTransformer(config, vocabulary=12, classes=3).double().eval()
    for each in model.parameters():
        torch.nn.init.normal_(each, std=0.4)
    found = find_layers(model, "pool", SUBJECT)
    assert found is not None
    return found


def recorded(stack: LayerStack, batch: Batch) -> dict[str, Tensor]:
    with record(stack.model) as tape:
        stack.predict(batch)
    return {site: tape.weights(site) for site in tape.sites}


def test_rollout_is_that_of_the_pictures(stack: LayerStack) -> None:
    weights, found = recorded(stack, BATCH), score_heads(stack, BATCH)
    assert stack.sites == SITES
    top = weights["pool"].mean((1, 2))
    for row in range(2):
        labels = "abcd"
        layers = [
            Payload.of(weights[site][row].tolist(), labels, labels, site=site, kind="self")
            for site in SITES
        ]
        wanted = top[row].numpy() @ rollout(layers).matrix
        np.testing.assert_allclose(found.methods["rollout"][row], wanted, atol=1e-6)


def test_raw_weights_are_those_of_the_last_layer_as_the_pooling_reads_it(stack: LayerStack) -> None:
    weights, found = recorded(stack, BATCH), score_heads(stack, BATCH)
    top = weights["pool"].mean((1, 2))
    wanted = torch.einsum("bq,bhqk->bk", top, weights[SITES[1]]) / 2
    torch.testing.assert_close(found.methods["raw"], wanted)
    one = torch.einsum("bq,bqk->bk", top, weights[SITES[0]][:, 1])
    torch.testing.assert_close(found.heads[f"{SITES[0]} 1"], one)


def test_gradients_are_finite_differences_of_the_logit(stack: LayerStack) -> None:
    layer, weights = stack.run(BATCH)[SITES[0]], recorded(stack, BATCH)
    held = {site: frozen(weights[site]) for site in SITES}

    def likeliest(more: float) -> Tensor:
        changed = weights[SITES[0]].clone()
        changed[:, 1, 0, 1] += more
        with torch.no_grad(), intervene(stack.model, {**held, SITES[0]: frozen(changed)}):
            return stack.predict(BATCH)

    best = likeliest(0.0).argmax(1)
    rows = torch.arange(2)
    rise = (likeliest(1e-5)[rows, best] - likeliest(-1e-5)[rows, best]) / 2e-5
    torch.testing.assert_close(layer.gradients[:, 1, 0, 1], rise, atol=1e-8, rtol=1e-5)


def test_values_go_through_the_output_projection_of_their_head(stack: LayerStack) -> None:
    layer, weights = stack.run(BATCH)[SITES[1]], recorded(stack, BATCH)[SITES[1]]
    block = stack.model.get_submodule("layers.1")
    assert isinstance(block, EncoderBlock)
    entered: list[Tensor] = []
    hook = block.attention.register_forward_hook(lambda _, given, made: entered.append(made))
    stack.predict(BATCH)
    hook.remove()
    whole = torch.einsum("bhqk,bhkd->bqd", weights, layer.values) + block.attention.merge.bias
    torch.testing.assert_close(whole, entered[0])


def test_value_norms_are_those_of_the_sum_over_heads() -> None:
    weights = torch.tensor([[[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]]])
    taken = torch.tensor([[[[3.0, 0.0], [1.0, 0.0]], [[0.0, 4.0], [-1.0, 0.0]]]])
    layer = LayerRecord(weights, torch.zeros_like(weights), taken)
    assert value_norms(torch.tensor([[1.0, 0.0]]), layer).tolist() == [[5.0, 0.0]]
    assert value_norms(torch.tensor([[0.0, 1.0]]), layer).tolist() == [[0.0, 0.0]]  # they cancel


def relevance_by_loops(layers: list[LayerRecord], row: int) -> list[list[float]]:
    """Equations 5 and 6 of Chefer et al. 2021, number by number, for one text."""
    heads, size = layers[0].weights.shape[1:3]
    total = [[float(i == j) for j in range(size)] for i in range(size)]
    for layer in layers:
        mean = [[0.0] * size for _ in range(size)]
        for i in range(size):
            for j in range(size):
                for head in range(heads):
                    weight, slope = layer.weights[row, head, i, j], layer.gradients[row, head, i, j]
                    mean[i][j] += max(0.0, float(weight) * float(slope)) / heads
        total = [
            [total[i][j] + sum(mean[i][k] * total[k][j] for k in range(size)) for j in range(size)]
            for i in range(size)
        ]
    return total


def test_relevance_is_the_rule_of_the_paper(stack: LayerStack) -> None:
    layers = list(stack.run(BATCH).values())
    drawn = [
        LayerRecord(
            torch.rand(2, 3, 4, 4).softmax(3), torch.randn(2, 3, 4, 4), torch.zeros(2, 3, 4, 4)
        )
        for _ in range(3)
    ]
    for each in (layers, drawn):
        wanted = torch.tensor([relevance_by_loops(each, row) for row in range(2)]).double()
        torch.testing.assert_close(relevance(each), wanted, atol=1e-6, rtol=1e-6)
    top, found = recorded(stack, BATCH)["pool"].mean((1, 2)), score_heads(stack, BATCH)
    wanted = (top[:, None] @ relevance(layers)).squeeze(1)
    torch.testing.assert_close(found.methods["attention x gradient"], wanted, atol=1e-12, rtol=0)


def test_relevance_keeps_what_float32_would_lose_beside_the_identity() -> None:
    weights, slopes = torch.full((1, 1, 2, 2), 0.5), torch.full((1, 1, 2, 2), 2e-10)
    found = relevance([LayerRecord(weights, slopes, weights)])
    assert found.dtype == torch.float64
    assert float(found[0, 0, 0] - 1) == pytest.approx(1e-10, rel=1e-5)


def test_negative_products_do_not_lower_the_relevance() -> None:
    weights = torch.full((1, 2, 2, 2), 0.5)
    slopes = torch.tensor([[[[1.0, -1.0], [0.0, 0.0]], [[-8.0, 3.0], [0.0, 0.0]]]])
    assert relevance([LayerRecord(weights, slopes, weights)]).tolist() == [
        [[1.25, 0.75], [0.0, 1.0]]
    ]


def test_the_change_without_a_head_is_the_total_variation(stack: LayerStack) -> None:
    found = score_heads(stack, BATCH)
    assert list(found.changes) == [f"{site} {head}" for site in SITES for head in range(2)]
    with torch.no_grad():
        own = stack.predict(BATCH).softmax(1)
        with intervene(stack.model, {SITES[1]: without(0)}):
            other = stack.predict(BATCH).softmax(1)
    torch.testing.assert_close(found.changes[f"{SITES[1]} 0"], (own - other).abs().sum(1) / 2)


def test_padding_scores_zero(stack: LayerStack) -> None:
    for numbers in score_heads(stack, BATCH).methods.values():
        assert (numbers[1, 2:] == 0).all()
        assert (numbers[0] > 0).all()
