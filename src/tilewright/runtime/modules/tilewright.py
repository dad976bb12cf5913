"""The `tilewright` module: lets emitted bytecode run ops that have no kernel on the host.

Modules import it as optional; without it IREE's runtime can still load them.  The reference
implementations are the caller's, the runtime has none.

    host_call(text, operands..., results..., dims...)

The text is JSON: `op`, `attributes`, which operands are `present`, `operand_count`, the names of
`dims` whose values follow, and `types` of the present operands and the results.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError, InputError
from tilewright.base.symbolic import evaluate
from tilewright.base.symbolic import parse as parse_dim
from tilewright.formats.plan import decode_attribute
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.hal.element_type import Array
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction, NativeModule

HostFunction = Callable[
    [str, Mapping[str, object], Sequence["Array | None"]], Sequence[Array]
]
"""(op, attributes, operands with None for absent ones) -> results."""

Span = tuple[Buffer, int, int]


def create_tilewright_module(host_function: HostFunction) -> NativeModule:
    """The module for one provider of reference implementations."""

    def host_call(
        text: VmBuffer,
        operands: Sequence[Span],
        results: Sequence[Span],
        dims: Sequence[int],
    ) -> None:
        _host_call(host_function, bytes(text.data), operands, results, dims)

    row = NativeFunction(
        "host_call", ("0rCrIIDCrIIDCID_v",), host_call, "bytes buffer buffer"
    )
    types: dict[str, type] = {"bytes": VmBuffer, "buffer": Buffer}
    return NativeModule("tilewright", (row,), types=types)


_CACHED_DESCRIPTIONS: Final = 4096


@functools.lru_cache(_CACHED_DESCRIPTIONS)
def _describe(text: bytes) -> Mapping[str, Any]:
    try:
        described = json.loads(text)
        for member in ("op", "attributes", "present", "operand_count", "dims", "types"):
            described[member]
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveError(f"malformed host call: {error!r}") from error
    return cast("Mapping[str, Any]", described)


def _host_call(
    host_function: HostFunction,
    text: bytes,
    operands: Sequence[Span],
    results: Sequence[Span],
    dims: Sequence[int],
) -> None:
    described = _describe(text)
    env = dict(zip(described["dims"], dims, strict=True))
    types = [
        (dtypes.parse(name), [_number(extent, env) for extent in shape])
        for name, shape in described["types"]
    ]
    spans = [*operands, *results]
    arrays = [
        BufferView(buffer.subspan(offset, length), shape, dtype.iree).to_numpy()
        for (buffer, offset, length), (dtype, shape) in zip(spans, types, strict=True)
    ]
    passed: list[Array | None] = [None] * described["operand_count"]
    for place, array in zip(described["present"], arrays, strict=False):
        passed[place] = array
    attributes = {
        name: decode_attribute(value, env)
        for name, value in described["attributes"].items()
    }
    computed = host_function(described["op"], attributes, passed)
    for target, result in zip(arrays[len(operands) :], computed, strict=True):
        if target.shape != result.shape:
            raise InputError(
                f"'{described['op']}' gave shape {result.shape}, expected {target.shape}"
            )
        target[...] = result


def _number(extent: str | int, env: Mapping[str, int]) -> int:
    value = parse_dim(str(extent))
    return value if isinstance(value, int) else evaluate(value, env)
