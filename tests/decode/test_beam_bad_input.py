"""Bad input to a search gets a UserError that names the values and what is allowed."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from regard.core.errors import UserError
from regard.decode import Beam, decode, decode_in_chunks, search
from tests.decode.translators import BOS, EOS, Reading, Translator, sources

pytestmark = pytest.mark.usefixtures("as_users_run_it")

NAN, INF = math.nan, math.inf


def found(
    model: Translator | None = None, prefixes: list[list[int]] | None = None, **given: float
) -> object:
    beam = Beam(**{"bos": BOS, "eos": EOS, "width": 2, "max_length": 5, **given})  # type: ignore[arg-type]
    return search(model or Translator(), sources([1, 2]), beam, prefixes=prefixes)


class Broken(Translator):
    """The third step of the second sentence has a number that is none."""

    def __init__(self, bad: float, everywhere: bool = False) -> None:
        super().__init__()
        self.bad, self.everywhere = bad, everywhere

    def after(self, source: Tensor, read: Tensor) -> Tensor:
        logits = super().after(source, read)
        logits[:, EOS] = -9.0
        if read.shape[1] == 3:
            logits[source == 2, slice(None) if self.everywhere else 4] = self.bad
        return logits


class Long(Translator):
    """The same, with a vocabulary that is searched in parts."""

    def after(self, source: Tensor, read: Tensor) -> Tensor:
        logits = torch.randn(len(read), 3001)
        logits[source == 2, 3000] = NAN
        return logits


LATE = "sentence 1: the model's logits after 3 tokens are not finite; it has diverged"

CASES: dict[str, tuple[Callable[[], object], str]] = {
    # settings
    "width 0": (lambda: Beam(width=0), "width=0 must be a whole number above zero"),
    "n_best 0": (lambda: Beam(n_best=0), "n_best=0 must be a whole number above zero"),
    "n_best": (lambda: Beam(width=2, n_best=3), "n_best=3 is more than width=2"),
    "penalty": (
        lambda: Beam(length_penalty="gmnt"),
        "unknown length penalty 'gmnt': did you mean 'gnmt'",
    ),
    "alpha below 0": (lambda: Beam(alpha=-1), "alpha=-1 must be a finite number, 0 or more"),
    "alpha nan": (lambda: Beam(alpha=NAN), "alpha=nan must be a finite number"),
    "coverage": (lambda: Beam(coverage=INF), "coverage=inf must be a finite number"),
    "coverage of one": (lambda: Beam(width=1, coverage=1), "coverage=1 ranks hypotheses, but wid"),
    "min_length": (lambda: Beam(min_length=-1), "min_length=-1 must be a whole number, 0 or more"),
    "max_length": (lambda: Beam(max_length=2.5), "max_length=2.5 must be a whole number"),  # type: ignore[arg-type]
    "lengths": (
        lambda: Beam(min_length=9, max_length=8, max_per_source=0),
        "min_length=9 is more than max_length=8",
    ),
    "per source": (lambda: Beam(max_per_source=-0.5), "max_per_source=-0.5 must be a finite num"),
    "no_repeat": (lambda: Beam(no_repeat=-3), "no_repeat=-3 must be a whole number, 0 or more"),
    "groups": (
        lambda: Beam(width=4, groups=3, diversity=1),
        "width=4 is not divisible by groups=3",
    ),
    "groups 0": (lambda: Beam(groups=0), "groups=0 must be a whole number above zero"),
    "groups that are alike": (
        lambda: Beam(groups=2),
        "groups=2 with diversity=0.0: several groups need a diversity above 0",
    ),
    "diversity of one": (
        lambda: Beam(diversity=1),
        "groups=1 with diversity=1: .* one group has no use for it",
    ),
    "eos": (lambda: Beam(eos=-1), "eos=-1 must be a whole number, 0 or more"),
    "scores": (lambda: Beam(scores=False), "scores=False is for width=1; width=4 ranks by them"),
    "max_rows": (
        lambda: decode(Translator(), sources, [1], Beam(), max_rows=0),
        "max_rows=0 must be a whole number above zero",
    ),
    "chunk": (
        lambda: list(decode_in_chunks(Translator(), [], sources, len, Beam(), chunk=0)),
        "chunk=0 must be a whole number above zero",
    ),
    # what is given with the sentences
    "no lengths": (
        lambda: search(Translator(), {"source": torch.zeros(1, 1)}, Beam()),
        "max_per_source=1.0, .* need source_lengths in the batch, which has source; set them to 0",
    ),
    "coverage without weights": (
        lambda: found(coverage=0.5),
        "coverage=0.5 needs the argument `weights`",
    ),
    "too few prefixes": (lambda: found(prefixes=[[2]]), "1 prefixes were given for 2 sentences"),
    "a prefix that ends": (
        lambda: found(prefixes=[[], [2, EOS]]),
        "the prefix of sentence 1 contains token 1, which ends a sentence",
    ),
    "a long prefix": (
        lambda: found(prefixes=[[2] * 7, []]),
        "the prefix of sentence 0 has 7 tokens, but only 6 are allowed: raise max_length",
    ),
    "a prefix of no token": (
        lambda: found(prefixes=[[], [2, 5]]),
        "the prefix of sentence 1: 5 is not in the vocabulary, which goes from 0 to 4",
    ),
    "an end of no token": (lambda: found(eos=5), "eos 5 is not in the vocabulary, which goes f"),
    "nothing is left to say": (
        lambda: found(no_repeat=1, min_length=6),
        "sentence 0: every token that is allowed after 4 tokens has probability 0; allow repeats",
    ),
    "greedy has nothing left to say": (
        lambda: found(no_repeat=1, min_length=6, width=1),
        "sentence 0: every token that is allowed after 4 tokens has probability 0; allow repeats",
    ),
    "a long vocabulary": (
        lambda: found(Long()),
        "sentence 1: the model's logits after 1 tokens are not finite",
    ),
    "a long vocabulary, greedy": (
        lambda: found(Long(), width=1),
        "sentence 1: the model's logits after 1 tokens are not finite",
    ),
    # models that have gone wrong
    **{
        f"{bad} {'everywhere' if everywhere else 'once'}, width {width}, {groups} groups": (
            lambda bad=bad, everywhere=everywhere, width=width, groups=groups: found(
                Broken(bad, everywhere), width=width, groups=groups, diversity=float(groups > 1)
            ),
            LATE,
        )
        for bad, everywhere in ((NAN, False), (INF, False), (-INF, True))
        for width, groups in ((1, 1), (3, 1), (4, 2))
    },
}


@pytest.mark.parametrize(("act", "message"), CASES.values(), ids=CASES)
def test_bad_input_is_named(act: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        act()


def test_the_number_of_a_sentence_is_that_of_the_input() -> None:
    beam = Beam(bos=BOS, eos=EOS, max_length=5)
    with pytest.raises(UserError, match="sentence 4: the model's logits after 3 tokens"):
        decode(Broken(NAN), lambda ns: sources([n - 2 for n in ns]), [1] * 9, beam, max_rows=8)


def test_prefixes_are_checked_before_the_model_works() -> None:
    class Idle(Translator):
        def start(self, source: object) -> Reading:
            raise AssertionError

    with pytest.raises(UserError, match="which ends a sentence"):
        found(Idle(), prefixes=[[], [EOS]])
