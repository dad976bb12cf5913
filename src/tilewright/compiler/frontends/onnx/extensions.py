"""What users add to ONNX: functions and operators of domains of their own.

A function is a body in operators that are known; an operator is a Python function that writes ops of the
graph.  A model's own functions come before them.  Filled through `tilewright.onnx_operators`, asked by the importer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onnx import FunctionProto

import tilewright.compiler.frontends.onnx.table as table
from tilewright.base.errors import UserError
from tilewright.compiler.frontends.onnx.attributes import text_of
from tilewright.compiler.frontends.onnx.model import normal_domain
from tilewright.compiler.frontends.onnx.row import Build, Row, row

_Key = tuple[str, str, str]
_FUNCTIONS: Final[dict[_Key, FunctionProto]] = {}
_OPERATORS: Final[dict[tuple[str, str], Row]] = {}


def register_function(function: FunctionProto, *, replace: bool = False) -> None:
    """Let nodes of the function's domain and name (and overload) mean its body.

    Raises: UserError where an operator or a function of that name exists.
    """
    key = _key(function)
    if not key[1] or not function.opset_import:
        raise UserError("a function needs a name and the opsets that it is written in")
    _check(key[0], key[1], taken=key in _FUNCTIONS and not replace)
    kept = FunctionProto()
    kept.CopyFrom(function)
    _FUNCTIONS[key] = kept


def register_operator(
    domain: str, name: str, *, since: int = 1, replace: bool = False
) -> Callable[[Build], Build]:
    """Let nodes of this domain and name mean what a Python function writes; a decorator.

    The function gets a `Call` (operands, attributes, `call.maker.op`) and returns its tensors.

    Raises: UserError where an operator of that name exists.
    """
    domain = normal_domain(domain)
    _check(domain, name, taken=(domain, name) in _OPERATORS and not replace)

    def register(build: Build) -> Build:
        _OPERATORS[domain, name] = row(name, build, since=since, domain=domain)
        return build

    return register


def unregister(domain: str, name: str) -> None:
    """Forget the operator, and functions of all overloads, of that name."""
    domain = normal_domain(domain)
    _OPERATORS.pop((domain, name), None)
    for key in [k for k in _FUNCTIONS if k[:2] == (domain, name)]:
        del _FUNCTIONS[key]


def find_function(domain: str, name: str, overload: str) -> FunctionProto | None:
    """The function that a user registered."""
    return _FUNCTIONS.get((domain, name, overload))


def find_operator(domain: str, name: str, opset: int) -> Row | None:
    """The operator that a user registered."""
    found = _OPERATORS.get((domain, name))
    return found if found is not None and found.since <= opset else None


def names(domain: str) -> tuple[str, ...]:
    """What users registered in a domain."""
    return tuple(
        {n for d, n, _ in _FUNCTIONS if d == domain}
        | {n for d, n in _OPERATORS if d == domain}
    )


def _key(function: FunctionProto) -> _Key:
    domain = normal_domain(text_of(function.domain))
    return domain, text_of(function.name), text_of(function.overload)


def _check(domain: str, name: str, *, taken: bool) -> None:
    where = domain or "ai.onnx"
    if name in table.names(domain):
        raise UserError(
            f"'{name}' of domain '{where}' is an operator that is known already",
            hint="choose another domain",
        )
    if taken:
        raise UserError(
            f"'{name}' of domain '{where}' is registered already",
            hint="replace=True takes its place",
        )
