"""Pairs of passages for next-sentence prediction, BERT's second pre-training task.

As in BERT's create_pretraining_data (Devlin et al. 2019, section 3.1, task 2): the sentences of a
document are collected until they fill an input, in one case of ten a shorter one, and split in two
between sentences. In half of the cases, and always if there is only one sentence, the second part
is replaced by a passage of another document, and its sentences are used again in the next input.
Inputs that are too long are truncated at both ends, the longer part first.

All documents are processed in parallel, one input per step, so that there is no loop over tokens or
sentences. The result is determined by `place`, the seed of the random numbers.

>>> from regard.data.text.documents import TokenisedDocuments
>>> held = TokenisedDocuments(
...     torch.arange(24), torch.arange(0, 24, 3), torch.arange(0, 25, 3), torch.tensor([0, 5, 8]))
>>> pairs = make_passage_pairs(held, 12, 0.0, 7)
>>> for first, second, random_next in zip(pairs.first, pairs.second, pairs.random_next):
...     print(first.tolist(), second.tolist(), bool(random_next))
[0, 6] [6, 12] False
[15, 21] [21, 24] False
[12, 15] [21, 24] True
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.core.errors import UserError, fraction
from regard.data.batch import random_integers
from regard.data.text.documents import TokenisedDocuments

_DRAWN = 8
"""The number of random numbers for an input: is it short, how short, where is it split, is the
second part random, of which document, from which sentence, and how much is cut at the fronts."""


@dataclass(frozen=True)
class PassagePairs:
    """Inputs of two parts, each a range of token positions in the documents."""

    first: Int[Tensor, "N 2"]
    second: Int[Tensor, "N 2"]
    """Empty where inputs have one part."""
    random_next: Bool[Tensor, "N"]
    """Does the second part come from another document?"""

    def __len__(self) -> int:
        return len(self.random_next)

    @property
    def sizes(self) -> Int[Tensor, "N"]:
        """The number of tokens of each input, without special tokens."""
        return (self.first[:, 1] - self.first[:, 0]) + (self.second[:, 1] - self.second[:, 0])


def make_passage_pairs(
    documents: TokenisedDocuments, room: int, short: float, *place: int
) -> PassagePairs:
    """Pairs of all documents with at most `room` tokens each.

    A fraction `short` of them has a smaller random maximum, of at least 2.
    """
    if len(documents) < 2:
        raise UserError(
            "next-sentence prediction needs at least two documents, and there is one: add more, "
            "check data.document_boundary, or set next_sentence = false"
        )
    if room < 2:
        raise UserError(f"there is room for {room} tokens in an input; a pair needs two")
    fraction("short", short)
    begins, sentences = documents.begins, documents.sentences
    made: list[tuple[Tensor, Tensor, Tensor]] = []
    document = torch.arange(len(documents))  # the documents that are not finished
    at = sentences[:-1].clone()  # the next sentence of each
    step = 0
    while len(document):
        drawn = random_integers(_DRAWN * len(document), *place, step).view(-1, _DRAWN)
        end = sentences[document + 1]
        brief = drawn[:, 0].double() / 2.0**63 < short
        target = torch.where(brief, 2 + drawn[:, 1] % (room - 1), room)
        last = _reaching(begins, at, target, end)
        count = last - at
        cut = at + 1 + drawn[:, 2] % (count - 1).clamp_min(1)
        random_next = (count == 1) | (drawn[:, 3] % 2 == 0)
        first = torch.stack((begins[at], begins[cut]), 1)  # [N,2]
        other = drawn[:, 4] % (len(documents) - 1)
        other = other + (other >= document)
        start = sentences[other] + drawn[:, 5] % sentences.diff()[other]
        left = (target - first.diff().squeeze(1)).clamp_min(1)
        stop = _reaching(begins, start, left, sentences[other + 1])
        second = torch.where(
            random_next[:, None],
            torch.stack((begins[start], begins[stop]), 1),
            torch.stack((begins[cut], begins[last]), 1),
        )
        made.append((*_cut(first, second, target, drawn[:, 6:]), random_next))
        at = torch.where(random_next, cut, last)
        going = at < end
        document, at, step = document[going], at[going], step + 1
    firsts, seconds, aparts = (torch.cat(each) for each in zip(*made, strict=True))
    return PassagePairs(firsts, seconds, aparts)


def make_passages(documents: TokenisedDocuments, room: int) -> PassagePairs:
    """Inputs of one part: as many sentences of a document as fit into `room` tokens.

    A longer sentence is truncated.
    """
    begins, sentences = documents.begins, documents.sentences
    made: list[Tensor] = []
    document, at = torch.arange(len(documents)), sentences[:-1].clone()
    while len(document):
        end = sentences[document + 1]
        last = torch.searchsorted(begins, begins[at] + room, right=True) - 1
        last = torch.minimum(last.clamp_min(at + 1), end)
        made.append(torch.stack((begins[at], begins[last].clamp_max(begins[at] + room)), 1))
        going = last < end
        document, at = document[going], last[going]
    first = torch.cat(made)
    return PassagePairs(first, torch.zeros_like(first), torch.zeros(len(first), dtype=torch.bool))


def _reaching(
    begins: Int[Tensor, "M"], at: Int[Tensor, "N"], target: Int[Tensor, "N"], end: Int[Tensor, "N"]
) -> Int[Tensor, "N"]:
    """The first sentence after those that reach the target length, or the end."""
    return torch.minimum(torch.searchsorted(begins, begins[at] + target), end)


def _cut(
    first: Int[Tensor, "N 2"],
    second: Int[Tensor, "N 2"],
    room: Int[Tensor, "N"],
    drawn: Int[Tensor, "N 2"],
) -> tuple[Int[Tensor, "N 2"], Int[Tensor, "N 2"]]:
    """Both parts truncated, the longer part first (`special_tokens.truncated_lengths`)."""
    sizes = first.diff().squeeze(1), second.diff().squeeze(1)
    stays = torch.minimum(sizes[0], torch.maximum(room - sizes[1], room - room // 2))
    kept = stays, torch.minimum(sizes[1], room - stays)
    parts = []
    for part, size, keep, draw in zip((first, second), sizes, kept, drawn.unbind(1), strict=True):
        front = part[:, 0] + draw % (size - keep + 1)
        parts.append(torch.stack((front, front + keep), 1))
    return parts[0], parts[1]
