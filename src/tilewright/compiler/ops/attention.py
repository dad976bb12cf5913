"""Attention: softmax(q k' scale + bias) v, without a matrix of scores.

The body is the online softmax of one row of queries.  It walks over blocks of keys and keeps the
largest score, the sum of powers and the weighted sum of values so far; a block with a larger score
shrinks what was summed before.  How many rows run side by side is the schedule's business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import FLOATS
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, Role, TensorType, Trait
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, Source, compute_dtype
from tilewright.compiler.kernel.ir import Buffer, Expression
from tilewright.compiler.ops.bodies import Operands, Results, given, maybe
from tilewright.compiler.ops.declaration import (
    OpDecl,
    Types,
    attr,
    declare,
    operand,
    optional,
)
from tilewright.compiler.ops.shapes import (
    broadcast_indices,
    check_groups,
    check_same,
    element_count,
    need,
    surely_broadcasts,
)

KEY_BLOCK: Final = 128
"""Keys between two looks at the largest score.

It decides the order of sums, so it must not depend on a machine; scores of a block and of a tile of
rows stay in the first level cache.
"""
CAUSAL_ROWS: Final = 32
"""Rows of queries that read the same keys: those that any of them sees."""
_ORACLE_ROWS: Final = 256
_SURELY_NORMAL: Final = 1 - 1e-6
"""Of the logarithm of the least normal number: its power is normal, however it is rounded."""


def _infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    q, k, v = (need(types, n) for n in range(3))
    if not q.rank == k.rank == v.rank == 4:
        raise ModelError(
            f"attention needs [batch, heads, rows, size], got {q}, {k} and {v}"
        )
    check_same(f"batches of {q} and {k}", q.shape[0], k.shape[0])
    check_same(f"sizes of heads of {q} and {k}", q.shape[3], k.shape[3])
    for axis, subject in ((0, "batches"), (1, "heads"), (2, "rows")):
        check_same(f"{subject} of {k} and {v}", k.shape[axis], v.shape[axis])
    _group(q.shape[1], k.shape[1])
    if len(cast("tuple[Dim, ...]", attributes["causal"])) > 1:
        raise ModelError(
            f"attribute 'causal' is {attributes['causal']}, expected one offset"
        )
    scores = (*q.shape[:3], k.shape[2])
    for name, extra in zip(("bias", "mask", "sink"), types[3:], strict=False):
        shape = (*scores[:3], 1) if name == "sink" else scores
        if extra is not None and not surely_broadcasts(extra.shape, shape):
            raise ModelError(f"{name} {extra} does not broadcast to scores {shape}")
    return (q.with_shape((*q.shape[:3], v.shape[3])),)


def _group(heads: Dim, shared: Dim) -> Dim:
    """Heads of queries that share one head of keys and values."""
    if heads == shared:
        return 1
    if isinstance(shared, int):
        check_groups("heads of queries", heads, max(1, shared))
    else:
        check_same(
            "heads of queries and what shares those of keys",
            symbolic.floordiv(heads, shared) * shared,
            heads,
        )
    return symbolic.floordiv(heads, shared)


def _work(types: Sequence[TensorType], results: Sequence[TensorType], _: Attributes) -> Dim:
    """Both products for every key, hidden ones included."""
    q, k, v = types[:3]
    scores = element_count((*q.shape[:3], k.shape[2]))
    del results
    return 2 * scores * (q.shape[3] + v.shape[3])


# --- oracle ----------------------------------------------------------------------------------


def _oracle(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    bias: np.ndarray | None,
    mask: np.ndarray | None,
    sink: np.ndarray | None = None,
    **attributes: Any,
) -> np.ndarray:
    """In f64, some rows of one head at a time."""
    group = q.shape[1] // max(1, k.shape[1])
    result = np.empty((*q.shape[:3], v.shape[3]), np.float64)
    for b, h in np.ndindex(q.shape[:2]):
        keys, values = (x[b, h // group].astype(np.float64) for x in (k, v))
        for start in range(0, q.shape[2], _ORACLE_ROWS):
            rows = slice(start, start + _ORACLE_ROWS)
            scores = q[b, h, rows].astype(np.float64) @ keys.T * attributes["scale"]
            if attributes["softcap"]:
                scores = attributes["softcap"] * np.tanh(scores / attributes["softcap"])
            scores = np.clip(scores, attributes["low"], attributes["high"])
            if bias is not None:
                scores = scores + _part(bias, b, h, rows)
            if mask is not None:
                scores = np.where(_part(mask, b, h, rows), scores, attributes["masked"])
            if attributes["causal"]:
                last = np.arange(q.shape[2])[rows, None] + attributes["causal"][0]
                scores = np.where(np.arange(k.shape[2]) <= last, scores, -np.inf)
            beside = None if sink is None else _part(sink, b, h, rows)
            result[b, h, rows] = _weighted(scores, values, beside, attributes)
    return numerics.cast(result, dtypes.from_numpy(q.dtype))


def _part(extra: np.ndarray, b: int, h: int, rows: slice) -> np.ndarray:
    """What `extra` has for some rows of a head."""
    found = extra[b if extra.shape[0] > 1 else 0, h if extra.shape[1] > 1 else 0]
    found = found[rows] if found.shape[0] > 1 else found
    return found.astype(np.float64) if dtypes.from_numpy(extra.dtype).is_float else found


def _weighted(
    scores: np.ndarray, values: np.ndarray, sink: np.ndarray | None, attributes: Attributes
) -> np.ndarray:
    if not scores.shape[1]:
        return np.zeros((len(scores), values.shape[1]))
    if sink is not None:
        scores = np.concatenate([scores, np.broadcast_to(sink, (len(scores), 1))], axis=1)
        values = np.concatenate([values, np.zeros((1, values.shape[1]))])
    top = np.max(scores, axis=1, keepdims=True)
    powers = np.exp(scores - top)
    total = np.sum(powers, axis=1, keepdims=True) + attributes["rest"]
    lost = np.isnan(total) if attributes["zero_nan"] else top == -np.inf
    rows = powers @ values / total
    return np.where(lost, 0.0, rows) if attributes["zero_rows"] else rows


# --- body ------------------------------------------------------------------------------------


def _body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    k, (result,) = given(operands, 1), results
    batch, heads, rows, _ = result.shape
    shared = k.shape[1]
    names = ("b", "h", "g", "m")
    with b.nest((batch, shared, _group(heads, shared), rows), names) as (n, h, g, m):
        head = h * _group(heads, shared) + g
        _Row(b, attributes, operands, (n, head, m), h).emit(result)


def _power(b: KernelBuilder, x: Expression) -> Expression:
    """e**x of x <= 0 as a weight beside 1: 0 where it would be denormal.

    Masks of -100 ask for e**-100, and a processor may take a hundred cycles for each product with a denormal number.
    What is lost is less than the least normal number, beside a sum of at least 1.
    """
    tiny = np.finfo(np.float64 if x.dtype is dtypes.f64 else np.float32).tiny
    least = math.log(tiny) * _SURELY_NORMAL
    power = b.exp_nonpositive(b.max(x, least))
    return b.select(b.lt(x, least), 0, power)


class _Row:
    """The nests of one row of queries."""

    def __init__(
        self,
        b: KernelBuilder,
        attributes: Attributes,
        operands: Operands,
        place: tuple[Dim, Dim, Dim],
        shared_head: Dim,
    ) -> None:
        self.b: KernelBuilder = b
        self.attributes: Attributes = attributes
        self.q, self.k, self.v = (given(operands, n) for n in range(3))
        self.bias: Source | None = maybe(operands, 3)
        self.mask: Source | None = maybe(operands, 4)
        self.sink: Source | None = maybe(operands, 5)
        self.place: tuple[Dim, Dim, Dim] = place
        self.shared: tuple[Dim, Dim] = (place[0], shared_head)
        self.dtype = compute_dtype(self.q.dtype)
        self.keys: Dim = self.k.shape[2]
        self.block: Dim = key_block(self.keys)
        rows = self.q.shape[:3]
        self.query: Buffer = b.temporary(self.dtype, (*rows, self.q.shape[3]), "query")
        self.scores: Buffer = b.temporary(self.dtype, (*rows, self.block), "scores")
        self.sums: Buffer = b.temporary(self.dtype, (*rows, self.v.shape[3]), "sums")
        self.top, self.next_top, self.shrink, self.total, self.product, self.sum = (
            b.temporary(self.dtype, rows, name)
            for name in ("top", "next_top", "shrink", "total", "product", "sum")
        )

    @property
    def _cap(self) -> float:
        """What no score exceeds; 0: there is no such number.  Products are taken in parts of it."""
        return cast("float", self.attributes["softcap"])

    def emit(self, result: Buffer) -> None:
        b, place = self.b, self.place
        scale = cast("float", self.attributes["scale"]) / (self._cap or 1.0)
        with b.nest((self.q.shape[3],), ("d",)) as (d,):
            value = b.mul(b.read(self.q, (*place, d)), scale)
            b.store(self.query, (*place, d), value)
        with b.nest((self.v.shape[3],), ("d",)) as (d,):
            b.store(self.sums, (*place, d), 0)
        self._begin()
        if isinstance(self.keys, int):
            self._blocks(self._seen())
        else:
            self._open_blocks(self._seen())
        self._finish(result)

    def _begin(self) -> None:
        """No keys so far: nothing, or a sink, whose power beside itself is 1."""
        b, place = self.b, self.place
        if self.sink is None:
            b.store(self.top, place, -math.inf)
            b.store(self.total, place, 0)
            return
        at = broadcast_indices(self.sink.shape, (*place, 0))
        b.store(self.top, place, b.cast(b.read(self.sink, at), self.dtype))
        top = b.load(self.top, place)
        b.store(
            self.total, place, b.select(b.eq(top, -math.inf), 0, b.const(1, self.dtype))
        )

    def _blocks(self, seen: Dim) -> None:
        is_single = self.keys == self.block
        blocks = 1 if is_single else symbolic.ceildiv(seen, self.block)
        with self.b.loop(blocks, "block") as block:
            start = block * self.block
            count = seen if is_single else symbolic.minimum(self.block, seen - start)
            self._add_block(start, count)

    def _open_blocks(self, seen: Dim) -> None:
        """Whole blocks, whose size is known, and what is left, which may be nothing."""
        b, whole = self.b, symbolic.floordiv(seen, self.block)
        with b.loop(whole, "block") as block:
            self._add_block(block * self.block, self.block)
        # Tiles of the rest have other sizes: they share nothing with those of a block.
        shape = self.scores.shape
        self.scores = b.temporary(self.dtype, shape, "rest_scores")
        self.product = b.temporary(self.dtype, shape[:3], "rest_product")
        self.sum = b.temporary(self.dtype, shape[:3], "rest_sum")
        self._add_block(whole * self.block, seen - whole * self.block)

    def _add_block(self, start: Dim, count: Dim) -> None:
        self._score(start, count)
        self._rescale()
        self._weigh(start, count)

    def _seen(self) -> Dim:
        """How many keys this row reads."""
        causal = cast("tuple[Dim, ...]", self.attributes["causal"])
        if not causal:
            return self.keys
        behind = (symbolic.floordiv(self.place[2], CAUSAL_ROWS) + 1) * CAUSAL_ROWS
        return symbolic.maximum(0, symbolic.minimum(self.keys, behind + causal[0]))

    def _score(self, start: Dim, count: Dim) -> None:
        b, place = self.b, self.place
        b.store(self.next_top, place, b.load(self.top, place))
        with b.nest((count,), ("j",)) as (j,):
            b.store(self.product, place, 0)
            with b.reduce((self.q.shape[3],), ("k",)) as (d,):
                key = b.read(self.k, (*self.shared, start + j, d))
                b.accumulate(
                    "add", self.product, place, b.mul(key, b.load(self.query, (*place, d)))
                )
            score = b.load(self.product, place)
            if not self._takes_a_pass():
                score = self._masked(self._within(score), start + j)
            b.store(self.scores, (*place, j), score)
        if self._takes_a_pass():
            with b.nest((count,), ("j",)) as (j,):
                score = self._capped(b.load(self.scores, (*place, j)))
                score = self._masked(score, start + j)
                b.store(self.scores, (*place, j), score)
        self._hide(start, count)
        with b.reduce((count,), ("j",)) as (j,):
            b.accumulate("max", self.next_top, place, b.load(self.scores, (*place, j)))

    def _takes_a_pass(self) -> bool:
        """Whether scores change in a pass of their own: bias or mask differ from row to row, or a function is taken."""
        differ = any(x is not None and x.shape[2] != 1 for x in (self.bias, self.mask))
        return differ or bool(self._cap)

    def _capped(self, score: Expression) -> Expression:
        capped = self.b.mul(self.b.tanh(score), self._cap) if self._cap else score
        return self._within(capped)

    def _within(self, score: Expression) -> Expression:
        """A score within its limits; NaN passes."""
        b = self.b
        low, high = (cast("float", self.attributes[name]) for name in ("low", "high"))
        if low > -math.inf:
            score = b.select(b.lt(score, low), low, score)
        return b.select(b.gt(score, high), high, score) if high < math.inf else score

    def _masked(self, score: Expression, key: Dim) -> Expression:
        b, at = self.b, (*self.place, key)
        if self.bias is not None:
            score = b.add(
                score,
                b.cast(
                    b.read(self.bias, broadcast_indices(self.bias.shape, at)), self.dtype
                ),
            )
        if self.mask is not None:
            shown = b.load(self.mask, broadcast_indices(self.mask.shape, at))
            score = b.select(shown, score, cast("float", self.attributes["masked"]))
        return score

    def _hide(self, start: Dim, count: Dim) -> None:
        """Hide the keys behind the row; rows that read the same keys all see those up to the first."""
        b, place = self.b, self.place
        for offset in cast("tuple[Dim, ...]", self.attributes["causal"]):
            first = symbolic.floordiv(place[2], CAUSAL_ROWS) * CAUSAL_ROWS + offset + 1
            seen = symbolic.maximum(0, symbolic.minimum(count, first - start))
            with b.nest((count - seen,), ("j",)) as (j,):
                key, at = start + seen + j, (*place, seen + j)
                shown = b.le(b.index(key), b.index(place[2] + offset))
                b.store(
                    self.scores, at, b.select(shown, b.load(self.scores, at), -math.inf)
                )

    def _rescale(self) -> None:
        """From here the scores stand against `top`; what was summed before shrinks by `shrink`."""
        b, place = self.b, self.place
        # Nothing but masked keys so far: against 0 their powers are 0.
        found = b.load(self.next_top, place)
        base = b.select(b.eq(found, -math.inf), 0, found)
        b.store(self.shrink, place, _power(b, b.sub(b.load(self.top, place), base)))
        b.store(self.top, place, b.load(self.next_top, place))
        b.store(self.next_top, place, base)
        shrunk = b.mul(b.load(self.total, place), b.load(self.shrink, place))
        b.store(self.total, place, shrunk)

    def _weigh(self, start: Dim, count: Dim) -> None:
        b, place = self.b, self.place
        with b.nest((count,), ("j",)) as (j,):
            shifted = b.sub(b.load(self.scores, (*place, j)), b.load(self.next_top, place))
            b.store(self.scores, (*place, j), _power(b, shifted))
        with b.reduce((count,), ("j",)) as (j,):
            b.accumulate("add", self.total, place, b.load(self.scores, (*place, j)))
        with b.nest((self.v.shape[3],), ("d",)) as (d,):
            shrunk = b.mul(b.load(self.sums, (*place, d)), b.load(self.shrink, place))
            b.store(self.sum, place, shrunk)
            with b.reduce((count,), ("j",)) as (j,):
                value = b.read(self.v, (*self.shared, start + j, d))
                weight = b.load(self.scores, (*place, j))
                b.accumulate("add", self.sum, place, b.mul(value, weight))
            b.store(self.sums, (*place, d), b.load(self.sum, place))

    def _finish(self, result: Buffer) -> None:
        b, place = self.b, self.place
        total = b.load(self.total, place)
        rest = cast("float", self.attributes["rest"])
        whole = b.add(total, rest) if rest else total
        share = b.div(b.const(1, self.dtype), whole)
        # Without any key that is seen, the total is 0; where there are no keys at all, so is the result.
        lost = b.eq(total, 0)
        b.store(self.shrink, place, b.select(lost, self._share_of_none(), share))
        with b.nest((self.v.shape[3],), ("d",)) as (d,):
            share = b.load(self.shrink, place)
            value = b.mul(b.load(self.sums, (*place, d)), share)
            if self.attributes["zero_nan"]:
                value = b.select(b.is_nan(share), 0, value)
            elif self.attributes["zero_rows"]:
                value = b.select(b.eq(b.load(self.total, place), 0), 0, value)
            b.write(result, (*place, d), value)

    def _share_of_none(self) -> Expression | float:
        """By what the sum over no seen keys is multiplied: NaN, as 0 / 0 is, or 0 where no key is there to be hidden."""
        b, keys = self.b, self.keys
        if isinstance(keys, int):
            return math.nan if keys else 0.0
        return b.select(b.eq(b.index(keys), 0), b.const(0, self.dtype), math.nan)


def key_block(keys: Dim) -> Dim:
    """Keys per block: equal blocks of at most `KEY_BLOCK`, where their number is known."""
    if not isinstance(keys, int):
        return KEY_BLOCK
    count = max(1, -(-keys // KEY_BLOCK))
    return max(1, min(keys, -(-keys // count // 8) * 8))


attention: Final = declare(
    name="attention",
    summary="softmax(q k' * scale + bias) v over the keys of each head; products within `low` and `high`, and `rest` beside the powers "
    "of scores less the largest",
    operands=(
        operand("q", FLOATS),
        operand("k", FLOATS, like="q"),
        operand("v", FLOATS, like="q"),
        optional("bias", FLOATS),
        optional("mask", (dtypes.bool_,)),
        optional("sink", FLOATS),
    ),
    attributes=(
        attr("scale", "float", 1.0),
        attr("causal", "dims", ()),
        attr("masked", "float", -math.inf),
        attr("zero_rows", "bool", False),
        attr("softcap", "float", 0.0),
        attr("zero_nan", "bool", False),
        attr("low", "float", -math.inf),
        attr("high", "float", math.inf),
        attr("rest", "float", 0.0),
    ),
    infer=_infer,
    evaluate=_oracle,
    body=_body,
    traits=Trait.PURE,
    role=Role.ATTENTION,
    work=_work,
    cases=(
        "[2,3,5,3] [2,3,7,3] [2,3,7,4]",
        "[1,2,37,2] [1,2,37,2] [1,2,37,2]; causal=(0,)",
        "[1,1,3,3] [1,1,140,3] [1,1,140,5] [1,1,3,140]",
        "[1,4,7,2] [1,2,9,2] [1,2,9,2] _ bool[1,1,7,9]; masked=-10000.0",
        "[1,2,6,1] [1,2,5,1] [1,2,5,1]; scale=2.0",
        "[1,2,1,3] [1,2,33,3] [1,2,33,3] [1,1,1,33]; causal=(32,)",
        "[2,1,20,2] [2,1,150,2] [2,1,150,2] [2,1,1,150]; causal=(130,) zero_rows=True",
        "[1,1,2,2] [1,1,3,2] [1,1,3,2] _ bool[1,1,1,3]:=0,0,0; zero_rows=True",
        "[1,1,2,2] [1,1,3,2] [1,1,3,2] _ bool[1,1,1,3]:=0,0,0",
        "[1,1,2,1]:=nan,1 [1,1,3,1] [1,1,3,2] [1,1,2,3]; zero_rows=True",
        "[1,1,2,1]:=nan,inf [1,1,3,1] [1,1,3,2]; zero_rows=True zero_nan=True",
        "[1,1,2,1] [1,1,3,1] [1,1,3,2] [1,1,2,3]:=-inf,-inf,-inf,0,nan,0; zero_rows=True",
        "[1,2,0,4] [1,2,3,4] [1,2,3,4]",
        "[1,2,3,4] [1,2,0,4] [1,2,0,5] [1,1,3,0]",
        "f16[1,2,5,3] f16[1,2,6,3] f16[1,2,6,3] f16[1,2,5,6]",
        "[2,4,1,20] [2,2,133,20] [2,2,133,35]; scale=0.25",
        "[1,2,3,4] [1,1,9,4] [1,1,9,5] [1,1,3,9]; softcap=0.5 scale=2.0",
        "[1,1,19,2] [1,1,5,2] [1,1,5,2]; softcap=1.5 causal=(0,)",
        "[2,4,5,3] [2,2,140,3] [2,2,140,4] _ _ [1,4,1,1]; scale=0.5",
        "[1,1,37,2] [1,1,37,2] [1,1,37,3] [1,1,1,37] _ [1,1,37,1]; causal=(0,)",
        "[1,2,3,2] [1,2,4,2] [1,2,4,2] _ bool[1,1,1,4]:=0,0,0,0 [1,2,1,1]:=0.5,-inf",
        "[1,2,3,2] [1,2,0,2] [1,2,0,2] _ _ [1,2,1,1]",
        "[1,2,5,3] [1,2,37,3] [1,2,37,3]; low=-0.5 high=0.25 scale=2.0",
        "[1,2,5,3] [1,1,140,3] [1,1,140,3] [1,1,5,140] bool[1,1,1,140]; low=-0.5 softcap=1.5",
        "[1,1,2,1]:=nan,inf [1,1,3,1] [1,1,3,2]; high=0.5",
        "[1,2,19,3] [1,2,37,3] [1,2,37,5]; rest=1.0 causal=(0,)",
        "[1,1,2,2] [1,1,3,2] [1,1,3,2] _ bool[1,1,1,3]:=0,0,0; rest=1.0",
        "[1,1,2,2] [1,1,3,2] [1,1,3,2] _ bool[1,1,1,3]:=0,0,0; rest=1.0 zero_rows=True",
    ),
    source="Milakov and Gimelshein, Online normalizer calculation for softmax, 2018, algorithm 3; "
    "ONNX Attention, opset 23",
)

OPS: Final[tuple[OpDecl, ...]] = (attention,)
