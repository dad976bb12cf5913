"""Walks the functions of a module and writes the graph IR, operation by operation, through the rows.

Functions are imported where they are called.  Problems are collected and the walk goes on with unknown
values, so one pass finds all of them.  Not the rows, not the reading of text.  Called by `load`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import tilewright.compiler.frontends.stablehlo.table as table
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.base.symbolic import Dim
from tilewright.base.text import did_you_mean
from tilewright.compiler.frontends.kit.assumptions import Assumptions
from tilewright.compiler.frontends.kit.node_maker import AttemptOverError, NodeMaker
from tilewright.compiler.frontends.kit.problems import (
    REFUSALS,
    Problem,
    SkipNodeError,
    UnsupportedError,
    refusal_of,
)
from tilewright.compiler.frontends.kit.record import Record
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.agreement import (
    agree,
    fits_call,
    is_complex,
    leaves,
    problems_of_body,
)
from tilewright.compiler.frontends.stablehlo.call import (
    Call,
    Comparison,
    Services,
    border_dtype,
    element_dtype,
    real,
    sizes_in,
)
from tilewright.compiler.frontends.stablehlo.composites import as_operation
from tilewright.compiler.frontends.stablehlo.held import (
    Complex,
    Held,
    Token,
    Tuple,
    Unknown,
    part_of_value,
)
from tilewright.compiler.frontends.stablehlo.narrow import settled
from tilewright.compiler.frontends.stablehlo.quantized import (
    computes_quantized,
    dequantize,
    expressed,
    quantize,
)
from tilewright.compiler.frontends.stablehlo.region_demands import RETURNS
from tilewright.compiler.frontends.stablehlo.requests import CheckRequest, find_request
from tilewright.compiler.frontends.stablehlo.row import Row
from tilewright.compiler.frontends.stablehlo.stand_ins import TOKEN, stand_in
from tilewright.compiler.frontends.stablehlo.tree import (
    Block,
    Function,
    Module,
    Operation,
    Region,
    TensorType,
    TupleType,
    Type,
    Value,
)
from tilewright.compiler.frontends.stablehlo.world import Process, World
from tilewright.compiler.graph import ir
from tilewright.compiler.graph.ir import Graph, Location
from tilewright.compiler.graph.schema import TensorType as GraphType
from tilewright.formats.output_checks import Check

Names = Sequence[Sequence[str]]
"""What the sizes of every argument are called."""

MAX_DEPTH: Final = 32
# Loops that are written out and functions that are inlined count every time.
MAX_OPERATIONS: Final = 200_000
_MAX_TRIED: Final = 1 << 14
"""An attempt imports no more operations: most of them may be computed at once and leave no node."""
_MAX_WASTED: Final = 256
"""What a call knows of its operands may make a difference, but after so many operations for nothing none is tried again."""
# A composite is what the function of its decomposition computes.
_CALLS: Final = {
    "call": "callee",
    "func.call": "callee",
    "stablehlo.composite": "decomposition",
}


@final
@dataclass(slots=True)
class _Scope:
    """What values stand for in one region."""

    parent: _Scope | None = None
    values: dict[Value, Held | Unknown] = field(
        default_factory=dict["Value", "Held | Unknown"]
    )

    def find(self, value: Value) -> Held | Unknown:
        scope: _Scope | None = self
        while scope is not None:
            found = scope.values.get(value)
            if found is not None:
                return found
            scope = scope.parent
        return Unknown()


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """Where a walk over a module is, while another one goes on."""

    scope: _Scope
    depth: int
    lifted: bool
    location: Location
    emitted: list[ir.Node]


@final
class Importer:
    """Imports modules into one graph; afterwards `graph`, `checks` and `problems` say what came of it."""

    def __init__(
        self,
        file: str,
        name: str = "module",
        names: Names = (),
        assumed: Assumptions | None = None,
    ) -> None:
        self._names: Names = names
        self._assumed: Assumptions = Assumptions() if assumed is None else assumed
        self.file: str = file
        self.graph: Graph = Graph(name)
        self.maker: NodeMaker = NodeMaker(self.graph)
        self.problems: list[Problem] = []
        self.checks: list[Check] = []
        self.records: list[Record] = []
        self._requests: list[CheckRequest] = []
        self._module: Module = Module("", {})
        self._scope: _Scope = _Scope()
        self._depth: int = 0
        self._lifted: bool = False
        # Operations that were imported, those of attempts that came to nothing, and when the current one is over.
        self._done: int = 0
        self._forgotten: int = 0
        self._most_done: float = math.inf
        # How many operations attempts at one of the module imported for nothing.
        self._wasted: dict[int, int] = {}
        self._world: World = World()
        self._probes: dict[str, list[Held]] = {}
        self._compared: dict[Tensor, Comparison] = {}
        # The regions that the operations which are imported now have taken in place.
        self._entered: list[Region] = []

    # --- the module

    def run(self, module: Module) -> None:
        """Import the `main` of a module, or its only function; problems are collected, not raised."""
        self._module = module
        self._wasted.clear()
        entries = module.entries()
        if not entries:
            named = ", ".join(f"@{name}" for name in module.functions) or "none"
            text = (
                f"module '{module.name}' has no function @main with a body (it has {named})"
            )
            self.problems.append(Problem("", "", text))
        for function, body in entries:
            self._scope = _Scope()
            self._probes.clear()
            self.problems += problems_of_body(function, body)
            self._inputs(function, body)
            self._outputs(function, self._block(body))
        # A region may be imported more than once.
        self.problems = list(dict.fromkeys(self.problems))

    def _inputs(self, main: Function, body: Block) -> None:
        fits = len(self._names) == len(body.arguments)
        names = self._names if fits else [()] * len(body.arguments)
        for value, sizes in zip(body.arguments, names, strict=True):
            try:
                name = value.name.lstrip("%")
                self._scope.values[value] = self._input(value.type, name, sizes)
            except TilewrightError as error:
                text = f"argument '{value.name}' of @{main.name} at {main.place}: {error.message}"
                self.problems.append(Problem("", value.name, text, error.hint or ""))
                self._scope.values[value] = Unknown()

    def _input(self, type_: Type, name: str, sizes: Sequence[str]) -> Held:
        """A value of a call; a complex one is two, a tuple its items, a token none, and one of few bits is widened inside."""
        if isinstance(type_, TupleType):
            items = enumerate(type_.items)
            return Tuple(tuple(self._input(t, f"{name}_{i}", ()) for i, t in items))
        if type_ == TOKEN:
            return Token()
        shape = self._shape(type_, name, sizes)
        dtype = border_dtype(type_)
        names = (name,)
        if is_complex(type_):
            names = (f"{name}_real", f"{name}_imaginary")
        parts: list[Tensor] = []
        for each in names:
            made = ir.Value(GraphType(dtype, shape), self._free_name(each))
            self.graph.inputs.append(made)
            given = self.maker.of_value(made)
            parts.append(self.maker.cast(given, element_dtype(type_)))
        return Complex(*parts) if len(parts) == 2 else parts[0]

    def _shape(self, type_: Type, name: str, called: Sequence[str]) -> tuple[Dim, ...]:
        """The shape of an argument; a size that a call decides is a symbol."""
        limits = type_.bounds if isinstance(type_, TensorType) else ()
        found: list[Dim] = []
        for axis, size in enumerate(sizes_in(type_)):
            if size is not None:
                found.append(size)
                continue
            own = called[axis] if axis < len(called) else ""
            limit = limits[axis] if axis < len(limits) else None
            # Arguments of artifacts are called by numbers, which no symbol is.
            plain = f"{name}_{axis}" if name[:1].isalpha() else f"arg{name}_{axis}"
            found.append(self._assumed.dim(own or plain, limit))
        return tuple(found)

    def _free_name(self, name: str) -> str:
        taken = {value.name for value in self.graph.inputs}
        return name if name not in taken else f"{name}_{len(taken)}"

    def _outputs(self, main: Function, results: Sequence[Held | Unknown]) -> None:
        start, stated = len(self.graph.outputs), main.type.results
        place = f"@{main.name} at {main.place}"
        if len(results) != len(stated):
            text = f"{place}: returns {len(results)} values, its type says {len(stated)}"
            self.problems.append(Problem("", main.name, text))
            return
        for index, (held, type_) in enumerate(zip(results, stated, strict=True)):
            if isinstance(held, Unknown):
                continue
            try:
                for suffix, leaf, own in leaves(held, type_):
                    agree(self.maker, own, leaf)
                    for part, tensor in self._parts(leaf).items():
                        stored = self.maker.cast(tensor, border_dtype(own))
                        self._output(stored, f"result_{start + index}{suffix}{part}")
            except TilewrightError as error:
                text = f"result {index} of {place}: {error.message}"
                self.problems.append(Problem("", str(index), text))
        for request in self._requests:
            self._check(request)
        self._requests.clear()

    @staticmethod
    def _parts(held: Held) -> Mapping[str, Tensor]:
        """The tensors that a value is to the caller, by what is added to its name."""
        if isinstance(held, Complex):
            return {"_real": held.real, "_imaginary": held.imaginary}
        return {"": real(held)}

    def _check(self, request: CheckRequest) -> None:
        number = len(self.checks)
        place = f"{self.file}:{request.place}"
        if isinstance(request.actual, Complex) != isinstance(request.expected, Complex):
            self.problems.append(Problem("", place, f"{place}: check of two types"))
            return
        expected = self._parts(request.expected)
        for part, tensor in self._parts(request.actual).items():
            actual = self._output(tensor, f"actual_{number}{part}")
            wanted = self._output(expected[part], f"expected_{number}{part}")
            self.checks.append(
                Check(request.rule, place, actual, wanted, request.tolerance)
            )

    def _output(self, tensor: Tensor, name: str) -> int:
        """Make a tensor an output.  Returns: its position."""
        self.maker.location = Location(self.file, name)
        value = self.maker.value(tensor)
        self.graph.outputs.append(value)
        self.graph.output_names.append(name)
        return len(self.graph.outputs) - 1

    # --- blocks

    def _block(self, block: Block) -> list[Held | Unknown]:
        """Import the operations of a block in place.  Returns: what its last one returns."""
        for index, operation in enumerate(block.operations, 1):
            if operation.name in RETURNS:
                for behind in block.operations[index : index + 1]:
                    self._note_unreachable(operation, behind)
                return [self._scope.find(value) for value in operation.operands]
            self._operation(operation)
        return []

    def _note_unreachable(self, leave: Operation, behind: Operation) -> None:
        """Note that something stands behind the end of a block."""
        text = f"stands behind '{leave.name}', which ends the block"
        node, hint = f"{behind.name} at {behind.place}", "move it before, or remove it"
        self.problems.append(Problem(behind.name, node, text, hint))

    def _region(self, region: Region, given: Sequence[Held]) -> list[Held]:
        """Import a region in place; its operations see the values around it."""
        if len(region.blocks) != 1:
            raise UnsupportedError(
                f"a region of {len(region.blocks)} blocks is not supported"
            )
        self._entered.append(region)
        return self._inside(_Scope(self._scope), region.blocks[0], given)

    def _lift(self, region: Region, given: Sequence[Held]) -> list[Held]:
        """Import a region on numbers on whole tensors, which broadcast."""
        outer, self._lifted = self._lifted, True
        try:
            return self._region(region, given)
        finally:
            self._lifted = outer

    def _inside(
        self, scope: _Scope, block: Block, given: Sequence[Held | Unknown]
    ) -> list[Held]:
        if len(block.arguments) != len(given):
            raise ModelError(
                f"a block takes {len(block.arguments)} values, {len(given)} are given"
            )
        if self._depth >= MAX_DEPTH:
            raise UnsupportedError(f"functions and regions nest deeper than {MAX_DEPTH}")
        for value, held in zip(block.arguments, given, strict=True):
            if not (self._lifted or isinstance(held, Unknown)):
                agree(self.maker, value.type, held, f"argument '{value.name}' is")
            scope.values[value] = held
        outer, location, self._scope = self._scope, self.maker.location, scope
        self._depth += 1
        try:
            results = self._block(block)
        finally:
            self._scope, self._depth, self.maker.location = outer, self._depth - 1, location
        known = [held for held in results if not isinstance(held, Unknown)]
        if len(known) < len(results):
            raise SkipNodeError("a region has a problem")
        return known

    # --- operations

    def _operation(self, operation: Operation) -> None:
        """Import one operation, and note what is wrong with it."""
        title = operation.results[0].name if operation.results else operation.name
        name = f"{title.lstrip('%')} at {operation.place}"
        self.maker.location = Location(self.file, name)
        outer, record = self.maker.emitted, Record(operation.name, "", name)
        self.maker.emitted = record.emitted
        if operation.name not in _CALLS:
            self.records.append(record)
        entered = len(self._entered)
        if not self._guarded(operation, record):
            self._look_into(operation, self._entered[entered:])
        del self._entered[entered:]
        self.maker.emitted = outer

    def _guarded(self, operation: Operation, record: Record) -> bool:
        """Import one operation; what is wrong is a problem, and of its results the types are known.  Returns: whether it went."""
        try:
            self._bind(operation, self._import(operation))
        except SkipNodeError:
            self._bind_unknown(operation)
        except REFUSALS as error:
            found = refusal_of(error)
            self._note(operation, record, found.message, found.hint)
        else:
            return True
        return False

    def _look_into(self, operation: Operation, seen: Sequence[Region]) -> None:
        """Import the regions of an operation that has a problem, but those `seen`, for the problems in them."""
        for region in operation.regions:
            if any(region is other for other in seen):
                continue
            outer, self._scope = self._scope, _Scope(self._scope)
            try:
                for block in region.blocks:
                    self._stand_in(block.arguments)
                    # The last says what the region gives, in words of whichever dialect it is.
                    for inner in block.operations[:-1]:
                        self._operation(inner)
            finally:
                self._scope = outer

    def _bind(self, operation: Operation, results: Sequence[Held]) -> None:
        if len(results) != len(operation.results):
            raise ModelError(
                f"has {len(operation.results)} results, expected {len(results)}"
            )
        for value, held in zip(operation.results, results, strict=True):
            agree(self.maker, value.type, held, lifted=self._lifted)
            self._scope.values[value] = held

    def _bind_unknown(self, operation: Operation) -> None:
        self._stand_in(operation.results)

    def _stand_in(self, values: Sequence[Value]) -> None:
        """Let values be known by their types; numbers of a region may stand for whole tensors, of any shape."""
        for value in values:
            known = Unknown() if self._lifted else stand_in(self.maker, value.type)
            self._scope.values[value] = known

    def _note(
        self, operation: Operation, record: Record, message: str, hint: str | None
    ) -> None:
        record.reasons.append(message)
        self.problems.append(Problem(operation.name, record.node, message, hint or ""))
        self._bind_unknown(operation)

    def _import(self, operation: Operation) -> Sequence[Held]:
        self._done += 1
        if self._done > self._most_done:
            raise AttemptOverError
        if self._done - self._forgotten > MAX_OPERATIONS:
            raise UnsupportedError(
                f"the module unrolls to more than {MAX_OPERATIONS} operations"
            )
        entry = table.find(operation.name)
        operands = [self._scope.find(value) for value in operation.operands]
        request = find_request(operation, self._probes)
        is_known = entry is not None or request is not None or operation.name in _CALLS
        if not is_known:
            hint = did_you_mean(operation.name, table.names())
            raise UnsupportedError(
                f"operation '{operation.name}' is not supported", hint=hint
            )
        known = [held for held in operands if not isinstance(held, Unknown)]
        if len(known) < len(operands):
            if operation.name in _CALLS:
                return self._called(operation, operands)
            raise SkipNodeError("an operand is unknown")
        if request is not None:
            self._requests.append(request(known, self.maker))
            return ()
        whole = as_operation(operation)
        if whole is not None:
            return self._by_row(*whole, known)
        if entry is None:
            return self._called(operation, known)
        return self._by_row(entry, operation, known)

    # --- services for rows

    def _call(self, operation: Operation, operands: Sequence[Held]) -> Call:
        return Call(operation, operands, self.maker, self._services())

    def _services(self) -> Services:
        return Services(
            self._region,
            self._lift,
            self._function,
            lambda name: self._found(name)[1],
            self._compared.__setitem__,
            self._compared.get,
            self._world,
            self._within,
            self._leave,
            self._enter,
            self._probed,
            self._attempt,
        )

    def _called(
        self, operation: Operation, operands: Sequence[Held | Unknown]
    ) -> list[Held]:
        name = self._call(operation, ()).text(_CALLS[operation.name])
        fits_call(operation, self._found(name)[0])
        return self._function(name, operands)

    def _function(self, name: str, operands: Sequence[Held | Unknown]) -> list[Held]:
        """Import a function where it is called; it sees nothing but its arguments."""
        return self._inside(_Scope(), self._found(name)[1], operands)

    def _found(self, name: str) -> tuple[Function, Block]:
        function = self._module.functions.get(name)
        if function is None or function.body is None:
            hint = did_you_mean(name, tuple(self._module.functions))
            raise ModelError(f"calls '@{name}', which has no body in the module", hint=hint)
        return function, function.body

    def _probed(self, name: str, held: Held) -> None:
        self._probes.setdefault(name, []).append(held)

    def _within(
        self, world: World, work: Callable[[], dict[Process, list[Held]]]
    ) -> dict[Process, list[Held]]:
        outer, self._world = self._world, world
        try:
            return work()
        finally:
            self._world = outer

    def _leave(self) -> object:
        """Where a walk over the module is."""
        return _Place(
            self._scope, self._depth, self._lifted, self.maker.location, self.maker.emitted
        )

    def _enter(self, place: object) -> None:
        assert isinstance(place, _Place), "made by `_leave`"
        self._scope, self._depth, self._lifted = place.scope, place.depth, place.lifted
        self.maker.location, self.maker.emitted = place.location, place.emitted

    def _attempt(
        self,
        operation: Operation,
        write: Callable[[], list[Held] | None],
        most_nodes: int,
    ) -> list[Held] | None:
        """Try to import an operation, as long as that is short; else what was noted meanwhile is forgotten."""
        wasted = self._wasted.get(id(operation), 0)
        if wasted > _MAX_WASTED:
            return None
        place, done, forgotten, outer = (
            self._leave(), self._done, self._forgotten, self._most_done
        )  # fmt: skip
        lists: list[list[Any]] = [
            self.problems, self.records, self._requests, self._entered
        ]  # fmt: skip
        counts = [len(each) for each in lists]
        self._most_done = min(outer, done + _MAX_TRIED)
        try:
            found = self.maker.attempt(write, most_nodes)
        finally:
            self._most_done = outer
        if found is not None:
            return found
        self._wasted[id(operation)] = wasted + self._done - done
        self._enter(place)
        for each, count in zip(lists, counts, strict=True):
            del each[count:]
        if self._done > outer:
            raise AttemptOverError
        self._forgotten = forgotten + self._done - done
        return None

    # --- rows

    def _by_row(
        self, entry: Row, operation: Operation, operands: Sequence[Held]
    ) -> list[Held]:
        call = self._call(operation, operands)
        for demand in entry.demands:
            demand(call)
        if entry.by_parts and any(isinstance(held, Complex) for held in operands):
            real_parts, imaginary_parts = (
                self._built(entry, call.on([part_of_value(h, name) for h in operands]))
                for name in ("real", "imaginary")
            )
            return [
                Complex(real(x), real(y))
                for x, y in zip(real_parts, imaginary_parts, strict=True)
            ]
        return self._built(entry, call)

    def _built(self, entry: Row, call: Call) -> list[Held]:
        if self._lifted and not entry.pointwise:
            raise UnsupportedError(
                "a region on numbers has an operation that moves elements"
            )
        operation, e = call.operation, self.maker
        quantized = not entry.keeps and computes_quantized(operation)
        if quantized:
            pairs = zip(call.operands, operation.operands, strict=True)
            operands = [dequantize(e, held, value.type) for held, value in pairs]
            call = call.on(operands, expressed(operation))
        result = entry.build(call)
        unread = [
            name
            for name in operation.attributes
            if name not in call.read and name not in entry.ignores and "." not in name
        ]
        if unread:
            raise UnsupportedError(
                "; ".join(f"attribute '{name}' is not supported" for name in unread)
            )
        found = list(result) if isinstance(result, Sequence) else [result]
        if entry.keeps or len(found) != len(operation.results):
            return found
        types = [value.type for value in operation.results]
        if quantized:
            return [quantize(e, h, t) for h, t in zip(found, types, strict=True)]
        return [settled(e, h, t) for h, t in zip(found, types, strict=True)]
