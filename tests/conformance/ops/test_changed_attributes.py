"""Declared cases with one number of an attribute changed: refused in words, or computed.

What type inference takes, the oracle and the body of the kernel have to take, too: whoever writes
an attribute is a file of somebody else's, or a user's own graph.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.ops.test_cases import by_op, node_of
from tilewright.base.errors import UserError
from tilewright.compiler.lowering.build_kernel import build_kernel, can_build
from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.declaration import OpDecl

OTHERS = (0, -1, 7)
FEW_ELEMENTS = 4096


def changed(value: object) -> Iterator[object]:
    """The value with one of its whole numbers replaced, once for each of `OTHERS`."""
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (other for other in OTHERS if other != value)
    elif isinstance(value, tuple):
        for place, element in enumerate(value):
            for other in changed(element):
                yield (*value[:place], other, *value[place + 1 :])


def case_per_text(row: OpDecl) -> Iterator[cases.Case]:
    seen: set[str] = set()
    for case in cases.instances(row):
        if case.text not in seen:
            seen.add(case.text)
            yield case


@pytest.mark.thinned(3)
@pytest.mark.parametrize("row", by_op(catalogue.all_ops()))
def test_a_changed_attribute_is_refused_or_computed(row: OpDecl) -> None:
    for case in case_per_text(row):
        for name, value in row.complete(case.attributes).items():
            for other in changed(value):
                attributes = {**case.attributes, name: other}
                check(row, case, attributes, f"{case}, {name} = {other}")


def check(
    row: OpDecl, case: cases.Case, attributes: dict[str, object], context: str
) -> None:
    try:
        node = node_of(cases.Case(case.op, "", "", case.operands, attributes))
        if can_build(node):
            build_kernel(node, "k")
        if all(result.type.element_count <= FEW_ELEMENTS for result in node.results):
            row.schema.evaluate(case.operands, attributes)
    except UserError:
        return
    except Exception as error:
        raise AssertionError(context) from error
