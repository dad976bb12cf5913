"""Rows for random numbers: counter-based generators, and draws from a distribution.

A generator is arithmetic on its counter, so that the same state gives the same bits everywhere.

Source: StableHLO specification, "rng_bit_generator", "rng"; Salmon et al., "Parallel Random Numbers: As Easy
as 1, 2, 3", SC 2011; the order of words is the one that XLA documents by its results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim, ceildiv, is_multiple
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.random_bits import (
    WORD,
    high_word,
    low_word,
    of_words,
    philox,
    rotated,
)
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.bits import same_bits
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.demands import (
    elements,
    gives,
    one_element,
    rank,
    takes,
)
from tilewright.compiler.frontends.stablehlo.movement import sizes_of
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.ops.shapes import element_count

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY: Final = 0x1BD11BDA
_THREEFRY_GROUPS: Final = 5


def _element(e: NodeMaker, x: Tensor, index: int) -> Tensor:
    return e.squeeze(e.slice(x, 0, index, 1), (0,))


def _counted(e: NodeMaker, count: Dim) -> Tensor:
    return e.cast(e.iota((count,), 0), dtypes.u64)


# --- ThreeFry ----------------------------------------------------------------------------------


def three_fry(
    e: NodeMaker, key: Sequence[Tensor], words: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Threefry-2x32 with 20 rounds."""
    parity = e.op("bitwise_xor", key[0], key[1])
    parity = e.op("bitwise_xor", parity, e.scalar(_PARITY, dtypes.u32))
    schedule = (*key, parity)
    x, y = (e.op("add", word, k) for word, k in zip(words, key, strict=True))
    for group in range(_THREEFRY_GROUPS):
        for distance in _ROTATIONS[group % 2]:
            x = e.op("add", x, y)
            y = e.op("bitwise_xor", x, rotated(e, y, distance))
        x = e.op("add", x, schedule[(group + 1) % 3])
        injected = e.op("add", schedule[(group + 2) % 3], e.scalar(group + 1, dtypes.u32))
        y = e.op("add", y, injected)
    return x, y


def _three_fry_bits(
    e: NodeMaker, state: Tensor, shape: Sequence[Dim], bits: int
) -> tuple[Tensor, Tensor]:
    """U64 or u32 of a shape, and the state after them."""
    key, counter = _element(e, state, 0), _element(e, state, 1)
    key_words = (low_word(e, key), high_word(e, key))
    if bits > WORD:
        count = element_count(shape)
        places = e.op("add", _counted(e, count), counter)
        words = three_fry(e, key_words, (low_word(e, places), high_word(e, places)))
        found = e.reshape(of_words(e, *words), shape)
    else:
        axis, half = _half(shape)
        count = element_count(half)
        places = e.op("add", _counted(e, count), counter)
        words = three_fry(e, key_words, (low_word(e, places), high_word(e, places)))
        found = _halves_joined(e, words, axis, half, shape)
    moved = e.op("add", counter, _number(e, count))
    after = e.concat([e.reshape(x, (1,)) for x in (key, moved)], 0)
    return found, after


def _half(shape: Sequence[Dim]) -> tuple[int, list[Dim]]:
    """The axis that both words of a counter share, the first that is even or the longest; and the shape of one half."""
    sizes = list(shape) or [1]
    axis = next((i for i, size in enumerate(sizes) if size % 2 != 1), None)
    if axis is not None and not is_multiple(sizes[axis], 2):
        raise UnsupportedError(
            f"random bits of a size that a call decides, {sizes[axis]}, are not supported"
        )
    numbers = [size for size in sizes if isinstance(size, int)]
    if axis is None and len(numbers) < len(sizes):
        raise UnsupportedError("random bits of sizes that a call decides are not supported")
    axis = numbers.index(max(numbers)) if axis is None else axis
    sizes[axis] = ceildiv(sizes[axis], 2)
    return axis, sizes


def _number(e: NodeMaker, count: Dim) -> Tensor:
    return e.cast(e.dim(count), dtypes.u64)


def _halves_joined(
    e: NodeMaker,
    words: Sequence[Tensor],
    axis: int,
    half: Sequence[Dim],
    shape: Sequence[Dim],
) -> Tensor:
    """First and second words by turns along an axis."""
    apart = [e.unsqueeze(e.reshape(word, half), (axis + 1,)) for word in words]
    whole = [*half]
    whole[axis] = whole[axis] * 2
    found = e.reshape(e.concat(apart, axis + 1), whole)
    wanted = shape[axis] if shape else 1
    return e.reshape(e.slice(found, axis, 0, wanted), shape)


