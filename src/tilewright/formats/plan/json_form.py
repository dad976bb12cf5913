"""The file form of a plan: the JSON of TVM's graph executor (`formats.graph_json`).

`nodes`, `arg_nodes`, `heads`, `node_row_ptr` and `attrs` (`storage_id`, `shape`, `dltype`) have
one node per input, constant and step; views are `__nop` nodes.  `metadata.tilewright`, in last
place, holds what that form has no room for (symbolic shapes, byte offsets, lifetimes, grids, push
constants) and is all that `from_json` reads.

Source: TVM 0.19, `src/runtime/graph_executor/graph_executor.h`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar, cast, final

from tilewright.base import dtypes
from tilewright.base.errors import OF_DAMAGE, ArchiveError, UserError, version_hint
from tilewright.base.json_text import what_is_wrong
from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import Dim
from tilewright.base.symbolic import parse as parse_dim
from tilewright.base.text import unique
from tilewright.formats.graph_json import (
    COPY,
    NOTHING,
    UNKNOWN,
    EntryTable,
    Graph,
    Node,
    Reference,
    operator_attributes,
    read_members,
    write_graph,
)
from tilewright.formats.plan.attributes import decode_attribute, encode_attribute, text_of
from tilewright.formats.plan.steps import (
    FLOW_KINDS,
    Dimension,
    Entry,
    HostCall,
    IndexCheck,
    ModelValue,
    Plan,
    SizeRange,
    Step,
    Storage,
    operands_of,
    results_of,
)
from tilewright.formats.plan.verifier import verify_plan

VERSION: Final = (1, 6)
_WITHOUT_BLOCKS: Final = (
    1,
    5,
)  # what plans are written as in which no size changes or is compared
_WITHOUT_ROWS: Final = (1, 4)  # what plans that pick no rows are written as
_WITHOUT_FLOW: Final = (1, 3)  # those without control flow
_DIM_LIMIT: Final = 4096  # characters of one expression
_DAMAGE: Final = (
    LookupError, TypeError, ValueError, AttributeError, RecursionError, UserError,
)  # fmt: skip
"""What reading raises that is no plan."""
_Row = TypeVar("_Row")


def to_json(plan: Plan) -> bytes:
    """The file form; the same plan gives the same bytes."""
    return write_graph(graph_form(plan))


def graph_form(plan: Plan) -> Graph:
    """The plan as TVM sees it, with what only we read under `metadata`."""
    return _GraphForm(plan).graph({"tilewright": _extension(plan)})


@final
class _GraphForm:
    """Numbers nodes: leaves first, then steps in order, a view where it is first used."""

    def __init__(self, plan: Plan) -> None:
        self.plan: Plan = plan
        self.nodes: list[Node] = []
        self.names: set[str] = set()  # of leaves
        self.outputs: list[int] = []  # the entry of every node output, in order
        self.row_ptr: list[int] = [0]
        self.position: dict[int, Reference] = {}  # entry -> where its value comes from
        self.inside: dict[int, set[int]] = {}  # storage -> its entries that have a position
        self.owner: dict[int, Reference] = {}  # storage -> who wrote it last

    def graph(self, metadata: object) -> Graph:
        plan = self.plan
        for name, entry in plan.inputs:
            self._leaf(name, entry)
        for index, entry in enumerate(plan.entries):
            storage = plan.storages[entry.storage]
            if storage.kind == "constant" and entry.storage not in self.owner:
                self._leaf(storage.name or f"p{index}", index)
        arguments = tuple(range(len(self.nodes)))
        for step in plan.steps:
            self._step(step)
        heads = tuple(self._place(entry) for _, entry in plan.outputs)
        entries = [plan.entries[e] for e in self.outputs]
        table = EntryTable(
            dtype=tuple(str(e.dtype.numpy) for e in entries),
            shape=tuple(
                tuple(d if isinstance(d, int) else UNKNOWN for d in e.shape)
                for e in entries
            ),
            storage_id=tuple(e.storage for e in entries),
            keys=("storage_id", "shape", "dltype"),
        )
        return Graph(
            tuple(self.nodes), arguments, heads, tuple(self.row_ptr), table, metadata
        )

    def _add(self, node: Node, results: tuple[int, ...]) -> None:
        """A node that writes: what lay in its storages before is there no more."""
        for storage in {self.plan.entries[e].storage for e in results}:
            for stale in self.inside.pop(storage, ()):
                del self.position[stale]
        places = self._append(node, results)
        for entry, place in zip(results, places, strict=True):
            self.owner[self.plan.entries[entry].storage] = place

    def _append(self, node: Node, results: tuple[int, ...]) -> list[Reference]:
        number = len(self.nodes)
        self.nodes.append(node)
        self.row_ptr.append(self.row_ptr[-1] + len(results))
        places = [Reference(number, index) for index in range(len(results))]
        for entry, place in zip(results, places, strict=True):
            self.outputs.append(entry)
            self.position[entry] = place
            self.inside.setdefault(self.plan.entries[entry].storage, set()).add(entry)
        return places

    def _leaf(self, name: str, entry: int) -> None:
        name = unique(name, self.names)
        self.names.add(name)
        self._add(Node("null", name), (entry,))

    def _place(self, entry: int) -> Reference:
        """Where the value of `entry` comes from; a view of another entry becomes a node."""
        if entry not in self.position:
            source = self.owner.get(self.plan.entries[entry].storage)
            inputs = () if source is None else (source,)
            attributes = operator_attributes(NOTHING, len(inputs), 1)
            view = Node("tvm_op", f"view{len(self.nodes)}", inputs, attributes)
            self._append(view, (entry,))
        return self.position[entry]

    def _step(self, step: Step) -> None:
        if step.kind in (*FLOW_KINDS, "row", "expect"):  # TVM has no such thing
            return
        inputs = tuple(self._place(e) for e in operands_of(step))
        results = results_of(step)
        attributes = operator_attributes(step.target or COPY, len(inputs), len(results))
        self._add(Node("tvm_op", step.name, inputs, attributes), results)


def _extension(plan: Plan) -> dict[str, object]:
    return {
        "version": list(_version(plan)),
        "name": plan.name,
        "inputs": [list(row) for row in plan.inputs],
        "outputs": [list(row) for row in plan.outputs],
        "dims": [[d.name, d.input, d.axis, d.minimum, d.maximum] for d in plan.dims],
        "equalities": [[_dim(a), _dim(b)] for a, b in plan.equalities],
        "arena_bytes": plan.arena_bytes,
        "checks": [
            [c.location, c.axis, _dim(c.size), _dim(c.low), _dim(c.high)]
            for c in plan.checks
        ],
        "check_storage": plan.check_storage,
        "storages": [
            [s.kind, _dim(s.size_bytes), s.first, s.last, s.offset_bytes, s.name]
            for s in plan.storages
        ],
        "entries": [
            [e.storage, e.dtype.name, [_dim(d) for d in e.shape], _dim(e.offset_bytes)]
            for e in plan.entries
        ],
        "steps": [
            {
                "kind": s.kind,
                "name": s.name,
                "target": s.target,
                "arguments": list(s.arguments),
                "results": s.result_count,
                "grid": [_dim(d) for d in s.grid],
                "dims": [_dim(d) for d in s.dims],
                "host": None if s.host is None else _host(s.host),
                "barrier": s.barrier,
                "flops": _dim(s.flops),
                "outcome": s.outcome,
                "bytes": None if s.bytes_moved is None else _dim(s.bytes_moved),
                "nodes": list(s.nodes),
                **_flow(s),
            }
            for s in plan.steps
        ],
        # What no runtime needs to run the plan: older ones pass over it, so it asks for no version.
        "values": [[v.name, v.step, v.result, list(v.axes)] for v in plan.values],
    }


def _version(plan: Plan) -> tuple[int, int]:
    """The oldest version that has all that is in the plan."""
    if plan.has_blocks or plan.has_expectations:
        return VERSION
    if plan.has_rows:
        return _WITHOUT_BLOCKS
    return _WITHOUT_ROWS if plan.has_flow else _WITHOUT_FLOW


def _flow(step: Step) -> dict[str, object]:
    """What steps of control flow have beside."""
    if step.kind not in FLOW_KINDS:
        return {}
    sizes = [[s.name, s.minimum, s.maximum] for s in step.sizes]
    return {"goto": step.goto, "sizes": sizes}


def _host(call: HostCall) -> dict[str, object]:
    return {
        "operand_count": call.operand_count,
        "present": list(call.present),
        "attributes": {k: encode_attribute(v) for k, v in call.attributes.items()},
        "location": call.location,
    }


def _dim(value: Dim) -> int | str:
    return value if isinstance(value, int) else str(value)


def from_json(data: bytes | memoryview) -> Plan:
    """Read the file form back and verify it.

    Raises: ArchiveError for anything that is not a consistent plan of a known version.
    """
    try:
        members = read_members(data)
    except ArchiveError as error:
        raise ArchiveError(f"not a plan ({error.message})", location="plan") from error
    return _verified(members)


def from_graph(graph: Graph) -> Plan:
    """The plan in the metadata of a graph that was read.

    Raises: ArchiveError as `from_json`.
    """
    return _verified({"metadata": graph.metadata})


def _verified(members: Mapping[str, object]) -> Plan:
    try:
        metadata = cast("dict[str, dict[str, object]]", members["metadata"])
        extension = metadata["tilewright"]
    except (KeyError, TypeError) as error:
        raise ArchiveError(
            f"not a plan ({what_is_wrong(error)})", location="plan"
        ) from error
    try:
        plan = _decode(extension)
    except ArchiveError:
        raise
    except _DAMAGE as error:
        raise ArchiveError(what_is_wrong(error), location="plan", hint=OF_DAMAGE) from error
    verify_plan(plan)
    return plan


def _rows(
    members: Mapping[str, object],
    name: str,
    read: Callable[..., _Row],
    default: object = None,
) -> tuple[_Row, ...]:
    """The rows of a table, each by `read`.  Raises: ArchiveError naming the row."""
    rows = members[name] if default is None else members.get(name, default)
    found: list[_Row] = []
    try:
        for row in _list(rows):
            found.append(read(row))  # noqa: PERF401 - its length is the place of the error
    except _DAMAGE as error:
        text = error.message if isinstance(error, UserError) else what_is_wrong(error)
        place = f"plan: row {len(found)} of '{name}'"
        raise ArchiveError(text, location=place, hint=OF_DAMAGE) from error
    return tuple(found)


def _decode(members: Mapping[str, object]) -> Plan:
    major, minor = (_number(v) for v in cast("list[object]", members["version"]))
    if major != VERSION[0] or minor > VERSION[1]:
        raise ArchiveError(
            f"plan version {major}.{minor}, this runtime reads up to "
            f"{VERSION[0]}.{VERSION[1]}",
            location="plan",
            hint=version_hint("compile the model again", is_newer=major >= VERSION[0]),
        )
    dims = _Dims()
    return Plan(
        name=text_of(members["name"]),
        inputs=_rows(members, "inputs", _named),
        outputs=_rows(members, "outputs", _named),
        dims=_rows(members, "dims", _dimension),
        storages=_rows(members, "storages", lambda row: _storage(row, dims)),
        entries=_rows(members, "entries", lambda row: _entry(row, dims)),
        steps=_rows(members, "steps", lambda row: _decode_step(row, dims)),
        arena_bytes=_number(members["arena_bytes"]),
        equalities=_rows(members, "equalities", lambda row: _pair(row, dims)),
        # Since 1.1.
        checks=_rows(members, "checks", lambda row: _check(row, dims), []),
        check_storage=_number(members.get("check_storage", -1)),
        # In plans that were made since there is `first_divergence` between levels.
        values=_rows(members, "values", _model_value, []),
    )


def _named(row: list[object]) -> tuple[str, int]:
    name, entry = row
    return text_of(name), _number(entry)


def _dimension(row: list[object]) -> Dimension:
    name, place, axis, low, high = row
    numbers = (_number(place), _number(axis), _number(low))
    return Dimension(text_of(name), *numbers, _optional_number(high))


def _storage(row: list[object], dims: _Dims) -> Storage:
    kind, size, first, last, offset, name = row
    numbers = (_number(first), _number(last), _number(offset))
    return Storage(text_of(kind), dims.one(size), *numbers, text_of(name))


def _entry(row: list[object], dims: _Dims) -> Entry:
    storage, dtype, shape, offset = row
    return Entry(
        _number(storage),
        dtypes.parse(text_of(dtype)),
        dims.several(shape),
        dims.one(offset),
    )


def _pair(row: list[object], dims: _Dims) -> tuple[Dim, Dim]:
    one, other = row
    return dims.one(one), dims.one(other)


def _check(row: list[object], dims: _Dims) -> IndexCheck:
    location, axis, *sizes = row
    size, low, high = map(dims.one, sizes)
    return IndexCheck(text_of(location), _number(axis), size, low, high)


def _model_value(row: list[object]) -> ModelValue:
    name, step, result, axes = row
    return ModelValue(text_of(name), _number(step), _number(result), _numbers(axes))


def _decode_step(row: Mapping[str, object], dims: _Dims) -> Step:
    x, y, z = dims.several(row["grid"])
    host = cast("dict[str, object] | None", row["host"])
    return Step(
        kind=text_of(row["kind"]),
        name=text_of(row["name"]),
        target=text_of(row["target"]),
        arguments=_numbers(row["arguments"]),
        result_count=_number(row["results"]),
        grid=(x, y, z),
        dims=dims.several(row["dims"]),
        host=None if host is None else _decode_host(host),
        barrier=_flag(row["barrier"]),
        flops=dims.one(row["flops"]),
        outcome=_outcome(row.get("outcome")),
        bytes_moved=dims.optional(row.get("bytes")),
        nodes=tuple(text_of(name) for name in _list(row.get("nodes", []))),
        # Since 1.4.
        goto=_number(row.get("goto", -1)),
        sizes=tuple(
            SizeRange(text_of(name), _number(low), _optional_number(high))
            for name, low, high in cast("list[list[object]]", row.get("sizes", []))
        ),
    )


def _outcome(value: object) -> Outcome | None:
    return None if value is None else Outcome(text_of(value))


def _decode_host(row: Mapping[str, object]) -> HostCall:
    attributes = cast("dict[str, object]", row["attributes"])
    return HostCall(
        operand_count=_number(row["operand_count"]),
        present=_numbers(row["present"]),
        attributes={k: decode_attribute(v) for k, v in attributes.items()},
        location=text_of(row.get("location", "")),  # since 1.1
    )


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ArchiveError(f"expected true or false, got {value!r:.80}", location="plan")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 62:
        raise ArchiveError(f"expected an integer, got {value!r:.80}", location="plan")
    return value


def _numbers(values: object) -> tuple[int, ...]:
    return tuple(_number(v) for v in _list(values))


def _optional_number(value: object) -> int | None:
    return None if value is None else _number(value)


@final
class _Dims:
    """Reads dimensions; an expression that stands in many places is parsed once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[str, Dim] = {}

    def one(self, value: object) -> Dim:
        if not isinstance(value, str):
            return _number(value)
        known = self._known.get(value)
        if known is None:
            if len(value) > _DIM_LIMIT:
                raise ArchiveError("dimension expression is too long", location="plan")
            known = self._known[value] = parse_dim(value)
        return known

    def optional(self, value: object) -> Dim | None:
        return None if value is None else self.one(value)

    def several(self, values: object) -> tuple[Dim, ...]:
        return tuple(self.one(value) for value in _list(values))


def _list(values: object) -> list[object]:
    if not isinstance(values, list):
        raise ArchiveError(f"expected a list, got {values!r:.80}", location="plan")
    return cast("list[object]", values)
