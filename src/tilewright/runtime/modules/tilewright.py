"""The `tilewright` module: what emitted bytecode asks of this runtime alone.

Modules import it as optional; without it IREE's runtime can still load them.

    host_call(text, operands..., results..., dims...)

runs an op that has no kernel; the reference implementations are the caller's, the runtime has none.
The text is JSON: `op`, `attributes`, which operands are `present`, `operand_count`, the names of
`dims` whose values follow, `types` of the present operands and the results, and the `location` of the
node for errors.

    call(text, operands..., results..., dims...)

calls a packed function of a module that came with the program.  The text is JSON: `symbol`, and `dims`,
`types` and `location` as above.  The function writes to the results' memory.

    check_indices(text, buffer, offset, length, dims...)

fails for an index of the data that the kernels found out of range.  The text is JSON: `dims` as
above, and for each record in the buffer, in order, one of `checks`: location, axis, size, low, high.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError, InputError, TilewrightError, UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.json_text import read_json, what_is_wrong
from tilewright.base.symbolic import evaluate
from tilewright.base.symbolic import parse as parse_dim
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.plan import CHECK_BYTES, decode_attribute
from tilewright.formats.plan.findings import IndexReport
from tilewright.runtime import native
from tilewright.runtime.hal.buffer import Buffer, MemoryAccess
from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.hal.element_type import Array
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction, NativeModule

HostFunction = Callable[
    [str, Mapping[str, object], Sequence["Array | None"]], Sequence[Array]
]
"""(op, attributes, operands with None for absent ones) -> results."""

FindFunction = Callable[[str], Callable[..., object] | None]
"""symbol -> the packed function, or None."""

Span = tuple[Buffer, int, int]

# (buffer, byte offset, bytes, what to call with the records)
Listener = Callable[[Buffer, int, int, IndexReport], None]


def create_tilewright_module(
    host_function: HostFunction | None,
    listener: Listener | None = None,
    find_function: FindFunction | None = None,
) -> NativeModule:
    """The module for one provider of reference implementations, and one of packed functions by symbol.

    Where one is none, `host_call` or `call` is absent.  `listener` hears of every check of indices,
    before it is made.
    """

    def check_indices(
        text: VmBuffer, buffer: Buffer, offset: int, length: int, dims: Sequence[int]
    ) -> None:
        report = _report(bytes(text.data), tuple(dims))
        if listener is not None:
            listener(buffer, offset, length, report)
        if length < CHECK_BYTES * len(report.rows):
            raise ArchiveError("malformed check of indices: records are missing")
        report(memoryview(buffer.read(offset, length)))

    def host_call(
        text: VmBuffer,
        operands: Sequence[Span],
        results: Sequence[Span],
        dims: Sequence[int],
    ) -> None:
        assert host_function is not None, "not exported without one"
        _host_call(host_function, bytes(text.data), operands, results, dims)

    rows = [NativeFunction("check_indices", ("0rrIICID_v",), check_indices, "bytes buffer")]
    if host_function is not None:
        rows.append(
            NativeFunction(
                "host_call", ("0rCrIIDCrIIDCID_v",), host_call, "bytes buffer buffer"
            )
        )
    if find_function is not None:
        call = _Calls(find_function)
        rows.append(
            NativeFunction("call", ("0rCrIIDCrIIDCID_v",), call, "bytes buffer buffer")
        )
    types: dict[str, type] = {"bytes": VmBuffer, "buffer": Buffer}
    return NativeModule("tilewright", tuple(rows), types=types)


_CACHED_DESCRIPTIONS: Final = 4096
_OPERANDS_LIMIT: Final = 1 << 16
_MALFORMED: Final = (ValueError, KeyError, TypeError, ArithmeticError, RecursionError)
"""What reading a text raises that is no such description."""


@functools.lru_cache(_CACHED_DESCRIPTIONS)
def _report(text: bytes, dims: tuple[int, ...]) -> IndexReport:
    try:
        described = cast("dict[str, Any]", read_json(text))
        env = dict(zip(described["dims"], dims, strict=True))
        rows = tuple(
            (
                str(place),
                int(axis),
                _number(size, env),
                _number(low, env),
                _number(high, env),
            )
            for place, axis, size, low, high in described["checks"]
        )
    except (*_MALFORMED, UserError) as error:
        raise ArchiveError(f"malformed check of indices: {what_is_wrong(error)}") from error
    return IndexReport(rows)


@functools.lru_cache(_CACHED_DESCRIPTIONS)
def _describe(text: bytes) -> Mapping[str, Any]:
    try:
        described = cast("dict[str, Any]", read_json(text))
        for member in ("op", "attributes", "present", "operand_count", "dims", "types"):
            described[member]
        count = described["operand_count"]
    except _MALFORMED as error:
        raise ArchiveError(f"malformed host call: {what_is_wrong(error)}") from error
    if type(count) is not int or not 0 <= count <= _OPERANDS_LIMIT:
        raise ArchiveError(f"malformed host call: operand_count is {count!r}")
    return cast("Mapping[str, Any]", described)


@final
class _Calls:
    """Calls of packed functions: each is found and bound to the types of its tensors once."""

    def __init__(self, find_function: FindFunction) -> None:
        self._find: FindFunction = find_function
        self._bind = functools.lru_cache(_CACHED_DESCRIPTIONS)(self._bound)

    def __call__(
        self,
        text: VmBuffer,
        operands: Sequence[Span],
        results: Sequence[Span],
        dims: Sequence[int],
    ) -> None:
        call, sizes = self._bind(bytes(text.data), tuple(dims))
        if sizes != tuple(length for *_, length in (*operands, *results)):
            raise ArchiveError("malformed call: spans do not have the bytes of their types")
        views = [_mapped(span, MemoryAccess.READ) for span in operands]
        call(*views, *(_mapped(span, MemoryAccess.WRITE) for span in results))

    def _bound(
        self, text: bytes, dims: tuple[int, ...]
    ) -> tuple[native.PackedCall, tuple[int, ...]]:
        try:
            described = cast("dict[str, Any]", read_json(text))
            symbol, place = str(described["symbol"]), str(described["location"])
            env = dict(zip(described["dims"], dims, strict=True))
            types = [
                (dtypes.parse(name), [_number(extent, env) for extent in shape])
                for name, shape in described["types"]
            ]
        except (*_MALFORMED, UserError) as error:
            raise ArchiveError(f"malformed call: {what_is_wrong(error)}") from error
        function = self._find(symbol)
        if function is None:
            raise ArchiveError(
                f"no module has the function '{symbol}'",
                location=place,
                hint="load the modules that were made with the program",
            )
        # Imported here: tvm-ffi takes long to import, and few programs call such functions.
        with LATE_IMPORTS:
            from tilewright.runtime.packed.tensor_call import bind_tensors  # noqa: PLC0415

        sizes = tuple(dtype.itemsize * math.prod(shape) for dtype, shape in types)
        return bind_tensors(function, types, f"{place}: function '{symbol}'"), sizes


def _mapped(span: Span, access: MemoryAccess) -> memoryview:
    buffer, offset, length = span
    return buffer.map_range(int(access), offset, length)


def _host_call(
    host_function: HostFunction,
    text: bytes,
    operands: Sequence[Span],
    results: Sequence[Span],
    dims: Sequence[int],
) -> None:
    described = _describe(text)
    try:
        arrays, passed, attributes = _prepare(described, operands, results, dims)
    except (*_MALFORMED, LookupError, AttributeError) as error:
        raise ArchiveError(f"malformed host call: {what_is_wrong(error)}") from error
    try:
        computed = host_function(described["op"], attributes, passed)
    except TilewrightError as error:
        error.location = error.location or described.get("location") or None
        raise
    targets = arrays[len(operands) :]
    _check_results(described, computed, targets)
    for array, result, (buffer, offset, _) in zip(targets, computed, results, strict=True):
        array[...] = result
        if not buffer.storage.is_host_visible:  # the array is a copy
            buffer.write(view_bytes(array.reshape(-1).view(np.uint8)), offset)


def _check_results(
    described: Mapping[str, Any], computed: Sequence[Array], targets: Sequence[Array]
) -> None:
    op, place = described["op"], described.get("location") or None
    if len(computed) != len(targets):
        raise InputError(
            f"'{op}' gave {len(computed)} results, expected {len(targets)}", location=place
        )
    for result, target in zip(computed, targets, strict=True):
        if result.shape != target.shape or result.dtype != target.dtype:
            raise InputError(
                f"'{op}' gave {_describe_array(result)}, expected {_describe_array(target)}",
                location=place,
            )


def _describe_array(array: Array) -> str:
    """`f32[2, 3]`."""
    dtype = dtypes.find_numpy(array.dtype)
    name = array.dtype.str if dtype is None else dtype.name
    return f"{name}[{', '.join(map(str, array.shape))}]"


def _prepare(
    described: Mapping[str, Any],
    operands: Sequence[Span],
    results: Sequence[Span],
    dims: Sequence[int],
) -> tuple[list[Array], list[Array | None], dict[str, object]]:
    """Arrays over all spans, the operands with absent ones among them, the attributes."""
    env = dict(zip(described["dims"], dims, strict=True))
    types = [
        (dtypes.parse(name), [_number(extent, env) for extent in shape])
        for name, shape in described["types"]
    ]
    spans = [*operands, *results]
    arrays = [
        _view(buffer.subspan(offset, length), shape, dtype)
        for (buffer, offset, length), (dtype, shape) in zip(spans, types, strict=True)
    ]
    passed: list[Array | None] = [None] * described["operand_count"]
    for place, array in zip(described["present"], arrays, strict=False):
        passed[place] = array
    attributes = {
        name: decode_attribute(value, env)
        for name, value in described["attributes"].items()
    }
    return arrays, passed, attributes


def _view(buffer: Buffer, shape: Sequence[int], dtype: dtypes.DType) -> Array:
    # Elements of less than a byte have one of their own in a program, unlike in a buffer view.
    stored = dtypes.u8 if dtype.bits < dtypes.u8.bits else dtype
    return BufferView(buffer, shape, stored.iree).to_numpy(dtype.numpy)


def _number(extent: str | int, env: Mapping[str, int]) -> int:
    value = parse_dim(str(extent))
    return value if isinstance(value, int) else evaluate(value, env)
