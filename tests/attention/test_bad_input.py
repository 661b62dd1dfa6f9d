"""Bad input gets a UserError that names the values, what is allowed and the nearest match."""

from collections.abc import Callable

import pytest
import torch

from regard.attention import (
    Attend,
    Copy,
    Cosine,
    Dot,
    Hops,
    LocalPredictive,
    Location,
    RelativeXL,
    ScaledDot,
    Softmax,
    TopK,
    blocks,
    causal,
    padding,
    score_named,
    segment,
    sinusoid,
    table,
    weigh_named,
    window,
)
from regard.core.errors import UserError
from regard.layers import (
    CrossAttention,
    FeedForward,
    Learned,
    RecurrentEncoder,
    Rotary,
    SegmentEmbedding,
    SelfAttention,
    TokenEmbedding,
)

pytestmark = pytest.mark.usefixtures("as_users_run_it")

B, H, Q, K, E = 2, 4, 3, 5, 8
ones = torch.ones


def look(mask: object = None, query: torch.Tensor | None = None) -> torch.Tensor:
    attend = Attend(ScaledDot(E))
    memory = attend.remember(ones(B, H, K, E), ones(B, H, K, E))
    return attend(ones(B, H, Q, E) if query is None else query, memory, mask)  # type: ignore[arg-type]


def long_tensor(*values: int) -> torch.Tensor:
    return torch.tensor(values)


