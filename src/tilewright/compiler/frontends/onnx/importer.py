"""Walks an ONNX graph and writes the graph IR, node by node, through the table of rows.

Order of meaning for an op type: a function of the model, a row of the table, the function body
that the ONNX schema carries.  Problems are collected and the walk goes on with unknown values, so
one pass finds all of them.  Not the rows, not the reading of files.  Called by `load` and
`coverage`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
    SparseTensorProto,
    TensorProto,
    ValueInfoProto,
)

import tilewright.compiler.frontends.onnx.extensions as extensions
import tilewright.compiler.frontends.onnx.table as table
from tilewright.base import symbolic
from tilewright.base.errors import ModelError, TilewrightError, UserError
from tilewright.base.text import did_you_mean
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.assumptions import Assumptions
from tilewright.compiler.frontends.kit.draws import Draws
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
from tilewright.compiler.frontends.onnx.attributes import AttributeReader, text_of
from tilewright.compiler.frontends.onnx.border import Border, Items
from tilewright.compiler.frontends.onnx.call import Call, Checkpoint, FailedBodies
from tilewright.compiler.frontends.onnx.meanings import has_meaning, unknown_op
from tilewright.compiler.frontends.onnx.model import (
    NEWEST_OPSET,
    OLDEST_OPSET,
    OpenModel,
    defaults_of,
    functions_of,
    imported,
    normal_domain,
    opset_versions,
)
from tilewright.compiler.frontends.onnx.node_copies import with_attributes, without
from tilewright.compiler.frontends.onnx.node_faults import faults_of, unknown_output
from tilewright.compiler.frontends.onnx.oldest_forms import as_of_oldest
from tilewright.compiler.frontends.onnx.order import ordered
from tilewright.compiler.frontends.onnx.row import Result, Row
from tilewright.compiler.frontends.onnx.schemas import (
    schema_function,
    schema_of,
)
from tilewright.compiler.frontends.onnx.scope import Scope, by_name
from tilewright.compiler.frontends.onnx.signature import (
    Dimensions,
    InputShapes,
    InputValues,
    described,
    fixed_value,
)
from tilewright.compiler.frontends.onnx.signatures import signature_of
from tilewright.compiler.frontends.onnx.tensors import (
    initializer_array,
    is_same,
)
from tilewright.compiler.frontends.onnx.values import (
    ChosenOptional,
    Held,
    HostValue,
    JoinedSequence,
    Operand,
    StackedSequence,
    Unknown,
)
from tilewright.compiler.graph.ir import Graph, Location, Value
from tilewright.compiler.graph.schema import Array

MAX_DEPTH: Final = 32
_UNNAMED: Final = "model"  # the file's name is not the model's
_TO_THE_HOST: Final = (
    "tilewright.onnx_backend.prepare(model) runs what the host computes, too"
)
_TO_ANOTHER_OPSET: Final = "convert it with onnx.version_converter.convert_version"
# Unrolled loops and inlined functions count every time; a model far beyond this is hostile.
MAX_NODES: Final = 200_000


@final
class Importer:
    """Imports one model; afterwards `graph`, `problems` and `records` say what came of it."""

    def __init__(
        self,
        model: OpenModel,
        input_shapes: InputShapes | None = None,
        input_values: InputValues | None = None,
        assumed: Assumptions | None = None,
        items: Mapping[str, Items] | None = None,
    ) -> None:
        self.model: OpenModel = model
        # Who gives the items of sequences also runs what the host does.
        self.border: Border = Border(items or {})
        self._has_host: bool = items is not None
        self.graph: Graph = Graph(text_of(model.proto.graph.name) or _UNNAMED)
        self.maker: NodeMaker = NodeMaker(self.graph)
        self.draws: Draws = Draws()
        self._failed_bodies: FailedBodies = FailedBodies()
        self.problems: list[Problem] = []
        self.records: list[Record] = []
        self.weight_bytes: int = 0
        self._exposed: set[Value] = set()
        self._budget: int = MAX_NODES
        self._record: Record | None = None
        # The bodies that the nodes which are imported now have taken in place.
        self._entered: list[GraphProto] = []
        self._types: dict[str, ValueInfoProto] = {}
        self._functions: dict[tuple[str, str, str], FunctionProto] = {}
        self._input_shapes: InputShapes | None = input_shapes
        self._input_values: InputValues = input_values or {}
        self._assumed: Assumptions | None = assumed
        self._dimensions: Dimensions = Dimensions(())

    # --- the model

    def run(self) -> None:
        """Import everything; problems are collected, not raised.

        Raises: UserError when `input_shapes` does not fit the model.
        """
        proto = self.model.proto.graph
        try:
            self._functions = functions_of(self.model.proto)
        except ModelError as error:
            self._problem(None, "", error)
            return
        scope = Scope(opset_versions(self.model.proto))
        self._check_opset(scope.opsets.get(""))
        for info in (*proto.value_info, *proto.output):
            self._types[text_of(info.name)] = info
        self._initializers(proto, scope)
        self._inputs(proto, scope)
        for node in ordered(proto.node):
            self._node(node, scope)
        self._outputs(proto, scope)

    def _check_opset(self, opset: int | None) -> None:
        if opset is not None and not 1 <= opset <= NEWEST_OPSET:
            text = f"uses opset {opset}, expected 1 to {NEWEST_OPSET}"
            self._problem(None, "", UnsupportedError(text, hint=_TO_ANOTHER_OPSET))

    def _location(self, name: str) -> Location:
        return Location(self.model.file, name)

    def _problem(self, record: Record | None, node: str, error: TilewrightError) -> None:
        op = "" if record is None else record.title
        self.problems.append(Problem(op, node, error.message, error.hint or ""))
        if record is not None:
            record.reasons.append(error.message)

    def _initializers(self, proto: GraphProto, scope: Scope) -> None:
        stored: list[tuple[str, TensorProto | SparseTensorProto]] = [
            (text_of(t.name), t) for t in proto.initializer
        ]
        stored += [(text_of(s.values.name), s) for s in proto.sparse_initializer]
        storage = self.model.storage
        seen: dict[str, Array] = {}
        for name, tensor in stored:
            if not name:
                continue  # of no use: the empty name is an input that is left out
            try:
                array = initializer_array(tensor, storage)
                if name in seen:
                    if not is_same(array, seen[name]):
                        raise ModelError("is there twice, with different values")
                    continue
                seen[name] = array
                if array.dtype == object:
                    scope.names[name] = HostValue("", array.shape, constant=array)
                    continue
                self.weight_bytes += array.nbytes
                scope.names[name] = self.maker.constant(array, name)
            except TilewrightError as error:
                error.message = f"initializer '{name}': {error.message}"
                self._problem(None, name, error)
                scope.names[name] = Unknown()

    def _inputs(self, proto: GraphProto, scope: Scope) -> None:
        for name in defaults_of(self.model.proto) & self._input_values.keys():
            del scope.names[name]
        inputs = [v for v in proto.input if text_of(v.name) not in scope.names]
        self._dimensions = Dimensions(inputs, self._input_shapes, self._assumed)
        known = [text_of(v.name) for v in inputs]
        for name in self._input_values:
            if name not in known:
                raise UserError(
                    f"input_values names '{name}', which is no input of the model",
                    hint=did_you_mean(name, known) or f"inputs: {' '.join(known)}",
                )
        for proto_value in inputs:
            name = text_of(proto_value.name)
            if name in scope.names:
                self._problem(None, name, ModelError(f"input '{name}' is listed twice"))
                continue
            try:
                held = self._input(proto_value, self._dimensions)
            except TilewrightError as error:
                error.message = f"input '{name}': {error.message}"
                self._problem(None, name, error)
                scope.names[name] = Unknown()
                continue
            # What does not fit of `input_values` is the caller's error, not the model's.
            scope.names[name] = self._fixed(held) if isinstance(held, Value) else held

    def _input(self, info: ValueInfoProto, dimensions: Dimensions) -> Held | Value:
        """What an input stands for; a value where the caller says what it is."""
        name = text_of(info.name)
        if name in self._input_values:
            return Value(dimensions.type_of(info), name)
        held = self.border.bind(info, dimensions, self.maker)
        if isinstance(held, HostValue) and not self._has_host:
            kind = "string" if info.type.HasField("tensor_type") else "map"
            raise UnsupportedError(f"type {kind} is not supported", hint=_TO_THE_HOST)
        return held

    def _fixed(self, value: Value) -> Tensor:
        """An input that the caller gave a value, as a constant of the type it has."""
        array = fixed_value(value.name, self._input_values[value.name], value.type)
        return self.maker.constant(array, value.name)

    def _outputs(self, proto: GraphProto, scope: Scope) -> None:
        if not proto.output:
            self._problem(None, "", ModelError("the graph has no outputs"))
        for info in proto.output:
            name = text_of(info.name)
            held = scope.lookup(name)
            if isinstance(held, Unknown):
                continue
            self.maker.location = self._location(name)
            if held is None:
                problem = f"output '{name}' is not produced by any node"
                self._problem(None, name, UnsupportedError(problem))
                continue
            try:
                found = self.border.expose(held, name, self._expose)
            except UnsupportedError as problem:
                if isinstance(held, StackedSequence | JoinedSequence | ChosenOptional):
                    for decides in held.decided_by:
                        self.maker.need(decides)
                self._problem(None, name, problem)
                continue
            self.border.outputs[name] = found
        for key, tensor in self.border.host.reads.items():
            self._expose(tensor, key)
        try:
            self._check_host()
        except UnsupportedError as problem:
            self._problem(None, "", problem)

    def _check_host(self) -> None:
        """Refuse steps of the host, which are dropped, where there is none.  Raises: UnsupportedError."""
        host = self.border.host
        if self._has_host or not (host.before or host.after):
            return
        host.before.clear()
        host.after.clear()
        text = "strings and maps are computed on the host, which a compiled model is not"
        raise UnsupportedError(text, hint=_TO_THE_HOST)

    def _expose(self, tensor: Tensor, name: str) -> None:
        value = self.maker.value(tensor)
        if value.node is not None and value not in self._exposed:
            value.name = name
        self._exposed.add(value)
        self.graph.outputs.append(value)
        self.graph.output_names.append(name)

    # --- nodes

    def _node(self, node: NodeProto, scope: Scope) -> None:
        """Import one node under a record of its own."""
        name = text_of(node.name) or next((text_of(o) for o in node.output if o), "")
        full = f"{scope.prefix}{name}"
        domain = normal_domain(text_of(node.domain))
        outer_record, outer_emitted = self._record, self.maker.emitted
        record = Record(text_of(node.op_type), domain, full)
        self._record = record
        self.maker.emitted = record.emitted
        self.maker.location = self._location(full)
        if self._function(node) is None:
            self.records.append(record)
        recorded, entered = len(self.records), len(self._entered)
        try:
            results = self._import(node, scope, record)
            self._check_host()
            self._bind(node, scope, results)
        except REFUSALS as error:
            if not isinstance(error, SkipNodeError):
                self._problem(record, full, refusal_of(error))
            # What was recorded of a body that was tried may be forgotten by now.
            kept = self._entered[entered:] if len(self.records) > recorded else []
            self._look_into(node, scope, kept)
        del self._entered[entered:]
        self._bind_unknown(node, scope)
        self._record, self.maker.emitted = outer_record, outer_emitted

    def _bind(
        self, node: NodeProto, scope: Scope, results: Sequence[Operand | None]
    ) -> None:
        names = [text_of(n) for n in node.output]
        for index, name in enumerate(names):
            if not name:
                continue
            held = results[index] if index < len(results) else None
            if held is None:
                self._note(UnsupportedError(unknown_output(index, name)))
                continue
            if name in scope.names:
                raise ModelError(f"value '{name}' is defined twice")
            if isinstance(held, Unknown):
                continue  # it may stand for a type that the model states
            scope.names[name] = held
            if isinstance(held, Tensor):
                self._name(held, f"{scope.prefix}{name}")

    @staticmethod
    def _name(tensor: Tensor, name: str) -> None:
        if tensor.value is not None and not tensor.value.name:
            tensor.value.name = name
        tensor.name = tensor.name or name

    def _bind_unknown(self, node: NodeProto, scope: Scope) -> None:
        """Stand-ins of the stated types, so that the nodes behind can still be checked."""
        for raw in node.output:
            name = text_of(raw)
            if not name or name in scope.names:
                continue
            info = self._stated(name, scope)
            scope.names[name] = Unknown() if info is None else self._stand_in(info)

    def _stated(self, name: str, scope: Scope) -> ValueInfoProto | None:
        """What the model states of a value of its graph; what it states inside of bodies is not looked at."""
        is_outer = scope.parent is None and not scope.depth
        return self._types.get(name) if is_outer else None

    def _stand_in(self, info: ValueInfoProto) -> Operand:
        """What stands for a value that nobody makes: its type, where the model states it."""
        type_ = described(info.type)
        if type_ is None:
            return Unknown()
        return self.maker.stand_in(type_, text_of(info.name))

    def _operands(
        self, node: NodeProto, scope: Scope, record: Record
    ) -> list[Operand | None]:
        found: list[Operand | None] = []
        for raw in node.input:
            name = text_of(raw)
            operand: Operand | None = scope.lookup(name) if name else None
            if name and operand is None:
                raise ModelError(f"input '{name}' is not defined before its use")
            found.append(operand)
        tensors = [h for h in found if isinstance(h, Tensor)]
        record.dtypes = tuple(dict.fromkeys(t.dtype.name for t in tensors))
        record.dims = tuple(
            dict.fromkeys(
                s.name
                for t in tensors
                for d in t.shape
                for s in sorted(symbolic.symbols(d))
            )
        )
        return found

    def _function(self, node: NodeProto) -> FunctionProto | None:
        domain = normal_domain(text_of(node.domain))
        key = (domain, text_of(node.op_type), text_of(node.overload))
        return self._functions.get(key) or extensions.find_function(*key)

    def _import(
        self, node: NodeProto, scope: Scope, record: Record
    ) -> Sequence[Operand | None]:
        self._budget -= 1
        if self._budget < 0:
            raise UnsupportedError(f"the model unrolls to more than {MAX_NODES} nodes")
        if scope.depth > MAX_DEPTH:
            raise UnsupportedError(f"functions and subgraphs nest deeper than {MAX_DEPTH}")
        operands = self._operands(node, scope, record)
        attributes = scope.attributes_of(node)
        function = self._function(node)
        if function is not None:
            return self._inline(function, operands, attributes, scope, record.node)
        opset = scope.opsets.get(record.domain)
        if opset is None and record.domain == "":
            raise ModelError("the model imports no opset of ONNX")
        inputs = [held for held in operands if not isinstance(held, Unknown)]
        key = (record.domain, record.op_type, opset or 1)
        if not has_meaning(*key):
            raise unknown_op(*key[:2])
        attributes = self._without_faults(node, attributes, key)
        if len(inputs) < len(operands):
            raise SkipNodeError("an input is unknown")
        if record.domain == "" and opset is not None and opset < OLDEST_OPSET:
            given = as_of_oldest(self.maker, record.op_type, opset, attributes, inputs)
            (attributes, inputs), opset = given, OLDEST_OPSET
        of_text = any(isinstance(held, HostValue) for held in inputs)
        key = (record.domain, record.op_type, opset or 1)
        found = table.find(*key, of_text=of_text) or extensions.find_operator(*key)
        if found is None:
            return self._expand(node, scope, inputs, attributes, record.node)
        return self._call(found, node, scope, inputs, attributes, opset or 1)

    def _without_faults(
        self,
        node: NodeProto,
        attributes: Mapping[str, AttributeProto],
        key: tuple[str, str, int],
    ) -> Mapping[str, AttributeProto]:
        """Note what is wrong with a node whatever its operands are; what is left to import of it.

        Raises: SkipNodeError for a node that has no meaning then.
        """
        signature = signature_of(*key)
        if signature is None:
            return attributes
        found = faults_of(node, attributes, signature)
        self._note_attributes(found.unknown)
        for reason in (*found.outputs, *found.reasons):
            self._note(UnsupportedError(reason))
        if found.reasons:
            raise SkipNodeError("a node has a problem")
        return {n: a for n, a in attributes.items() if n not in found.unknown}

    def _note(self, error: TilewrightError) -> None:
        """A problem of the node that is imported, once."""
        assert self._record is not None, "a node is imported"
        if error.message not in self._record.reasons:
            self._problem(self._record, self._record.node, error)

    def _note_attributes(self, names: Sequence[str]) -> None:
        for name in names:
            self._note(UnsupportedError(f"attribute '{name}' is not supported"))

    def _call(
        self,
        found: Row,
        node: NodeProto,
        scope: Scope,
        inputs: Sequence[Held | None],
        attributes: Mapping[str, AttributeProto],
        opset: int,
    ) -> Sequence[Held | None]:
        reader = AttributeReader(attributes)
        call = Call(
            node=node,
            opset=opset,
            inputs=inputs,
            attributes=reader,
            maker=self.maker,
            host=self.border.host,
            draws=self.draws,
            failed_bodies=self._failed_bodies,
            storage=self.model.storage,
            inline=lambda graph, given: self._subgraph(graph, given, scope),
            stated_shape=lambda name: self._dimensions.stated(self._stated(name, scope)),
            checkpoint=Checkpoint(self.maker.assumptions, self.problems, self.records),
            output_count=len(node.output),
        )
        result: Result = found.build(call)
        self._note_attributes([n for n in reader.unread if n not in found.ignores])
        if isinstance(result, Sequence):
            return list(result)
        return [result]

    # --- bodies

    def _subgraph(
        self, graph: GraphProto, given: Sequence[Held], scope: Scope
    ) -> list[Held]:
        """Import a subgraph in place; its nodes see the names around it."""
        inner = scope.inside()
        if len(given) != len(graph.input):
            raise ModelError(
                f"subgraph '{text_of(graph.name)}' has {len(graph.input)} inputs, "
                f"expected {len(given)}"
            )
        inner.bind([text_of(v.name) for v in graph.input], given)
        self._entered.append(graph)
        self._body(graph, inner)
        found = [self._result(inner, text_of(v.name)) for v in graph.output]
        declared = (described(v.type) for v in graph.output)
        return [
            control.as_declared(self.maker, held, type_)
            if isinstance(held, Tensor)
            else held
            for held, type_ in zip(found, declared, strict=True)
        ]

    def _body(self, graph: GraphProto, inner: Scope) -> None:
        location = self.maker.location
        self._initializers(graph, inner)
        for node in ordered(graph.node):
            self._node(node, inner)
        self.maker.location = location

    def _look_into(self, node: NodeProto, scope: Scope, seen: Sequence[GraphProto]) -> None:
        """Import the bodies of a node that has a problem, but those `seen`, for the problems in them.

        Which branch is taken and what comes into a body is not known but for the types that it states.
        """
        for attribute in node.attribute:
            bodies = [attribute.g] if attribute.HasField("g") else attribute.graphs
            for body in bodies:
                if not any(body is other for other in seen):
                    inner = scope.inside()
                    for info in body.input:
                        inner.names[text_of(info.name)] = self._stand_in(info)
                    self._body(body, inner)

    def _result(self, scope: Scope, name: str) -> Held:
        held = scope.lookup(name)
        if held is None:
            raise ModelError(f"output '{name}' of a subgraph is not defined")
        if isinstance(held, Unknown):
            raise SkipNodeError("a subgraph has a problem")
        return held

    def _inline(
        self,
        function: FunctionProto,
        inputs: Sequence[Operand | None],
        attributes: Mapping[str, AttributeProto],
        outer: Scope,
        full: str,
    ) -> Sequence[Operand | None]:
        """Import a function body in place of its call; it sees nothing but its inputs, unknown ones included."""
        default = ((text_of(a.name), a) for a in function.attribute_proto)
        defaults = by_name(default, "attribute")
        own = imported(function)
        scope = Scope(
            {**outer.opsets, **own},
            attributes=defaults | dict(attributes),
            prefix=f"{full}/",
            depth=outer.depth + 1,
        )
        if len(inputs) > len(function.input):
            raise ModelError(
                f"function takes {len(function.input)} inputs, got {len(inputs)}"
            )
        scope.bind(list(map(text_of, function.input)), inputs)
        absent = {text_of(n) for n in function.input} - scope.names.keys()
        for node in ordered(function.node):
            self._node(without(node, absent), scope)
        return [scope.names.get(text_of(raw)) for raw in function.output]

    def _expand(
        self,
        node: NodeProto,
        scope: Scope,
        inputs: Sequence[Held | None],
        attributes: Mapping[str, AttributeProto],
        full: str,
    ) -> Sequence[Operand | None]:
        """Last resort: the function body that the ONNX schema of the op carries."""
        domain, op = normal_domain(text_of(node.domain)), text_of(node.op_type)
        plain = with_attributes(node, attributes)
        function = schema_function(plain, domain, op, scope.opsets.get(domain, 1), inputs)
        if function is None:
            raise unknown_op(domain, op)
        schema = schema_of(domain, op, scope.opsets.get(domain, 1))
        defaults = (
            {}
            if schema is None
            else {
                name: spec.default_value
                for name, spec in schema.attributes.items()
                if spec.default_value.name
            }
        )
        outer = len(self.records)
        results = self._inline(function, inputs, defaults | dict(attributes), scope, full)
        # The nodes of the body count for the op itself, not as nodes of the model.
        record = self._record
        for inner in self.records[outer:]:
            if record is not None:
                record.emitted.extend(inner.emitted)
                record.reasons.extend(inner.reasons)
        del self.records[outer:]
        return results
