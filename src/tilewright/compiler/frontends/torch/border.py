"""The only door to torch: its types and tensors as ours, and back.

Torch is looked up when it is needed, never before: who gives us a model of torch has loaded it.  What
comes out of it is checked here and nowhere else.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.compiler.graph.schema import Array

_NAMES: Final = {
    "bool": dtypes.bool_, "uint8": dtypes.u8, "int8": dtypes.i8, "uint16": dtypes.u16,
    "int16": dtypes.i16, "uint32": dtypes.u32, "int32": dtypes.i32, "uint64": dtypes.u64,
    "int64": dtypes.i64, "float16": dtypes.f16, "bfloat16": dtypes.bf16, "float32": dtypes.f32,
    "float64": dtypes.f64, "float8_e4m3fn": dtypes.f8e4m3fn, "float8_e5m2": dtypes.f8e5m2,
}  # fmt: skip
_PARTS: Final = {
    "complex32": dtypes.f16, "complex64": dtypes.f32, "complex128": dtypes.f64,
}  # fmt: skip
# What numpy has no type of its own for travels as unsigned integers of as many bits.
_CARRIERS: Final = {
    dtypes.bf16: "uint16", dtypes.f8e4m3fn: "uint8", dtypes.f8e5m2: "uint8",
}  # fmt: skip


def load(name: str = "torch") -> Any:
    """A module of torch."""
    return sys.modules.get(name) or importlib.import_module(name)


def is_instance(value: object, *names: str) -> bool:
    """Whether a value is of one of these classes (`nn.Module`); False where torch was never loaded."""
    if "torch" not in sys.modules:
        return False
    return any(isinstance(value, _attribute(name)) for name in names)


def _attribute(name: str) -> Any:
    found: Any = sys.modules["torch"]
    for part in name.split("."):
        found = getattr(found, part, None)
    return () if found is None else found


def is_known_empty(*tensors: Any) -> bool:
    """Whether one of them has no elements whatever a call gives: nothing is asked of sizes that calls decide."""
    sizes = (size for tensor in tensors for size in tensor.shape)
    return any(isinstance(size, int) and size == 0 for size in sizes)


@functools.cache
def dtype_of(torch_dtype: object) -> DType | None:
    """Our element type; None if we have none."""
    return _NAMES.get(str(torch_dtype).removeprefix("torch."))


def part_of(torch_dtype: object) -> DType | None:
    """Our element type of the parts of complex numbers; None for what is not complex."""
    return _PARTS.get(str(torch_dtype).removeprefix("torch."))


def torch_dtype_of(dtype: DType) -> Any:
    """The element type as torch has it."""
    (name,) = (name for name, own in _NAMES.items() if own is dtype)
    return getattr(load(), name)


def empty_maker() -> Any:
    """What makes a tensor of the host without values, of its shape, strides and element type."""
    made_for_inductor = getattr(load("torch._C._dynamo.guards"), "_empty_strided_cpu", None)
    if made_for_inductor is not None:
        return made_for_inductor
    return lambda shape, strides, dtype: load().empty_strided(
        shape, strides, dtype=dtype, device="cpu"
    )


def view_maker() -> Any:
    """What makes a view of a tensor's memory: of its sizes, strides, and the place behind the tensor's first element; None where torch has none."""
    return getattr(load("torch._C._dynamo.guards"), "_reinterpret_tensor", None)


def to_array(tensor: Any) -> Array:
    """The elements of a tensor in the memory of the host: a view of the tensor's, not a copy.

    A conjugated or negated view, which has no memory that holds its elements, is resolved first.
    """
    held = tensor.detach() if tensor.requires_grad else tensor
    if held.is_neg() or held.is_conj():
        held = held.resolve_conj().resolve_neg()
    dtype = dtype_of(held.dtype)
    carrier = None if dtype is None else _CARRIERS.get(dtype)
    if dtype is None or carrier is None:
        return held.numpy()
    return held.view(getattr(load(), carrier)).numpy().view(dtype.numpy)


def results_of(graph: Any) -> Sequence[Any]:
    """What a graph of torch returns: nodes, and what is known without them; one result stands alone there."""
    (last,) = (node for node in graph.nodes if node.op == "output")
    found = last.args[0]
    return found if isinstance(found, list | tuple) else (found,)


def to_parts(tensor: Any) -> tuple[Array, Array]:
    """The parts of a complex tensor, as views."""
    pairs = load().view_as_real(tensor.detach().resolve_conj().resolve_neg()).numpy()
    return pairs[..., 0], pairs[..., 1]


def of_parts(real: Array, imaginary: Array) -> Any:
    """A complex tensor of its parts."""
    pairs = load().from_numpy(np.stack([real, imaginary], -1))
    if (
        not pairs.numel()
    ):  # numpy's strides of no elements are not those that torch asks for
        pairs = pairs.new_empty(pairs.shape)
    return load().view_as_complex(pairs)


def to_tensor(array: Array) -> Any:
    """An array as a tensor of torch over the same memory."""
    dtype = _own_type(array.dtype)
    carrier = _CARRIERS.get(dtype)
    if carrier is None:
        return load().from_numpy(array)
    return load().from_numpy(array.view(np.dtype(carrier))).view(torch_dtype_of(dtype))


_own_type: Final = functools.cache(dtypes.from_numpy)
