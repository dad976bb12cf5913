"""The plan: a program as a flat list of steps over storages, replayed without a virtual machine.

Its file form is the JSON of TVM's graph executor (`nodes`, `arg_nodes`, `heads`, `node_row_ptr`,
`attrs` with `storage_id`, `shape`, `dltype`), one node per tensor and step, plus one member
`tilewright` that holds what TVM's form has no place for: symbolic shapes, byte offsets into
storages, lifetimes, grids and push constants.  Not here: execution (`runtime.graph_executor`) and
construction (`compiler.program`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.symbolic import Dim, Expr, evaluate
from tilewright.base.symbolic import parse as parse_dim

VERSION: Final = (1, 0)

STORAGE_KINDS: Final = ("input", "output", "constant", "transient")
STEP_KINDS: Final = ("dispatch", "copy", "host")


@final
@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes that entries live in.

    `input`/`output` storages are numbered by position in the signature; `constant` ones start at
    `offset_bytes` of the weights; `transient` ones live from step `first` through `last` and, in
    a static plan, at `offset_bytes` of the arena.  Equal `offset_bytes` is -1 where unknown.
    """

    kind: str
    size_bytes: Dim
    first: int = 0
    last: int = 0
    offset_bytes: int = -1
    name: str = ""


@final
@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor: a dense row-major view of a storage, starting at byte `offset_bytes`."""

    storage: int
    dtype: DType
    shape: tuple[Dim, ...]
    offset_bytes: Dim = 0

    @property
    def size_bytes(self) -> Dim:
        count: Dim = self.dtype.itemsize
        for dim in self.shape:
            count = count * dim
        return count


@final
@dataclass(frozen=True, slots=True)
class Step:
    """One step.  `arguments` index entries, operands before results.

    dispatch: `target` names the executable's export; `grid` is the workgroup count and `dims` the
    u32 push constants.  copy: one operand, one result, `target` is empty.  host: `target` names an
    op whose reference implementation runs in Python with `attributes`.
    """

    kind: str
    name: str
    target: str
    arguments: tuple[int, ...]
    result_count: int
    grid: tuple[Dim, Dim, Dim] = (1, 1, 1)
    dims: tuple[Dim, ...] = ()
    attributes: Mapping[str, object] | None = None
    barrier: bool = True
    flops: Dim = 0


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """A whole program.  `inputs` and `outputs` are (name, entry) in order.

    `dims` maps each symbol to the (input, axis) where a call finds its value.
    """

    name: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    dims: tuple[tuple[str, int, int], ...]
    storages: tuple[Storage, ...]
    entries: tuple[Entry, ...]
    steps: tuple[Step, ...]
    arena_bytes: int = -1

    @property
    def is_static(self) -> bool:
        """Whether no shape depends on a call."""
        return not self.dims


def to_json(plan: Plan) -> bytes:
    """The file form; the same plan gives the same bytes."""
    return json.dumps(_encode(plan), separators=(",", ":"), sort_keys=True).encode()


def encode_attribute(value: object) -> object:
    """An op attribute in JSON terms.

    Raises: UserError for a value that has no such form.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case tuple() | list():
            return [encode_attribute(v) for v in cast("Sequence[object]", value)]
        case DType():
            return {"dtype": value.name}
        case Expr():
            return {"dim": str(value)}
        case np.ndarray():
            array = cast("np.ndarray[tuple[int, ...], np.dtype[np.generic]]", value)
            text = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
            return {
                "array": text,
                "type": dtypes.from_numpy(array.dtype).name,
                "shape": array.shape,
            }
        case _:
            raise UserError(f"attribute value {value!r} cannot be stored in a plan")


