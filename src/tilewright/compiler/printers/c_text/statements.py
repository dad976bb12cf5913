"""Kernel statements as C.  Called by `function`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never, final

from tilewright.base.errors import InternalError
from tilewright.compiler.kernel.fields import parts
from tilewright.compiler.kernel.grid import THREAD_KINDS
from tilewright.compiler.kernel.ir import (
    Barrier,
    Expression,
    For,
    If,
    LoopKind,
    Prefetch,
    Statement,
    Store,
)
from tilewright.compiler.kernel.rewrite import body_symbols
from tilewright.compiler.printers.c_text.expressions import Expressions
from tilewright.compiler.printers.c_text.types import bare, identifier

_GRID_AXES: Final = {LoopKind.GRID_X: "x", LoopKind.GRID_Y: "y", LoopKind.GRID_Z: "z"}


@final
class Statements:
    """Prints the statements of one kernel."""

    def __init__(self, expressions: Expressions, taken: set[str]) -> None:
        self.e: Expressions = expressions
        self.taken: set[str] = taken

    def body(self, body: Sequence[Statement], indent: str) -> list[str]:
        """The lines of statements in order."""
        return [line for s in body for line in self._statement(s, indent)]

    def _statement(self, statement: Statement, indent: str) -> list[str]:
        match statement:
            case Store():
                return self._store(statement, indent)
            case For():
                return self._for(statement, indent)
            case If():
                return self._if(statement, indent)
            case Prefetch():
                return self._prefetch(statement, indent)
            case Barrier():
                raise InternalError("a barrier: threads were not made loops")
            case _:
                assert_never(statement)

    def _begin(self, statement: Statement) -> None:
        self.e.begin(list(parts(statement)))

    def _with_names(self, lines: list[str], indent: str) -> list[str]:
        """The lines of a statement, in a block with the variables that it needs."""
        names = self.e.names_for(lines)
        if not names:
            return [indent + line for line in lines]
        inner = f"{indent}  "
        return [
            f"{indent}{{",
            *(inner + line for line in (*names, *lines)),
            f"{indent}}}",
        ]

    def _store(self, store: Store, indent: str) -> list[str]:
        self._begin(store)
        value = self.e.value(store.value)
        mask = None if store.mask is None else self.e.value(store.mask)
        return self._with_names([self.e.memory.store(store, value, mask)], indent)

    def _prefetch(self, hint: Prefetch, indent: str) -> list[str]:
        self._begin(hint)
        index = bare(self.e.indices.dim(hint.indices[0]))
        place = f"{self.e.memory.names[hint.buffer]}[{index}]"
        line = f"__builtin_prefetch(&{place}, 0, {4 - hint.level});"
        return self._with_names([line], indent)

    def _for(self, loop: For, indent: str) -> list[str]:
        if loop.kind in THREAD_KINDS:
            raise InternalError(f"threads of '{loop.var.key}' were not made a loop")
        name = identifier(loop.var.name, self.taken)
        self.e.indices.symbols[loop.var.key] = name
        if loop.kind in _GRID_AXES:
            axis = _GRID_AXES[loop.kind]
            head = f"{indent}const int64_t {name} = workgroup->workgroup_id_{axis};"
            # A grid of one workgroup may have no use for its number, of which compilers complain.
            is_used = loop.var.name in {s.name for s in body_symbols(loop.body)}
            return [*([head] if is_used else []), *self.body(loop.body, indent)]
        self._begin(loop)
        extent = bare(self.e.indices.dim(loop.extent))
        before = [indent + line for line in self.e.names_for([extent])]
        head = f"{indent}for (int64_t {name} = 0; {name} < {extent}; ++{name}) {{"
        return [*before, head, *self.body(loop.body, f"{indent}  "), f"{indent}}}"]

    def _if(self, statement: If, indent: str) -> list[str]:
        self._begin(statement)
        condition: Expression = statement.condition
        text = bare(self.e.value(condition).text)
        before = [indent + line for line in self.e.names_for([text])]
        inside = self.body(statement.body, f"{indent}  ")
        return [*before, f"{indent}if ({text}) {{", *inside, f"{indent}}}"]
