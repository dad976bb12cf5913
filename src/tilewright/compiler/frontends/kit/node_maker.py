"""Appends graph ops for one imported model, folding what is already known.

An op whose operands are small constants is computed at once by its oracle; one on small tensors
with symbolic contents is followed (`contents`); everything else becomes a node.  Not the place
for foreign semantics: rows decide what to emit, this decides whether anything must be.

Called by the rows and importers of front ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar, cast, final

import numpy as np

import tilewright.compiler.graph.contents as known
from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError, ModelError
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.frontends.kit import numbers_of_data
from tilewright.compiler.frontends.kit.assumptions import Equality, equalities
from tilewright.compiler.frontends.kit.problems import SkipNodeError
from tilewright.compiler.frontends.kit.region import Region
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.contents import Contents, Ratio, UndecidedError
from tilewright.compiler.graph.ir import UNKNOWN_LOCATION, Graph, Location, Node, Value
from tilewright.compiler.graph.schema import Array, OpSchema, TensorType, Trait
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.movement import nearest_step
from tilewright.compiler.ops.quantization import widens_bytes
from tilewright.compiler.ops.shapes import normal_axis, taken_to_hold

FOLD_ELEMENTS: Final = 1 << 16
Found = TypeVar("Found")


@final
class AttemptOverError(Exception):
    """What is tried comes to more than it may; never leaves the attempt."""


@final
class NodeMaker:
    """Writes nodes into `graph`; `location` is where the next ones come from."""

    __slots__ = (
        "_cached",
        "_fresh",
        "_most_nodes",
        "_node_count",
        "_regions",
        "_stand_ins",
        "_top",
        "assumptions",
        "elements",
        "emitted",
        "location",
        "needed",
    )

    def __init__(self, graph: Graph) -> None:
        self._top: Graph = graph
        self._regions: list[Region] = []
        self._stand_ins: set[Value] = set()
        self._fresh: int = 0
        # How many nodes were written, and how many may be before what is tried is given up.
        self._node_count: int = 0
        self._most_nodes: float = math.inf
        # Constants that got a value in the graph.
        self._cached: list[Tensor] = []
        self.location: Location = UNKNOWN_LOCATION
        self.emitted: list[Node] = []
        self.assumptions: dict[Equality, Location] = {}
        # By name of a symbol the element that it is, for what need not be read as a size.
        self.elements: dict[str, Tensor] = {}
        # The inputs whose elements would have had to be known.
        self.needed: set[str] = set()

    @property
    def graph(self) -> Graph:
        """Where nodes go now: the graph, or the innermost region that is open."""
        return self._regions[-1].graph if self._regions else self._top

    @property
    def is_inside(self) -> bool:
        """Whether a region is open."""
        return bool(self._regions)

    # --- regions

    @property
    def depth(self) -> int:
        """How many regions are open."""
        return len(self._regions)

    @contextmanager
    def region(
        self, inputs: Sequence[TensorType] = (), *, is_certain: bool = False
    ) -> Generator[Region]:
        """Write nodes into a region until the block ends; what they read from outside is captured.

        Args:
            inputs: the types of what it takes before its captures.
            is_certain: it runs whenever what is around it does.
        """
        opened = Region(inputs, is_certain=is_certain)
        self._regions.append(opened)
        try:
            yield opened
        finally:
            self._regions.remove(opened)

    def attempt(self, write: Callable[[], Found | None], most_nodes: int) -> Found | None:
        """What `write` gives; where it gives None or writes more nodes, those in regions included, all of them go again.

        Attempts in each other end together where the outer one has no nodes left; what went again does not count.
        """
        undo, outer, count = self._checkpoint(), self._most_nodes, self._node_count
        self._most_nodes = min(outer, count + most_nodes)
        try:
            found = write()
        except AttemptOverError:
            found = None
            if self._node_count > outer:
                raise
        finally:
            self._most_nodes = outer
        if found is None:
            undo()
            self._node_count = count
        return found

    def _checkpoint(self) -> Callable[[], None]:
        """Remember this moment.  Returns: what goes back to it, once the regions that were opened since are closed."""
        lists: list[list[Any]] = [self.graph.nodes, self.emitted]
        dicts: list[dict[Any, Any]] = [self.assumptions, self.elements]
        for region in self._regions:
            dicts += [region.captures, region.made]
        expected = [set(region.expected) for region in self._regions]
        counts = [len(each) for each in (*lists, *dicts)]
        cached = len(self._cached)

        def undo() -> None:
            for each, count in zip(lists, counts, strict=False):
                del each[count:]
            for each, count in zip(dicts, counts[len(lists) :], strict=True):
                for key in list(each)[count:]:
                    del each[key]
            for region, held in zip(self._regions, expected, strict=True):
                region.expected = held
            for tensor in self._cached[cached:]:
                tensor.value = None
            del self._cached[cached:]

        return undo

    def flow(
        self,
        name: str,
        operands: Sequence[Tensor],
        regions: Sequence[Region],
        types: Sequence[TensorType],
        **attributes: object,
    ) -> list[Tensor]:
        """A node of control flow over regions that are closed; their captures become operands."""
        captured = list(dict.fromkeys(v for region in regions for v in region.captures))
        for region in regions:
            region.graph.inputs += [region.inside(value) for value in captured]
        given = [self.value(t) for t in operands]
        given += [self._reached(value, len(self._regions)) for value in captured]
        declaration = catalogue.lookup(name)
        node = Node(
            declaration.schema,
            given,
            declaration.complete(attributes),
            types,
            regions=[region.graph for region in regions],
            location=self.location,
        )
        self._append(node)
        return [self.of_value(value) for value in node.results]

    def retype(
        self, region: Region, results: Sequence[Tensor], types: Sequence[TensorType]
    ) -> None:
        """Let a region that is closed yield its results as of other types, equal where it runs."""
        self._regions.append(region)
        for place, (result, type_) in enumerate(zip(results, types, strict=True)):
            region.graph.outputs[place] = self.value(self.as_type(result, type_))
        self._regions.remove(region)

    def as_type(self, x: Tensor, type_: TensorType) -> Tensor:
        """`x` as of a type whose sizes are its own wherever this runs; nothing is assumed elsewhere."""
        if x.type == type_:
            return x
        shape = {"shape": type_.shape}
        return self.of_value(self._node("reshape", [self.value(x)], shape, (type_,)).result)

    def fresh_name(self, stem: str) -> str:
        """A name of a size that no other has."""
        self._fresh += 1
        return f"{stem}${self._fresh}"

    def bind_sizes(self, values: Tensor, sizes: Sequence[Dim], note: str = "") -> None:
        """Let the symbols `sizes` be the elements of `values`, i64, from here on; `note` as of `Location`."""
        declaration = catalogue.lookup("bind_sizes")
        attributes = declaration.complete({"sizes": tuple(sizes)})
        operand = self.value(values)
        where = replace(self.location, note=note) if note else self.location
        self._append(Node(declaration.schema, [operand], attributes, (), location=where))

    def _append(self, node: Node) -> None:
        self._node_count += 1
        if self._node_count > self._most_nodes:
            raise AttemptOverError
        self.graph.nodes.append(node)
        self.emitted.append(node)
        if self._regions:
            self._regions[-1].own.update(node.results)

    def _reached(self, value: Value, depth: int) -> Value:
        """The value as the region at `depth` sees it (0: the graph), captured where it is from outside."""
        if not depth:
            return value
        region = self._regions[depth - 1]
        if value in region.own:
            return value
        return region.inside(self._reached(value, depth - 1))

    # --- making tensors

    def constant(self, array: Array, name: str = "") -> Tensor:
        """A tensor with these elements; no node until something needs it."""
        dtype = dtypes.from_numpy(array.dtype)
        return Tensor(TensorType(dtype, array.shape), name, array=array)

    def scalar(self, number: complex, dtype: DType) -> Tensor:
        """A constant of rank 0; a number that the type has no room for is infinite in it."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.constant(np.array(number).astype(dtype.numpy))

    def dims(self, dims: Sequence[Dim]) -> Tensor:
        """An i64 vector that holds `dims`."""
        return self.from_contents(known.known(dtypes.i64, list(dims), (len(dims),)))

    def dim(self, dim: Dim) -> Tensor:
        """An i64 scalar that holds `dim`."""
        return self.from_contents(known.known(dtypes.i64, [dim], ()))

    def from_contents(self, contents: Contents) -> Tensor:
        """A tensor of known contents; a plain constant when no symbol is in it."""
        array = contents.constant
        if array is not None:
            return self.constant(array)
        return Tensor(TensorType(contents.dtype, contents.shape), contents=contents)

    def of_value(self, value: Value) -> Tensor:
        """The tensor of a graph value."""
        return Tensor(value.type, value.name, value=value)

    def stand_in(self, type_: TensorType, name: str = "") -> Tensor:
        """What stands for a result of which a problem left the type alone."""
        value = Value(type_, name)
        self._stand_ins.add(value)
        return Tensor(type_, name, value, stand_in=True)

    # --- looking into tensors

    def contents(self, tensor: Tensor) -> Contents | None:
        """What is known about the elements of a small tensor."""
        if tensor.contents is not None or tensor.array is None:
            return tensor.contents
        try:
            return known.from_array(tensor.array, tensor.dtype)
        except UndecidedError:
            return None

    def need(self, tensor: Tensor) -> None:
        """Note which inputs decide the elements of `tensor`, which should have been known.

        Raises: SkipNodeError where what stands for a result with a problem does: nobody knows what it will be.
        """
        pending = [] if tensor.value is None else [tensor.value]
        seen: set[Value] = set()
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in self._stand_ins:
                raise SkipNodeError("an input is unknown")
            if value.node is None:
                self.needed.add(value.name)
            else:
                pending += [v for v in value.node.operands if v is not None]

    def value(self, tensor: Tensor) -> Value:
        """The graph value of `tensor` where nodes go now, made now if it has none yet."""
        if self._regions:
            return self._value_inside(tensor, self._regions[-1])
        if tensor.value is None:
            tensor.value = self._made(tensor)
            self._cached.append(tensor)
            tensor.value.name = tensor.value.name or tensor.name
        return tensor.value

    def _value_inside(self, tensor: Tensor, region: Region) -> Value:
        """Constants are made again in every region, for they cost nothing there and passes see them."""
        if tensor.value is not None and tensor.array is None and tensor.contents is None:
            return self._reached(tensor.value, len(self._regions))
        if tensor not in region.made:
            region.made[tensor] = self._made(tensor)
        return region.made[tensor]

    def _made(self, tensor: Tensor) -> Value:
        if tensor.array is not None:
            value = {"value": tensor.array}
            return self._node("constant", (), value, (tensor.type,)).result
        if tensor.contents is None:
            raise InternalError("tensor without a value", location=self.location)
        return self._materialize(tensor.contents)

    def _materialize(self, contents: Contents) -> Value:
        """Symbolic contents as data: a vector of dimensions, cast and divided as needed."""
        flat = list(contents.elements.flat)
        ratios = [v for v in flat if isinstance(v, Ratio)]
        numerators = [v.numerator if isinstance(v, Ratio) else v for v in flat]
        result = self._vector(cast("list[Dim]", numerators))
        result = self.cast(self.reshape(result, contents.shape), contents.dtype)
        if any(r.denominator != 1 for r in ratios):
            below = np.array([r.denominator for r in ratios], contents.dtype.numpy)
            result = self.op("div", result, self.constant(below.reshape(contents.shape)))
        return self.value(result)

    def _vector(self, numbers: Sequence[Dim]) -> Tensor:
        """Numbers as an i64 vector; what need not be a size is computed from the data that it comes from."""
        if not any(numbers_of_data.is_of_data(number, self.elements) for number in numbers):
            vector = self._node("shape_tensor", (), {"values": tuple(numbers)})
            return self.of_value(vector.result)
        parts = [
            self.reshape(numbers_of_data.computed(self, number, self.elements), (1,))
            for number in numbers
        ]
        return self.concat(parts, 0)

    # --- ops

    def op(self, name: str, *operands: Tensor | None, **attributes: object) -> Tensor:
        """Apply an op with one result."""
        (result,) = self.ops(name, *operands, **attributes)
        return result

    def ops(
        self, name: str, *operands: Tensor | None, **attributes: object
    ) -> tuple[Tensor, ...]:
        """Apply graph op `name`; results are folded where their elements are known.

        Raises: ModelError when the operands do not fit the op.
        """
        declaration = catalogue.lookup(name)
        schema = declaration.schema
        given = list(operands)
        while given and given[-1] is None:
            given.pop()
        complete = declaration.complete(attributes)
        if Trait.ELEMENTWISE in schema.traits:
            given = self._repeatable(given)
        held = [None if t is None else t.type for t in given]
        with taken_to_hold() as pairs:
            types = schema.infer(held, complete)
        folded = self._fold(schema, given, complete, types)
        if folded is not None:
            return folded
        for left, right in (*pairs, *equalities(schema, held, types, complete)):
            self.assume(left, right)
        values = [None if t is None else self.value(t) for t in given]
        node = self._node(name, values, complete, types)
        return tuple(map(self.of_value, node.results))

    def _repeatable(
        self, operands: Sequence[Tensor | None], shape: Sequence[Dim] = ()
    ) -> list[Tensor | None]:
        """Operands of a broadcast, to `shape` perhaps, whose axes of at most one element have one where another may have more.

        A call in which such an axis has none is refused.  `x[max(0, 1 - n):]` of one row is an example, as masks are cut.
        """
        shapes = [shape, *(() if t is None else t.shape for t in operands)]
        if not any(_is_one_or_none(dim) for shape in shapes for dim in shape):
            return list(operands)
        wide = {
            axis - len(shape)
            for shape in shapes
            for axis, dim in enumerate(shape)
            if dim != 1 and not _is_one_or_none(dim)
        }
        return [
            t if t is None else self.reshape(t, [
                1 if axis - t.rank in wide and _is_one_or_none(dim) else dim
                for axis, dim in enumerate(t.shape)
            ])
            for t in operands
        ]  # fmt: skip

    def check(self, name: str, *operands: Tensor | None, **attributes: object) -> None:
        """Refuse operands that do not fit op `name`, in whose place there are others, and note what is taken to hold.

        Raises: ModelError.
        """
        declaration = catalogue.lookup(name)
        held = [None if t is None else t.type for t in operands]
        with taken_to_hold() as pairs:
            declaration.schema.infer(held, declaration.complete(attributes))
        for left, right in pairs:
            self.assume(left, right)

    def assume(self, left: Dim, right: Dim) -> None:
        """Note that two dimensions are equal in every run that works.

        In a region that perhaps never runs they are compared there, and nothing is concluded.
        """
        if left == right or (isinstance(left, int) and isinstance(right, int)):
            return
        if all(region.is_certain for region in self._regions):
            self.assumptions.setdefault((left, right), self.location)
            return
        region = self._regions[-1]
        if (left, right) not in region.expected:
            region.expected.add((left, right))
            self._node("expect_sizes", (), {"left": (left,), "right": (right,)})

    def may_be(self, size: Dim, wanted: Dim) -> bool:
        """Whether a size can be what it has to be; where only a call knows, it is assumed."""
        self.assume(size, wanted)
        return not (isinstance(size, int) and isinstance(wanted, int)) or size == wanted

    def _node(
        self,
        name: str,
        operands: Sequence[Value | None],
        attributes: Mapping[str, object],
        types: Sequence[TensorType] | None = None,
    ) -> Node:
        declaration = catalogue.lookup(name)
        schema, complete = declaration.schema, declaration.complete(attributes)
        if types is None:
            held = [None if v is None else v.type for v in operands]
            types = schema.infer(held, complete)
        node = Node(schema, operands, complete, types, location=self.location)
        self._append(node)
        return node

    # --- folding

    def _fold(
        self,
        schema: OpSchema,
        operands: Sequence[Tensor | None],
        attributes: Mapping[str, object],
        types: Sequence[TensorType],
    ) -> tuple[Tensor, ...] | None:
        present = [t for t in operands if t is not None]
        if Trait.PURE not in schema.traits or not all(t.is_static for t in types):
            return None
        if any(t.array is None and t.contents is None for t in present):
            return None
        counts = [math.prod(t.shape) for t in types] + [
            t.array.size for t in present if t.array is not None
        ]
        if any(isinstance(c, int) and c > FOLD_ELEMENTS for c in counts):
            return None
        if widens_bytes([t.type for t in present], types):
            return None
        if all(t.array is not None for t in present):
            return self._compute(schema, operands, attributes)
        return self._follow(schema, present, attributes, types)

    def _compute(
        self,
        schema: OpSchema,
        operands: Sequence[Tensor | None],
        attributes: Mapping[str, object],
    ) -> tuple[Tensor, ...] | None:
        if any(
            isinstance(v, tuple) and any(isinstance(d, Expr) for d in v)
            for v in attributes.values()
        ):
            return None
        arrays = [None if t is None else t.array for t in operands]
        with np.errstate(all="ignore"):
            results = schema.evaluate(arrays, attributes)
        return tuple(map(self.constant, results))

    def _follow(
        self,
        schema: OpSchema,
        present: Sequence[Tensor],
        attributes: Mapping[str, object],
        types: Sequence[TensorType],
    ) -> tuple[Tensor, ...] | None:
        held = [self.contents(t) for t in present]
        inside = [c for c in held if c is not None]
        if len(inside) != len(held) or len(types) != 1:
            return None
        try:
            found = known.follow(schema.contents, inside, attributes, types[0].dtype)
            return (self.from_contents(found),)
        except UndecidedError:
            return None

    # --- the ops that every family needs

    def cast(self, x: Tensor, dtype: DType) -> Tensor:
        """`x` with another element type."""
        return x if x.dtype == dtype else self.op("cast", x, dtype=dtype)

    def reshape(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
        """`x` with another shape of the same number of elements."""
        wanted = tuple(shape)
        if x.shape == wanted:
            return x
        sizes = [d for d in wanted if isinstance(d, int)]
        if x.array is not None and len(sizes) == len(wanted):
            # A view, so that reshaped weights stay memory-mapped.
            if math.prod(sizes) != x.array.size:
                raise ModelError(f"cannot reshape {x.type} to {list(wanted)}")
            return self.constant(x.array.reshape(sizes), x.name)
        return self.op("reshape", x, shape=wanted)

    def transpose(self, x: Tensor, perm: Sequence[int]) -> Tensor:
        """`x` with its axes in the order `perm`."""
        order = tuple(perm)
        if order == tuple(range(x.rank)):
            return x
        if x.array is not None:
            # A strided view: transposed weights cost nothing until they are packed.
            return self.constant(x.array.transpose(order), x.name)
        return self.op("transpose", x, perm=order)

    def broadcast_to(self, x: Tensor, shape: Sequence[Dim]) -> Tensor:
        """`x` repeated along axes of size 1 and new leading axes."""
        wanted = tuple(shape)
        if x.shape == wanted:
            return x
        return self.op("broadcast_to", *self._repeatable([x], wanted), shape=wanted)

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """The parts one after another along `axis`."""
        return parts[0] if len(parts) == 1 else self.op("concat", *parts, axis=axis)

    def slice(self, x: Tensor, axis: int, start: Dim, size: Dim, step: int = 1) -> Tensor:
        """`size` elements of one axis from `start`."""
        if start == 0 and step == 1 and size == x.shape[axis]:
            return x
        step = nearest_step(step, x.shape[axis])
        return self.op(
            "slice", x, axes=(axis,), starts=(start,), sizes=(size,), steps=(step,)
        )

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """`x` with axes of size 1 inserted; `axes` count in the result."""
        rank = x.rank + len(axes)
        places = {normal_axis(a, rank) for a in axes}
        if len(places) != len(axes):
            raise ModelError(f"axes {list(axes)} name one axis twice")
        rest = iter(x.shape)
        return self.reshape(x, [1 if i in places else next(rest) for i in range(rank)])

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """`x` without the given axes, all of size 1."""
        places = {normal_axis(a, x.rank) for a in axes}
        for axis in places:
            if x.shape[axis] != 1 and isinstance(x.shape[axis], int):
                raise ModelError(
                    f"cannot squeeze axis {axis} of {x.type}, its size is not 1"
                )
        return self.reshape(x, [d for i, d in enumerate(x.shape) if i not in places])

    def full(self, number: complex, dtype: DType, shape: Sequence[Dim]) -> Tensor:
        """A tensor of one repeated number."""
        return self.broadcast_to(self.scalar(number, dtype), shape)

    def iota(self, shape: Sequence[Dim], axis: int, dtype: DType = dtypes.i64) -> Tensor:
        """The index along `axis` at every element."""
        return self.op("iota", shape=tuple(shape), dtype=dtype, axis=axis)

    def along(self, axis: int, size: Dim, rank: int) -> Tensor:
        """`0 .. size - 1` along one axis of several, the others of size 1."""
        return self.iota([size if a == axis else 1 for a in range(rank)], axis)


def _is_one_or_none(dim: Dim) -> bool:
    """Whether a size that only a call knows is 0 or 1."""
    return not isinstance(dim, int) and symbolic.bounds(dim)[1] == 1
