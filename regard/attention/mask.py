"""Mask: which keys may a query attend to? True always means "may attend".

A mask is a rule over positions, not a table: rules combine exactly with `&`, `|` and `~`, need no
lengths until they are used, and become a table only where a kernel needs one. With a decoding cache
the queries start at key position `first`.

>>> (causal() & window(left=1)).table(3, 3)[0, 0].int().tolist()
[[1, 0, 0], [1, 1, 0], [0, 1, 1]]
>>> causal() & padding(torch.tensor([2, 3]))
causal() & padding([2, 3])
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.core.errors import UserError, positive

_Rule = Callable[[Tensor, Tensor], Tensor]
"""From query positions [Q,1] and key positions [1,K] to a truth that broadcasts to [B,1,Q,K]."""


@dataclass(frozen=True)
class KernelMask:
    """A mask for a fused kernel: a table, or no table and a flag for causal."""

    table: Bool[Tensor, "#B #H #Q K"] | None
    is_causal: bool = False


@dataclass(frozen=True, repr=False)
class Mask:
    """A rule for which key positions each query position may attend to."""

    rule: _Rule
    text: str
    batch: int | None = None
    """The number of batch rows of the rule; None where it is the same for all."""
    heads: int | None = None
    """Its number of heads; None where it is the same for all."""
    queries: int | None = None
    """Its number of query positions; None where it holds for any number."""
    keys: int | None = None
    """Its number of keys; None where it holds for any number."""
    by_row: bool = True
    """Does it depend on the position of the query?"""
    compound: bool = False
    """Is it made of two masks? Then it needs brackets inside another."""
    only_causal: bool = False
    """Is it exactly "keys up to my own position"? The kernels have a fast path for that."""
    memo: dict[tuple[object, ...], Tensor] = field(default_factory=dict, compare=False)
    """The last table, since all layers of a model use the same one."""

    def __and__(self, other: "Mask") -> "Mask":
        return self._join(other, "&", torch.logical_and)

    def __or__(self, other: "Mask") -> "Mask":
        return self._join(other, "|", torch.logical_or)

    def __invert__(self) -> "Mask":
        rule = self.rule
        return replace(
            self,
            rule=lambda q, k: ~rule(q, k),
            text=f"~{self._bracketed()}",
            compound=False,
            only_causal=False,
            memo={},
        )

    def _join(self, other: "Mask", sign: str, how: Callable[[Tensor, Tensor], Tensor]) -> "Mask":
        if not isinstance(other, Mask):
            raise UserError(
                f"a mask joins with a mask, not with {describe_value(other)}; "
                "wrap a table of booleans in regard.attention.table(...)"
            )
        left, right = self.rule, other.rule
        return Mask(
            lambda q, k: how(left(q, k), right(q, k)),
            f"{self._bracketed()} {sign} {other._bracketed()}",
            batch=self._agreed(other, "batch", self.batch, other.batch),
            heads=self._agreed(other, "heads", self.heads, other.heads),
            queries=self._agreed(other, "queries", self.queries, other.queries),
            keys=self._agreed(other, "keys", self.keys, other.keys),
            by_row=self.by_row or other.by_row,
            compound=True,
        )

    def _agreed(self, other: "Mask", name: str, ours: int | None, theirs: int | None) -> int | None:
        if ours is None or theirs is None or ours == theirs:
            return theirs if ours is None else ours
        raise UserError(f"{self} is for {name}={ours} but {other} is for {name}={theirs}")

    def _bracketed(self) -> str:
        return f"({self.text})" if self.compound else self.text

    def __repr__(self) -> str:
        return self.text

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise for a shape that the rule is not for; `queries` counts from position 0."""
        ours = (self.batch, self.heads, self.queries, self.keys)
        theirs = (batch, heads, queries, keys)
        if any(own not in (None, given) for own, given in zip(ours, theirs, strict=True)):
            names = ("batch", "heads", "queries", "keys")
            own = ", ".join(f"{n}={v}" for n, v in zip(names, ours, strict=True) if v is not None)
            given = ", ".join(f"{n}={v}" for n, v in zip(names, theirs, strict=True))
            raise UserError(f"the mask {self} is for {own}, but it is used with {given}")

    def table(
        self,
        queries: int,
        keys: int,
        *,
        first: int = 0,
        device: torch.device | str | None = None,
    ) -> Bool[Tensor, "#B #H #Q K"]:
        """The rule as a table; one row where it is the same for all queries."""
        rows_and_first = (1, 0) if not self.by_row else (queries, first)
        if torch.compiler.is_exporting():  # sizes are symbols then, and no keys of a table
            rows = torch.arange(
                rows_and_first[1], rows_and_first[1] + rows_and_first[0], device=device
            )
            return self.rows(rows, keys)
        # A table made in inference mode cannot be saved for a backward pass. (torch.compile cannot
        # trace this check.)
        mode = not torch.compiler.is_compiling() and torch.is_inference_mode_enabled()
        name = (*rows_and_first, keys, torch.device(device or "cpu"), mode)
        cached = self.memo.get(name)
        if cached is None:
            rows = torch.arange(
                rows_and_first[1], rows_and_first[1] + rows_and_first[0], device=device
            )
            cached = self.rows(rows, keys)
            self.memo.clear()
            self.memo[name] = cached
        return cached

    def rows(self, positions: Int[Tensor, "Q"], keys: int) -> Bool[Tensor, "#B #H #Q K"]:
        """The rule as a table for chosen query positions."""
        columns = torch.arange(keys, device=positions.device)
        truth = self.rule(positions[:, None], columns[None, :])
        while truth.dim() < 4:
            truth = truth.unsqueeze(0)
        return truth.expand(*truth.shape[:3], keys)

    def lower(
        self, queries: int, keys: int, *, first: int = 0, device: torch.device | str | None = None
    ) -> KernelMask:
        """The cheapest form for a fused kernel: nothing, the causal flag, or a table."""
        if self.only_causal:
            if first + 1 >= keys:  # a decoding step sees all there is
                return KernelMask(None)
            if first == 0 and queries == keys:
                return KernelMask(None, is_causal=True)
        return KernelMask(self.table(queries, keys, first=first, device=device))