def decode_attribute(value: object, env: Mapping[str, int]) -> object:
    """Undo `encode_attribute`; dimensions become numbers through `env`."""
    if isinstance(value, list):
        return tuple(decode_attribute(v, env) for v in cast("list[object]", value))
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, object]", value)
    if "dtype" in members:
        return dtypes.parse(_text(members["dtype"]))
    if "dim" in members:
        return evaluate(parse_dim(_text(members["dim"])), env)
    dtype = dtypes.parse(_text(members["type"]))
    shape = tuple(_number(d) for d in cast("list[object]", members["shape"]))
    data = base64.b64decode(_text(members["array"]))
    return np.frombuffer(data, dtype.numpy).reshape(shape)


def _encode(plan: Plan) -> dict[str, object]:
    produced = {
        e for s in plan.steps for e in s.arguments[len(s.arguments) - s.result_count :]
    }
    leaves = [e for e in range(len(plan.entries)) if e not in produced]
    names = {entry: name for name, entry in plan.inputs}
    nodes: list[dict[str, object]] = []
    position: dict[int, tuple[int, int]] = {}
    order: list[int] = []
    for entry in leaves:
        position[entry] = (len(nodes), 0)
        order.append(entry)
        nodes.append({"op": "null", "name": names.get(entry, f"p{entry}"), "inputs": []})
    for step in plan.steps:
        operands = step.arguments[: len(step.arguments) - step.result_count]
        results = step.arguments[len(operands) :]
        for index, entry in enumerate(results):
            position.setdefault(entry, (len(nodes), index))
            order.append(entry)
        nodes.append(
            {
                "op": "tvm_op",
                "name": step.name,
                "attrs": {
                    "func_name": step.target or "__copy",
                    "num_inputs": str(len(operands)),
                    "num_outputs": str(len(results)),
                    "flatten_data": "0",
                },
                "inputs": [[*position[e], 0] for e in operands],
            }
        )
    row_ptr = [0]
    for node in nodes:
        attrs = cast("dict[str, str]", node.get("attrs", {}))
        row_ptr.append(row_ptr[-1] + int(attrs.get("num_outputs", "1")))
    entries = [plan.entries[e] for e in order]
    return {
        "nodes": nodes,
        "arg_nodes": list(range(len(leaves))),
        "heads": [[*position[e], 0] for _, e in plan.outputs],
        "node_row_ptr": row_ptr,
        "attrs": {
            "storage_id": ["list_int", [e.storage for e in entries]],
            "shape": [
                "list_shape",
                [[d if isinstance(d, int) else -1 for d in e.shape] for e in entries],
            ],
            "dltype": ["list_str", [str(e.dtype.numpy) for e in entries]],
        },
        "tilewright": _extension(plan),
    }


def _extension(plan: Plan) -> dict[str, object]:
    return {
        "version": list(VERSION),
        "name": plan.name,
        "inputs": [list(row) for row in plan.inputs],
        "outputs": [list(row) for row in plan.outputs],
        "dims": [list(row) for row in plan.dims],
        "arena_bytes": plan.arena_bytes,
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
                "attributes": s.attributes,
                "barrier": s.barrier,
                "flops": _dim(s.flops),
            }
            for s in plan.steps
        ],
    }


def _dim(value: Dim) -> int | str:
    return value if isinstance(value, int) else str(value)


