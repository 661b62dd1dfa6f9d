"""Classifiers against literal loops over the equations of their papers."""

import pytest
import torch
from torch import Tensor

from regard.attention import padding, record
from regard.layers.pool import AttentionPool
from regard.models.text.attention_pool import AttentionPooling
from regard.models.text.bag_of_ngrams import FACTOR, BagOfNgrams
from regard.models.text.bilstm_crf import BiLSTMCRF
from regard.models.text.han import HAN
from regard.models.text.text_cnn import TextCNN

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
    torch.testing.assert_close(model(BATCH).logits[0], expected)


def test_the_gradient_of_a_bag_is_a_few_rows() -> None:
    model = BagOfNgrams(BagOfNgrams.Config(width=4, buckets=1000), V, C)
    torch.nn.init.normal_(model.output.weight)
    model(BATCH).logits.sum().backward()
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
        found = model(BATCH).logits
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
        found = model(BATCH).logits
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
    torch.testing.assert_close(model(BATCH).logits[0], expected)


@pytest.mark.parametrize("bias", [-0.5, 0.0, 5.0])
@pytest.mark.parametrize("window", [1, 2, 3])
def test_filters_of_a_cnn_take_every_window_with_a_word_and_no_other(
    window: int, bias: float
) -> None:
    # A large bias makes windows without a word find most, if they were counted.
    model = TextCNN(TextCNN.Config(width=5, windows=(window,), filters=40), V, C).eval()
    filters = model.filters[0]
    torch.nn.init.normal_(filters.weight)
    torch.nn.init.constant_(filters.bias, bias)
    lengths = [6, 2, 1]
    tokens = torch.zeros(3, 9, dtype=torch.long)
    for row, length in enumerate(lengths):
        tokens[row, :length] = TOKENS[0, :length]
    batch = {"tokens": tokens, "lengths": torch.tensor(lengths)}
    words = 4 * model.words(batch)
    model.words.register_forward_hook(lambda *_: words)
    entered: list[Tensor] = []
    model.output.register_forward_pre_hook(lambda _, given: entered.append(given[0]))
    model(batch)
    for row, length in enumerate(lengths):
        zeros = torch.zeros(window - 1, 5)
        vectors = torch.cat((zeros, words[row, :length], zeros))
        most = torch.zeros(40)
        for place in range(length + window - 1):
            part = vectors[place : place + window].t()
            most = torch.maximum(most, (filters.weight * part).sum((1, 2)) + filters.bias)
        torch.testing.assert_close(entered[0][row], most)


def test_a_sentence_without_words_has_no_weight_in_a_document() -> None:
    model = HAN(HAN.Config(width=5, hidden=4, attention=6), V, C).eval()
    batch = {**BATCH, "parts": torch.tensor([[0, 0, 0, 2, 2, 2]])}
    vectors, level = model.words(batch)[0], model.word_pool
    assert level.hidden is not None
    assert level.query is not None
    read = []
    for begin, end in ((0, 3), (3, 6)):
        states = model.word_encoder(vectors[None, begin:end], torch.tensor([3]))[0]
        read.append(pooled(states, level.hidden.weight, level.hidden.bias, level.query)[0])
    sentences = torch.stack((read[0], torch.zeros(8), read[1]))[None]
    states = model.sentence_encoder(sentences, torch.tensor([3]))[0, [0, 2]]
    level = model.sentence_pool
    assert level.hidden is not None
    assert level.query is not None
    document, weights = pooled(states, level.hidden.weight, level.hidden.bias, level.query)
    with record(model) as tape:
        found = model(batch).logits
    first, second, third = tape.weights("sentence_pool")[0, 0, 0].tolist()
    assert second == 0.0
    torch.testing.assert_close(torch.tensor([first, third]), weights.detach())
    torch.testing.assert_close(found[0], model.output(document))


def test_pooling_by_dot_divides_by_the_root_of_the_width() -> None:
    pool, states = AttentionPool("dot", 6), 3 * torch.randn(1, 5, 6)
    assert pool.query is not None
    scores = torch.stack([h @ pool.query / 6**0.5 for h in states[0, :4]])
    weights = scores.exp() / scores.exp().sum()
    with record(pool) as tape:
        read = pool(states, padding(torch.tensor([4])))
    torch.testing.assert_close(tape.weights("attend")[0, 0, 0, :4], weights.detach())
    torch.testing.assert_close(read[0, 0], weights @ states[0, :4])


@pytest.mark.parametrize("layers", [1, 2])
def test_a_tagger_drops_half_of_what_its_last_layer_says(layers: int) -> None:
    config = BiLSTMCRF.Config(width=6, hidden=32, characters="none", layers=layers, dropout=0.5)
    model = BiLSTMCRF(config, V, C).train()
    said: list[Tensor] = []
    last = model.first if model.second is None else model.second
    last.register_forward_hook(lambda _, given, made: said.append(made))
    model.output.register_forward_pre_hook(lambda _, given: said.append(given[0]))
    model(BATCH)
    states, entered = said
    kept = entered != 0
    assert 0.35 < kept.float().mean() < 0.65
    torch.testing.assert_close(entered, torch.where(kept, 2 * states, 0.0))
    model.eval()(BATCH)
    assert torch.equal(said[2], said[3])
