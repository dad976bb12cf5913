"""Reads the graph module of an exported program into a `Program`.

Every size becomes one of ours, every argument gets the name that the operator's schema has for it, and
arithmetic of sizes vanishes.  Called by `load` and by who compiles graphs of torch's own compiler.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Final, final

import numpy as np

import tilewright.compiler.frontends.torch.border as border
from tilewright.base.dtypes import i64
from tilewright.base.errors import TilewrightError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.torch.checks import ASSERTED, asserting, checks_of
from tilewright.compiler.frontends.torch.guards import Guard
from tilewright.compiler.frontends.torch.layout_questions import order_in_memory
from tilewright.compiler.frontends.torch.program import (
    Argument,
    Body,
    Input,
    Opaque,
    Operation,
    Output,
    Program,
    Ref,
    Role,
)
from tilewright.compiler.frontends.torch.questions import Questions
from tilewright.compiler.frontends.torch.random_numbers import draws
from tilewright.compiler.frontends.torch.sizes import Sizes, environment_of
from tilewright.compiler.graph.schema import Array, TensorType

_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')
_PART_OF_ANOTHER: Final = "strides of a tensor that is a part of another are not supported"
_READS: Final = ("aten._local_scalar_dense.default", "aten.item.default")
# They only tell torch what it may take for granted.
_SILENT: Final = ("_assert", "sym_constrain_range", "_assert_scalar")
_OF_DATA: Final = "_assert_async"
"""What a module expects of data, which calls keep."""


def sizes_of(
    nodes: Iterable[Any],
    ranges: Mapping[Any, Any],
    numbers: Mapping[str, str] | None = None,
) -> Sizes:
    """The translator of the sizes in a graph, with the names that its user gave them, and those of `numbers`."""
    environment = environment_of(nodes)
    names = {} if environment is None else _names(environment)
    for symbol, name in (numbers or {}).items():
        if name not in names.values():
            names.setdefault(symbol, name)
    return Sizes(ranges, names)


def _numbers(nodes: Iterable[Any]) -> dict[str, str]:
    """Names of whole numbers that calls give beside tensors, by symbol of torch."""
    return {
        str(value.node.expr): node.name
        for node in nodes
        if node.op == "placeholder"
        and border.is_instance(value := node.meta.get("val"), "SymInt")
        and value.node.expr.is_Symbol
    }


def _names(environment: Any) -> dict[str, str]:
    """Names of the user by symbol of torch."""
    given = getattr(environment, "source_name_to_debug_name", {})
    sources = getattr(environment, "var_to_sources", {})
    found: dict[str, str] = {}
    for symbol, places in sources.items():
        for place in places:
            name = given.get(_text(place.name))
            if name is not None and name.isidentifier() and not name.startswith("_"):
                found.setdefault(str(symbol), name)
    return found


def _text(name: Any) -> str:
    return str(name() if callable(name) else name)


def read_exported(
    exported: Any,
    name: str,
    guards: Iterable[Guard] = (),
    questions: Questions | None = None,
) -> Program:
    """An exported program without side effects as data.

    Args:
        exported: the program.
        name: of it.
        guards: what calls must keep.
        questions: of its traces, whose answers calls must keep, too.
    """
    graph, signature = exported.graph, exported.graph_signature
    noted = questions or Questions()
    sizes = sizes_of(graph.nodes, noted.ranges(exported), _numbers(graph.nodes))
    reader = Reader(graph, sizes)
    mutated = {
        spec.target
        for spec in signature.output_specs
        if spec.kind.name == "BUFFER_MUTATION"
    }
    specs = {spec.arg.name: spec for spec in signature.input_specs}
    arrays: dict[int, Array] = {}
    nodes = {node.name: node for node in graph.nodes if node.op == "placeholder"}
    inputs = tuple(
        _input(reader, node, specs[name], exported, mutated, arrays)
        for name, node in nodes.items()
    )
    inputs += reader.constants()
    by_target = {entry.target: entry.name for entry in inputs if entry.target}
    user = [node for name, node in nodes.items() if specs[name].kind.name == "USER_INPUT"]
    shapes = [(node.name, reader.sizes(node.meta.get("val"))) for node in user]
    checks = checks_of(
        guards, noted.branches(exported), noted.copies(exported), shapes, sizes
    )
    operations = (*reader.operations(), *(check.operation for check in checks))
    values = reader.returned()
    complexes = reader.complex_values()
    outputs: list[Output] = []
    reasons: list[str] = []
    for spec, value in zip(signature.output_specs, values, strict=True):
        kind = spec.kind.name
        if kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
            outputs.append(Output(value, state=by_target[spec.target]))
        elif kind == "USER_INPUT_MUTATION":
            outputs.append(
                Output(value, written=spec.target, is_complex=_in(value, complexes))
            )
        elif kind == "USER_OUTPUT":
            outputs.append(Output(value, is_complex=_in(value, complexes)))
        elif kind != "TOKEN":
            reasons.append(f"outputs of kind {kind} are not supported ({spec.target})")
    found = Program(
        name, inputs, operations, tuple(outputs), tuple(reasons), (), sizes.symbols,
        rounded=sizes.rounded,
        decisions=tuple(check.decision for check in checks if check.decision is not None),
    )  # fmt: skip
    return _counting(found) if _any_draws(found.operations) else found


def _any_draws(operations: Sequence[Operation]) -> bool:
    """Whether random numbers are drawn, in branches and loops, too."""
    return any(
        draws(operation)
        or any(
            _any_draws(argument.operations)
            for argument in operation.arguments.values()
            if isinstance(argument, Body)
        )
        for operation in operations
    )


def _counting(program: Program) -> Program:
    """The program with the number of the call as one more state."""
    taken = {entry.name for entry in (*program.inputs, *program.operations)}
    counter = next(n for i in range(len(taken) + 1) if (n := f"draws_{i}") not in taken)
    type_ = TensorType(i64, ())
    state = Input(counter, Role.STATE, type_, np.zeros((), np.int64), target=counter)
    arguments = {"self": Ref(counter), "other": 1, "alpha": 1}
    later = Operation(f"{counter}_later", "aten.add.Tensor", arguments, (type_,))
    return replace(
        program,
        inputs=(*program.inputs, state),
        operations=(*program.operations, later),
        outputs=(*program.outputs, Output(Ref(later.name), state=counter)),
        counter=counter,
    )


def _input(
    reader: Reader,
    node: Any,
    spec: Any,
    exported: Any,
    mutated: set[str],
    arrays: dict[int, Array],
) -> Input:
    kind, reason, type_ = spec.kind.name, "", None
    try:
        type_ = reader.type_of(node.meta.get("val"))
    except TilewrightError as error:
        reason = error.message
    if kind == "USER_INPUT":
        is_tensor = type(spec.arg).__name__ == "TensorArgument"
        if border.is_instance(node.meta.get("val"), "SymInt"):
            return _number_input(reader, node)
        if type(spec.arg).__name__ in ("SymFloatArgument", "SymBoolArgument"):
            reason = "numbers that a call decides are supported if they are whole"
        return Input(
            node.name, Role.USER, type_ if is_tensor else None, None, reason,
            is_complex=is_complex(node.meta.get("val")),
        )  # fmt: skip
    if kind not in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
        return Input(node.name, Role.WEIGHT, None, None, f"a {kind} is not supported")
    tensor = exported.state_dict.get(spec.target)
    if tensor is None:
        tensor = exported.constants.get(spec.target)
    if tensor is None or reason or type_ is None:
        lost = reason or f"'{spec.target}' has no elements in the program"
        return Input(node.name, Role.WEIGHT, None, None, lost)
    role = Role.STATE if spec.target in mutated else Role.WEIGHT
    try:
        if id(tensor) not in arrays:
            arrays[id(tensor)] = border.to_array(tensor)
        array = arrays[id(tensor)]
    except (RuntimeError, TypeError) as error:
        first = str(error).split("\n", maxsplit=1)[0]
        return Input(node.name, Role.WEIGHT, None, None, f"'{spec.target}': {first}")
    of_parts = is_complex(tensor)
    if of_parts and role is Role.STATE:
        return Input(node.name, role, type_, None, "complex states are not supported")
    return Input(node.name, role, type_, array, target=spec.target, is_complex=of_parts)


def _number_input(reader: Reader, node: Any) -> Input:
    """A whole number that a call gives beside tensors."""
    return Input(node.name, Role.USER, TensorType(i64, ()), number=reader.number(node))


@final
class Reader:
    """Reads one graph.

    Args:
        graph: `torch.fx.Graph`.
        sizes: translates sizes.
    """

    def __init__(self, graph: Any, sizes: Sizes) -> None:
        self._graph: Any = graph
        self._module: Any = graph.owning_module
        self._sizes: Sizes = sizes
        self._bodies: dict[str, Body] = {}

    def type_of(self, value: Any) -> TensorType | None:
        """The type of a tensor, or of the parts of a complex one; None for what is none.  Raises: UnsupportedError for a type that is not ours."""
        if not border.is_instance(value, "Tensor"):
            return None
        dtype = border.dtype_of(value.dtype) or border.part_of(value.dtype)
        if dtype is None:
            kind = str(value.dtype).removeprefix("torch.")
            raise UnsupportedError(f"elements of type {kind} are not supported")
        if str(value.layout) != "torch.strided":
            raise UnsupportedError(f"the layout {value.layout} is not supported")
        return TensorType(dtype, tuple(self._sizes.size(size) for size in value.shape))

    def sizes(self, value: Any) -> tuple[Dim, ...]:
        """Of what a call is given: the shape of a tensor, or the one number it is; else nothing."""
        if border.is_instance(value, "SymInt"):
            return (self._sizes.size(value),)
        return tuple(map(self._sizes.size, getattr(value, "shape", ())))

    def operations(self) -> tuple[Operation, ...]:
        """What the graph computes, without arithmetic of sizes."""
        return tuple(
            operation
            for node in self._graph.nodes
            if node.op == "call_function"
            and not _is_unread_item(node)
            and (operation := self._operation(node)) is not None
        )

    def constants(self) -> tuple[Input, ...]:
        """The tensors that stand in the graph, as weights of the names of their nodes."""
        found: list[Input] = []
        for node in self._graph.nodes:
            held = self._attribute(node) if node.op == "get_attr" else None
            if not border.is_instance(held, "Tensor"):
                continue
            try:
                type_, array = self.type_of(held), border.to_array(held)
            except (TilewrightError, RuntimeError, TypeError) as error:
                reason = str(error).split("\n", maxsplit=1)[0]
                found.append(Input(node.name, Role.WEIGHT, None, None, reason))
                continue
            found.append(
                Input(node.name, Role.WEIGHT, type_, array, is_complex=is_complex(held))
            )
        return tuple(found)

    def _attribute(self, node: Any) -> Any:
        """What a node takes from the module of its graph: a graph that an operator runs, or a constant."""
        held = self._module
        for part in str(node.target).split("."):
            held = getattr(held, part)
        return held

    def _body(self, node: Any) -> Body:
        """The graph that a node names, which operators run."""
        name = str(node.target)
        if name not in self._bodies:
            graph = self._attribute(node).graph
            inner = Reader(graph, self._sizes)
            parameters = tuple(
                (entry.name, inner.number(entry))
                for entry in graph.nodes
                if entry.op == "placeholder"
            )
            self._bodies[name] = Body(
                name,
                parameters,
                inner.constants(),
                inner.operations(),
                tuple(inner.returned()),
            )
        return self._bodies[name]

    def number(self, node: Any) -> Dim | None:
        """The size that a number is known by; None for what is no whole number."""
        held = node.meta.get("val")
        return self._sizes.size(held) if _is_whole(held) else None

    def complex_values(self) -> frozenset[str]:
        """The values that are complex tensors."""
        nodes = self._graph.nodes
        return frozenset(node.name for node in nodes if is_complex(node.meta.get("val")))

    def returned(self) -> list[Argument]:
        """What the graph returns."""
        return [self._returned(value) for value in border.results_of(self._graph)]

    def _returned(self, value: Any) -> Argument:
        try:
            return self.argument(value)
        except TilewrightError as error:
            return Opaque(error.message)

    def _operation(self, node: Any) -> Operation | None:
        value, title = node.meta.get("val"), target_name(node.target)
        if title in _READS and not isinstance(value, bool | int | float):
            return self._read_number(node, value, title)
        if title == ASSERTED:
            return self._assertion(node)
        if _is_number(value) or _is_silent(title) or _only_checks(node):
            return None
        if _token_of(node) is not None:
            return None
        reason, remedy = "", ""
        arguments: dict[str, Argument] = {}
        results: tuple[TensorType | None, ...] = ()
        is_list = isinstance(value, list | tuple)
        try:
            results = tuple(map(self.type_of, value if is_list else (value,)))
        except TilewrightError as error:
            reason, remedy = error.message, error.hint or ""
        try:
            arguments = self._arguments(node)
        except TilewrightError as error:
            if not reason:
                reason, remedy = error.message, error.hint or ""
        if title.startswith("aten.as_strided"):
            arguments["order"] = order = order_in_memory(node.args[0].meta["val"])
            reason = reason or ("" if order else _PART_OF_ANOTHER)
        values = value if isinstance(value, list | tuple) else (value,)
        complexes = frozenset(i for i, held in enumerate(values) if is_complex(held))
        numbers = {
            i: self._sizes.size(held) for i, held in enumerate(values) if _is_whole(held)
        }
        message = arguments.get("assert_msg")
        name = f"{node.name} ({message})" if isinstance(message, str) else node.name
        return Operation(
            name, title, arguments, results, is_list, place_of(node), reason, complexes,
            numbers, remedy=remedy,
        )  # fmt: skip

    def _assertion(self, node: Any) -> Operation | None:
        """What is expected of sizes of the call; of data nobody expects more than what needs it."""
        held = getattr(node.args[0], "meta", {}).get("val")
        if not border.is_instance(held, "SymBool") or _asks_data(held):
            return None
        reason, expected = "", None
        try:
            expected = self._sizes.truth(held)
        except TilewrightError as error:
            reason = error.message
        if isinstance(expected, bool):
            return None
        return asserting(node.name, expected, place=place_of(node), reason=reason)

    def _read_number(self, node: Any, value: Any, title: str) -> Operation | None:
        """A whole number of the data that sizes follow from; a real one, which is read where it is used."""
        source = self.argument(node.args[0])
        if border.is_instance(value, "SymFloat"):
            if isinstance(source, Ref):
                self._sizes.read(value, source)
            return None
        is_truth = border.is_instance(value, "SymBool")
        # A truth value is a number that is 1.
        size = (
            self._sizes.expression(value.node.expr.args[0])
            if is_truth
            else self._sizes.size(value)
        )
        arguments = {"self": source, "size": size}
        return Operation(node.name, title, arguments, (), place=place_of(node))

    def _arguments(self, node: Any) -> dict[str, Argument]:
        schema = getattr(node.target, "_schema", None)
        if border.is_instance(node.target, "_ops.HigherOrderOperator"):
            return self._arguments_of_higher_order(node)
        if schema is None:
            names = ["self", "index", *(f"argument_{i}" for i in range(2, len(node.args)))]
            held = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
            return {name: self.argument(value) for name, value in held.items()}
        found: dict[str, Argument] = {}
        for position, parameter in enumerate(schema.arguments):
            if position < len(node.args):
                found[parameter.name] = self.argument(node.args[position])
            elif parameter.name in node.kwargs:
                found[parameter.name] = self.argument(node.kwargs[parameter.name])
            elif parameter.has_default_value():
                found[parameter.name] = self.argument(parameter.default_value)
        return found

    def _arguments_of_higher_order(self, node: Any) -> dict[str, Argument]:
        """By the names that the operator's Python signature has for them."""
        names = list(inspect.signature(type(node.target).__call__).parameters)[1:]
        held = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        if len(node.args) > len(names) or "args" in held:
            held = {f"argument_{i}": value for i, value in enumerate(node.args)}
        return {name: self.argument(value) for name, value in held.items()}

    def argument(self, value: Any) -> Argument:
        """One argument.  Raises: UnsupportedError for a size that data decides."""
        if value is None or isinstance(value, bool | int | float | complex | str):
            return value
        if isinstance(value, list | tuple):
            return tuple(map(self.argument, value))
        if border.is_instance(value, "fx.Node"):
            return self._of_node(value)
        if border.is_instance(value, "dtype"):
            return border.dtype_of(value) or Opaque(str(value))
        return self._number_of_size(value)

    def _of_node(self, node: Any) -> Argument:
        """What a node stands for: its value, a graph, or a number that is known."""
        if node.op == "get_attr" and hasattr(self._attribute(node), "graph"):
            return self._body(node)
        token, held = _token_of(node), node.meta.get("val")
        if token is not None:
            return self.argument(token)
        if not _is_number(held):
            return Ref(node.name)
        return held if isinstance(held, bool | int | float) else self._number_of_size(held)

    def _number_of_size(self, value: Any) -> Argument:
        """A number or a condition that follows from sizes; anything else is what it is called."""
        if border.is_instance(value, "SymInt"):
            return self._sizes.size(value)
        if border.is_instance(value, "SymBool"):
            return self._sizes.truth(value)
        if border.is_instance(value, "SymFloat"):
            return self._sizes.real(value)
        return Opaque(str(value))


