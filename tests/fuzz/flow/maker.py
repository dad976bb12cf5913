"""A random ONNX model with control flow in the making: what its steps draw from and add to.

What it is: values with what is known of them, frames (the model, and each body of If, Loop and Scan) and one
way to append a node.  A step makes nothing that could be invalid: sizes are compared by name, what data decides
is brought into its range by nodes of the model.
What it is not: the steps (`elementwise`, `rows`, `movement`, `sizes`, `regions`) or the models (`models`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

Size = int | str
Shape = tuple[Size, ...]
FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int64", "int32", "uint8")
TYPES = (*FLOATS, *INTEGERS, "bool")
SIZES = (1, 2, 3, 5, 7)
MOST_RANK = 4
# How alike the ways to compute a value are: whole numbers are the same in any order of operations (up to
# `bound`), others may be the same because nothing was computed of them yet, the rest is rounded.
WHOLE, SAME, ROUGH = 0, 1, 2
EXACT_LIMIT = {"float16": 2.0**10, "float32": 2.0**20, "float64": 2.0**40}
ANY = float("inf")
UNKNOWN_SIZE = 4


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the model.

    Attributes:
        bound: the largest size of an element, infinities aside.
        finite: there is neither NaN nor infinity among the elements.
    """

    name: str
    dtype: str
    shape: Shape
    kind: int = WHOLE
    bound: float = 4.0
    finite: bool = True

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    @property
    def is_exact(self) -> bool:
        """Whether what jumps may be made of it: comparisons, indices, sizes."""
        return self.kind < ROUGH


@dataclass(eq=False)
class Frame:
    """The model, or one body: its nodes, its values, and the frame around it."""

    outer: Frame | None = None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    sizes: set[str] = field(default_factory=set)  # the symbols that were made here

    @property
    def depth(self) -> int:
        return 0 if self.outer is None else 1 + self.outer.depth

    def visible(self) -> list[Value]:
        """What a node here may read, what is near last."""
        outer = [] if self.outer is None else self.outer.visible()
        return [*outer, *self.values]

    @property
    def outer_values(self) -> list[Value]:
        """What was there before this frame."""
        return [] if self.outer is None else self.outer.visible()

    def knows(self, size: Size) -> bool:
        """Whether a size was there before this frame: every trip has the same."""
        return isinstance(size, int) or size not in self.sizes

    def knows_now(self, size: Size) -> bool:
        """Whether a size is one of this frame or of those around it, not of a body in it."""
        if isinstance(size, int) or size in self.sizes:
            return True
        return self.outer is not None and self.outer.knows_now(size)


