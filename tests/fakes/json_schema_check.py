"""Whether a value is one that a JSON schema allows, read from the standard and by no code of ours.

Only the keywords that grammars are kept to; called by tests of constrained texts.  Source: JSON Schema 2020-12, Validation.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda v: v is None,
    "boolean": lambda v: isinstance(v, bool),
    "integer": lambda v: _is_number(v) and v == int(v),
    "number": lambda v: _is_number(v) and not isinstance(v, bool),
    "string": lambda v: isinstance(v, str),
    "array": lambda v: isinstance(v, list),
    "object": lambda v: isinstance(v, dict),
}
_FORMATS: Mapping[str, Callable[[str], object]] = {
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "date-time": datetime.datetime.fromisoformat,
    "uuid": uuid.UUID,
}


def is_allowed(value: Any, schema: Any, whole: Any = None) -> bool:
    """Whether a schema allows a value whose numbers were read as `Decimal`."""
    whole = schema if whole is None else whole
    if isinstance(schema, bool):
        return schema
    parts = [_refers(value, schema, whole), _is_one(value, schema, whole)]
    kinds = schema.get("type")
    if kinds is not None:
        kinds = kinds if isinstance(kinds, list) else [kinds]
        parts.append(any(_TYPES[kind](value) for kind in kinds))
    for is_about, check in (
        (_is_number, _number), (lambda v: isinstance(v, str), _string),
        (lambda v: isinstance(v, list), _array), (lambda v: isinstance(v, dict), _object),
    ):  # fmt: skip
        if is_about(value):
            parts.append(check(value, schema, whole))
    return all(parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _refers(value: Any, schema: Any, whole: Any) -> bool:
    if "$ref" not in schema:
        return True
    part = whole
    for step in schema["$ref"].split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        part = part[int(key)] if isinstance(part, list) else part[key]
    return is_allowed(value, part, whole)


def _is_one(value: Any, schema: Any, whole: Any) -> bool:
    """Of `anyOf` any part will do, of `oneOf` one alone."""
    parts: list[bool] = []
    if "anyOf" in schema:
        parts.append(any(is_allowed(value, each, whole) for each in schema["anyOf"]))
    if "oneOf" in schema:
        parts.append(sum(is_allowed(value, each, whole) for each in schema["oneOf"]) == 1)
    if "allOf" in schema:
        parts.append(all(is_allowed(value, each, whole) for each in schema["allOf"]))
    if "const" in schema:
        parts.append(_same(value, schema["const"]))
    if "enum" in schema:
        parts.append(any(_same(value, each) for each in schema["enum"]))
    return all(parts)


def _number(value: Any, schema: Any, _: Any) -> bool:
    return all((
        "minimum" not in schema or value >= Decimal(schema["minimum"]),
        "maximum" not in schema or value <= Decimal(schema["maximum"]),
        "exclusiveMinimum" not in schema or value > Decimal(schema["exclusiveMinimum"]),
        "exclusiveMaximum" not in schema or value < Decimal(schema["exclusiveMaximum"]),
    ))  # fmt: skip


def _string(value: str, schema: Any, _: Any) -> bool:
    read = _FORMATS.get(schema.get("format", ""))
    if read is not None and not value.startswith("0000"):
        try:
            read(value)
        except ValueError:
            return False
    return schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))


def _array(value: list[Any], schema: Any, whole: Any) -> bool:
    first = schema.get("prefixItems", [])
    rest = schema.get("items", schema.get("unevaluatedItems", True))
    fine = [is_allowed(v, s, whole) for v, s in zip(value, first, strict=False)]
    fine += [is_allowed(v, rest, whole) for v in value[len(first) :]]
    return all(fine) and schema.get("minItems", 0) <= len(value) <= schema.get(
        "maxItems", len(value)
    )


def _object(value: dict[str, Any], schema: Any, whole: Any) -> bool:
    parts = schema.get("properties", {})
    rest = schema.get("additionalProperties", schema.get("unevaluatedProperties", True))
    fine = [is_allowed(v, parts.get(name, rest), whole) for name, v in value.items()]
    return all(fine) and all(name in value for name in schema.get("required", []))