CASES: dict[str, tuple[Callable[[], object], str]] = {
    # widths and heads
    "heads that do not divide": (
        lambda: SelfAttention(10, 3),
        "width=10 is not divisible by heads=3",
    ),
    "key heads that do not divide": (
        lambda: SelfAttention(16, 4, key_heads=3),
        "heads=4 is not divisible by key_heads=3",
    ),
    "no heads": (lambda: SelfAttention(16, 0), "heads=0 must be a whole number above zero"),
    "a width that is no number": (lambda: Dot(True), "width=True must be a whole number"),
    "a dot of two widths": (
        lambda: Dot(8, 9),
        "Dot compares vectors of one width.*width=8.*9.*Bilinear",
    ),
    "a relative score of two widths": (lambda: RelativeXL(8, 6), "width=8 and key_width=6"),
    "a query of another width": (
        lambda: look(query=ones(B, H, Q, 9)),
        r"queries must be \[batch, heads, queries, 8\] for ScaledDot, not \[2, 4, 3, 9\]",
    ),
    "a query of three axes": (lambda: look(query=ones(B, Q, E)), r"not \[2, 3, 8\]"),
    "a key of another width": (
        lambda: Attend(Dot(E)).remember(ones(B, H, K, 7), ones(B, H, K, E)),
        r"keys must be \[batch, heads, keys, 8\] for Dot, not \[2, 4, 5, 7\]",
    ),
    "keys and values of different lengths": (
        lambda: Attend(Dot(E)).remember(ones(B, H, K, E), ones(B, H, 1, E)),
        r"keys are \[2, 4, 5, 8\], values \[2, 4, 1, 8\]",
    ),
    "a batch of one that would broadcast": (
        lambda: look(query=ones(1, H, Q, E)),
        "the query has a batch of 1, the memory one of 2",
    ),
    "heads that cannot share": (
        lambda: look(query=ones(B, 6, Q, E)),
        "6 query heads cannot share 4 key-value heads evenly",
    ),
    "a sequence of another width": (
        lambda: SelfAttention(16, 4)(ones(2, 3, 12)),
        r"the sequence must be \[batch, positions, 16\], not \[2, 3, 12\]",
    ),
    "a source of another width": (
        lambda: CrossAttention(16, 4, key_width=6).remember(ones(2, 3, 16)),
        r"the source of keys must be \[batch, positions, 6\]",
    ),
    "rotary heads of another width": (
        lambda: SelfAttention(16, 4, rotary=Rotary(8)),
        "for heads of width 8, but width=16 and heads=4 make 4",
    ),
    # masks
    "a mask that is a tensor": (
        lambda: look(mask=ones(B, K, dtype=torch.bool)),
        r"mask must be a Mask .* not a bool tensor of \[2, 5\].*table",
    ),
    "a mask of another batch": (
        lambda: look(mask=padding(long_tensor(5))),
        r"the mask padding\(\[5\]\) is for batch=1, but it is used with batch=2",
    ),
    "a table of other queries": (
        lambda: look(mask=table(ones(1, 1, 1, K, dtype=torch.bool))),
        "is for queries=1, keys=5, but it is used with batch=2, heads=4, queries=3, keys=5",
    ),
    "a table of other heads": (
        lambda: look(mask=table(ones(1, 2, Q, K, dtype=torch.bool))),
        "is for heads=2, queries=3",
    ),
    "a padding table of other keys": (
        lambda: look(mask=padding(ones(B, K + 1, dtype=torch.bool))),
        "keys=6, but it is used with",
    ),
    "a table of numbers": (
        lambda: table(ones(1, 1, Q, K)),
        r"table takes booleans .* it was given a float32 tensor of \[1, 1, 3, 5\]",
    ),
    "a table of two axes": (
        lambda: table(ones(Q, K, dtype=torch.bool)),
        r"bool tensor of \[3, 5\]",
    ),
    "lengths that are not whole": (lambda: padding(ones(2)), "one whole number for each batch row"),
    "a padding table of one axis": (
        lambda: padding(ones(2, dtype=torch.bool)),
        "padding takes a boolean",
    ),
    "masks of two batches": (
        lambda: padding(long_tensor(1)) & padding(long_tensor(1, 2)),
        r"padding\(\[1\]\) is for batch=1 but padding\(\[1, 2\]\) is for batch=2",
    ),
    "a mask joined with a tensor": (lambda: causal() & ones(2), "a mask joins with a mask"),
    "a window of less than nothing": (lambda: window(left=-1), r"window\(left=-1\) must be"),
    "blocks of nothing": (lambda: blocks(0), "size=0 must be"),
    "segments of two batches": (
        lambda: segment(torch.zeros(2, 3, dtype=torch.long), torch.zeros(1, 3, dtype=torch.long)),
        "a batch of 2, key_ids one of 1",
    ),
    "segments that are not whole": (lambda: segment(ones(2, 3)), "query_ids is a float32 tensor"),
    # names
    "an unknown score": (
        lambda: score_named("adittive", E),
        "unknown score 'adittive'.*'additive'",
    ),
    "an unknown weighing": (lambda: weigh_named("sparsmax", E), "did you mean 'sparsemax'"),
    "an unknown kind": (lambda: Attend(Dot(E), kind="crss"), "did you mean 'cross'"),
    "an unknown activation": (lambda: FeedForward(4, 8, activation="gelo"), "did you mean 'gelu'"),
    "an unknown cell": (lambda: RecurrentEncoder("lsm", 4, 4), "did you mean 'lstm'"),
    # values
    "no temperature": (lambda: Softmax(0.0), "temperature=0.0 must be a finite number above zero"),
    "no keys to keep": (lambda: TopK(0), "k=0 must be"),
    "a beta below zero": (lambda: Cosine(E, beta=-1.0), "beta=-1.0 must be"),
    "too much dropout": (lambda: Attend(Dot(E), dropout=1.0), "dropout=1.0 must be at least 0"),
    "keys past the longest": (
        lambda: Location(E, longest=4)(ones(1, 1, 1, E), ones(1, 1, 5, E)),
        "at most longest=4 keys and was given 5",
    ),
    "a window without its query": (
        lambda: LocalPredictive(E)(ones(1, 1, 1, K)),
        "LocalPredictive computes its window from the query: pass query",
    ),
    "a token outside the vocabulary": (
        lambda: Copy(4)(ones(1, 1, 1, 2), torch.tensor([[[[1], [4]]]])),
        "token 4, outside a vocabulary of 4",
    ),
    "no hops": (lambda: Hops([]), "at least one Attend"),
    "fewer memories than hops": (
        lambda: Hops([Attend(Dot(E))] * 2)(ones(1, 1, 1, E), []),
        "2 hops need as many memories, not 0",
    ),
    "an odd sinusoid": (lambda: sinusoid(ones(1), 3), "width=3 must be even"),
    "an odd rotation": (lambda: Rotary(3), "width=3 must be even"),
    "a position never learned": (
        lambda: Learned(E, longest=4)(ones(1, 3, E), 2),
        "position 4 is out of range: only 4 were learned",
    ),
    "padding outside the vocabulary": (
        lambda: TokenEmbedding(10, E, padding=10),
        "padding=10 is no token of a vocabulary of 10",
    ),
    "segments of another shape": (
        lambda: SegmentEmbedding(2, E)(ones(2, 3, E), torch.zeros(2, 1, dtype=torch.long)),
        r"\[2, 3\], not \[2, 1\]",
    ),
    "lengths past the end": (
        lambda: RecurrentEncoder("gru", 4, 4)(ones(2, 3, 4), long_tensor(3, 4)),
        r"lengths must be 0 to 3, not \[3, 4\]",
    ),
    "lengths for another batch": (
        lambda: RecurrentEncoder("gru", 4, 4)(ones(2, 3, 4), long_tensor(3)),
        "lengths must be 2 whole numbers",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_named_and_what_to_do_is_said(case: str) -> None:
    act, message = CASES[case]
    with pytest.raises(UserError, match=message):
        act()
