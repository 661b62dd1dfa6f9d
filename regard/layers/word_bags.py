"""Sentences as sums of word vectors, by matrix products instead of a gather for each word.

Position encoding (Sukhbaatar et al. 2015, section 4.1) multiplies the vector of word j of J in
dimension k of d with l_kj = 2 [(1 - j/J) - (k/d)(1 - 2j/J)]. That is a part that depends on j alone
plus k/d times another, so a sentence is two bags of words, and any number of sentences in any
number of tables is one matrix product. The factor two is that of the authors' code: words weigh
one on average.

>>> table = torch.tensor([[0.0, 0.0], [1.0, 3.0], [5.0, 7.0]])
>>> bags = word_bags(torch.tensor([[1, 2, 0]]), 3, positions=False, dtype=torch.float32)
>>> (bags @ with_positions(table, positions=False)).tolist()
[[6.0, 10.0]]
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def word_bags(
    words: Int[Tensor, "*B J"], vocabulary: int, *, positions: bool, dtype: torch.dtype
) -> Float[Tensor, "*B F"]:
    """Each sentence as a bag of words: a sum of one-hot vectors; padding (0) is left out.

    With `positions` as two bags, the words times 2(1 - j/J) and times 2(2j/J - 1).

    >>> word_bags(torch.tensor([[1, 2, 0]]), 3, positions=False, dtype=torch.float32).tolist()
    [[0.0, 1.0, 1.0]]
    """
    real = (words != 0).to(dtype)  # [*B,J]
    shape = (*words.shape[:-1], vocabulary)
    if not positions:
        return real.new_zeros(shape).scatter_add_(-1, words, real)
    place = torch.arange(1, words.shape[-1] + 1, device=words.device, dtype=dtype)
    relative = place / real.sum(-1, keepdim=True).clamp_min(1)  # j/J
    parts = (2 * (1 - relative) * real, 2 * (2 * relative - 1) * real)
    return torch.cat([real.new_zeros(shape).scatter_add_(-1, words, each) for each in parts], -1)


def with_positions(table: Float[Tensor, "*N V D"], *, positions: bool) -> Float[Tensor, "*N F D"]:
    """The tables that bags are multiplied with: twice the words, the second time by k/d."""
    if not positions:
        return table
    width = table.shape[-1]
    scale = torch.arange(1, width + 1, device=table.device, dtype=table.dtype) / width
    return torch.cat([table, table * scale], -2)
