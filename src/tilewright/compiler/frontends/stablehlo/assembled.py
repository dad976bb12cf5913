"""Modules and functions from operations that all have one form, as artifacts and generic text have them.

Called by the readers of both.

Source: MLIR Language Reference, "Operations"; the func dialect.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.stablehlo.tree import (
    Function,
    FunctionType,
    Module,
    Operation,
    Place,
    TypeAttribute,
)

# What a module says beside its functions about machines that it is spread over.
NOTES: Final = ("sdy.mesh",)
MODULE: Final = "builtin.module"


def module_of(operation: Operation, file: str) -> Module:
    """A module and its functions; modules inside of it are read and left out.  Raises: ModelError for another operation."""
    if operation.name != MODULE or not operation.regions:
        text = f"holds '{operation.name}', expected a module"
        raise _error(text, file, operation.place)
    functions: dict[str, Function] = {}
    for block in operation.regions[0].blocks:
        for inner in block.operations:
            if inner.name in NOTES:
                continue
            if inner.name == MODULE:
                module_of(inner, file)
                continue
            found = function_of(inner, file)
            if found.name in functions:
                text = f"function '@{found.name}' is defined twice"
                raise _error(text, file, inner.place)
            functions[found.name] = found
    name = operation.attributes.get("sym_name")
    named = name if isinstance(name, str) else ""
    return Module(named, functions, operation.attributes, operation.place)


def function_of(operation: Operation, file: str) -> Function:
    """A function.  Raises: ModelError for what is none."""
    place = operation.place
    name = operation.attributes.get("sym_name")
    type_ = operation.attributes.get("function_type")
    if not isinstance(type_, TypeAttribute) or not isinstance(type_.type, FunctionType):
        type_ = None
    if operation.name != "func.func" or not isinstance(name, str) or type_ is None:
        text = f"module holds '{operation.name}', expected functions"
        raise _error(text, file, place)
    stated = type_.type
    assert isinstance(stated, FunctionType), "checked before"
    blocks = operation.regions[0].blocks if operation.regions else ()
    if len(blocks) > 1:
        raise _error(f"function '@{name}' has several blocks", file, place)
    body = blocks[0] if blocks else None
    if body is not None and tuple(v.type for v in body.arguments) != stated.inputs:
        raise _error(f"the body of '@{name}' does not fit its type", file, place)
    return Function(name, stated, body, place, operation.attributes)


def _error(text: str, file: str, place: Place) -> ModelError:
    return ModelError(text, location=f"{file}:{place}")
