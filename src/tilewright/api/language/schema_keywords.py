"""What the keywords of a JSON schema say, read strictly; what cannot be kept to is refused by name.

Called by `json_schemas`.

Source: JSON Schema 2020-12, Core and Validation.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard, cast

from tilewright.base.errors import UserError

Schema = Mapping[str, object]

TYPES: Final = ("null", "boolean", "integer", "number", "string", "array", "object")
_MOST_COUNT: Final = 4096
"""Of characters or elements that are counted."""
_UNKEPT: Final[Mapping[str, tuple[object, ...]]] = {
    "pattern": (), "multipleOf": (), "uniqueItems": (False,), "contains": (), "patternProperties": ({},),
    "propertyNames": (True, {}), "minProperties": (0,), "maxProperties": (), "dependentRequired": ({},),
    "dependentSchemas": ({},), "dependencies": ({},), "not": (False,), "if": (), "$dynamicRef": (),
    "$recursiveRef": (),
}  # fmt: skip
"""Keywords that a grammar of ours cannot keep to, each with the values that rule nothing out."""
_KEYWORDS_OF_TYPE: Final = {
    "object": ("properties", "required", "additionalProperties", "unevaluatedProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "unevaluatedItems"),
    "string": ("minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
"""Keywords by the type of the values that they are about."""
_CONSTRAINTS: Final = {
    "type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf",
    *_UNKEPT, *(word for words in _KEYWORDS_OF_TYPE.values() for word in words),
}  # fmt: skip
"""All keywords that say what is allowed; others are annotations."""
_HINT: Final = "the table of docs/how-to/speak-to-a-language-model.md says which keywords a schema may have"


def refusal(message: str, hint: str = _HINT) -> UserError:
    """The error for a schema that is none, or that cannot be kept to."""
    return UserError(message, hint=hint)


def shown(value: object) -> str:
    """A value for a message, cut where it is long."""
    try:
        return f"{value!r:.80}"
    except (
        ValueError,
        RecursionError,
    ):  # of integers with very many digits, and of very deep values
        return f"a large {type(value).__name__}"


def constraints_of(own: Schema) -> set[str]:
    """The keywords of a schema that say what is allowed."""
    return {k for k in own if k in _CONSTRAINTS and not _is_neutral(own, k)}


def _is_neutral(own: Schema, keyword: str) -> bool:
    told = own[keyword]
    neutral = _UNKEPT.get(keyword)
    if neutral is None:
        return False
    return told is None or any(told == n and type(told) is type(n) for n in neutral)


def check_kept(own: Schema, place: str) -> None:
    """Refuse keywords that a grammar cannot keep to."""
    unkept = next((k for k in _UNKEPT if k in own and not _is_neutral(own, k)), None)
    if unkept is not None:
        raise refusal(f"the schema has '{unkept}' at {place}, which is not supported")


def check_alone(own: Schema, keyword: str, place: str, *fine: str) -> None:
    """Refuse what else a schema says beside a keyword that says all."""
    left = constraints_of(own) - {keyword, *fine}
    if left:
        raise refusal(
            f"the schema has '{min(left)}' beside '{keyword}' at {place}, which is not supported",
            f"'{min(left)}' within what '{keyword}' names",
        )


def mapping(value: object, place: str) -> Schema:
    """A part of a schema.  Raises: UserError for what is no object."""
    if not isinstance(value, dict):
        raise refusal(
            f"the schema is {shown(value)} at {place}, expected an object",
            "{} allows anything",
        )
    return cast("Schema", value)


def list_of(own: Schema, keyword: str, place: str) -> list[object]:
    """The list that a keyword says."""
    value = own[keyword]
    if not isinstance(value, list):
        raise refusal(f"'{keyword}' at {place} is no list", f"'{keyword}': [...]")
    return cast("list[object]", value)


def names_of(own: Schema, keyword: str, place: str) -> list[str]:
    """The list of names that a keyword says, or none."""
    names = list_of(own, keyword, place) if keyword in own else []
    wrong = [name for name in names if not isinstance(name, str)]
    if wrong:
        raise refusal(
            f"'{keyword}' at {place} has {shown(wrong[0])}, expected names",
            "names are texts",
        )
    return cast("list[str]", names)


def types_of(own: Schema, place: str, within: frozenset[str]) -> list[str]:
    """The types that a schema names, or that what it says is about, else all; those of them that are within some."""
    value = own.get("type")
    if value is None:
        about = [
            t for t, words in _KEYWORDS_OF_TYPE.items() if any(w in own for w in words)
        ]
        found: list[object] = [*about] if len(about) == 1 else [*TYPES]
    else:
        found = cast("list[object]", value) if isinstance(value, list) else [value]
    wrong = next((each for each in found if each not in TYPES), None)
    if wrong is not None or not found:
        raise refusal(
            f"'type' at {place} is {shown(value)}, expected {' '.join(TYPES)}",
            "one of these words, or a list of them",
        )
    told = cast("list[str]", found)
    # An integer is a number.
    both = [
        "integer" if t == "number" and t not in within and "integer" in within else t
        for t in told
    ]
    fine = within | ({"integer"} if "number" in within else set())
    return list(dict.fromkeys(t for t in both if t in fine))


def is_of(value: object, kind: str) -> bool:
    """Whether a value is of a type of JSON."""
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int):
        return kind in ("integer", "number")
    if isinstance(value, float):
        return kind == "number" or (kind == "integer" and value.is_integer())
    held = {"null": type(None), "string": str, "array": list, "object": dict}
    return kind in held and isinstance(value, held[kind])


def is_same(one: object, other: object) -> bool:
    """Whether two values are the same in JSON, where 1 is 1.0 and is not true."""
    return _as_told(one) == _as_told(other)


def _as_told(value: object) -> object:
    if isinstance(value, list):
        return [_as_told(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        told = cast("Mapping[str, object]", value)
        return {name: _as_told(each) for name, each in told.items()}
    return (isinstance(value, bool), value)


def text_of(value: object) -> bytes:
    """A value as JSON.  Raises: UserError for what is none, and for half a pair of code units."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (ValueError, TypeError) as error:  # UnicodeEncodeError is a ValueError
        raise refusal(
            f"the schema has {shown(value)}, which is no JSON",
            "texts, finite numbers, true, false, null, lists and objects of these",
        ) from error


