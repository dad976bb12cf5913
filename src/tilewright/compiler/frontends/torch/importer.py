"""Walks the operations of a program and writes the graph IR, one after the other, through the rows.

Problems are collected and the walk goes on with unknown values, so one pass finds all of them.  What a row
makes must have the type that torch says, else the operator is refused.  Not the rows, not the reading of
torch's graphs.  Called by `load`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np

import tilewright.compiler.frontends.torch.complex_numbers as complex_numbers
import tilewright.compiler.frontends.torch.control as control
import tilewright.compiler.frontends.torch.table as table
from tilewright.base import symbolic
from tilewright.base.dtypes import bool_
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.frontends.kit.complex_parts import Complex
from tilewright.compiler.frontends.kit.draws import Draws
from tilewright.compiler.frontends.kit.idle_reads import drop_idle_reads
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import (
    REFUSALS,
    Problem,
    SkipNodeError,
    UnsupportedError,
    refusal_of,
)
from tilewright.compiler.frontends.kit.record import Record
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.formulas import (
    bind_number,
    bind_rounded,
    condition_of,
    number_of,
)
from tilewright.compiler.frontends.torch.input_sizes import InputSizes
from tilewright.compiler.frontends.torch.program import (
    Argument,
    Body,
    Formula,
    Input,
    Opaque,
    Operation,
    Output,
    Program,
    Ref,
    Relation,
    Role,
    Rounded,
)
from tilewright.compiler.frontends.torch.row import Row
from tilewright.compiler.frontends.torch.sizes import of_data
from tilewright.compiler.graph.ir import Graph, Location, Value
from tilewright.compiler.graph.schema import TensorType

# They say where and how a tensor lies, which is ours to decide.
_IGNORED: Final = frozenset(
    ("layout", "device", "pin_memory", "memory_format", "non_blocking", "generator",
     "copy", "requires_grad", "sparse", "sparse_grad", "implicit", "data")
)  # fmt: skip
# What an argument has that nobody asked for and that asks for nothing.
_NOTHING: Final = (None, False, ())

_KNOWN: Final = ("aten.", "higher_order.")
_OF_OTHERS: Final = (
    "what an operator of your own computes is unknown here: give it a kernel in operators of torch for CompositeImplicitAutograd "
    '(torch.library.impl), or run it in eager mode by torch.compile(module, backend="tilewright")'
)

Whole = Tensor | Complex
Held = Whole | Sequence[Whole | None]


@final
class Importer:
    """Imports a program; afterwards `graph` and `problems` say what came of it.

    Args:
        program: what to import.
        file: how messages call it.
    """

    def __init__(self, program: Program, file: str) -> None:
        self.program: Program = program
        self.file: str = file
        self.graph: Graph = Graph(program.name)
        self.maker: NodeMaker = NodeMaker(self.graph)
        self.problems: list[Problem] = []
        self.records: list[Record] = []
        self._values: dict[str, Held | None] = {}
        self._prefix: str = ""
        self._constants: dict[int, Tensor] = {}
        self._sizes: InputSizes = InputSizes(
            {
                entry.name: entry.type.shape
                for entry in program.inputs
                if entry.type is not None and entry.role is not Role.WEIGHT
            },
            [entry.number for entry in program.inputs if entry.number is not None],
        )
        self._bound: set[Dim] = set()
        # The symbols of numbers that need not be sizes, in regions that are closed, too.
        self._numbers: set[str] = set()
        self._unbound: list[Rounded] = list(program.rounded)
        self._draws: Draws | None = Draws() if program.counter else None

    def run(self) -> None:
        """Import all of it; problems are collected, not raised."""
        self.problems += [Problem("", "", reason) for reason in self.program.reasons]
        used = self._used()
        for entry in self.program.inputs:
            self._input(entry, is_used=entry.name in used)
        self._state_shapes()
        if self._draws is None:
            self._operations()
        else:
            counter = self._values[self.program.counter]
            assert isinstance(counter, Tensor), "a state"
            with self._draws.trip(counter):
                self._operations()
        for position, output in enumerate(self.program.outputs):
            self._output(position, output)
        assumed = [dim for pair in self.maker.assumptions for dim in pair]
        names = self._numbers | self.maker.elements.keys()
        drop_idle_reads(self.graph, names, assumed)
        # A graph that an operator runs may be imported more than once.
        self.problems = list(dict.fromkeys(self.problems))
        self.records = list({record.node: record for record in self.records}.values())

    def _operations(self) -> None:
        self._bind_rounded()
        for operation in self.program.operations:
            self._operation(operation)
            self._bind_rounded()

    def _bind_rounded(self) -> None:
        """Compute the rounded sizes that nothing hinders any more."""
        waiting: list[Rounded] = []
        for rounded in self._unbound:
            hindered = {entry.size for entry in waiting}
            data = set(of_data(rounded.needs)) - self._bound
            if data or not hindered.isdisjoint(rounded.needs):
                waiting.append(rounded)
                continue
            self.maker.location = Location(self.file, str(rounded.size))
            bind_rounded(self.maker, rounded, self._find)
        self._unbound = waiting

    def _used(self) -> set[str]:
        """The values that something is computed from."""
        found: set[str] = set()
        for operation in self.program.operations:
            for argument in operation.arguments.values():
                found.update(_references(argument))
        for output in self.program.outputs:
            found.update(_references(output.value))
        return found

    # --- inputs and outputs

    def _input(self, entry: Input, *, is_used: bool) -> None:
        if entry.type is None or entry.reason:
            self._values[entry.name] = None
            if is_used or (entry.role is Role.USER and entry.reason):
                reason = entry.reason or "an input that is no tensor is not supported"
                self.problems.append(
                    Problem("", entry.name, f"input '{entry.name}': {reason}")
                )
            return
        if entry.is_complex:
            self._values[entry.name] = self._complex_input(entry, entry.type)
            return
        if entry.role is Role.WEIGHT:
            assert entry.array is not None, "weights have elements"
            # Tied weights are one array, and so one constant.
            known = self._constants.get(id(entry.array))
            made = known or self.maker.constant(entry.array, entry.target or entry.name)
            self._constants[id(entry.array)] = self._values[entry.name] = made
            return
        value = Value(self._sizes.declared(entry.name, entry.type), entry.name)
        self.graph.inputs.append(value)
        self._values[entry.name] = self.maker.of_value(value)

    def _state_shapes(self) -> None:
        """Let inputs have the shapes that operators know them by, where calls see others."""
        self.maker.location = Location(self.file, "sizes of the inputs")
        self._sizes.bind(self.maker)
        # Numbers first: the sizes of an axis may follow from them.
        for entry in sorted(self.program.inputs, key=lambda entry: entry.number is None):
            held = self._values.get(entry.name)
            if not isinstance(held, Tensor) or entry.type is None:
                continue
            self.maker.location = Location(self.file, f"input {entry.name}")
            if entry.number is not None:
                self._sizes.bind_number(self.maker, held, entry.number)
            elif held.shape != entry.type.shape:
                self._values[entry.name] = self._sizes.stated(self.maker, held, entry.type)

    def _complex_input(self, entry: Input, type_: TensorType) -> Complex:
        """Two inputs, or two constants."""
        made: list[Tensor] = []
        for part in ("real", "imaginary"):
            if entry.array is not None:
                array = np.real(entry.array) if part == "real" else np.imag(entry.array)
                made.append(self.maker.constant(np.array(array, order="C")))
                continue
            value = Value(type_, f"{entry.name}_{part}")
            self.graph.inputs.append(value)
            made.append(self.maker.of_value(value))
        return Complex(*made)

    def _output(self, position: int, output: Output) -> None:
        held = output.state or output.written
        name = f"{held}_next" if held else f"output_{position}"
        self.maker.location = Location(self.file, name)
        try:
            found = self._returned(output.value)
            parts = {name: found} if isinstance(found, Tensor) else _parts(name, found)
            values = {part: self.maker.value(tensor) for part, tensor in parts.items()}
        except SkipNodeError:
            return
        except TilewrightError as error:
            self.problems.append(Problem("", name, f"output {position}: {error.message}"))
            return
        self.graph.outputs += values.values()
        self.graph.output_names += values

    def _returned(self, value: Argument) -> Whole:
        if isinstance(value, Ref):
            return self._hold(value)
        if isinstance(value, Expr):
            return self.maker.dim(value)
        if isinstance(value, Opaque):
            raise UnsupportedError(value.text)
        if isinstance(value, Formula):
            return number_of(self.maker, value, self._find)
        if isinstance(value, Relation):
            return condition_of(self.maker, value, self._find)
        # What is known without a call is no output; it stands in the calling convention.
        raise SkipNodeError("a constant")

    # --- operations

    def _find(self, reference: Ref) -> Tensor:
        held = self._hold(reference)
        if isinstance(held, Complex):
            raise UnsupportedError("complex numbers are not supported here")
        return held

    def _hold(self, reference: Ref) -> Whole:
        if reference.name not in self._values:
            raise ModelError(f"the value '{reference.name}' is not in the program")
        held = self._values[reference.name]
        if held is None:
            raise SkipNodeError("an operand is unknown")
        if not isinstance(held, Tensor | Complex):
            raise ModelError(f"'{reference.name}' is a list of tensors, expected one")
        return held

    def _operation(self, operation: Operation) -> None:
        place = f" at {operation.place}" if operation.place else ""
        name = f"{self._prefix}{operation.name}{place}"
        self.maker.location = Location(self.file, name)
        record = Record(_name_of(operation), "", name)
        outer, self.maker.emitted = self.maker.emitted, record.emitted
        if operation.target != "getitem":
            self.records.append(record)
        self._values[operation.name] = self._guarded(operation, record)
        self.maker.emitted = outer

    def _guarded(self, operation: Operation, record: Record) -> Held | None:
        try:
            return self._import(operation, record)
        except SkipNodeError:
            pass
        except REFUSALS as error:
            found = refusal_of(error)
            self._note(operation, record, found.message, found.hint)
        return self._stand_in(operation)

    def _stand_in(self, operation: Operation) -> Held | None:
        """What stands for results that nobody makes, so that what follows is still checked: their types alone.

        None where one is no tensor, or has a size that was to be read from it.
        """
        made: list[Whole] = []
        for index, type_ in enumerate(operation.results):
            if type_ is None or of_data(type_.shape):
                return None
            whole: Whole = self.maker.stand_in(type_)
            if index in operation.complex_results:
                whole = Complex(whole, self.maker.stand_in(type_))
            made.append(whole)
        is_one = len(made) == 1 and not operation.is_list
        return made[0] if is_one else made or None

    def _note(
        self, operation: Operation, record: Record, message: str, hint: str | None
    ) -> None:
        record.reasons.append(message)
        self.problems.append(Problem(_name_of(operation), record.node, message, hint or ""))

    def _import(self, operation: Operation, record: Record) -> Held:
        if operation.target == "getitem":
            return self._item(operation)
        found, build = table.find(operation.target), control.ROWS.get(operation.target)
        if found is None and build is None and operation.target not in complex_numbers.ROWS:
            name = _name_of(operation)
            raise UnsupportedError(
                f"operator '{name}' is not supported",
                hint=None if name.startswith(_KNOWN) else _OF_OTHERS,
            )
        self._refuse_unknown(operation)
        if build is not None:
            return self._import_flow(operation, build)
        if self._is_complex(operation):
            return self._import_complex(operation, found)
        if found is None:
            raise UnsupportedError(f"operator '{operation.target}' is not supported")
        _check_supported(operation)
        call = Call(operation, self.maker, self._find, self._draws)
        record.dtypes = tuple({str(t.dtype): 0 for t in operation.results if t is not None})
        return self._finished(call, found.build(call), found.ignores)

    def _refuse_unknown(self, operation: Operation) -> None:
        """Raise SkipNodeError for an operand whose problem is reported; UnsupportedError for one that nobody made."""
        for argument in operation.arguments.values():
            for name in _references(argument):
                if name not in self._values:
                    raise UnsupportedError(f"the value '{name}' is not in the program")
                if self._values[name] is None:
                    raise SkipNodeError("an operand is unknown")

    def _import_flow(self, operation: Operation, build: control.Build) -> Held:
        _check_supported(operation)

        def inline(body: Body, given: Sequence[control.Given]) -> list[Whole | None]:
            return self._inline(operation, body, given)

        call = Call(operation, self.maker, self._find, self._draws, self._hold)
        return self._finished(call, build(control.Flow(call, inline)))

    def _inline(
        self, operation: Operation, body: Body, given: Sequence[control.Given]
    ) -> list[Whole | None]:
        """What a graph that an operator runs gives, imported where nodes go now; it sees nothing but what it is given."""
        outer, prefix, location = self._values, self._prefix, self.maker.location
        elements = dict(self.maker.elements)
        self._values = {}
        self._prefix = f"{prefix}{operation.name}/"
        try:
            self._parameters(body, given)
            for entry in body.constants:
                self._input(entry, is_used=True)
            for inner in body.operations:
                self._operation(inner)
            self.maker.location = location
            return [self._result(result) for result in body.results]
        finally:
            self._values, self._prefix = outer, prefix
            self._numbers |= self.maker.elements.keys()
            self.maker.elements = elements
            self.maker.location = location

    def _parameters(self, body: Body, given: Sequence[control.Given]) -> None:
        if len(given) != len(body.parameters):
            raise ModelError(
                f"graph '{body.name}' takes {len(body.parameters)} values, not {len(given)}"
            )
        for (name, size), held in zip(body.parameters, given, strict=True):
            if size is None:
                whole = isinstance(held, Tensor | Complex)
                self._values[name] = held if whole else self.maker.dim(held)
            elif isinstance(held, Tensor):
                bind_number(self.maker, held, size)
            elif isinstance(held, Complex) or not symbolic.proves_equal(size, held):
                raise UnsupportedError(f"a graph that knows the size {held} as {size}")

    def _result(self, value: Argument) -> Whole | None:
        if value is None:
            return None
        if isinstance(value, bool):
            return self.maker.scalar(value, bool_)
        if isinstance(value, int):
            return self.maker.dim(value)
        return self._returned(value)

    def _is_complex(self, operation: Operation) -> bool:
        """Whether an operand or a result is complex."""
        names = [n for a in operation.arguments.values() for n in _references(a)]
        held = any(isinstance(self._values.get(name), Complex) for name in names)
        return held or bool(operation.complex_results)

    def _import_complex(self, operation: Operation, entry: Row | None) -> Held:
        build = complex_numbers.ROWS.get(operation.target)
        _check_supported(operation)
        if build is not None:
            call = Call(operation, self.maker, self._find, self._draws, self._hold)
            return self._finished(call, build(call))
        form = complex_numbers.REAL_FORMS.get(operation.target)
        if entry is not None and form is not None:
            return self._import_real_form(operation, entry, form)
        if entry is None or not complex_numbers.is_by_parts(operation):
            raise UnsupportedError(
                f"operator '{operation.target}' of complex numbers is not supported"
            )
        real, imaginary = (self._part(operation, entry, p) for p in ("real", "imaginary"))
        if isinstance(real, Tensor) and isinstance(imaginary, Tensor):
            return self._agreed(operation, Complex(real, imaginary))
        assert not isinstance(real, Tensor), "both parts are alike"
        assert not isinstance(imaginary, Tensor), "both parts are alike"
        pairs = zip(real, imaginary, strict=True)
        made = [None if a is None or b is None else Complex(a, b) for a, b in pairs]
        return self._agreed(operation, made)

    def _import_real_form(
        self,
        operation: Operation,
        entry: Row,
        form: Callable[[NodeMaker, Complex], Tensor],
    ) -> Held:
        """What a row makes of what it asks of complex operands."""

        def find(reference: Ref) -> Tensor:
            held = self._hold(reference)
            return held if isinstance(held, Tensor) else form(self.maker, held)

        call = Call(operation, self.maker, find, self._draws)
        return self._finished(call, entry.build(call), entry.ignores)

    def _part(
        self, operation: Operation, entry: Row, part: str
    ) -> Tensor | Sequence[Tensor | None]:
        """What a row makes of one part of complex operands."""
        operation = complex_numbers.for_part(operation, part)
        numbers = [operation.arguments.get(name) for name in ("self", "value")]

        def find(reference: Ref) -> Tensor:
            held = self._hold(reference)
            if isinstance(held, Complex):
                return getattr(held, part)
            # Places and masks are whole; a real tensor of numbers has no imaginary part.
            is_nothing = part == "imaginary" and reference in numbers
            return self.maker.full(0, held.dtype, held.shape) if is_nothing else held

        call = Call(operation, self.maker, find, self._draws)
        made = entry.build(call)
        _check_arguments(operation, call, entry.ignores)
        return made

    def _finished(self, call: Call, made: Held, ignores: Sequence[str] = ()) -> Held:
        """What a row made, once its sizes, its arguments and its types are as the operation says."""
        _check_arguments(call.operation, call, ignores)
        return self._agreed(call.operation, made)

    def _check_sizes(self, operation: Operation) -> None:
        """Raise UnsupportedError for a size of data that no node binds."""
        for node in self.maker.emitted:
            self._bound.update(Expr.of_atom(symbol) for symbol in node.bound_sizes)
        for type_ in operation.results:
            for size in of_data(() if type_ is None else type_.shape):
                if size not in self._bound:
                    raise UnsupportedError(f"a size that depends on data ('{size}')")

    def _item(self, operation: Operation) -> Whole:
        reference, index = operation.arguments["self"], operation.arguments["index"]
        assert isinstance(reference, Ref), "torch takes values apart"
        held = self._values.get(reference.name)
        if held is None:
            raise SkipNodeError("an operand is unknown")
        if isinstance(held, Tensor | Complex) or not isinstance(index, int):
            raise ModelError("takes one value apart")
        found = held[index]
        if found is None:
            raise UnsupportedError(f"result {index} of '{reference.name}' is not supported")
        return found

    def _agreed(self, operation: Operation, made: Held) -> Held:
        """What a row made, of the type that torch says.  Raises: UnsupportedError for another."""
        self._check_sizes(operation)
        if isinstance(made, Tensor | Complex):
            made = self._whole_as_stated(made, operation, 0)
            return [made] if operation.is_list else made
        if len(made) != len(operation.results):
            raise ModelError(f"gives {len(made)} results, torch {len(operation.results)}")
        return [
            None if whole is None else self._whole_as_stated(whole, operation, place)
            for place, whole in enumerate(made)
        ]

    def _whole_as_stated(self, whole: Whole, operation: Operation, place: int) -> Whole:
        stated = operation.results[place]
        if isinstance(whole, Complex) and place in operation.complex_results:
            return whole.map(lambda part: self._as_stated(part, stated))
        # Asked for real numbers, torch drops the imaginary parts.
        return self._as_stated(whole.real if isinstance(whole, Complex) else whole, stated)

    def _as_stated(self, tensor: Tensor, stated: TensorType | None) -> Tensor:
        if stated is None or tensor.type == stated:
            return tensor
        if tensor.dtype != stated.dtype or tensor.rank != stated.rank:
            raise UnsupportedError(f"gives {tensor.type}, torch {stated}")
        shape: list[Dim] = []
        for ours, theirs in zip(tensor.shape, stated.shape, strict=True):
            if _may_divide_by_nothing(theirs) and not _may_divide_by_nothing(ours):
                shape.append(ours)  # what torch concluded has no value in some calls
                continue
            self._agree(ours, theirs, tensor, stated)
            shape.append(theirs)
        # Both are right, and torch's sizes are those that follow operators were told.
        return self.maker.reshape(tensor, shape) if tensor.value else tensor

    def _agree(self, ours: Dim, theirs: Dim, tensor: Tensor, stated: TensorType) -> None:
        if symbolic.proves_equal(ours, theirs):
            return
        if isinstance(ours, int) and isinstance(theirs, int):
            raise UnsupportedError(f"gives {tensor.type}, torch {stated}")
        self.maker.assume(ours, theirs)


def _may_divide_by_nothing(size: Dim) -> bool:
    """Whether a size is a quotient by another that may be 0."""
    atoms = size.atoms if isinstance(size, Expr) else ()
    divisors = [
        atom.right
        for atom in atoms
        if isinstance(atom, symbolic.Operation) and atom.op in ("floordiv", "mod")
    ]
    return any((symbolic.bounds(divisor)[0] or 0) <= 0 for divisor in divisors)


def _parts(name: str, held: Complex) -> dict[str, Tensor]:
    return {f"{name}_real": held.real, f"{name}_imaginary": held.imaginary}


def _check_arguments(operation: Operation, call: Call, ignores: Sequence[str]) -> None:
    """Raise UnsupportedError for an argument that asks for something and that nobody asked for."""
    for name, value in operation.arguments.items():
        is_read = name in call.read or name in ignores or name in _IGNORED
        if not is_read and not any(value is n or value == n for n in _NOTHING):
            raise UnsupportedError(f"argument '{name}' = {value} is not supported")


def _references(argument: Argument) -> Sequence[str]:
    if isinstance(argument, Ref):
        return (argument.name,)
    if isinstance(argument, tuple):
        return [name for item in argument for name in _references(item)]
    if isinstance(argument, Formula | Relation):
        return [name for part in argument.parts for name in _references(part)]
    return ()


def _check_supported(operation: Operation) -> None:
    """Raise UnsupportedError, with what helps, for what the reader found no words for."""
    if operation.reason:
        raise UnsupportedError(operation.reason, hint=operation.remedy or None)


def _name_of(operation: Operation) -> str:
    """What users call an operator: of one that changes its arguments its own name, not that of what torch puts around it."""
    changing = operation.arguments.get("_mutable_op")
    if not isinstance(changing, Opaque):
        return operation.target
    # One of torch's that takes functions or kernels has a name without a namespace.
    return changing.text if "." in changing.text else f"higher_order.{changing.text}"
