"""Calls of a compiled graph on tensors of torch as they are: no array is made on the way.

The C core looks at tensors by torch's own table of C functions (DLPack 1.3), torch makes those that a call returns.
Not here: sizes that calls decide, complex numbers, numbers among arguments and results; these go by arrays.  Called by
`torch_compile`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import tilewright.compiler.frontends.torch.border as border
from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.torch.program import Program, Ref, Role, is_computed
from tilewright.runtime.plan_executor import Array, PlanExecutor
from tilewright.runtime.plan_executor.results import LEAST_BLOCK_BYTES

Call = Callable[..., Any]


def direct_call(program: Program, graph_module: Any, executor: object) -> Call | None:
    """What calls a compiled graph with tensors and gives its one result, or a tuple of them.

    The call raises TypeError or ValueError for tensors that it does not take as they are (rows in another order, a
    subclass), which then go by arrays, and KernelError for one that failed.

    Args:
        program: the graph as data.
        graph_module: what it was read from.
        executor: runs it.

    Returns: None where a graph goes by arrays.
    """
    if not isinstance(executor, PlanExecutor) or not _is_plain(program, graph_module):
        return None
    return executor.call_over(border.load().Tensor, _maker_of)


def _is_plain(program: Program, graph_module: Any) -> bool:
    """Whether tensors alone go in and come out, whose elements are what their memory holds."""
    entries = [e for e in program.inputs if e.role is Role.USER and e.type is not None]
    if any(entry.is_complex or entry.number is not None for entry in entries):
        return False
    computed = [output for output in program.outputs if is_computed(output.value)]
    if any(o.is_complex or not isinstance(o.value, Ref) for o in computed):
        return False
    traced = {n.name: n.meta.get("val") for n in graph_module.graph.nodes}
    return all(_shows_its_elements(traced.get(entry.name)) for entry in entries)


def _shows_its_elements(value: Any) -> bool:
    """Whether a tensor is dense and has no mark that its memory does not show."""
    return (
        border.is_instance(value, "Tensor")
        and not value.is_neg()
        and not value.is_conj()
        and value.is_contiguous()
    )


def _maker_of(dtype: DType, shape: tuple[int, ...], fresh: Callable[[], Array]) -> Any:
    """What makes the tensor of a result: torch, or for large ones the heap of the device, which keeps their pages."""
    if math.prod(shape) * dtype.itemsize >= LEAST_BLOCK_BYTES:
        return lambda: border.to_tensor(fresh().view(dtype.numpy))
    # As torch has them: an axis of no elements is one long to those around it.
    extents = [max(extent, 1) for extent in shape]
    strides = tuple(math.prod(extents[axis + 1 :]) for axis in range(len(shape)))
    return functools.partial(
        border.empty_maker(), shape, strides, border.torch_dtype_of(dtype)
    )