def _asks_data(condition: Any) -> bool:
    """Whether a condition is one of numbers that only data decides."""
    symbols = getattr(condition.node.expr, "free_symbols", ())
    return any(str(symbol).startswith(("u", "zuf")) for symbol in symbols)


def is_complex(value: Any) -> bool:
    """Whether it is a tensor of complex numbers."""
    return border.is_instance(value, "Tensor") and border.part_of(value.dtype) is not None


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float) or border.is_instance(
        value, "SymInt", "SymFloat", "SymBool"
    )


def _is_whole(value: object) -> bool:
    """Whether it is a whole number that stands beside tensors."""
    is_plain = isinstance(value, int) and not isinstance(value, bool)
    return is_plain or border.is_instance(value, "SymInt")


def _is_silent(title: str) -> bool:
    name = title.partition(".")[2]
    return name.startswith(_SILENT) and not name.startswith(_OF_DATA)


def _only_checks(node: Any) -> bool:
    """Whether it only raises errors, in an order with other effects."""
    if target_name(node.target) != "higher_order.with_effects":
        return False
    return str(node.args[1]) == "aten._linalg_check_errors.default"


def _is_unread_item(node: Any) -> bool:
    """Whether it takes one of several results and nobody reads it: the row need not have made it."""
    return target_name(node.target) == "getitem" and not node.users


