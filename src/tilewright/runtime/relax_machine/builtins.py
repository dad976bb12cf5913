"""The functions `vm.builtin.*` that TVM's code calls and that are not in its libraries.

One row per function, as the interpreter calls it: arguments in order, the machine in place of the VM
register.  The C core has rows of its own for the frequent ones and calls these for the rest; those rows take no
machine.

Source: TVM 0.27, `src/runtime/vm/builtin.cc`, for arguments, order of checks and kinds of errors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol

import numpy as np

from tilewright.base.errors import InputError
from tilewright.formats.dlpack_types import DataType
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import get_global_func, packed_function
from tilewright.runtime.relax_machine.caches import CACHE_BUILTINS
from tilewright.runtime.relax_machine.errors import (
    ArgumentMatchError,
    ArgumentTypeError,
    ArgumentValueError,
)
from tilewright.runtime.relax_machine.sampling import SAMPLING_BUILTINS
from tilewright.runtime.relax_machine.storage import (
    Allocator,
    Storage,
    aligned_array,
    data_type_of,
    dense_tensor,
    size_in_bytes,
)


class Caller(Protocol):
    """What built-ins ask of the machine."""

    def allocator(self, device_index: int) -> Allocator:
        """Of a device by its place; -1 is the host."""
        ...


Tensor: Final = tvm_ffi.core.Tensor
"""Of tvm-ffi; TVM has a class of its own below it."""
INT64: Final = DataType(0, 64)
# ORDER as TVM's MatchShapeCode and MakeShapeCode: what a pair of arguments says about a size.
ASSERT_EQUAL, STORE, NOTHING, ASSERT_EQUAL_TO_STORED = range(4)
USE_NUMBER, LOAD = range(2)
_SCALAR_TYPES: Final = (0, 1, 6)
_HANDLE: Final = 3


# --- what values are ------------------------------------------------------------------------------


def sizes_of(value: object, context: str = "") -> tuple[int, ...]:
    """The shape of a tensor, or a shape itself.  Raises: ArgumentTypeError."""
    if isinstance(value, Tensor):
        return value.shape
    if isinstance(value, tuple):
        return value
    raise ArgumentTypeError(
        f"expected a tensor or a shape, got {_kind(value)}{_in(context)}"
    )


def integer(value: object) -> int:
    """An integer.  Raises: ArgumentTypeError."""
    if isinstance(value, int):
        return int(value)
    raise ArgumentTypeError(f"expected an integer, got {_kind(value)}")


def words_of(heap: object) -> Any:
    """The numbers of a shape heap, which is a tensor of i64."""
    return np.from_dlpack(heap)  # pyright: ignore[reportArgumentType]


def _kind(value: object) -> str:
    return "nothing" if value is None else f"'{type(value).__name__}'"


def _in(context: str | None) -> str:
    """What TVM wrote into the executable about the place: function, parameter, annotation."""
    text = (context or "").strip()
    return f" ({text})" if text else ""


# --- checks -----------------------------------------------------------------------------------------


def check_tensor_info(value: object, rank: int, *rest: Any) -> None:
    """The arguments: a tensor, its rank (-1: any), its type (none: any), a text about the place."""
    expected, context = rest if len(rest) == 2 else (None, rest[0])
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(f"expected a tensor, got {_kind(value)}{_in(context)}")
    if rank not in (-1, value.ndim):
        raise ArgumentValueError(
            f"expected a tensor of rank {rank}, got rank {value.ndim}{_in(context)}"
        )
    if expected and value.dtype != expected:  # no type, or the empty one: any
        raise ArgumentValueError(
            f"expected a tensor of type {expected}, got {value.dtype}{_in(context)}"
        )


def check_shape_info(value: object, rank: int, context: str | None) -> None:
    """The arguments: a shape, its rank (-1: any), a text about the place."""
    if not isinstance(value, tuple):
        raise ArgumentTypeError(f"expected a shape, got {_kind(value)}{_in(context)}")
    if rank not in (-1, len(value)):
        raise ArgumentValueError(
            f"expected a shape of rank {rank}, got rank {len(value)}{_in(context)}"
        )


def check_prim_value_info(value: object, expected: Any, context: str | None) -> None:
    """The arguments: a number, its type, a text about the place."""
    kind = data_type_of(expected)
    if kind.code in _SCALAR_TYPES and isinstance(value, int):
        return
    if kind.code == 2 and isinstance(value, (int, float)):
        return
    if kind.code == _HANDLE and kind.bits:
        return
    raise ArgumentTypeError(
        f"expected a number of type {kind}, got {_kind(value)}{_in(context)}"
    )


def check_tuple_info(value: object, count: int, context: str | None) -> None:
    """The arguments: a tuple, the number of its items, a text about the place."""
    if not isinstance(value, tvm_ffi.Array):
        raise ArgumentTypeError(f"expected a tuple, got {_kind(value)}{_in(context)}")
    if len(value) != count:
        raise ArgumentValueError(
            f"expected a tuple of {count}, got one of {len(value)}{_in(context)}"
        )


def check_string_info(value: object, context: str | None) -> None:
    """The arguments: a text, a text about the place."""
    if not isinstance(value, str):
        raise ArgumentTypeError(f"expected a text, got {_kind(value)}{_in(context)}")


def check_func_info(value: object, context: str | None) -> None:
    """The arguments: a function, a text about the place."""
    if not isinstance(value, tvm_ffi.Function):
        raise ArgumentTypeError(f"expected a function, got {_kind(value)}{_in(context)}")


# --- shapes -----------------------------------------------------------------------------------------


def mismatch(size: int, expected: int, axis: int, context: str | None) -> NoReturn:
    """Raises: ArgumentMatchError for a size."""
    raise ArgumentMatchError(
        f"size {size} on axis {axis}, expected {expected}{_in(context)}"
    )


def check_rank(sizes: Sequence[int], rank: int, context: str | None) -> None:
    """Raises: ArgumentMatchError for a shape of another rank."""
    if len(sizes) != rank:
        raise ArgumentMatchError(f"rank {len(sizes)}, expected {rank}{_in(context)}")


def match_size(
    size: int, words: Any, code: int, number: int, axis: int, context: str | None
) -> None:
    """Compare a size, or store it, as its code says."""
    if code == STORE:
        words[number] = size
    elif code == ASSERT_EQUAL:
        if size != number:
            mismatch(size, number, axis, context)
    elif code == ASSERT_EQUAL_TO_STORED:
        if size != words[number]:
            mismatch(size, int(words[number]), axis, context)
    elif code != NOTHING:
        raise InputError(f"unknown code {code} of a size")


def match_shape(value: object, heap: object, count: int, *rest: Any) -> None:
    """The arguments: a tensor or shape, the heap, its rank, a code and a number per axis, a text."""
    codes, context = rest[: 2 * count], rest[2 * count]
    sizes = sizes_of(value, context)
    check_rank(sizes, count, context)
    words = None if heap is None else words_of(heap)
    for axis, size in enumerate(sizes):
        match_size(size, words, codes[2 * axis], codes[2 * axis + 1], axis, context)


def match_prim_value(
    value: object, heap: object, code: int, number: int, context: str | None
) -> None:
    """The arguments: an integer, the heap, a code and a number, a text."""
    words = None if heap is None else words_of(heap)
    match_size(integer(value), words, code, number, 0, context)


def make_shape(heap: object, count: int, *codes: int) -> tvm_ffi.Shape:
    """The arguments: the heap, the rank, a code and a number per axis."""
    words = None if heap is None else words_of(heap)
    pairs = zip(codes[0 : 2 * count : 2], codes[1 : 2 * count : 2], strict=True)
    return tvm_ffi.Shape(tuple(_loaded(words, code, number) for code, number in pairs))


def make_prim_value(heap: object, code: int, number: int) -> int:
    """The arguments: the heap, a code and a number."""
    return _loaded(None if heap is None else words_of(heap), code, number)


def _loaded(words: Any, code: int, number: int) -> int:
    if code not in (USE_NUMBER, LOAD):
        raise InputError(f"unknown code {code} of a size")
    return number if code == USE_NUMBER else int(words[number])


def alloc_shape_heap(machine: Caller, count: int) -> tvm_ffi.Tensor:
    """Where the sizes of a call are kept, for the machine and for compiled shape functions."""
    return machine.allocator(-1).tensor((count,), INT64)


def shape_of(value: object) -> tvm_ffi.Shape:
    """The shape of a tensor.  Raises: ArgumentTypeError."""
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(f"expected a tensor, got {_kind(value)}")
    return tvm_ffi.Shape(value.shape)


def tensor_to_shape(value: object) -> tvm_ffi.Shape:
    """The elements of a vector of integers, as a shape.  Raises: ArgumentValueError."""
    array = words_of(value)
    if array.ndim != 1 or array.dtype not in (np.int16, np.int32, np.int64):
        raise ArgumentValueError(
            f"expected a vector of int16, int32 or int64, got {array.dtype}{list(array.shape)}"
        )
    return tvm_ffi.Shape(tuple(array.tolist()))


# --- storages and tensors -----------------------------------------------------------------------------


def alloc_storage(
    machine: Caller, sizes: Sequence[int], device_index: int, kind: Any, scope: str
) -> Storage:
    """The arguments: sizes of a block and the type they count, the device, a scope of memory."""
    if scope not in ("", "global"):
        raise InputError(f"memory scope '{scope}', expected 'global'")
    return machine.allocator(device_index).storage(size_in_bytes(sizes, data_type_of(kind)))


def alloc_tensor(
    storage: object, offset: int, sizes: Sequence[int], *rest: Any
) -> tvm_ffi.Tensor:
    """The arguments: a storage, an offset in bytes, a shape, a type, a scope of memory (optional)."""
    return storage_of(storage).tensor(offset, tuple(sizes), data_type_of(rest[0]))


def storage_of(value: object) -> Storage:
    """A storage.  Raises: ArgumentTypeError."""
    if isinstance(value, Storage):
        return value
    raise ArgumentTypeError(f"expected a storage, got {_kind(value)}")


def reshape(value: object, sizes: Sequence[int]) -> tvm_ffi.Tensor:
    """A tensor of the same elements.

    Raises: ArgumentValueError where there are too few.
    """
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(f"expected a tensor, got {_kind(value)}")
    kind = data_type_of(value.dtype)
    have, need = size_in_bytes(value.shape, kind), size_in_bytes(sizes, kind)
    if need > have or any(size < 0 for size in sizes):
        raise ArgumentValueError(
            f"a view of shape {list(sizes)} takes {need} bytes, the tensor has {have}"
        )
    if not value.is_contiguous():
        raise ArgumentValueError("a view of a tensor that is not dense")
    return dense_tensor(value, value.data_ptr(), tuple(sizes), kind)


def to_device(value: object, device_type: int, *_: Any) -> tvm_ffi.Tensor:
    """A copy on a device, which is the host.  Raises: InputError for any other."""
    if device_type != 1:
        raise InputError(f"a copy to device type {device_type}, expected 1 (the CPU)")
    array = words_of(value)
    copied = aligned_array(array.shape, array.dtype)
    copied[...] = array
    return tvm_ffi.from_dlpack(copied)


def ensure_zero_offset(value: tvm_ffi.Tensor) -> tvm_ffi.Tensor:
    """Itself: tensors of the host have their offset in their address."""
    return value


def copy(value: Any) -> Any:
    """The same value in another register."""
    return value


def null_value() -> None:
    """Nothing."""


def read_if_cond(value: object) -> bool:
    """The truth of a number, or of the only element of a tensor of integers."""
    if isinstance(value, (bool, int)):
        return bool(value)
    array = words_of(value)
    if array.dtype.kind not in "iub":
        raise ArgumentTypeError(f"a condition of type {array.dtype}")
    return bool(array.reshape(-1)[0])


# --- tuples and functions -------------------------------------------------------------------------------


def make_tuple(*items: Any) -> tvm_ffi.Array[Any]:
    """A tuple."""
    return tvm_ffi.Array(items)


def tuple_getitem(value: tvm_ffi.Array[Any], index: int) -> Any:
    """An item of a tuple.  Raises: IndexError."""
    if not 0 <= index < len(value):
        raise IndexError(f"item {index} of a tuple of {len(value)}")
    return value[index]


def tuple_reset_item(value: tvm_ffi.Array[Any], index: int) -> None:
    """The memory of the item is no longer needed: it goes with the tuple here."""
    tuple_getitem(value, index)


def make_closure(function: tvm_ffi.Function, *saved: Any) -> tvm_ffi.Function:
    """A function whose last arguments are bound."""
    return packed_function(lambda *arguments: function(*arguments, *saved))


def invoke_closure(machine: Caller, function: Any, *arguments: Any) -> Any:
    """Call a function or a closure."""
    del machine
    return function(*arguments)


def call_tir_dyn(function: tvm_ffi.Function, *arguments: Any) -> Any:
    """Call a kernel that takes the sizes of the last argument, which is a shape, one by one."""
    return function(*arguments[:-1], *arguments[-1])


def call_py_func(call: tvm_ffi.Array[Any]) -> Any:
    """Call a function of Python: a tuple of its name and the tuple of its arguments."""
    name, arguments = call
    registered = get_global_func("vm.builtin.get_py_func", allow_missing=True)
    function = get_global_func(str(name)) if registered is None else registered(name)
    return function(*arguments)


def invoke_debug_func(effect: object, name: str, place: str, *arguments: Any) -> Any:
    """Call a registered function that looks at values: its place in the source, then the values."""
    get_global_func(str(name))(place, *arguments)
    return effect


_PREFIX: Final = "vm.builtin."
BUILTINS: Final[Mapping[str, Callable[..., Any]]] = {
    _PREFIX + row.__name__: row
    for row in (
        alloc_shape_heap,
        alloc_storage,
        alloc_tensor,
        call_py_func,
        call_tir_dyn,
        check_func_info,
        check_prim_value_info,
        check_shape_info,
        check_string_info,
        check_tensor_info,
        check_tuple_info,
        copy,
        ensure_zero_offset,
        invoke_closure,
        invoke_debug_func,
        make_closure,
        make_prim_value,
        make_shape,
        make_tuple,
        match_prim_value,
        match_shape,
        null_value,
        read_if_cond,
        reshape,
        shape_of,
        tensor_to_shape,
        to_device,
        tuple_getitem,
        tuple_reset_item,
    )
} | {**CACHE_BUILTINS, **SAMPLING_BUILTINS}
TAKE_THE_MACHINE: Final = frozenset(
    _PREFIX + row.__name__ for row in (alloc_shape_heap, alloc_storage, invoke_closure)
)
"""Their first argument is the VM register."""