def causal() -> Mask:
    """Keys up to the query's own position."""
    return Mask(lambda q, k: k <= q, "causal()", only_causal=True)


def padding(real: Int[Tensor, "B"] | Bool[Tensor, "B K"]) -> Mask:
    """Keys that are real.

    Given as the length of each sequence, or as a table that is True where a key is real.

    >>> padding(torch.tensor([1, 2])).table(1, 2).int().flatten(1).tolist()
    [[1, 0], [1, 1]]
    """
    if real.dtype == torch.bool:
        if real.dim() != 2:
            raise UserError(
                f"padding takes a boolean table of [batch, keys], not one of {list(real.shape)}"
            )
        return Mask(
            lambda q, k: real.to(k.device)[:, None, None, :].index_select(3, k[0]),
            "padding(<table>)",
            batch=real.shape[0],
            keys=real.shape[1],
            by_row=False,
        )
    lengths = check_lengths("padding", real)
    return Mask(
        lambda q, k: k < lengths.to(k.device)[:, None, None, None],
        f"padding({_shortened(lengths)})",
        batch=lengths.shape[0],
        by_row=False,
    )


def window(left: int | None = None, right: int | None = None) -> Mask:
    """Keys from `left` positions behind the query to `right` ahead; None is no bound."""
    for name, side in (("left", left), ("right", right)):
        if side is not None and (isinstance(side, bool) or side < 0):
            raise UserError(f"window({name}={side}) must be a whole number, zero or more, or None")

    def rule(q: Tensor, k: Tensor) -> Tensor:
        offset = k - q
        near = torch.ones_like(offset, dtype=torch.bool)
        if left is not None:
            near = near & (offset >= -left)
        if right is not None:
            near = near & (offset <= right)
        return near

    return Mask(rule, f"window(left={left}, right={right})")


def blocks(size: int, *, before: int = 0) -> Mask:
    """Keys of the query's own block of `size` positions, and of the `before` blocks before it.

    With `& causal()`, the local attention of Image Transformer (Parmar et al. 2018, 1-D) at
    before=1, and that of Liu et al. 2018 at before=0.

    >>> blocks(2).table(4, 4)[0, 0].int().tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    """
    positive("size", size)
    if before < 0:
        raise UserError(f"before={before} must be zero or more blocks")

    def rule(q: Tensor, k: Tensor) -> Tensor:
        behind = q // size - k // size
        return (behind >= 0) & (behind <= before)

    return Mask(rule, f"blocks({size}, before={before})")


