"""What models with negative sampling share: two tables of word vectors, and the loss of a row.

A row of centres shares its noise words (as in Ji et al. 2016, who find vectors as good), so that
scores are products of matrices. A row has n noise words, and a centre with m neighbours owes k·m
terms to the noise: each noise word counts for k·m/n of them. A noise word that happens to be the
neighbour is left out, pair by pair.
"""

import torch
from jaxtyping import Bool, Float, Int
from pydantic import PositiveInt
from torch import Tensor, nn

from regard.core.config import Config as Settings
from regard.core.errors import UserError
from regard.outputs.word_pairs import NegativeSampling


class NegativeSamplingConfig(Settings):
    """What a recipe may choose."""

    width: PositiveInt = 100
    negatives: PositiveInt = 5
    """For how many noise words each pair pays: k."""


def contrast(
    queries: Float[Tensor, "B Q D"],
    table: nn.Embedding,
    words: Int[Tensor, "B K"],
    noise: Int[Tensor, "B C"],
    pairs: Float[Tensor, "B Q K"],
    negatives: int,
) -> NegativeSampling:
    """Every query beside every word and every noise word of its row.

    `pairs` is how often a query is paired with each of `words`.
    """
    keys = table(torch.cat((words, noise), dim=1))  # [B,K+C,D]
    scores = queries @ keys.transpose(1, 2)  # [B,Q,K+C]
    weights = noise_weights(pairs, words, noise, negatives)  # [B,Q,C]
    return NegativeSampling(
        scores,
        torch.cat((pairs, torch.zeros_like(weights)), dim=2),
        torch.cat((torch.zeros_like(pairs), weights), dim=2),
    )


def noise_weights(
    pairs: Float[Tensor, "B Q K"],
    words: Int[Tensor, "B K"],
    noise: Int[Tensor, "B C"],
    negatives: int,
) -> Float[Tensor, "B Q C"]:
    """For how many terms each noise word counts beside each centre.

    A noise word is no noise to a pair with that very word.

    >>> pairs = torch.tensor([[[1.0, 1.0]]])                   # one centre, neighbours 7 and 8
    >>> noise_weights(pairs, torch.tensor([[7, 8]]), torch.tensor([[8, 9]]), 5).tolist()
    [[[2.5, 5.0]]]
    """
    same = (words[:, :, None] == noise[:, None, :]).to(pairs.dtype)  # [B,K,C]
    terms = pairs.sum(2, keepdim=True) - pairs @ same  # [B,Q,C]
    return terms * (negatives / noise.shape[1])


def centres_of(words: Int[Tensor, "B K"], near: Bool[Tensor, "B Q K"]) -> Int[Tensor, "B Q"]:
    """The centres of rows: the words in the middle, with as many more on either side."""
    side = (near.shape[2] - near.shape[1]) // 2
    return words[:, side : side + near.shape[1]]


def initialise_like_word2vec(table: Float[Tensor, "V D"]) -> None:
    """Uniform between ±1/2D; row 0 is padding and stays zero."""
    nn.init.uniform_(table, -0.5 / table.shape[1], 0.5 / table.shape[1])
    with torch.no_grad():
        table[0] = 0.0


def refuse_ngrams(name: str, buckets: int) -> None:
    """Raise if the data have n-grams, for a model that reads whole words only."""
    if buckets:
        raise UserError(f"{name} takes words whole: set data.buckets = 0, not {buckets}")
