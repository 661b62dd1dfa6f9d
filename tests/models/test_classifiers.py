"""Classifiers against literal loops over the equations of their papers."""

import torch
from torch import Tensor

from regard.attention import record
from regard.models.attention_pool import AttentionPooling
from regard.models.bag_of_ngrams import FACTOR, BagOfNgrams
from regard.models.han import HAN
from regard.models.text_cnn import TextCNN

V, C = 12, 3
TOKENS = torch.tensor([[4, 5, 6, 7, 5, 8]])
BATCH = {
    "tokens": TOKENS,
    "lengths": torch.tensor([6]),
    "parts": torch.tensor([[0, 0, 0, 1, 1, 2]]),
}


def test_a_bag_of_ngrams_is_the_mean_of_hashed_rows() -> None:
    model = BagOfNgrams(BagOfNgrams.Config(width=4, ngrams=3, buckets=40), V, C)
    torch.nn.init.normal_(model.output.weight)
    words = TOKENS[0].tolist()
    rows = [model.table.weight[word] for word in words]
    for size in (2, 3):
        for first in range(len(words) - size + 1):
            hashed = words[first]
            for word in words[first + 1 : first + size]:
                hashed = (hashed * FACTOR + word) % 2**64
            signed = hashed - 2**64 if hashed >= 2**63 else hashed
            rows.append(model.table.weight[V + signed % 40])
    expected = model.output(torch.stack(rows).mean(0))
    torch.testing.assert_close(model(BATCH)[0], expected)


def test_the_gradient_of_a_bag_is_a_few_rows() -> None:
    model = BagOfNgrams(BagOfNgrams.Config(width=4, buckets=1000), V, C)
    torch.nn.init.normal_(model.output.weight)
    model(BATCH).sum().backward()
    grad = model.table.weight.grad
    assert grad is not None
    assert grad.is_sparse
    assert grad.coalesce().values().shape[0] <= 6 + 5


def pooled(states: Tensor, weight: Tensor, bias: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """u = tanh(W h + b), α = softmax(uᵀ q), Σ α h: Yang et al. eq. 5 to 7, word by word."""
    scores = torch.stack([(weight @ h + bias).tanh() @ query for h in states])
    weights = scores.exp() / scores.exp().sum()
    return sum((a * h for a, h in zip(weights, states, strict=True)), torch.zeros(())), weights


def test_attention_pooling_is_jain_and_wallace() -> None:
    model = AttentionPooling(AttentionPooling.Config(width=5, hidden=4), V, C).eval()
    states = model.encoder(model.words(BATCH), BATCH["lengths"])[0]
    assert model.pool.hidden is not None
    assert model.pool.query is not None
    read, weights = pooled(
        states, model.pool.hidden.weight, model.pool.hidden.bias, model.pool.query
    )
    with record(model) as tape:
        found = model(BATCH)
    torch.testing.assert_close(found[0], model.output(read))
    torch.testing.assert_close(tape.weights("pool")[0, 0, 0], weights.detach())


def test_han_is_two_levels_of_the_same() -> None:
    model = HAN(HAN.Config(width=5, hidden=4, attention=6), V, C).eval()
    vectors = model.words(BATCH)[0]
    sentences, looks = [], []
    for begin, end in ((0, 3), (3, 5), (5, 6)):
        states = model.word_encoder(vectors[None, begin:end], torch.tensor([end - begin]))[0]
        level = model.word_pool
        assert level.hidden is not None
        assert level.query is not None
        read, weights = pooled(states, level.hidden.weight, level.hidden.bias, level.query)
        sentences.append(read)
        looks.append(weights)
    read = model.sentence_encoder(torch.stack(sentences)[None], torch.tensor([3]))[0]
    level = model.sentence_pool
    assert level.hidden is not None
    assert level.query is not None
    document, outer = pooled(read, level.hidden.weight, level.hidden.bias, level.query)
    with record(model) as tape:
        found = model(BATCH)
    torch.testing.assert_close(found[0], model.output(document))
    torch.testing.assert_close(tape.weights("sentence_pool")[0, 0, 0], outer.detach())
    words = tape.weights("word_pool")[0, 0]  # sentences by words
    torch.testing.assert_close(words[0, :3], looks[0].detach())
    torch.testing.assert_close(words[1, 3:5], looks[1].detach())
    assert not words[0, 3:].any()


def test_a_cnn_is_the_most_that_each_filter_finds() -> None:
    model = TextCNN(TextCNN.Config(width=5, windows=(2,), filters=4), V, C).eval()
    vectors = torch.nn.functional.pad(model.words(BATCH)[0], (0, 0, 1, 1))
    filters = model.filters[0]
    found = [
        (filters.weight * vectors[place : place + 2].t()).sum((1, 2)) + filters.bias
        for place in range(7)
    ]
    expected = model.output(torch.stack(found).relu().amax(0))
    torch.testing.assert_close(model(BATCH)[0], expected)
