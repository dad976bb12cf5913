"""`!vm.list`: a growable list of one type, or of anything.

Source: IREE `vm/list.h`.
"""

from __future__ import annotations

from typing import Final, final

from tilewright.base.status import StatusCode, failure

_NUMBERS: Final = frozenset({"i8", "i16", "i32", "i64", "f32", "f64"})
_ANYTHING: Final = "?"
_VARIANT: Final = "!vm.opaque"  # how type tables write the elements of `!vm.list<?>`
_LIMIT: Final = 1 << 28
_NUMBER_BYTES: Final = 40
_REFERENCE_BYTES: Final = 512


@final
class VmList:
    """A list.

    Args:
        element_type: `i32`, `f64`, `!hal.buffer`; `?` or `!vm.opaque` for anything.
    Thread-safety: callers synchronise.
    """

    __slots__ = ("__weakref__", "counted", "element_type", "items")

    def __init__(
        self, element_type: str = _ANYTHING, items: list[object] | None = None
    ) -> None:
        self.element_type: str = _ANYTHING if element_type == _VARIANT else element_type
        self.items: list[object] = [] if items is None else items
        self.counted: int = 0  # elements that a budget holds memory for

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"<vm.list<{self.element_type}> of {len(self.items)}>"

    def element_bytes(self) -> int:
        """What an element counts as in a budget: itself, and the small object behind a reference."""
        return _NUMBER_BYTES if self.element_type in _NUMBERS else _REFERENCE_BYTES

    def resize(self, size: int) -> None:
        """Cut, or grow with zeros and null references."""
        if not 0 <= size <= _LIMIT:
            raise failure(StatusCode.INVALID_ARGUMENT, f"list of {size} elements")
        blank: object = 0 if self.element_type in _NUMBERS else None
        del self.items[size:]
        self.items.extend([blank] * (size - len(self.items)))

    def get_number(self, index: int) -> int | float:
        """An element that is a number.  Raises: DeviceError."""
        value = self._get(index)
        if value is None:
            return 0
        if not isinstance(value, int | float):
            raise failure(StatusCode.INVALID_ARGUMENT, f"element {index} is a reference")
        return value

    def get_ref(self, index: int) -> object:
        """An element that is a reference.  Raises: DeviceError."""
        value = self._get(index)
        if isinstance(value, int | float):
            raise failure(StatusCode.INVALID_ARGUMENT, f"element {index} is a number")
        return value

    def set(self, index: int, value: object) -> None:
        """Replace an element.  Raises: DeviceError when it does not fit the list."""
        self._get(index)
        is_number = isinstance(value, int | float)
        if self.element_type != _ANYTHING and is_number != (self.element_type in _NUMBERS):
            raise failure(
                StatusCode.INVALID_ARGUMENT,
                f"{type(value).__name__} into a list of {self.element_type}",
            )
        self.items[index] = value

    def _get(self, index: int) -> object:
        if not 0 <= index < len(self.items):
            raise failure(
                StatusCode.OUT_OF_RANGE,
                f"index {index} of a list with {len(self.items)} elements",
            )
        return self.items[index]
