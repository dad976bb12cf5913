"""One node twice: with operands that are numbers, and with the same operands as inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fakes.onnx_models import run_node


def both(
    op: str,
    arrays: Sequence[np.ndarray | None],
    constants: Sequence[int],
    *,
    tolerance: float = 2e-5,
    **options: object,
) -> list[np.ndarray]:
    """Check the operands in `constants` as inputs against themselves as numbers.  Returns: the results."""
    expected = run_node(op, arrays, constants=constants, **options)
    actual = run_node(op, arrays, **options)
    for one, other in zip(actual, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        allowed = 0 if one.dtype.kind in "iu" else tolerance
        np.testing.assert_allclose(one, other, rtol=allowed, atol=allowed)
    return actual