def count_of(own: Schema, keyword: str, place: str) -> int | None:
    """How many a keyword says, or None."""
    value = own.get(keyword)
    if value is None:
        return None
    if not _is_number(value) or value != math.floor(value) or value < 0:
        raise refusal(
            f"'{keyword}' at {place} is {shown(value)}, expected a number of them",
            "a whole number, 0 or more",
        )
    if value > _MOST_COUNT:
        raise refusal(
            f"'{keyword}' at {place} is {shown(value)}, expected at most {_MOST_COUNT}",
            f"without '{keyword}', and 'tokens' as the limit",
        )
    return int(value)


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def check_order(least: int, most: int | None, keyword: str, place: str) -> None:
    """Refuse a least number that is above the most."""
    if most is not None and least > most:
        raise refusal(
            f"'{keyword}' at {place} is {least}, for at most {most}",
            f"a smaller '{keyword}'",
        )


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers between two ends, which are of them where they are not open; an end that is None is none."""

    least: float | None
    most: float | None
    above: bool
    below: bool


def range_of(own: Schema, place: str) -> Range:
    """The numbers that a schema allows."""
    ends = {
        k: _number_of(own, k, place)
        for k in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    }
    low, low_open = ends["minimum"], ends["exclusiveMinimum"]
    high, high_open = ends["maximum"], ends["exclusiveMaximum"]
    above = low_open is not None and (low is None or low_open >= low)
    below = high_open is not None and (high is None or high_open <= high)
    return Range(low_open if above else low, high_open if below else high, above, below)


def _number_of(own: Schema, keyword: str, place: str) -> float | None:
    value = own.get(keyword)
    if value is not None and not _is_number(value):
        raise refusal(
            f"'{keyword}' at {place} is {shown(value)}, expected a number",
            "a finite number",
        )
    return value
