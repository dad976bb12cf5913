"""Keys and values of attention that a model keeps between its steps: `vm.builtin.attention_kv_cache_*`.

A cache is a dense tensor whose first axis has more slots than are filled, and grows.  It goes through registers
as an object that only these functions look into.  Not here: paged caches (`paged_attention_kv_cache_create`),
which come with kernels of their own.

Source: behaviour of TVM 0.27's functions of these names (`src/runtime/vm/lm_support.cc`), with bounds
looked at that TVM trusts.  Thread-safety: a cache belongs to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.relax_machine.errors import (
    ArgumentTypeError,
    ArgumentValueError,
)
from tilewright.runtime.relax_machine.storage import (
    aligned_array,
    data_type_of,
    dense_tensor,
    size_in_bytes,
)

Bytes = npt.NDArray[np.uint8]
_SLOTS_LIMIT: Final = 1 << 40


@final
class AttentionCache:
    """Slots of equal shape, the first of them filled.

    Args:
        slots: how many there is room for at first.
        unit: the shape of a slot.
        element_type: of its elements, as tvm-ffi names it.

    Attributes:
        fill_count: slots that are filled.
        position: the slot that a window overrides next.
    """

    def __init__(self, slots: int, unit: tuple[int, ...], element_type: object) -> None:
        if slots < 0 or any(size < 0 for size in unit):
            raise ArgumentValueError(f"a cache of shape {[slots, *unit]}")
        self.unit: Final[tuple[int, ...]] = unit
        self.element_type: Final = data_type_of(element_type)
        self.slot_bytes: Final[int] = size_in_bytes(unit, self.element_type)
        self._slots: Bytes = _slots(slots, self.slot_bytes)
        self.fill_count: int = 0
        self.position: int = 0

    def put(self, slot: int, rows: Bytes) -> None:
        """Write into slots from one on, and grow where there are too few; the old ones stay as they are."""
        end = slot + len(rows)
        if end > len(self._slots):
            count = max(len(self._slots), 1)
            while count < end:
                count *= 2
            grown = _slots(count, self.slot_bytes)
            grown[: len(self._slots)] = self._slots
            self._slots = grown
        self._slots[slot:end] = rows

    def rows_of(self, value: object) -> Bytes:
        """The bytes of a tensor by slots.

        Raises: ArgumentTypeError, ArgumentValueError for what does not fit into this cache.
        """
        if not isinstance(value, tvm_ffi.core.Tensor):
            raise ArgumentTypeError(f"expected a tensor, got '{type(value).__name__}'")
        if data_type_of(value.dtype) != self.element_type:
            raise ArgumentValueError(
                f"expected a tensor of type {self.element_type}, got {value.dtype}"
            )
        shape = tuple(value.shape)
        if not shape or shape[1:] != self.unit or not value.is_contiguous():
            raise ArgumentValueError(
                f"expected a dense tensor of shape {['any', *self.unit]}, got {list(shape)}"
            )
        return _bytes_of(value).reshape(shape[0], self.slot_bytes)

    def view(self) -> tvm_ffi.Tensor:
        """What is filled, in place: later steps may write into it."""
        shape = (self.fill_count, *self.unit)
        whole = tvm_ffi.from_dlpack(self._slots)
        return dense_tensor(whole, whole.data_ptr(), shape, self.element_type)


def _slots(count: int, slot_bytes: int) -> Bytes:
    if count > _SLOTS_LIMIT or count * max(slot_bytes, 1) > _SLOTS_LIMIT:
        raise ArgumentValueError(f"a cache of {count} slots of {slot_bytes} bytes")
    return aligned_array((count, slot_bytes), np.dtype(np.uint8))


def _bytes_of(value: tvm_ffi.Tensor) -> Bytes:
    kind = data_type_of(value.dtype)
    size = size_in_bytes(value.shape, kind)
    flat = dense_tensor(
        value, value.data_ptr(), (size,), data_type_of(tvm_ffi.dtype("uint8"))
    )
    return np.from_dlpack(flat).view(np.uint8)


def _cache(value: object) -> AttentionCache:
    if isinstance(value, AttentionCache):
        return value
    raise ArgumentTypeError(f"expected an attention cache, got '{type(value).__name__}'")


# --- built-ins ------------------------------------------------------------------------------------


def create(
    value: tvm_ffi.Tensor, shape: tuple[int, ...], fill_count: int
) -> AttentionCache:
    """The arguments: its first contents, the shape that is reserved, how many slots count as filled (-1: all)."""
    if (
        not isinstance(value, tvm_ffi.core.Tensor)
        or not isinstance(shape, tuple)
        or not shape
    ):
        raise ArgumentTypeError("expected a tensor and a shape of at least one axis")
    cache = AttentionCache(int(shape[0]), tuple(map(int, shape[1:])), value.dtype)
    append(cache, value)
    if fill_count > cache.fill_count:
        raise ArgumentValueError(f"{fill_count} filled slots, there are {cache.fill_count}")
    if fill_count >= 0:
        cache.fill_count = cache.position = fill_count
    return cache


def append(cache: AttentionCache, value: object) -> AttentionCache:
    """Fill the next slots."""
    rows = _cache(cache).rows_of(value)
    cache.put(cache.fill_count, rows)
    cache.fill_count += len(rows)
    return cache


def update(cache: AttentionCache, value: object) -> AttentionCache:
    """Replace all that is filled."""
    rows = _cache(cache).rows_of(value)
    if len(rows) != cache.fill_count:
        raise ArgumentValueError(f"{len(rows)} slots, {cache.fill_count} are filled")
    cache.put(0, rows)
    return cache


def view(cache: AttentionCache, *shape: tuple[int, ...]) -> tvm_ffi.Tensor:
    """What is filled; a shape that is given must be its."""
    seen = _cache(cache).view()
    if shape and tuple(shape[0]) != tuple(seen.shape):
        raise ArgumentValueError(
            f"a view of shape {list(shape[0])} of a cache of shape {list(seen.shape)}"
        )
    return seen


def window_override(cache: AttentionCache, value: object, size: int) -> AttentionCache:
    """Fill the next slots of a window of `size`; when it is full, from its first slot on."""
    return window_override_with_sinks(cache, value, size, 0)


def window_override_with_sinks(
    cache: AttentionCache, value: object, size: int, sinks: int
) -> AttentionCache:
    """The same, but the first `sinks` slots are never overridden (https://arxiv.org/abs/2309.17453)."""
    rows = _cache(cache).rows_of(value)
    if not 0 <= sinks <= size or len(rows) > size - sinks:
        raise ArgumentValueError(
            f"{len(rows)} slots for a window of {size} with {sinks} sinks"
        )
    if not cache.position <= size or cache.fill_count > size:
        raise ArgumentValueError(f"a window of {size}, {cache.fill_count} slots are filled")
    first = rows[: size - cache.position]
    rest = rows[len(first) :]
    cache.put(cache.position, first)
    cache.fill_count = min(cache.fill_count + len(rows), size)
    cache.position += len(first)
    if len(rest) > 0:
        cache.put(sinks, rest)
        cache.position = sinks + len(rest)
    return cache


def array_popn(caches: Iterable[AttentionCache], count: int) -> None:
    """Forget the last slots of each."""
    for cache in map(_cache, caches):
        if not 0 <= count <= cache.fill_count:
            raise ArgumentValueError(f"{count} slots fewer, {cache.fill_count} are filled")
        cache.fill_count -= count


def array_clear(caches: Iterable[AttentionCache]) -> None:
    """Forget all slots of each."""
    for cache in map(_cache, caches):
        cache.fill_count = cache.position = 0


_PREFIX: Final = "vm.builtin.attention_kv_cache_"
CACHE_BUILTINS: Final[Mapping[str, Callable[..., Any]]] = {
    _PREFIX + row.__name__: row
    for row in (
        append,
        array_clear,
        array_popn,
        create,
        update,
        view,
        window_override,
        window_override_with_sinks,
    )
}
