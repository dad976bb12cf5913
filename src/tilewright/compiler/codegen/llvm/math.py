"""Mathematical functions as polynomials, inline for any number of lanes."""

from __future__ import annotations

from typing import final

from tilewright.base.errors import InternalError
from tilewright.compiler.codegen.llvm.arithmetic import Arithmetic
from tilewright.compiler.codegen.llvm.types import Value


@final
class Math:
    """Emits mathematical functions of f32 and f64 operands."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        self.a: Arithmetic = arithmetic

    def unary(self, op: str, x: Value) -> Value:
        """`op(x)`."""
        raise InternalError(f"no machine code for '{op}' on {x.type}")

    def binary(self, op: str, x: Value, y: Value) -> Value:
        """`op(x, y)`."""
        raise InternalError(f"no machine code for '{op}' on {x.type}")

    def integer_power(self, x: Value, y: Value, *, signed: bool) -> Value:
        """`x ** y` of integers."""
        raise InternalError(f"no machine code for 'pow' on {x.type}")
