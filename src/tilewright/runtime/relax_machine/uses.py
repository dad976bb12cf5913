"""What becomes of the values of a function: what may be prepared once and kept between its calls.

A tensor that only kernels and our own built-ins see is gone when its function returns, so its memory may
serve the next call.  One that is returned, put into a tuple, or given to a function of somebody else may
live on, and gets memory of its own in every call.  The analysis does not follow the flow of control: a
register is what all its definitions make it, and a function with a jump backwards keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, final

from tilewright.formats.relax_executable import (
    VOID_REGISTER,
    ArgumentKind,
    Call,
    Function,
    Goto,
    RelaxExecutable,
    Return,
)

_B: Final = "vm.builtin."
_NOTHING: Final = _B + "null_value"
_STORAGE: Final = _B + "alloc_storage"
_TENSOR: Final = _B + "alloc_tensor"
_HEAP: Final = _B + "alloc_shape_heap"
_SHAPE: Final = _B + "make_shape"
_DYNAMIC: Final = _B + "call_tir_dyn"
# The result is the argument in this place, or a part of it.
_ALIASES: Final[Mapping[str, int]] = {
    _TENSOR: 0,
    _B + "reshape": 0,
    _B + "copy": 0,
    _B + "ensure_zero_offset": 0,
}
# They read these arguments and keep none.
_READS_TENSORS: Final[Mapping[str, frozenset[int]]] = {
    _TENSOR: frozenset({0}),
    _B + "reshape": frozenset({0}),
    _B + "copy": frozenset({0}),
    _B + "ensure_zero_offset": frozenset({0}),
    _B + "check_tensor_info": frozenset({0}),
    _B + "match_shape": frozenset({0}),
    _B + "shape_of": frozenset({0}),
    _B + "read_if_cond": frozenset({0}),
    _B + "tensor_to_shape": frozenset({0}),
    _B + "to_device": frozenset({0}),
}
_READS_HEAPS: Final[Mapping[str, frozenset[int]]] = {
    _B + "match_shape": frozenset({1}),
    _B + "match_prim_value": frozenset({1}),
    _SHAPE: frozenset({0}),
    _B + "make_prim_value": frozenset({0}),
}
# They take any tuple for a shape.
_READS_SIZES: Final[Mapping[str, frozenset[int]]] = {
    _STORAGE: frozenset({1}),
    _TENSOR: frozenset({2}),
    _B + "reshape": frozenset({1}),
    _B + "match_shape": frozenset({0}),
}


@final
@dataclass(frozen=True, slots=True)
class Uses:
    """Registers of a function, by what may be done with them.

    Attributes:
        heaps: hold the shape heap, seen by kernels and our built-ins only.
        sizes: hold a shape that no foreign function sees.
        kept: hold a storage, or a tensor in one, that may serve the next call as well.
    """

    heaps: frozenset[int]
    sizes: frozenset[int]
    kept: frozenset[int]


def find_uses(
    executable: RelaxExecutable, function: Function, is_kernel: Callable[[int], bool]
) -> Uses:
    """What may be done with the registers of a function.

    Args:
        executable: its tables.
        function: a function of bytecode.
        is_kernel: whether a row of the table is machine code that keeps no argument.
    """
    return _Analysis(executable, function, is_kernel).run()


@final
class _Analysis:
    def __init__(
        self,
        executable: RelaxExecutable,
        function: Function,
        is_kernel: Callable[[int], bool],
    ) -> None:
        self.code = executable.instructions[function.first : function.end]
        self.names = [one.name for one in executable.functions]
        self.is_kernel = is_kernel
        self.definitions: dict[int, list[Call | None]] = {
            register: [None] for register in range(function.argument_count)
        }
        for call in self._calls():
            if call.target < VOID_REGISTER and self.names[call.function] != _NOTHING:
                self.definitions.setdefault(call.target, []).append(call)

    def run(self) -> Uses:
        heaps = self._defined_by(_HEAP)
        sizes = self._defined_by(_SHAPE)
        if any(isinstance(one, Goto) and one.offset <= 0 for one in self.code):
            return Uses(frozenset(), sizes - self._seen(_READS_SIZES, False), frozenset())
        return Uses(
            heaps - self._seen(_READS_HEAPS, True),
            sizes - self._seen(_READS_SIZES, False),
            self._kept(),
        )

    def _calls(self) -> Iterator[Call]:
        return (one for one in self.code if isinstance(one, Call))

    def _defined_by(self, name: str) -> frozenset[int]:
        """Registers whose only definition is a call of that function."""
        return frozenset(
            register
            for register, calls in self.definitions.items()
            if len(calls) == 1 and calls[0] is not None and self._name(calls[0]) == name
        )

    def _name(self, call: Call) -> str:
        return self.names[call.function]

    def _runs_kernel(self, call: Call) -> bool:
        if self._name(call) == _DYNAMIC and call.arguments:
            called = call.arguments[0]
            return called.kind is ArgumentKind.FUNCTION and self.is_kernel(called.value)
        return self.is_kernel(call.function)

    def _seen(
        self, readers: Mapping[str, frozenset[int]], by_kernels: bool
    ) -> frozenset[int]:
        """Registers that are used in another way than `readers` do."""
        found: set[int] = set()
        for one in self.code:
            if isinstance(one, Return):
                found.add(one.register)
            if not isinstance(one, Call) or (by_kernels and self._runs_kernel(one)):
                continue
            known = readers.get(self._name(one), frozenset())
            if self._name(one) == _DYNAMIC and readers is _READS_SIZES:
                known = frozenset({len(one.arguments) - 1})
            for place, argument in enumerate(one.arguments):
                if argument.kind is ArgumentKind.REGISTER and place not in known:
                    found.add(argument.value)
        return frozenset(found)

    def _kept(self) -> frozenset[int]:
        """Storages, and what lies in them, of which nothing is seen by a stranger."""
        root = {register: register for register in self._defined_by(_STORAGE)}
        lost = set[int]()
        grows = True
        while grows:
            grows = False
            for call in self._calls():
                place = _ALIASES.get(self._name(call))
                if place is None or place >= len(call.arguments):
                    continue
                source = root.get(call.arguments[place].value)
                is_register = call.arguments[place].kind is ArgumentKind.REGISTER
                if source is None or not is_register or call.target in root:
                    continue
                if call.target >= VOID_REGISTER:
                    continue
                if len(self.definitions[call.target]) > 1:
                    lost.add(source)
                root[call.target] = source
                grows = True
        lost |= {root[one] for one in self._seen(_READS_TENSORS, True) if one in root}
        return frozenset(one for one, source in root.items() if source not in lost)
