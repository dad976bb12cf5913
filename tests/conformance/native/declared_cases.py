"""The declared cases of the ops as kernels: with their sizes as numbers, and as symbols.

What it is: cases → nodes → naive kernels, some or all of them.
What it is not: a comparison; the tests beside it run the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilewright.base import symbolic
from tilewright.base.errors import ModelError
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.lowering.build_kernel import build_kernel, can_build
from tilewright.compiler.ops import cases
from tilewright.compiler.ops.builder import make_node
from tilewright.compiler.ops.declaration import OpDecl, type_of


@dataclass(frozen=True, eq=False)
class KernelCase:
    """One case, its kernel and the values of the kernel's dimension symbols."""

    case: cases.Case
    kernel: Kernel
    dims: dict[str, int]

    @property
    def operands(self) -> list[np.ndarray]:
        """The operands that are there."""
        return [a for a in self.case.operands if a is not None]


def kernel_cases(row: OpDecl, *, dynamic: bool, every_type: bool) -> list[KernelCase]:
    """The cases of an op that become kernels; one element type per declared text, or all."""
    chosen = list(cases.instances(row)) if every_type else list(_one_per_text(row))
    make = _dynamic if dynamic else _static
    return [found for case in chosen if (found := make(row, case)) is not None]


def _one_per_text(row: OpDecl) -> Iterator[cases.Case]:
    """Each text in f32 and in one more type; the second moves on from text to text."""
    by_text: dict[str, list[cases.Case]] = {}
    for case in cases.instances(row):
        by_text.setdefault(case.text, []).append(case)
    for turn, instances in enumerate(by_text.values()):
        single = [c for c in instances if c.dtype.split(",")[0] == "f32"][:1]
        others = [c for c in instances if not any(c is f for f in single)]
        yield from single
        if others and (turn % 2 == 0 or not single):
            yield others[turn % len(others)]


def _static(row: OpDecl, case: cases.Case) -> KernelCase | None:
    operands = [None if a is None else Value(type_of(a), "") for a in case.operands]
    node = make_node(case.op, operands, case.attributes)
    return _built(row, case, node, {})


def _dynamic(row: OpDecl, case: cases.Case) -> KernelCase | None:
    """With a symbol for each size above 1; None where the op needs numbers."""
    present = [a for a in case.operands if a is not None]
    dims = {f"D{n}": n for array in present for n in array.shape if n > 1}
    if not dims:
        return None
    operands = [
        None
        if a is None
        else Value(TensorType(type_of(a).dtype, cases.symbolic_shape(a.shape)), "")
        for a in case.operands
    ]
    try:
        node = make_node(case.op, operands, case.attributes)
    except ModelError:
        return None
    found = _built(row, case, node, dims)
    if found is None or not all(
        symbolic.symbols(d) <= set(found.kernel.dims)
        for v in node.results
        for d in v.type.shape
    ):
        return None
    return found


def _built(
    row: OpDecl, case: cases.Case, node: Node, dims: dict[str, int]
) -> KernelCase | None:
    if not can_build(node):
        return None
    return KernelCase(case, build_kernel(node, row.name), dims)
