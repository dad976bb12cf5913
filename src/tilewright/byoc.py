"""`tilewright.byoc`: bring your own code generator.

    from tilewright import byoc

    product = byoc.is_op("matmul")(byoc.wildcard(), byoc.is_const())

    @byoc.register_codegen("mine", patterns=[("dense", product.optional(byoc.is_op("relu")))])
    def generate(graph, name, options):
        return MyModule(...)                      # a byoc.Module with the function `name`

    model = tw.compile("model.onnx", byoc=["mine"])

What the patterns fit becomes subgraphs; the generator makes a module of each, with a packed function that takes
the inputs and then the outputs as tensors.  Saved with the model, a module is made again by the loader of its
kind (`register_module_kind`).  Installed packages offer both by entry points, in the groups `tilewright.byoc`
and `tilewright.module_kinds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tilewright.base.errors import UserError
from tilewright.base.options import wrong
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.transforms.external_codegen import (
    Check,
    Codegen,
    Generate,
    NamedPattern,
    installed_codegens,
    known_codegens,
    remove_codegen,
)
from tilewright.compiler.transforms.external_codegen import (
    register_codegen as _register,
)
from tilewright.compiler.transforms.graph_pattern import (
    Match,
    Pattern,
    is_const,
    is_op,
    wildcard,
)
from tilewright.compiler.transforms.matching import constant_of
from tilewright.runtime.library.c_module import CSourceModule
from tilewright.runtime.packed.array_function import array_function
from tilewright.runtime.packed.functions import packed_function
from tilewright.runtime.packed.module import Module, ModuleProperties
from tilewright.runtime.packed.module_kinds import register_module_kind, remove_module_kind

__all__ = [
    "CSourceModule",
    "Graph",
    "Match",
    "Module",
    "ModuleProperties",
    "Node",
    "Pattern",
    "Value",
    "array_function",
    "constant_of",
    "evaluate",
    "installed_codegens",
    "is_const",
    "is_op",
    "known_codegens",
    "packed_function",
    "register_codegen",
    "register_module_kind",
    "remove_codegen",
    "remove_module_kind",
    "wildcard",
]

PatternRow = tuple[str, Pattern] | tuple[str, Pattern, Check]


def register_codegen(
    name: str,
    generate: Generate | None = None,
    *,
    patterns: Sequence[PatternRow],
    bind_constants: bool = True,
    merge: bool = True,
    override: bool = False,
) -> Any:
    """Make a code generator known by its name; without `generate` a decorator.

    Args:
        name: an identifier; `compile(byoc=[name])` chooses it.
        generate: `(graph, name, options) -> module`: the subgraph with its constants and types, the
            name of the packed function that the module is to have, the options of this compilation.
            The function takes inputs, then outputs, as tensors on the CPU, dense and in row-major order.
        patterns: `(name, pattern)` or `(name, pattern, check)`, tried in order; `check(match)` says
            whether a match is taken.
        bind_constants: constants are part of the subgraph; else they are inputs.
        merge: matches that meet become one subgraph.
        override: replace the generator that has the name.

    Returns: `generate`, or what decorates it.
    Raises: UserError for a name that is taken or none, what is no function, and what is no pattern.
    """
    if generate is None:

        def decorate(function: Generate) -> Generate:
            register_codegen(
                name,
                function,
                patterns=patterns,
                bind_constants=bind_constants,
                merge=merge,
                override=override,
            )
            return function

        return decorate
    if not callable(generate):
        expected = "a function (graph, name, options)"
        raise wrong(f"code generator '{name}'", generate, expected)
    if not isinstance(patterns, Sequence):
        raise wrong("patterns", patterns, "a sequence of (name, pattern)")
    _register(
        Codegen(
            name=name,
            patterns=tuple(_named(name, row) for row in patterns),
            generate=generate,
            bind_constants=bind_constants,
            merge=merge,
        ),
        override=override,
    )
    return generate


def _named(codegen: str, row: object) -> NamedPattern:
    match row:
        case (str() as name, Pattern() as pattern):
            return NamedPattern(name=name, pattern=pattern)
        case (str() as name, Pattern() as pattern, check) if callable(check):
            found = cast("Check", check)
            return NamedPattern(name=name, pattern=pattern, check=found)
        case _:
            raise UserError(
                f"code generator '{codegen}': {row!r:.80} is no (name, pattern) or "
                "(name, pattern, check)"
            )


def __dir__() -> list[str]:
    return sorted(__all__)
