"""What may be written whatever the model says: lengths, prefixes, repeats, groups."""

import torch
from torch import Tensor

from regard.decode import Beam, search
from tests.decode.fakes import Narrow
from tests.decode.translators import EOS, NUMBERS, Translator, beam, sources


def test_lengths_follow_the_source() -> None:
    class Endless(Translator):
        def after(self, source: Tensor, read: Tensor) -> Tensor:
            return super().after(source, read).index_fill(1, torch.tensor([EOS]), -50.0)

    class Hasty(Translator):
        def after(self, source: Tensor, read: Tensor) -> Tensor:
            return super().after(source, read).index_fill(1, torch.tensor([EOS]), 50.0)

    lengths = [1, 2, 5]
    for width in (1, 3):
        limits = beam(
            width=width, min_length=1, min_per_source=0.5, max_length=2, max_per_source=1.5
        )
        long, short = (
            [len(best.tokens) for best, *_ in search(kind(), sources([7, 8, 9], lengths), limits)]
            for kind in (Endless, Hasty)
        )
        assert long == [3, 5, 9]
        assert short == [2, 2, 4]


def test_a_text_is_never_longer_than_the_context() -> None:
    model, start = Narrow(()), torch.tensor([[5]])
    for width in (1, 2):
        chosen = Beam(width=width, bos=5, eos=99, max_per_source=0)
        ((best, *_),) = search(model, {"tokens": start}, chosen)
        assert len(best.tokens) == 9, "ten are read, and the first is no part of the text"


def test_a_repeated_sequence_never_comes() -> None:
    for size in (1, 2, 3):
        for width in (1, 4):
            chosen = beam(width=width, n_best=width, max_length=12, no_repeat=size, alpha=2)
            for found in search(Translator(vocabulary=16), sources(NUMBERS), chosen):
                for each in found:
                    pieces = zip(*(each.tokens[at:] for at in range(size)), strict=False)
                    counted = list(pieces)
                    assert len(counted) == len(set(counted))


def test_what_is_never_written_does_not_come_unless_it_is_given() -> None:
    for width in (1, 4):
        free = beam(width=width, n_best=width, max_length=8)
        written = search(Translator(), sources(NUMBERS), free)
        common = written[0][0].tokens[0]
        chosen = beam(width=width, n_best=width, max_length=8, banned=(common,))
        for found in search(Translator(), sources(NUMBERS), chosen):
            assert all(common not in each.tokens for each in found)
        (found,) = search(Translator(), sources(NUMBERS[:1]), chosen, prefixes=[[common]])
        assert all(each.tokens.count(common) == 1 for each in found)


def test_given_first_tokens_come_first_whatever_the_model_and_the_other_limits_say() -> None:
    prefixes: list[list[int]] = [[2, 2, 2, 2], [], [4], [0, 3]]
    for width, extra in ((1, {}), (4, {}), (4, {"groups": 2, "diversity": 3.0})):
        chosen = beam(width=width, n_best=width, max_length=6, no_repeat=2, **extra)
        found = search(Translator(), sources(NUMBERS[:4]), chosen, prefixes=prefixes)
        for prefix, hypotheses in zip(prefixes, found, strict=True):
            assert all(each.tokens[: len(prefix)] == prefix for each in hypotheses)


def test_groups_write_something_else() -> None:
    class Sure(Translator):
        """Says the same in every row, so that only the groups can make a difference."""

        def after(self, source: Tensor, read: Tensor) -> Tensor:
            return torch.tensor([[-9.0, -9.0, 3.0, 2.5, 2.0, 1.5]] * len(read))

    def firsts(**extra: int | float) -> set[int]:
        chosen = beam(width=4, n_best=4, max_length=3, length_penalty="none", **extra)
        ((*found,),) = search(Sure(), sources([1]), chosen)
        return {each.tokens[0] for each in found}

    assert firsts() == {2, 3}
    assert firsts(groups=4, diversity=9.0) == {2, 3, 4, 5}
    assert firsts(groups=4, diversity=0.1) == {2}