def blocks_2d(
    columns: int, size: tuple[int, int], *, above: int = 0, left: int = 0, right: int = 0
) -> Mask:
    """Pixels around the query's block, in an image read row by row.

    A row has `columns` pixels; the image is cut into blocks of `size` = (rows, columns). A query
    attends to its own block, `above` rows over it, and `left` and `right` columns beside it
    (Parmar et al. 2018, 2-D). To generate, add `& causal()`.
    """
    positive("columns", columns)
    tall, wide = positive("size[0]", size[0]), positive("size[1]", size[1])
    if min(above, left, right) < 0:
        raise UserError(f"above={above}, left={left} and right={right} must be zero or more")

    def rule(q: Tensor, k: Tensor) -> Tensor:
        top, side = q // columns // tall * tall, q % columns // wide * wide
        row, column = k // columns, k % columns
        high = (row >= top - above) & (row < top + tall)
        return high & (column >= side - left) & (column < side + wide + right)

    return Mask(rule, f"blocks_2d({columns}, {tuple(size)}, {above=}, {left=}, {right=})")


def segment(query_ids: Int[Tensor, "B T"], key_ids: Int[Tensor, "B S"] | None = None) -> Mask:
    """Keys that belong to the query's own segment: for several sequences packed in one row."""
    key_ids = query_ids if key_ids is None else key_ids
    for name, ids in (("query_ids", query_ids), ("key_ids", key_ids)):
        if ids.dim() != 2 or ids.is_floating_point():
            raise UserError(
                f"segment takes integers of [batch, positions], but {name} is {describe_value(ids)}"
            )
    if query_ids.shape[0] != key_ids.shape[0]:
        raise UserError(
            f"segment: query_ids have a batch of {query_ids.shape[0]}, key_ids one of "
            f"{key_ids.shape[0]}"
        )

    def rule(q: Tensor, k: Tensor) -> Tensor:
        ours = query_ids.to(q.device)[:, q[:, 0]]  # [B,Q]
        theirs = key_ids.to(k.device)[:, k[0]]  # [B,K]
        return ours[:, None, :, None] == theirs[:, None, None, :]

    batch, keys = key_ids.shape
    queries = query_ids.shape[1]
    return Mask(rule, f"segment(<{batch} x {keys}>)", batch=batch, queries=queries, keys=keys)


def prefix(lengths: Int[Tensor, "B"]) -> Mask:
    """Keys of the prefix, whole, and then keys up to the query's own position: a prefix LM.

    >>> prefix(torch.tensor([2])).table(3, 3)[0, 0].int().tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    lengths = check_lengths("prefix", lengths)
    return Mask(
        lambda q, k: (k <= q) | (k < lengths.to(k.device)[:, None, None, None]),
        f"prefix({_shortened(lengths)})",
        batch=lengths.shape[0],
    )


def table(allowed: Bool[Tensor, "B H Q K"]) -> Mask:
    """Your own table, True where a query may attend: [batch or 1, heads or 1, queries, keys]."""
    if not isinstance(allowed, Tensor) or allowed.dtype != torch.bool or allowed.dim() != 4:
        raise UserError(
            "table takes booleans of [batch or 1, heads or 1, queries, keys], "
            f"True where a query may attend; it was given {describe_value(allowed)}"
        )

    batch, heads, queries, keys = allowed.shape
    return Mask(
        lambda q, k: allowed.to(q.device)[:, :, q[:, 0]][..., k[0]],
        f"table(<{' x '.join(str(size) for size in allowed.shape)}>)",
        batch=None if batch == 1 else batch,
        heads=None if heads == 1 else heads,
        queries=queries,
        keys=keys,
    )


def check_lengths(what: str, lengths: Tensor) -> Tensor:
    """The lengths, if they are integers, one for each batch row."""
    if lengths.dim() != 1 or lengths.is_floating_point() or lengths.is_complex():
        raise UserError(
            f"{what} takes one whole number for each batch row, not {describe_value(lengths)}"
        )
    return lengths


def describe_value(given: object) -> str:
    """A value in a few words, for errors."""
    if isinstance(given, Tensor):
        return f"a {str(given.dtype).removeprefix('torch.')} tensor of {list(given.shape)}"
    return f"a {type(given).__name__}"


def _shortened(lengths: Tensor) -> str:
    """The first few lengths."""
    shown = lengths[:6].tolist()
    return f"{shown}" if len(lengths) <= 6 else f"{str(shown)[:-1]}, ... {len(lengths)} in all]"