# --- Philox ------------------------------------------------------------------------------------


def _philox_bits(
    e: NodeMaker, state: Tensor, shape: Sequence[Dim], bits: int
) -> tuple[Tensor, Tensor]:
    """U64 or u32 of a shape, and the state after them; a counter of 128 bits gives four words."""
    wide = bits > WORD
    count = element_count(shape)
    blocks = ceildiv(count * (2 if wide else 1), 4)
    key, counter = _element(e, state, 0), _counter_of(e, state)
    low, high = _moved(e, counter, _counted(e, blocks))
    words = philox(
        e, (low_word(e, key), high_word(e, key)), (low_word(e, low), high_word(e, low), low_word(e, high), high_word(e, high))
    )  # fmt: skip
    numbers = [of_words(e, *words[:2]), of_words(e, *words[2:])] if wide else list(words)
    flat = e.reshape(
        e.concat([e.unsqueeze(x, (1,)) for x in numbers], 1), (blocks * len(numbers),)
    )
    after = _moved(e, counter, _number(e, blocks))
    kept = (key, *after)[: sizes_of(state)[0]]
    return (
        e.reshape(e.slice(flat, 0, 0, count), shape),
        e.concat([e.reshape(x, (1,)) for x in kept], 0),
    )


def _counter_of(e: NodeMaker, state: Tensor) -> tuple[Tensor, Tensor]:
    """The counter's halves; where the state has two words, the high half begins as the key."""
    is_short = sizes_of(state)[0] == 2
    return _element(e, state, 1), _element(e, state, 0 if is_short else 2)


def _moved(
    e: NodeMaker, counter: tuple[Tensor, Tensor], by: Tensor
) -> tuple[Tensor, Tensor]:
    low, high = counter
    moved = e.op("add", low, by)
    carry = e.cast(e.op("less", moved, low), dtypes.u64)
    return moved, e.op("add", high, carry)


# --- rows --------------------------------------------------------------------------------------

_STATES: Final = {"THREE_FRY": (2,), "PHILOX": (2, 3), "DEFAULT": (2, 3)}


def _rng_bit_generator(call: Call) -> list[Tensor]:
    return random_bits(call, call.shape(1))


def random_bits(call: Call, shape: Sequence[Dim]) -> list[Tensor]:
    """The state after a draw, and bits of a shape.  The default is Philox, as in XLA on CPUs."""
    e, state = call.maker, call.tensor(0)
    algorithm, dtype = call.keyword("rng_algorithm"), call.dtype(1)
    if algorithm not in _STATES:
        raise ModelError(f"algorithm '{algorithm}' is unknown")
    words, given = _state_words(e, state)
    if words not in _STATES[algorithm]:
        raise UnsupportedError(
            f"a state of {words} words of 64 bits is not supported for {algorithm}"
        )
    generate = _three_fry_bits if algorithm == "THREE_FRY" else _philox_bits
    bits, after = generate(e, given, shape, dtype.bits)
    return [_like_state(e, after, state), _as_elements(e, bits, dtype)]


