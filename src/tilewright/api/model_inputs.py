"""What a model is called with: the inputs that a user gives, or plausible random ones.

Called by `compare`, reports and the command line.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Final

from tilewright.base.errors import UserError
from tilewright.base.options import wrong
from tilewright.base.random_numbers import random_generator
from tilewright.base.symbolic import evaluate, names_in
from tilewright.base.text import did_you_mean, format_bytes
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime.plan_executor import Array, arrange

Inputs = Mapping[str, object] | Sequence[object] | None
_DRAWN_BYTES: Final = 8  # of one value before it is converted


def memory_bytes() -> int:
    """The machine's memory; without bound where it does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 1 << 62


def model_inputs(
    specs: Sequence[TensorSpec], inputs: Inputs, dims: Mapping[str, int], seed: int = 0
) -> list[Array]:
    """Arrays in the order of the inputs: those given by position or by name, or random ones.

    Raises: InputError naming the input that is unknown, missing or no array; UserError for `dims` beside
    inputs that are given, and as `random_inputs`.
    """
    if inputs is None:
        return random_inputs(specs, dims, seed)
    if dims:
        raise UserError("dims go with random inputs, not with inputs that are given")
    names = [spec.name for spec in specs]
    if isinstance(inputs, Mapping):
        return arrange(names, (), inputs)
    if hasattr(inputs, "__array__"):  # a sequence, too, that hardly means its rows
        return arrange(names, [inputs])
    if isinstance(inputs, str | bytes) or not isinstance(inputs, Sequence):
        raise wrong("inputs", inputs, "arrays by position or by name")
    return arrange(names, inputs)


def random_inputs(
    specs: Sequence[TensorSpec], dims: Mapping[str, int], seed: int = 0
) -> list[Array]:
    """Normal floats, small integers; dynamic dims from `dims`, else 1.

    Raises: UserError when `dims` names something else, or sizes that do not fit into memory.
    """
    random = random_generator(seed)
    wanted = sorted(names_in(dim for _, _, shape in specs for dim in shape))
    unknown = sorted(set(dims) - set(wanted))
    if unknown:
        known = ", ".join(wanted) or "none"
        raise UserError(
            f"no input has a dimension '{unknown[0]}'",
            hint=did_you_mean(unknown[0], wanted) or f"dynamic dimensions: {known}",
        )
    env = {name: dims.get(name, 1) for name in wanted}
    arrays: list[Array] = []
    room = memory_bytes()
    for name, dtype, shape in specs:
        extents = tuple(evaluate(d, env) for d in shape)
        size_bytes = math.prod(extents) * _DRAWN_BYTES
        if size_bytes > room:
            raise UserError(
                f"is {list(extents)}, random values of that take {format_bytes(size_bytes)}, "
                f"of this machine's memory {format_bytes(room)} are left for it",
                location=f"input '{name}'",
            )
        room -= math.prod(extents) * dtype.numpy.itemsize
        if dtype.is_float:
            arrays.append(random.standard_normal(extents).astype(dtype.numpy))
        elif dtype.is_bool:
            arrays.append(random.random(extents) < 0.5)
        else:
            arrays.append(random.integers(0, 2, extents).astype(dtype.numpy))
    return arrays
