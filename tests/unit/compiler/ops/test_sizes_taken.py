"""What operations take to be equal without proof is all that they need, or a call reads past the end of a tensor."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from tilewright.base import symbolic
from tilewright.base.errors import InputError, TilewrightError
from tilewright.base.symbolic import symbol
from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.declaration import OpDecl, type_of
from tilewright.compiler.ops.shapes import taken_to_hold

SIZE = symbol("S", 0)
ASKED_BY_KERNELS = {"top_k"}
"""Their calls fail with an index that is out of range, which says more."""


def other_sizes(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(axis, the array with one more or one less along it)."""
    for axis, size in enumerate(array.shape):
        for other in {size + 1, max(1, size - 1)} - {size}:
            places = np.arange(other) % max(1, size)
            yield (
                axis,
                (
                    array.take(places, axis)
                    if size
                    else np.zeros(
                        [other if i == axis else n for i, n in enumerate(array.shape)],
                        array.dtype,
                    )
                ),
            )


def works(row: OpDecl, operands, attributes) -> bool:
    types = [None if a is None else type_of(a) for a in operands]
    try:
        inferred = row.schema.infer(types, attributes)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results = row.schema.evaluate(operands, attributes)
    except InputError:
        return True  # an index: a call looks at those
    except Exception:
        return False
    return all(type_of(r) == t for r, t in zip(results, inferred, strict=True))


def notices(row: OpDecl, types, attributes, size: int) -> bool:
    """Whether what is taken to hold for a symbol does not hold for a size."""
    try:
        with taken_to_hold() as pairs:
            results = row.schema.infer(types, attributes)
    except TilewrightError:
        return True
    held = [t for t in types if t is not None]
    if row.schema.equal_sizes is not None:
        pairs.extend(row.schema.equal_sizes(held, results[0], attributes))
    at = {SIZE.name if hasattr(SIZE, "name") else "S": size}
    return any(symbolic.substitute(a, at) != symbolic.substitute(b, at) for a, b in pairs)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(r, id=r.name)
        for r in catalogue.all_ops()
        if r.cases and r.name not in ASKED_BY_KERNELS
    ],
)
def test_sizes_that_do_not_fit_are_noticed(row: OpDecl):
    missed = []
    seen = set()
    for case in cases.instances(row):
        attributes = row.complete(case.attributes)
        shapes = (
            tuple(None if a is None else a.shape for a in case.operands),
            str(case.attributes),
        )
        if shapes in seen:
            continue
        seen.add(shapes)
        for position, array in enumerate(case.operands):
            if array is None:
                continue
            for axis, changed in other_sizes(array):
                operands = [*case.operands]
                operands[position] = changed
                if works(row, operands, attributes):
                    continue
                types = [None if a is None else type_of(a) for a in case.operands]
                shape = [*array.shape]
                shape[axis] = SIZE
                types[position] = types[position].with_shape(tuple(shape))
                if not notices(row, types, attributes, changed.shape[axis]):
                    missed.append(
                        f"{case}: operand {position} axis {axis} as {changed.shape[axis]}"
                    )
    assert missed == []