def _state_words(e: NodeMaker, state: Tensor) -> tuple[int, Tensor]:
    """The state as words of 64 bits; those of 32 lie low one first."""
    if state.rank != 1 or state.dtype not in (dtypes.u64, dtypes.u32):
        raise ModelError(f"got the state {state.type}, expected a vector of u64")
    count = sizes_of(state)[0]
    if state.dtype is dtypes.u64:
        return count, state
    if count % 2:
        raise UnsupportedError(f"a state of {count} words of 32 bits is not supported")
    pairs = e.reshape(state, (count // 2, 2))
    low, high = (e.squeeze(e.slice(pairs, 1, i, 1), (1,)) for i in (0, 1))
    return count // 2, of_words(e, low, high)


def _like_state(e: NodeMaker, after: Tensor, state: Tensor) -> Tensor:
    if state.dtype is dtypes.u64:
        return after
    words = [e.unsqueeze(x, (1,)) for x in (low_word(e, after), high_word(e, after))]
    return e.reshape(e.concat(words, 1), state.shape)


def _as_elements(e: NodeMaker, bits: Tensor, dtype: DType) -> Tensor:
    """Random words as elements of as many bits; of narrower ones the low bits count."""
    if dtype.bits >= WORD:
        return same_bits(e, bits, dtype)
    plain = {8: dtypes.u8, 16: dtypes.u16}.get(dtype.bits)
    if plain is None or dtype.is_bool:
        raise UnsupportedError(f"random bits as {dtype} are not supported")
    mask = e.scalar((1 << dtype.bits) - 1, dtypes.u32)
    return same_bits(e, e.cast(e.op("bitwise_and", bits, mask), plain), dtype)


def _rng(call: Call) -> Tensor:
    """One draw, the same in every run: the specification leaves the sequence open."""
    e, shape = call.maker, call.shape()
    low, high = call.tensor(0), call.tensor(1)
    if call.tensor(2).array is not None and call.numbers(2) != shape:
        raise ModelError(f"asks for {list(call.numbers(2))}, its type says {list(shape)}")
    distribution, dtype = call.keyword("rng_distribution"), call.dtype()
    # Each operation of a module draws a sequence of its own.
    seed = e.constant(np.array([call.operation.place.line, 0], np.uint64))
    if distribution == "NORMAL":
        return _normal(call, seed, shape, low, high)
    if distribution != "UNIFORM":
        raise ModelError(f"distribution '{distribution}' is unknown")
    bits, _ = _three_fry_bits(e, seed, shape, 64)
    if dtype.is_float:
        drawn = _unit(e, bits)
        start, stop = (e.cast(x, dtypes.f64) for x in (low, high))
        found = e.op("add", start, e.op("mul", drawn, e.op("sub", stop, start)))
        return e.cast(found, dtype)
    if dtype.is_bool:
        return e.op(
            "equal",
            e.op("bitwise_and", bits, e.scalar(1, dtypes.u64)),
            e.scalar(1, dtypes.u64),
        )
    start, stop = (e.cast(x, dtypes.i64) for x in (low, high))
    span = e.cast(e.op("sub", stop, start), dtypes.u64)
    inside = e.cast(e.op("mod", bits, span, fmod=True), dtypes.i64)
    return e.cast(e.op("add", start, inside), dtype)


def _unit(e: NodeMaker, bits: Tensor) -> Tensor:
    """F64 in [0, 1), from 53 random bits."""
    whole = e.op("shift_right", bits, e.scalar(11, dtypes.u64))
    return e.op("mul", e.cast(whole, dtypes.f64), e.scalar(2.0**-53, dtypes.f64))


def _normal(
    call: Call, seed: Tensor, shape: Sequence[int], mean: Tensor, deviation: Tensor
) -> Tensor:
    """Box and Muller's pairs of uniform numbers."""
    e = call.maker
    bits, _ = _three_fry_bits(e, seed, (2, *shape), 64)
    radius, turn = (
        _unit(e, e.squeeze(e.slice(bits, 0, index, 1), (0,))) for index in (0, 1)
    )
    one = e.scalar(1.0, dtypes.f64)
    size = e.op("mul", e.op("log", e.op("sub", one, radius)), e.scalar(-2.0, dtypes.f64))
    angle = e.op("mul", turn, e.scalar(2 * math.pi, dtypes.f64))
    drawn = e.op("mul", e.op("sqrt", size), e.op("cos", angle))
    wide = [e.cast(x, dtypes.f64) for x in (mean, deviation)]
    return e.cast(e.op("add", e.op("mul", drawn, wide[1]), wide[0]), call.dtype())


def _state_fits(call: Call) -> None:
    """The state after a draw is of the type of the one before."""
    before, after = call.operation.operands[0].type, call.operation.results[0].type
    if before != after:
        raise ModelError(
            f"the state is {before} before and {after} after, expected one type"
        )


ROWS: Final[tuple[Row, ...]] = (
    row(
        "rng",
        _rng,
        demands=(
            takes(3),
            one_element(0, 1),
            rank(0, 0, 1),
            rank(1, 2),
            elements("bsuf", 0),
            elements("su", 2),
        ),
    ),
    row(
        "rng_bit_generator",
        _rng_bit_generator,
        demands=(takes(1, 2), gives("suf", 1), _state_fits),
    ),
)