def from_json(data: bytes | memoryview) -> Plan:
    """Read the file form back and check every index.

    Raises: ArchiveError for anything that is not a consistent plan of a known version.
    """
    try:
        members = cast("dict[str, object]", json.loads(bytes(data)))
        extension = members["tilewright"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArchiveError(f"not a plan ({error})", location="plan") from error
    try:
        plan = _decode(cast("dict[str, object]", extension))
    except ArchiveError:
        raise
    except (
        KeyError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
        UserError,
    ) as error:
        raise ArchiveError(f"malformed plan: {error!r}", location="plan") from error
    _check(plan)
    return plan


def _decode(members: dict[str, object]) -> Plan:
    version = cast("list[int]", members["version"])
    if version[0] != VERSION[0] or version[1] > VERSION[1]:
        raise ArchiveError(
            f"plan version {version[0]}.{version[1]}, this runtime reads up to "
            f"{VERSION[0]}.{VERSION[1]}",
            location="plan",
            hint="update Tilewright, or compile the model again with this version",
        )
    storages = cast("list[list[object]]", members["storages"])
    entries = cast("list[list[object]]", members["entries"])
    steps = cast("list[dict[str, object]]", members["steps"])
    return Plan(
        name=_text(members["name"]),
        inputs=_named(members["inputs"]),
        outputs=_named(members["outputs"]),
        dims=tuple(
            (_text(n), _number(i), _number(a))
            for n, i, a in cast("list[list[object]]", members["dims"])
        ),
        storages=tuple(
            Storage(_text(k), _read_dim(s), _number(f), _number(t), _number(o), _text(n))
            for k, s, f, t, o, n in storages
        ),
        entries=tuple(
            Entry(_number(s), dtypes.parse(_text(t)), _dims(d), _read_dim(o))
            for s, t, d, o in entries
        ),
        steps=tuple(_decode_step(s) for s in steps),
        arena_bytes=_number(members["arena_bytes"]),
    )


def _decode_step(row: dict[str, object]) -> Step:
    x, y, z = _dims(row["grid"])
    return Step(
        kind=_text(row["kind"]),
        name=_text(row["name"]),
        target=_text(row["target"]),
        arguments=tuple(_number(e) for e in cast("list[object]", row["arguments"])),
        result_count=_number(row["results"]),
        grid=(x, y, z),
        dims=_dims(row["dims"]),
        attributes=cast("dict[str, object] | None", row["attributes"]),
        barrier=bool(row["barrier"]),
        flops=_read_dim(row["flops"]),
    )


def _named(rows: object) -> tuple[tuple[str, int], ...]:
    return tuple((_text(n), _number(e)) for n, e in cast("list[list[object]]", rows))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ArchiveError(f"expected a string, got {value!r}", location="plan")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 62:
        raise ArchiveError(f"expected an integer, got {value!r}", location="plan")
    return value


def _read_dim(value: object) -> Dim:
    if isinstance(value, str):
        if len(value) > 4096:
            raise ArchiveError("dimension expression is too long", location="plan")
        return parse_dim(value)
    return _number(value)


def _dims(values: object) -> tuple[Dim, ...]:
    return tuple(_read_dim(v) for v in cast("list[object]", values))


def _check(plan: Plan) -> None:
    def require(condition: bool, what: str) -> None:
        if not condition:
            raise ArchiveError(what, location="plan")

    def require_indices(values: Sequence[int], limit: int, what: str) -> None:
        require(all(0 <= v < limit for v in values), f"{what} out of range")

    require(all(s.kind in STORAGE_KINDS for s in plan.storages), "unknown storage kind")
    require(all(s.kind in STEP_KINDS for s in plan.steps), "unknown step kind")
    require_indices(
        [e.storage for e in plan.entries], len(plan.storages), "storage of an entry"
    )
    count = len(plan.entries)
    require_indices([e for _, e in (*plan.inputs, *plan.outputs)], count, "signature entry")
    for step in plan.steps:
        where = f"step '{step.name}'"
        require_indices(step.arguments, count, f"{where}: argument")
        require(0 <= step.result_count <= len(step.arguments), f"{where}: bad result count")
        require(
            step.kind != "copy" or len(step.arguments) == 2, f"{where}: copy is not 1 -> 1"
        )
    for name, index, axis in plan.dims:
        require(0 <= index < len(plan.inputs), f"dimension '{name}': no input {index}")
        rank = len(plan.entries[plan.inputs[index][1]].shape)
        require(0 <= axis < rank, f"dimension '{name}': no axis {axis}")
    for entry in plan.entries:
        storage = plan.storages[entry.storage]
        sizes = (entry.offset_bytes, entry.size_bytes, storage.size_bytes)
        if all(isinstance(s, int) for s in sizes):
            offset, size, room = cast("tuple[int, int, int]", sizes)
            require(
                0 <= offset and size >= 0 and offset + size <= room,
                "entry past its storage",
            )
