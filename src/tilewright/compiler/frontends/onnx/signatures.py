"""What an op takes: its attributes with their types, and how many operands and results it has.

The package onnx says it of its own ops, in every version; of others their rows do (`Row.takes`).  Called by the importer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, final

from onnx import defs

import tilewright.compiler.frontends.onnx.table as table
from tilewright.base.record import record
from tilewright.compiler.frontends.onnx.attributes import code_of
from tilewright.compiler.frontends.onnx.schemas import schema_of

_ANY_NUMBER: Final = 1 << 31


@final
@record
class Signature:
    """What one op takes.

    Attributes:
        attributes: the types of each, as numbers of `AttributeProto`, in any version: exporters write those of others.
            Without a type: it does not matter.
        required: attributes that must be there.
        needed: positions of operands that must be there.
        most: how many operands at most.
        results: how many at most.
    """

    attributes: Mapping[str, Sequence[int]]
    required: tuple[str, ...] = ()
    needed: Sequence[int] = ()
    most: int = _ANY_NUMBER
    results: int = _ANY_NUMBER


@cache
def signature_of(domain: str, op: str, opset: int) -> Signature | None:
    """The signature of an op at an opset; None where nobody says."""
    rows = table.versions(domain, op)
    stated = [signature for r in rows if (signature := parse(r.takes))]
    history = _history(domain, op)
    base = _of_schemas(history, opset) if history else next(iter(stated), None)
    if base is None:
        return None
    ignored: dict[str, Sequence[int]] = {n: () for r in rows for n in r.ignores}
    more = {name: codes for s in stated for name, codes in s.attributes.items()}
    attributes = {**more, **base.attributes, **ignored}
    return Signature(attributes, base.required, base.needed, base.most, base.results)


def _of_schemas(history: Sequence[Any], opset: int) -> Signature:
    schema = next((s for s in history if s.since_version <= opset), history[-1])
    types: dict[str, list[int]] = {}
    for version in history:
        for name, attribute in version.attributes.items():
            types.setdefault(name, []).append(int(attribute.type.value))
    return Signature(
        {name: tuple(dict.fromkeys(codes)) for name, codes in types.items()},
        tuple(name for name, a in schema.attributes.items() if a.required),
        _needed(schema.inputs),
        int(schema.max_input),
        int(schema.max_output),
    )


def _needed(parameters: Sequence[Any]) -> tuple[int, ...]:
    """The positions that no node leaves out; the last parameter may be a list with a least length."""
    option = defs.OpSchema.FormalParameterOption
    found: list[int] = []
    for place, parameter in enumerate(parameters):
        if parameter.option == option.Single:
            found.append(place)
        elif parameter.option == option.Variadic:
            found += range(place, place + int(parameter.min_arity))
    return tuple(found)


def _history(domain: str, op: str) -> list[Any]:
    """The versions of an op that say what it takes, the newest first."""
    found: list[Any] = []
    version = int(defs.onnx_opset_version())
    while version > 0:
        schema = schema_of(domain, op, version)
        if schema is None:
            break
        if not schema.deprecated:
            found.append(schema)
        version = int(schema.since_version) - 1
    return found


def parse(text: str) -> Signature | None:
    """What a row says: `2:3 -> 1 axis:int! epsilon:float`; `2:` for any number from two on, `!` for what must be there."""
    words = text.split()
    if not words:
        return None
    needed, most, results = range(0), _ANY_NUMBER, _ANY_NUMBER
    if "->" in words:
        (operands, _, given), words = words[:3], words[3:]
        least, colon, last = operands.partition(":")
        most = _ANY_NUMBER if colon and not last else int(last or least)
        needed, results = range(int(least)), int(given)
    pairs = [word.rstrip("!").split(":") for word in words]
    required = tuple(word.split(":")[0] for word in words if word.endswith("!"))
    return Signature(
        {name: (code_of(form),) for name, form in pairs}, required, needed, most, results
    )