def _token_of(node: Any) -> Any:
    """The token of effects that a node takes from one which only checks: nothing happens to it there."""
    if node.op != "call_function" or target_name(node.target) != "getitem":
        return None
    source, place = node.args
    if place != 0 or not border.is_instance(source, "fx.Node"):
        return None
    return source.args[0] if _only_checks(source) else None


def target_name(target: Any) -> str:
    """The name of what a node calls: `aten.add.Tensor`, `getitem`, `higher_order.cond`."""
    if border.is_instance(target, "_ops.OpOverload"):
        return str(target)
    if border.is_instance(target, "_ops.HigherOrderOperator"):
        return f"higher_order.{target.name()}"
    return str(getattr(target, "__name__", target))


def place_of(node: Any) -> str:
    """Where in the user's program a node comes from: the last frame of its stack."""
    frames: Sequence[tuple[str, str]] = _FRAME.findall(node.meta.get("stack_trace") or "")
    if not frames:
        return ""
    path, line = frames[-1]
    return f"{PurePath(path).name}:{line}"


def read_traced(graph_module: Any, name: str, weights: Mapping[str, Any]) -> Program:
    """A graph of torch's own compiler as data.

    Args:
        graph_module: without side effects; sizes among its inputs follow from tensors.
        name: what messages call it.
        weights: tensors that stay what they are, by the names of their inputs.
    """
    graph = graph_module.graph
    sizes = sizes_of(graph.nodes, _known_ranges(graph.nodes))
    reader = Reader(graph, sizes)
    arrays: dict[int, Array] = {}
    inputs = tuple(
        _traced_input(reader, node, weights.get(node.name), arrays)
        for node in graph.nodes
        if node.op == "placeholder"
    )
    inputs += reader.constants()
    complexes = reader.complex_values()
    operations = reader.operations()
    outputs = tuple(Output(v, is_complex=_in(v, complexes)) for v in reader.returned())
    return Program(
        name, inputs, operations, outputs, (), (), sizes.symbols, rounded=sizes.rounded
    )


def _in(value: Argument, names: frozenset[str]) -> bool:
    return isinstance(value, Ref) and value.name in names


def _known_ranges(nodes: Iterable[Any]) -> Mapping[Any, Any]:
    for node in nodes:
        for size in getattr(node.meta.get("val"), "shape", ()):
            environment = getattr(getattr(size, "node", None), "shape_env", None)
            if environment is not None:
                return environment.var_to_range
    return {}


def _traced_input(
    reader: Reader, node: Any, weight: Any, arrays: dict[int, Array]
) -> Input:
    try:
        type_ = reader.type_of(node.meta.get("val"))
    except TilewrightError as error:
        return Input(node.name, Role.USER, None, None, error.message)
    if border.is_instance(node.meta.get("val"), "SymInt"):
        return _number_input(reader, node)
    of_parts = is_complex(node.meta.get("val"))
    if weight is None or type_ is None:
        return Input(node.name, Role.USER, type_, is_complex=of_parts)
    if id(weight) not in arrays:
        arrays[id(weight)] = border.to_array(weight)
    return Input(
        node.name, Role.WEIGHT, type_, arrays[id(weight)], target=node.name, is_complex=of_parts
    )  # fmt: skip