class Maker:
    """One model in the making; a step appends nodes to `frame`, or gives up."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.frame = Frame()
        self.positive: set[str] = set()
        self.kept: list[Value] = []  # results that only the model's outputs read
        self.count = 0
        self.numbers = np.random.default_rng(choose.randrange(1 << 30))
        self.budget = 40  # nodes still to be made by steps
        self.opset = 18  # what a step may ask for; the model may say a newer one

    # --- drawing ----------------------------------------------------------------------------

    def one(self, options: Sequence[Any]) -> Any:
        return self.choose.choice(list(options))

    def number(self, low: int, high: int) -> int:
        return self.choose.randint(low, high)

    def chance(self, share: float) -> bool:
        return self.choose.random() < share

    def pick(self, fits: Callable[[Value], bool] = lambda _: True) -> Value | None:
        """A value that fits, more often one that was made lately or stands in this frame."""
        found = [v for v in reversed(self.frame.visible()) if fits(v)]
        if not found:
            return None
        return self.one(found[:4] if self.chance(0.6) else found)

    # --- names and sizes --------------------------------------------------------------------

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def new_size(self, *, positive: bool = False) -> str:
        """A size that only a run knows."""
        size = self.name("S")
        self.frame.sizes.add(size)
        if positive:
            self.positive.add(size)
        return size

    def is_positive(self, size: Size) -> bool:
        return size > 0 if isinstance(size, int) else size in self.positive

    def has_elements(self, v: Value) -> bool:
        return all(self.is_positive(s) for s in v.shape)

    # --- adding -----------------------------------------------------------------------------

    def node(
        self,
        op: str,
        inputs: Sequence[Value | str],
        outputs: int = 1,
        **attributes: object,
    ) -> list[str]:
        """Append a node; the names of its outputs."""
        names = [v if isinstance(v, str) else v.name for v in inputs]
        made = [self.name("v") for _ in range(outputs)]
        self.frame.nodes.append(
            helper.make_node(op, names, made, name=f"{op}_{made[0]}", **attributes)
        )
        return made

    def keep(self, value: Value) -> Value:
        """Let later steps see a value; what is too large to be exact is rough from now on."""
        if (
            value.is_float
            and value.kind == WHOLE
            and value.bound > EXACT_LIMIT[value.dtype]
        ):
            value = Value(
                value.name, value.dtype, value.shape, ROUGH, value.bound, value.finite
            )
        self.frame.values.append(value)
        return value

    def add(
        self,
        op: str,
        inputs: Sequence[Value | str],
        like: Value,
        **changes: Any,
    ) -> Value:
        """Append a node of one output that is `like` a value, but for what is given.

        Attributes of the node begin with an underscore.
        """
        attributes = {k[1:]: v for k, v in changes.items() if k.startswith("_")}
        (name,) = self.node(op, inputs, **attributes)
        facts = {
            "dtype": like.dtype, "shape": like.shape, "kind": like.kind, "bound": like.bound,
            "finite": like.finite,
        }  # fmt: skip
        facts |= {k: v for k, v in changes.items() if not k.startswith("_")}
        return self.keep(Value(name, **facts))

    def constant(self, array: np.ndarray, *, keep: bool = False) -> Value:
        """A Constant node, or an initializer of the frame."""
        name = self.name("c")
        tensor = numpy_helper.from_array(array, name)
        if self.chance(0.5):
            self.frame.initializers.append(tensor)
        else:
            self.frame.nodes.append(
                helper.make_node("Constant", [], [name], name=name, value=tensor)
            )
        shape = tuple(int(n) for n in array.shape)
        value = Value(name, str(array.dtype), shape, WHOLE, 4.0)
        return self.keep(value) if keep else value

    def ints(self, *numbers: int) -> Value:
        """A constant vector of int64."""
        return self.constant(np.array(numbers, np.int64))

    def scalar(self, number: float, dtype: str) -> Value:
        return self.constant(np.asarray(number).astype(dtype))

    def weights(self, shape: Sequence[int], dtype: str) -> Value:
        """A constant of small whole numbers."""
        low = 0 if dtype in ("uint8", "bool") else -2
        array = self.numbers.integers(low, 2 if dtype == "bool" else 3, tuple(shape))
        return self.constant(np.asarray(array).astype(dtype))

    # --- bringing values into range ----------------------------------------------------------

    def tame(self, v: Value, most: float = 4.0) -> Value:
        """The value if no element is beyond `most`, else one made of it that is not."""
        if v.bound <= most or v.dtype == "bool":
            return v
        if not v.is_float:
            divisor = self.scalar(int(most) + 1, v.dtype)
            return self.add("Mod", [v, divisor], v, bound=most)
        if v.kind == ROUGH:
            made = self.add("Tanh", [v], v, bound=1.0)
            return made if most >= 1 else self.tame(made, most)
        low, high = self.scalar(-most, v.dtype), self.scalar(most, v.dtype)
        return self.add("Clip", [v, low, high], v, bound=most)

    def count_of(self, low: int, high: int) -> Value:
        """A scalar of int64 in [low, high] that data decides; never a constant."""
        raw = self._whole_number()
        if raw.bound <= high and low == 0 and raw.bound >= 0 and raw.name.startswith("n"):
            return raw
        divisor = self.scalar(high - low + 1, "int64")
        rest = self.add("Mod", [raw, divisor], raw, bound=float(high - low))
        if not low:
            return rest
        offset = self.scalar(low, "int64")
        return self.add("Add", [rest, offset], rest, bound=float(high))

    def _whole_number(self) -> Value:
        """Some scalar of int64: an input, the number of a trip, or a sum over exact elements."""
        scalars = [v for v in self.frame.visible() if v.dtype == "int64" and not v.shape]
        if scalars and self.chance(0.6):
            return self.one(scalars)
        source = self.pick(
            lambda v: v.dtype == "bool" or (v.dtype in INTEGERS and v.rank > 0)
        )
        if source is None:
            assert scalars, "a model has a number among its inputs"
            return self.one(scalars)
        wide = self.add(
            "Cast", [source], source, dtype="int64", _to=int(onnx.TensorProto.INT64)
        )
        return self.add("ReduceSum", [wide], wide, shape=(), bound=ANY, _keepdims=0)

    def condition(self) -> Value:
        """A scalar of bool: an input, a constant, or made of data."""
        found = [v for v in self.frame.visible() if v.dtype == "bool" and not v.shape]
        kind = self.number(0, 5)
        if kind == 0:
            return self.scalar(self.chance(0.5), "bool")
        if kind <= 2 and found:
            return self.one(found)
        number = self.count_of(0, 3)
        limit = self.scalar(self.number(1, 3), "int64")
        made = self.add(self.one(("Less", "Greater", "Equal")), [number, limit], number,
                        dtype="bool", bound=1.0)  # fmt: skip
        if found and self.chance(0.3):
            made = self.add(self.one(("And", "Or", "Xor")), [made, self.one(found)], made)
        return made

    def dim(self, v: Value, axis: int) -> Value:
        """The size of an axis as a vector of one element."""
        end = axis + 1
        return self.vector(self.node("Shape", [v], start=axis, end=end)[0], 1)

    def vector(self, name: str, length: int) -> Value:
        """Sizes that were computed; no later step takes them by chance."""
        return Value(name, "int64", (length,), WHOLE, ANY)

    def joined(self, parts: Sequence[Value]) -> Value:
        """Vectors of int64, one after the other."""
        length = sum(int(p.shape[0]) for p in parts)
        return self.vector(self.node("Concat", list(parts), axis=0)[0], length)

    def as_vector(self, number: Value) -> Value:
        """A scalar as a vector of one element."""
        return self.vector(self.node("Unsqueeze", [number, self.ints(0)])[0], 1)


Step = Callable[[Maker], None]


def estimated_elements(shape: Shape) -> int:
    """How many elements there may be, with a guess for sizes that nobody knows."""
    count = 1
    for size in shape:
        count *= size if isinstance(size, int) else UNKNOWN_SIZE
    return count


def joined_shape(left: Shape, right: Shape) -> Shape | None:
    """What two shapes broadcast to; None where their names do not say that they do."""
    longer, shorter = (left, right) if len(left) >= len(right) else (right, left)
    padded = (*(1,) * (len(longer) - len(shorter)), *shorter)
    found: list[Size] = []
    for a, b in zip(longer, padded, strict=True):
        if a != b and a != 1 and b != 1:
            return None
        found.append(b if a == 1 else a)
    return tuple(found)
