"""Loads and stores: contiguous, strided, masked, gathered, and REGISTER buffers as SSA values.

Element alignment only.  A load is repeated only when a store may have changed what it read.
Called by expressions and statements of this room.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.ir import (
    Buffer,
    Expression,
    Load,
    Prefetch,
    Select,
    Space,
    Store,
)
from tilewright.compiler.kernel.lanes import has_lanes, room_of_first_lanes
from tilewright.compiler.printers.llvm_text.arithmetic import Arithmetic
from tilewright.compiler.printers.llvm_text.first_lanes import store_first_lanes
from tilewright.compiler.printers.llvm_text.indices import Indices
from tilewright.compiler.printers.llvm_text.places import (
    asking,
    places_far_apart,
    places_near,
)
from tilewright.compiler.printers.llvm_text.registers import Registers, Slot
from tilewright.compiler.printers.llvm_text.types import (
    Value,
    mangle,
    memory_type,
    split_type,
    value_type,
    vector,
)
from tilewright.compiler.printers.llvm_text.writer import FunctionWriter, Masked

_SHORTENED: Final = ("i8", "i16", "i32")
"""What longer integers may have been shortened to."""
_MASKABLE: Final = {"float": 4, "double": 8, "i32": 4, "i64": 8}
"""The sizes of elements of which x86 reads and stores some of a vector without AVX-512."""
MAX_WIDE_STRIDE: Final = 8
"""Up to this stride, whole vectors are read and shuffled instead of single elements."""


def _keeps_some(node: Store) -> bool:
    """Whether a store writes what was there where a condition does not hold, or does."""
    found = node.value
    sides = (found.if_true, found.if_false) if isinstance(found, Select) else ()
    place = (node.buffer, node.indices, node.stride)
    loads = (side for side in sides if isinstance(side, Load))
    return any((x.buffer, x.indices, x.stride) == place for x in loads)


@final
class Memory:
    """Emits memory accesses and knows what every REGISTER slot holds."""

    def __init__(
        self,
        arithmetic: Arithmetic,
        indices: Indices,
        registers: Registers,
        evaluate: Callable[[Expression], Value],
        wide_index: Callable[[Dim, int], Value],
    ) -> None:
        self.a: Arithmetic = arithmetic
        self.writer: FunctionWriter = arithmetic.writer
        self.indices: Indices = indices
        self.registers: Registers = registers
        self.evaluate: Callable[[Expression], Value] = evaluate
        self.wide_index: Callable[[Dim, int], Value] = wide_index
        self.bases: dict[Buffer, Value] = {}
        self.fixed: frozenset[Buffer] = frozenset()
        self.slots: dict[Slot, Value] = {}
        self.stores_pieces: bool = False

    # --- loads -----------------------------------------------------------------------------

    def load(self, node: Load) -> Value:
        """The value of a load."""
        place = self.registers.place(node)
        if place is not None:
            return self._load_slot(node, *place)
        (dim,) = node.indices
        mask = None if node.mask is None else self.evaluate(node.mask)
        place_in_memory = self.indices.from_memory(dim)
        key = (node.buffer, dim, place_in_memory, node.lanes, node.stride, mask)
        found = (s.loads[key] for s in self.writer.scopes if key in s.loads)
        known = next(found, None)
        if isinstance(known, Value):
            return known
        if known is None:
            value = self._from_memory(node, self._load(node, dim, mask))
        else:
            value = self.a.select(known.mask, known.value, self._zero(known.value.type))
        self.writer.scope.loads[key] = value
        return value

    def _from_memory(self, node: Load, value: Value) -> Value:
        if node.buffer.dtype.is_bool:
            return self.a.compare("icmp ne", value, self.a.integer(value, 0))
        return value

    def _load(self, node: Load, dim: Dim, mask: Value | None) -> Value:
        if node.lanes == 1:
            return self._load_scalar(node.buffer, dim, mask)
        if has_lanes(dim):
            return self._gather(node, dim, mask)
        if node.stride == 1:
            return self._load_vector(node.buffer, dim, node.lanes, mask)
        if node.stride == -1:
            return self._load_reversed(node, dim, mask)
        if node.stride == 0:
            return self._load_uniform(node, dim, mask)
        near = 1 < node.stride <= MAX_WIDE_STRIDE and node.stride < node.lanes
        if mask is not None:
            if near and self._reads_some(node.buffer.dtype):
                return self._load_strided(node, dim, mask)
            return self._gather(node, dim, mask)
        return self._load_strided(node, dim, None) if near else self._load_lanes(node, dim)

    def _reads_some(self, dtype: DType) -> bool:
        """Whether the target reads some elements of a vector in one instruction."""
        return self.a.can.masks or (
            self.a.can.slow_masks and memory_type(dtype) in _MASKABLE
        )

    def address(self, buffer: Buffer, dim: Dim) -> Value:
        """The address of an element."""
        base = self.bases[buffer]
        return self.indices.pointer(base, memory_type(buffer.dtype), dim)

    def _load_scalar(self, buffer: Buffer, dim: Dim, mask: Value | None) -> Value:
        type_ = memory_type(buffer.dtype)
        address = self.address(buffer, dim)
        if mask is not None:
            address = self._guarded(address, mask)
        text = f"load {type_}, {address}, align {buffer.dtype.itemsize}"
        if buffer in self.fixed and mask is None:
            # Nothing writes there: it is read once, and what is made of it alone is made once.
            mark = f"!invariant.load {self.writer.metadata('{}')}"
            return self.writer.pure(type_, f"{text}, {mark}", address)
        value = self.writer.here(type_, text)
        return value if mask is None else self.a.select(mask, value, self._zero(type_))

    def _zero(self, type_: str) -> Value:
        scalar, _ = split_type(type_)
        plain = "0.0" if scalar in ("float", "double") else "0"
        return Value("zeroinitializer" if type_.startswith("<") else plain, type_)

    def _guarded(self, address: Value, condition: Value) -> Value:
        """`address`, or that of a harmless zero when the access must not happen."""
        spare = Value("@.tw.zero", "ptr")
        self.writer.declarations.setdefault(
            ".tw.zero", "@.tw.zero = internal constant [8 x i8] zeroinitializer, align 8"
        )
        return self.a.select(condition, address, spare)

    def _load_vector(
        self, buffer: Buffer, dim: Dim, lanes: int, mask: Value | None
    ) -> Value:
        type_ = memory_type(buffer.dtype, lanes)
        address = self.address(buffer, dim)
        align = buffer.dtype.itemsize
        if mask is None:
            return self.writer.here(type_, f"load {type_}, {address}, align {align}")
        mask = self._apart(mask)
        name = f"llvm.masked.load.{mangle(*split_type(type_))}.p0"
        self.writer.declare(type_, name, "ptr", mask.type, type_)
        zero = self._zero(type_)
        text = f"call {type_} @{name}(ptr align {align} {address.text}, {mask}, {zero})"
        return self.writer.here(type_, text)

    def _apart(self, mask: Value) -> Value:
        """The mask in a register of its own: LLVM neither compares it with others nor knows its bits.

        LLVM 22 folds a load into an operation with the same mask, then may take it out again
        without the mask: it touches what the mask forbids.  See llvm/llvm-project#161074.  And of integers that are
        shortened and stored under a mask with one lane, it stores that lane as wide as it was before.
        """
        _, lanes = split_type(mask.type)
        legal = next((n for n in (8, 16, 32, 64) if n >= lanes), None)
        if not self.a.can.masks or legal is None:
            return mask
        wide = self._widen(mask, legal)
        text = f'call {wide.type} asm "", "=k,0"({wide})'
        own = self.writer.pure(wide.type, text, wide)
        return own if legal == lanes else self.a.shuffle(own, None, list(range(lanes)))

    def _load_reversed(self, node: Load, dim: Dim, mask: Value | None) -> Value:
        order = list(reversed(range(node.lanes)))
        if mask is not None:
            mask = self.a.shuffle(mask, None, order)
        first = dim - (node.lanes - 1)
        forward = self._load_vector(node.buffer, first, node.lanes, mask)
        return self.a.shuffle(forward, None, order)

    def _load_uniform(self, node: Load, dim: Dim, mask: Value | None) -> Value:
        """One element for every lane whose mask is set; no access when none is."""
        if mask is None:
            return self.a.splat(self._load_scalar(node.buffer, dim, None), node.lanes)
        some = self.a.any_lane(mask)
        single = self._load_scalar(node.buffer, dim, some)
        wide = self.a.splat(single, node.lanes)
        return self.a.select(mask, wide, self._zero(wide.type))

    def _load_strided(self, node: Load, dim: Dim, mask: Value | None) -> Value:
        """Whole vectors, the last one ending at the last element wanted, shuffled together.

        With a mask, of each vector only what a lane wants whose mask is set.
        """
        lanes, stride = node.lanes, node.stride
        span = (lanes - 1) * stride + 1
        result: Value | None = None
        for window in range(0, span, lanes):
            begin = min(window, span - lanes)
            part = None if mask is None else self._wanted(mask, begin, stride)
            wide = self._load_vector(node.buffer, dim + begin, lanes, part)
            order = list(range(lanes))
            for lane in range(
                -(-window // stride), min(lanes, -(-(window + lanes) // stride))
            ):
                order[lane] = lane * stride - begin + (0 if result is None else lanes)
            if result is None:
                result = self.a.shuffle(wide, None, order)
            else:
                result = self.a.shuffle(result, wide, order)
        assert result is not None
        return result

    def _wanted(self, mask: Value, begin: int, stride: int) -> Value:
        """Which elements from `begin` on a lane wants whose mask is set: those a stride apart."""
        _, lanes = split_type(mask.type)
        places = range(begin, begin + lanes)
        order = [
            place // stride if place % stride == 0 and place // stride < lanes else lanes
            for place in places
        ]
        return self.a.shuffle(mask, Value("zeroinitializer", mask.type), order)

    def _widen(self, value: Value, lanes: int) -> Value:
        _scalar, count = split_type(value.type)
        if count == 1:
            return self.a.splat(value, lanes)
        if count == lanes:
            return value
        return self.a.shuffle(value, None, [min(i, count - 1) for i in range(lanes)])

    def _collect(self, items: list[Value]) -> Value:
        type_ = vector(items[0].type, len(items))
        whole = Value("poison", type_)
        for lane, item in enumerate(items):
            whole = self.a.with_lane(whole, lane, item)
        return whole

    def _load_lanes(self, node: Load, dim: Dim) -> Value:
        return self._collect(
            [
                self._load_scalar(node.buffer, dim + lane * node.stride, None)
                for lane in range(node.lanes)
            ]
        )

    def _gather(self, node: Load, dim: Dim, mask: Value | None) -> Value:
        """Elements at places of each lane's own."""
        near = places_near(dim, node.lanes, node.stride)
        if near is not None:
            return self._load_near(node.buffer, *near, mask)
        apart = places_far_apart(dim, node.lanes, node.stride) if mask is None else None
        if apart is not None:
            return self._collect([self._load_scalar(node.buffer, at, None) for at in apart])
        addresses = self._lane_addresses(node.buffer, dim, node.lanes, node.stride)
        type_ = memory_type(node.buffer.dtype)
        align = node.buffer.dtype.itemsize
        if mask is None:
            items = [
                self.writer.here(type_, f"load {type_}, {address}, align {align}")
                for address in (self.a.lane(addresses, i) for i in range(node.lanes))
            ]
            return self._collect(items)
        wide = vector(type_, node.lanes)
        name = f"llvm.masked.gather.{mangle(type_, node.lanes)}.v{node.lanes}p0"
        self.writer.declare(wide, name, addresses.type, mask.type, wide)
        text = (
            f"call {wide} @{name}({addresses.type} align {align} {addresses.text}, "
            f"{mask}, {self._zero(wide)})"
        )
        return self.writer.here(wide, text)

    def _load_near(
        self, buffer: Buffer, first: Dim, places: list[int], mask: Value | None
    ) -> Value:
        """The elements at `first + places`, which one vector holds: read whole and shuffled."""
        count = max(places) + 1
        if count == 1:
            return self._load_uniform(Load(buffer, (first,), len(places), 0), first, mask)
        lanes = len(places)
        if mask is not None:
            narrow = self._asked(mask, places, count)
        elif self.a.can.masks and count < lanes and count & (count - 1):
            # LLVM would read a vector of so many elements in pieces.
            bits = ", ".join(f"i1 {int(lane < count)}" for lane in range(lanes))
            narrow, count = Value(f"<{bits}>", f"<{lanes} x i1>"), lanes
        else:
            narrow = None
        wide = self.a.shuffle(self._load_vector(buffer, first, count, narrow), None, places)
        return wide if mask is None else self.a.select(mask, wide, self._zero(wide.type))

    def _asked(self, mask: Value, places: list[int], count: int) -> Value:
        """Which of `count` elements a lane asks for whose mask is set.

        In numbers, which vectors shuffle; single bits of a mask move one at a time.
        """
        type_ = vector("i32", len(places))
        numbers = self.a.op(type_, f"sext {mask} to {type_}", mask)
        # LLVM would shuffle the bits after all; what fills a register can be kept from it.
        if self.a.can.masks and len(places) in (4, 8, 16):
            text = f'call {type_} asm "", "=v,0"({numbers})'
            numbers = self.writer.pure(type_, text, numbers)
        zero = self.a.integer(numbers, 0)
        asked: Value | None = None
        for order in asking(places, count):
            found = self.a.shuffle(numbers, zero, order)
            asked = found if asked is None else self.a.binary("or", asked, found)
        assert asked is not None
        return self.a.compare("icmp ne", asked, self.a.integer(asked, 0))

    def _lane_addresses(self, buffer: Buffer, dim: Dim, lanes: int, stride: int) -> Value:
        offsets = self.wide_index(dim, lanes)
        if stride:
            steps = self.a.iota(lanes, stride, "i64")
            offsets = self.a.binary("add", offsets, steps)
        unit = memory_type(buffer.dtype)
        base = self.bases[buffer]
        type_ = vector("ptr", lanes)
        return self.a.op(type_, f"getelementptr {unit}, {base}, {offsets}", base, offsets)

    # --- stores ----------------------------------------------------------------------------

    def store(self, node: Store, value: Value | None = None) -> None:
        """Run a store; `value` is what it writes, if that was computed before."""
        value = self.evaluate(node.value) if value is None else value
        mask = None if node.mask is None else self.evaluate(node.mask)
        place = self.registers.place(node)
        if place is not None:
            self._store_slot(value, mask, *place)
            return
        (dim,) = node.indices
        if node.buffer.dtype.is_bool:
            value = self.a.convert("zext", value, "i8")
        self._store(node, dim, value, mask)
        self.forget({node.buffer})
        if mask is None or node.value.lanes == 1 or node.stride != 1:
            return
        if not has_lanes(dim) and not node.buffer.dtype.is_bool:
            # Processors wait for such a store to reach the cache: a load under the same mask gets what was stored.
            place_in_memory = self.indices.from_memory(dim)
            key = (node.buffer, dim, place_in_memory, node.value.lanes, node.stride, mask)
            self.writer.scope.loads[key] = Masked(value, mask)

    def _store(self, node: Store, dim: Dim, value: Value, mask: Value | None) -> None:
        lanes, buffer = node.value.lanes, node.buffer
        align = buffer.dtype.itemsize
        if lanes == 1:
            address = self.address(buffer, dim)
            if mask is not None:
                address = self._guarded_target(address, mask)
            self.writer.effect(f"store {value}, {address}, align {align}")
        elif has_lanes(dim) or node.stride not in (1, -1):
            self._scatter(node, dim, value, mask)
        else:
            if node.stride == -1:
                order = list(reversed(range(lanes)))
                value = self.a.shuffle(value, None, order)
                mask = None if mask is None else self.a.shuffle(mask, None, order)
                dim = dim - (lanes - 1)
            if self.a.can.slow_masks and mask is None and _keeps_some(node):
                value = self._in_register(value)
            count = None
            if self.a.can.slow_masks and node.mask is not None and node.stride == 1:
                count = self._first_lanes(node.mask)
            if isinstance(count, int):
                self._store_first(buffer, dim, value, count)
            elif count is None:
                self._store_vector(buffer, dim, value, mask)
            else:
                place = self.address(buffer, dim)
                store_first_lanes(self.a, value, place, memory_type(buffer.dtype), count)

    def _first_lanes(self, mask: Expression) -> int | Value | None:
        """How many lanes from the first on a mask has set; None for any other mask, for lanes that have no half, and where too many are stored."""
        room, lanes = room_of_first_lanes(mask), mask.lanes
        if isinstance(room, int):
            return min(max(room, 0), lanes)
        if room is None or lanes & (lanes - 1) or not self.stores_pieces:
            return None
        return self.indices.kept(room, 0, lanes)

    def _store_first(self, buffer: Buffer, dim: Dim, value: Value, count: int) -> None:
        """The first lanes of a vector, in ever shorter ones: sooner than under a mask."""
        begin = 0
        while begin < count:
            size = 1 << ((count - begin).bit_length() - 1)
            part = self.a.shuffle(value, None, list(range(begin, begin + size)))
            self._store_vector(buffer, dim + begin, part, None)
            begin += size

    def _in_register(self, value: Value) -> Value:
        """A vector that LLVM cannot look into: it would store a choice between new and old elements under a mask."""
        scalar, lanes = split_type(value.type)
        if scalar not in _MASKABLE or lanes * _MASKABLE[scalar] not in (16, 32):
            return value
        return self.a.op(value.type, f'call {value.type} asm "", "=x,0"({value})', value)

    def _guarded_target(self, address: Value, condition: Value) -> Value:
        spare = self.writer.scopes[0].values.get(("spare",))
        if spare is None:
            spare = Value("%spare", "ptr")
            self.writer.blocks[0].phis.append("%spare = alloca [8 x i8], align 8")
            self.writer.scopes[0].values["spare",] = spare
        return self.a.select(condition, address, spare)

    def _store_vector(
        self, buffer: Buffer, dim: Dim, value: Value, mask: Value | None
    ) -> None:
        address = self.address(buffer, dim)
        align = buffer.dtype.itemsize
        if mask is None:
            self.writer.effect(f"store {value}, {address}, align {align}")
            return
        scalar, lanes = split_type(value.type)
        if scalar in _SHORTENED:
            mask = self._apart(mask)
        name = f"llvm.masked.store.{mangle(scalar, lanes)}.p0"
        self.writer.declare("void", name, value.type, "ptr", mask.type)
        self.writer.effect(
            f"call void @{name}({value}, ptr align {align} {address.text}, {mask})"
        )

    def _store_strided(
        self, node: Store, dim: Dim, value: Value, mask: Value | None
    ) -> None:
        """Whole vectors under masks that leave the gaps alone, and lanes whose mask is not set."""
        lanes, stride = node.value.lanes, node.stride
        every = vector("i1", lanes)
        given = mask or Value(f"<{', '.join(['i1 true'] * lanes)}>", every)
        for window in range(0, (lanes - 1) * stride + 1, lanes):
            places = range(window, window + lanes)
            order = [min(place // stride, lanes - 1) for place in places]
            wanted = self._wanted(given, window, stride)
            spread = self.a.shuffle(value, None, order)
            self._store_vector(node.buffer, dim + window, spread, wanted)

    def _scatter(self, node: Store, dim: Dim, value: Value, mask: Value | None) -> None:
        buffer, lanes = node.buffer, node.value.lanes
        align = buffer.dtype.itemsize
        if not has_lanes(dim):
            if self.a.can.masks and 1 < node.stride <= MAX_WIDE_STRIDE < 2 * lanes:
                self._store_strided(node, dim, value, mask)
                return
            if mask is None:
                places = [dim + lane * node.stride for lane in range(lanes)]
                self._store_lanes(buffer, value, places)
                return
        apart = places_far_apart(dim, lanes, node.stride) if mask is None else None
        if apart is not None:
            self._store_lanes(buffer, value, apart)
            return
        addresses = self._lane_addresses(buffer, dim, lanes, node.stride)
        if mask is None:
            for lane in range(lanes):
                item, address = self.a.lane(value, lane), self.a.lane(addresses, lane)
                self.writer.effect(f"store {item}, {address}, align {align}")
            return
        name = f"llvm.masked.scatter.{mangle(*split_type(value.type))}.v{lanes}p0"
        self.writer.declare("void", name, value.type, addresses.type, mask.type)
        self.writer.effect(
            f"call void @{name}({value}, {addresses.type} align {align} {addresses.text}, "
            f"{mask})"
        )

    def _store_lanes(self, buffer: Buffer, value: Value, places: Sequence[Dim]) -> None:
        """Each lane at a place of its own, in order."""
        align = buffer.dtype.itemsize
        for lane, place in enumerate(places):
            item, address = self.a.lane(value, lane), self.address(buffer, place)
            self.writer.effect(f"store {item}, {address}, align {align}")

    def prefetch(self, node: Prefetch) -> None:
        """Ask for a line of memory; LLVM drops it where the target cannot."""
        address = self.address(node.buffer, node.indices[0])
        name = "llvm.prefetch.p0"
        self.writer.declare("void", name, "ptr", "i32 immarg", "i32 immarg", "i32 immarg")
        read, locality, data = 0, 4 - node.level, 1
        self.writer.effect(
            f"call void @{name}({address}, i32 {read}, i32 {locality}, i32 {data})"
        )

    def forget(self, buffers: set[Buffer]) -> None:
        """Drop remembered loads that stores to `buffers` may have changed."""
        device = any(b.space is Space.DEVICE for b in buffers)
        for scope in self.writer.scopes:
            stale = [
                key
                for key in scope.loads
                if key[0] in buffers
                or (device and isinstance(key[0], Buffer) and key[0].space is Space.DEVICE)
            ]
            for key in stale:
                del scope.loads[key]

    # --- slots -----------------------------------------------------------------------------

    def slot_value(self, slot: Slot) -> Value:
        """What a slot holds; zero before the first store."""
        known = self.slots.get(slot)
        return self._zero_slot(slot) if known is None else known

    def _zero_slot(self, slot: Slot) -> Value:
        type_ = value_type(slot.buffer.dtype, slot.lanes)
        return Value("false", type_) if type_ == "i1" else self._zero(type_)

    def _load_slot(self, node: Load, slot: Slot, access: tuple[int, int, int]) -> Value:
        whole = self.slot_value(slot)
        first, lanes, stride = access
        if (lanes, stride) == (slot.lanes, 1):
            value = whole
        elif lanes == 1:
            value = self.a.lane(whole, first - slot.first)
        elif slot.lanes == 1:
            value = self.a.splat(whole, lanes)
        else:
            begin = first - slot.first
            order = [begin + lane * stride for lane in range(lanes)]
            value = self.a.shuffle(whole, None, order)
        if node.mask is None:
            return value
        return self.a.select(self.evaluate(node.mask), value, self._zero(value.type))

    def _store_slot(
        self, value: Value, mask: Value | None, slot: Slot, access: tuple[int, int, int]
    ) -> None:
        whole = self.slot_value(slot)
        first, lanes, stride = access
        if (lanes, stride) == (slot.lanes, 1):
            new = value
        elif lanes == 1:
            new = self.a.with_lane(whole, first - slot.first, value)
        else:
            begin = first - slot.first
            order = list(range(slot.lanes))
            for lane in range(lanes):
                order[begin + lane * stride] = slot.lanes + lane
            new = self.a.shuffle(whole, self._widen(value, slot.lanes), order)
        if mask is not None and (lanes, stride) == (slot.lanes, 1):
            new = self.a.select(mask, new, whole)
        elif mask is not None:
            new = self._merge_masked(new, whole, mask, slot, access)
        self.slots[slot] = new

    def _merge_masked(
        self, new: Value, old: Value, mask: Value, slot: Slot, access: tuple[int, int, int]
    ) -> Value:
        first, lanes, stride = access
        if lanes == 1:
            return self.a.select(mask, new, old)
        never = Value("zeroinitializer", vector("i1", slot.lanes))
        order = list(range(slot.lanes))
        for lane in range(lanes):
            order[first - slot.first + lane * stride] = slot.lanes + lane
        wide = self.a.shuffle(never, self._widen(mask, slot.lanes), order)
        return self.a.select(wide, new, old)
