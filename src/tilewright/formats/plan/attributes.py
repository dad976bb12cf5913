"""Attributes of ops in JSON terms, for steps that run on the host.

Numbers, strings, sequences, data types, symbolic dimensions and arrays have a form; `decode`
checks what it reads.  Called by the plan's file form and by bytecode that describes a host call.
"""

from __future__ import annotations

import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.symbolic import Expr, evaluate
from tilewright.base.symbolic import parse as parse_dim

_RANK_LIMIT: Final = 64


def encode_attribute(value: object) -> object:
    """An op attribute in JSON terms.

    Raises: UserError for a value that has no such form.
    """
    match value:
        case bool() | np.bool_():
            return bool(value)
        case int() | np.integer():
            return int(value)
        case float() | np.floating():
            return _encode_float(float(value))
        case None | str():
            return value
        case tuple() | list():
            return [encode_attribute(v) for v in cast("Sequence[object]", value)]
        case DType():
            return {"dtype": value.name}
        case Expr():
            return {"dim": str(value)}
        case np.ndarray():
            array = cast("np.ndarray[tuple[int, ...], np.dtype[np.generic]]", value)
            return {
                "array": binascii.b2a_base64(array.tobytes(), newline=False).decode(),
                "type": dtypes.from_numpy(array.dtype).name,
                "shape": list(array.shape),
            }
        case _:
            raise UserError(f"attribute value {value!r} cannot be stored in a plan")


def _encode_float(value: float) -> object:
    """JSON has no infinities and no NaN."""
    return value if math.isfinite(value) else {"float": str(value)}


def decode_attribute(value: object, env: Mapping[str, int] | None = None) -> object:
    """Undo `encode_attribute`; sequences become tuples.

    Args:
        value: what JSON gave.
        env: values for symbolic dimensions; without it they stay expressions.

    Raises: ArchiveError for anything that `encode_attribute` does not make.
    """
    try:
        decoded = _decode(value)
    except ArchiveError:
        raise
    except (KeyError, TypeError, ValueError, UserError) as error:
        raise ArchiveError(f"malformed attribute: {error}", location="plan") from error
    return decoded if env is None else resolve_attribute(decoded, env)


def _decode(value: object) -> object:
    if isinstance(value, list):
        return tuple(_decode(v) for v in cast("list[object]", value))
    if not isinstance(value, dict):
        return value
    members = cast("dict[str, object]", value)
    if "dtype" in members:
        return dtypes.parse(text_of(members["dtype"]))
    if "dim" in members:
        return parse_dim(text_of(members["dim"]))
    if "float" in members:
        return float(text_of(members["float"]))
    return _decode_array(members)


def _decode_array(
    members: Mapping[str, object],
) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    dtype = dtypes.parse(text_of(members["type"]))
    shape = cast("list[int]", members["shape"])
    if len(shape) > _RANK_LIMIT or any(type(d) is not int or d < 0 for d in shape):
        raise ArchiveError(f"attribute of shape {shape!r:.80}", location="plan")
    data = binascii.a2b_base64(text_of(members["array"]), strict_mode=True)
    wanted = math.prod(shape) * dtype.numpy.itemsize
    if len(data) != wanted:
        raise ArchiveError(
            f"attribute has {len(data)} bytes, expected {wanted}", location="plan"
        )
    return np.frombuffer(data, dtype.numpy).reshape(shape)


def text_of(value: object) -> str:
    """A member of the JSON form that must be a string.

    Raises: ArchiveError for anything else.
    """
    if not isinstance(value, str):
        raise ArchiveError(f"expected a string, got {value!r:.80}", location="plan")
    return value


def resolve_attribute(value: object, env: Mapping[str, int]) -> object:
    """An attribute with every symbolic dimension replaced by its number."""
    if isinstance(value, tuple):
        return tuple(resolve_attribute(v, env) for v in cast("tuple[object, ...]", value))
    return evaluate(value, env) if isinstance(value, Expr) else value
