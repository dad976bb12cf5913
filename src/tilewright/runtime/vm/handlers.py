"""One handler per opcode: from a decoded instruction to a step of the interpreter.

`HANDLERS` has a row for every row of the instruction set; a test compares the two.  Arithmetic
rows share handlers by form; what touches memory, control or other functions has its own.  Called
by `bytecode_module` once per instruction, never while running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, cast

from tilewright.formats.bytecode.encoding import Instruction, Moves, float_from_bits
from tilewright.formats.bytecode.forms import FieldKind
from tilewright.formats.bytecode.isa import (
    IMPORT_BIT,
    MOVE_BIT,
    OPCODES,
    PLAIN_ARGUMENT,
    REF_BIT,
    REF_MASK,
    WORD_MASK,
    Opcode,
)
from tilewright.formats.calling_convention import CallingConvention
from tilewright.runtime.vm import floats, integers
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.frame import Leave, Refs, State, Step, Words
from tilewright.runtime.vm.list import VmList
from tilewright.runtime.vm.status import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    OUT_OF_RANGE,
    UNKNOWN,
    failure,
)


class CodeContext:
    """What handlers need to know of the module around an instruction.

    Args:
        types: class of each entry of the type table, None for those without.
        type_names: the entries' texts.
        imports: conventions of the imports.
        block_index: which block begins at a pc.
        honours_moves: the move bit of plain operands means something (bytecode 16 on).
    """

    def __init__(
        self,
        types: Sequence[type | None],
        type_names: Sequence[str],
        imports: Sequence[CallingConvention],
        block_index: Mapping[int, int],
        *,
        honours_moves: bool,
    ) -> None:
        self.types: Sequence[type | None] = types
        self.type_names: Sequence[str] = type_names
        self.imports: Sequence[CallingConvention] = imports
        self.block_index: Mapping[int, int] = block_index
        self.honours_moves: bool = honours_moves


Handler = Callable[[Instruction, CodeContext], "Step | Leave"]

# --- operands --------------------------------------------------------------------------------------


def _word(instruction: Instruction, field: str) -> int:
    return cast("int", instruction.value(field)) & WORD_MASK


def _ref(instruction: Instruction, field: str) -> int:
    return cast("int", instruction.value(field)) & REF_MASK


def _moves_ref(instruction: Instruction, field: str, context: CodeContext) -> bool:
    return context.honours_moves and bool(cast("int", instruction.value(field)) & MOVE_BIT)


def _typed(value: object, type_: type, what: str) -> Any:
    if value.__class__ is not type_:
        got = "null" if value is None else type(value).__name__
        raise failure(INVALID_ARGUMENT, f"{what} is {got}, expected {type_.__name__}")
    return value


def _buffer(value: object) -> VmBuffer:
    return value if isinstance(value, VmBuffer) else _typed(value, VmBuffer, "operand")


def _list(value: object) -> VmList:
    return value if isinstance(value, VmList) else _typed(value, VmList, "operand")


def _gather(registers: Sequence[int]) -> Callable[[Words, Refs], list[Any]]:
    """Reads registers of both banks in order; moved references leave theirs empty."""
    plan = tuple(
        (1, reg & REF_MASK) if reg & REF_BIT else (0, reg & WORD_MASK) for reg in registers
    )
    moved = tuple(reg & REF_MASK for reg in registers if reg & REF_BIT and reg & MOVE_BIT)
    if not moved:
        return lambda w, r: [(r if bank else w)[index] for bank, index in plan]

    def gather(w: Words, r: Refs) -> list[Any]:
        values = [(r if bank else w)[index] for bank, index in plan]
        for index in moved:
            r[index] = None
        return values

    return gather


def _scatter(registers: Sequence[int]) -> Callable[[Words, Refs, Sequence[Any]], None]:
    """Writes results into registers of both banks."""
    plan = tuple(
        (True, reg & REF_MASK) if reg & REF_BIT else (False, reg & WORD_MASK)
        for reg in registers
    )

    def scatter(w: Words, r: Refs, values: Sequence[Any]) -> None:
        for (is_ref, index), value in zip(plan, values, strict=True):
            if is_ref:
                r[index] = value
            else:
                w[index] = value

    return scatter


def _transfer(moves: Moves) -> Callable[[Words, Refs], object] | None:
    """The parallel register moves on the way to a block."""
    if not moves:
        return None
    read = _gather([source for source, _ in moves])
    write = _scatter([target for _, target in moves])
    return lambda w, r: write(w, r, read(w, r))


# --- forms of pure opcodes ---------------------------------------------------------------------------


def _unary(operation: Callable[..., Any]) -> Handler:
    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        a, result = (cast("int", v) & WORD_MASK for v in instruction.values)

        def step(w: Words, r: Refs, s: State) -> None:
            del r, s
            w[result] = operation(w[a])

        return step

    return handler


def _binary(operation: Callable[..., Any]) -> Handler:
    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        a, b, result = (cast("int", v) & WORD_MASK for v in instruction.values)

        def step(w: Words, r: Refs, s: State) -> None:
            del r, s
            w[result] = operation(w[a], w[b])

        return step

    return handler


def _ternary(operation: Callable[..., Any]) -> Handler:
    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        a, b, c, result = (cast("int", v) & WORD_MASK for v in instruction.values)

        def step(w: Words, r: Refs, s: State) -> None:
            del r, s
            w[result] = operation(w[a], w[b], w[c])

        return step

    return handler


def _select(instruction: Instruction, context: CodeContext) -> Step:
    del context
    condition, yes, no, result = (cast("int", v) & WORD_MASK for v in instruction.values)

    def step(w: Words, r: Refs, s: State) -> None:
        del r, s
        w[result] = w[yes] if w[condition] else w[no]

    return step


def _switch(instruction: Instruction, context: CodeContext) -> Step:
    del context
    index, default, result = (_word(instruction, f) for f in ("index", "default", "result"))
    values = tuple(
        v & WORD_MASK for v in cast("tuple[int, ...]", instruction.value("values"))
    )

    def step(w: Words, r: Refs, s: State) -> None:
        del r, s
        choice = w[index]
        w[result] = w[values[choice] if 0 <= choice < len(values) else default]

    return step


def _zero(instruction: Instruction, context: CodeContext) -> Step:
    del context
    result = _word(instruction, "result")
    blank = 0.0 if ".f" in instruction.opcode.name else 0

    def step(w: Words, r: Refs, s: State) -> None:
        del r, s
        w[result] = blank

    return step


def _constant(instruction: Instruction, context: CodeContext) -> Step:
    del context
    result = _word(instruction, "result")
    bank = instruction.opcode.fields[0].bank
    value: float = cast("int", instruction.value("value"))
    if bank in ("f32", "f64"):
        value = float_from_bits(cast("int", value), bank)

    def step(w: Words, r: Refs, s: State) -> None:
        del r, s
        w[result] = value

    return step


# --- references ---------------------------------------------------------------------------------------


def _null(instruction: Instruction, context: CodeContext) -> Step:
    del context
    result = _ref(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        del w, s
        r[result] = None

    return step


def _rodata(instruction: Instruction, context: CodeContext) -> Step:
    del context
    result = _ref(instruction, "result")
    segment = cast("int", instruction.value("segment"))

    def step(w: Words, r: Refs, s: State) -> None:
        del w
        r[result] = s.rodata[segment]

    return step


def _assign_ref(instruction: Instruction, context: CodeContext) -> Step:
    source, result = _ref(instruction, "operand"), _ref(instruction, "result")
    moves = _moves_ref(instruction, "operand", context)

    def step(w: Words, r: Refs, s: State) -> None:
        del w, s
        value = r[source]
        if moves:
            r[source] = None
        r[result] = value

    return step


def _cast_ref(instruction: Instruction, context: CodeContext) -> Step:
    assign = _assign_ref(instruction, context)
    source = _ref(instruction, "operand")
    index = cast("int", instruction.value("type"))
    wanted, name = context.types[index], context.type_names[index]

    def step(w: Words, r: Refs, s: State) -> None:
        value = r[source]
        if value is not None and wanted is not None and not isinstance(value, wanted):
            raise failure(
                INVALID_ARGUMENT, f"got {s.instance.name_of(value)}, expected {name}"
            )
        assign(w, r, s)

    return step


def _discard(instruction: Instruction, context: CodeContext) -> Step:
    del context
    refs = tuple(v & REF_MASK for v in cast("tuple[int, ...]", instruction.value("refs")))

    def step(w: Words, r: Refs, s: State) -> None:
        del w, s
        for index in refs:
            r[index] = None

    return step


def _compare_refs(*, equal: bool) -> Handler:
    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        left, right = _ref(instruction, "left"), _ref(instruction, "right")
        result = _word(instruction, "result")

        def step(w: Words, r: Refs, s: State) -> None:
            del s
            w[result] = int((r[left] is r[right]) == equal)

        return step

    return handler


def _is_ref(instruction: Instruction, context: CodeContext) -> Step:
    del context
    operand, result = _ref(instruction, "operand"), _word(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        w[result] = int(r[operand] is not None)

    return step


def _select_ref(instruction: Instruction, context: CodeContext) -> Step:
    del context
    condition = _word(instruction, "condition")
    yes, no, result = (_ref(instruction, f) for f in ("true", "false", "result"))

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        r[result] = r[yes] if w[condition] else r[no]

    return step


def _switch_ref(instruction: Instruction, context: CodeContext) -> Step:
    del context
    index = _word(instruction, "index")
    default, result = _ref(instruction, "default"), _ref(instruction, "result")
    values = tuple(
        v & REF_MASK for v in cast("tuple[int, ...]", instruction.value("values"))
    )

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        choice = w[index]
        r[result] = r[values[choice] if 0 <= choice < len(values) else default]

    return step


# --- globals -------------------------------------------------------------------------------------------

_LAYOUTS: Final[Mapping[str, Struct]] = {
    "i8.u": Struct("<B"),
    "i8.s": Struct("<b"),
    "i16.u": Struct("<H"),
    "i16.s": Struct("<h"),
    "i32": Struct("<i"),
    "i64": Struct("<q"),
    "f32": Struct("<f"),
    "f64": Struct("<d"),
}
_STORE_MASKS: Final[Mapping[str, int]] = {"i8": 0xFF, "i16": 0xFFFF}


def _global_load(bank: str, *, indirect: bool) -> Handler:
    layout = _LAYOUTS[bank]

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        result = _word(instruction, "result")
        if indirect:
            register = _word(instruction, "place")

            def step(w: Words, r: Refs, s: State) -> None:
                del r
                w[result] = layout.unpack_from(s.words, _place(w[register], layout, s))[0]

            return step
        place = cast("int", instruction.value("place"))

        def direct(w: Words, r: Refs, s: State) -> None:
            del r
            w[result] = layout.unpack_from(s.words, place)[0]

        return direct

    return handler


def _global_store(bank: str, *, indirect: bool) -> Handler:
    layout = _LAYOUTS[bank]

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        value = _word(instruction, "value")
        if indirect:
            register = _word(instruction, "place")

            def step(w: Words, r: Refs, s: State) -> None:
                del r
                layout.pack_into(s.words, _place(w[register], layout, s), w[value])

            return step
        place = cast("int", instruction.value("place"))

        def direct(w: Words, r: Refs, s: State) -> None:
            del r
            layout.pack_into(s.words, place, w[value])

        return direct

    return handler


def _place(offset: int, layout: Struct, s: State) -> int:
    if offset < 0 or offset + layout.size > len(s.words):
        raise failure(
            OUT_OF_RANGE, f"global at byte {offset} of {len(s.words)} bytes of globals"
        )
    return offset


def _global_ref(index: int, s: State) -> int:
    if not 0 <= index < len(s.refs):
        raise failure(OUT_OF_RANGE, f"global reference {index} of {len(s.refs)}")
    return index


def _global_load_ref(*, indirect: bool) -> Handler:
    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        result = _ref(instruction, "result")
        place = cast("int", instruction.value("place"))

        def step(w: Words, r: Refs, s: State) -> None:
            index = _global_ref(w[place & WORD_MASK], s) if indirect else place
            r[result] = s.refs[index]

        return step

    return handler


def _global_store_ref(*, indirect: bool) -> Handler:
    def handler(instruction: Instruction, context: CodeContext) -> Step:
        value = _ref(instruction, "value")
        moves = _moves_ref(instruction, "value", context)
        place = cast("int", instruction.value("place"))

        def step(w: Words, r: Refs, s: State) -> None:
            index = _global_ref(w[place & WORD_MASK], s) if indirect else place
            s.refs[index] = r[value]
            if moves:
                r[value] = None

        return step

    return handler


# --- buffers ---------------------------------------------------------------------------------------------


def _buffer_alloc(instruction: Instruction, context: CodeContext) -> Step:
    del context
    length, result = _word(instruction, "length"), _ref(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        r[result] = VmBuffer.allocate(w[length])

    return step


def _buffer_clone(instruction: Instruction, context: CodeContext) -> Step:
    del context
    source, result = _ref(instruction, "source"), _ref(instruction, "result")
    offset, length = _word(instruction, "offset"), _word(instruction, "length")

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        r[result] = VmBuffer(bytearray(_buffer(r[source]).range(w[offset], w[length])))

    return step


def _buffer_length(instruction: Instruction, context: CodeContext) -> Step:
    del context
    buffer, result = _ref(instruction, "buffer"), _word(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        w[result] = len(_buffer(r[buffer]).data)

    return step


def _buffer_copy(instruction: Instruction, context: CodeContext) -> Step:
    del context
    source, target = _ref(instruction, "source"), _ref(instruction, "target")
    source_offset, target_offset, length = (
        _word(instruction, f) for f in ("source_offset", "target_offset", "length")
    )

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        data = _buffer(r[source]).range(w[source_offset], w[length])
        _buffer(r[target]).writable(w[target_offset], w[length])[:] = bytes(data)

    return step


def _buffer_compare(instruction: Instruction, context: CodeContext) -> Step:
    del context
    left, right = _ref(instruction, "left"), _ref(instruction, "right")
    left_offset, right_offset, length, result = (
        _word(instruction, f) for f in ("left_offset", "right_offset", "length", "result")
    )

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        a = _buffer(r[left]).range(w[left_offset], w[length])
        b = _buffer(r[right]).range(w[right_offset], w[length])
        w[result] = int(a == b)

    return step


def _buffer_load(bank: str) -> Handler:
    layout = _LAYOUTS[bank]

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        buffer = _ref(instruction, "buffer")
        offset, result = _word(instruction, "offset"), _word(instruction, "result")

        def step(w: Words, r: Refs, s: State) -> None:
            del s
            w[result] = _buffer(r[buffer]).load(layout, w[offset] * layout.size)

        return step

    return handler


def _buffer_store(bank: str) -> Handler:
    layout = _LAYOUTS[bank if bank in _LAYOUTS else f"{bank}.u"]
    mask = _STORE_MASKS.get(bank)

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        buffer = _ref(instruction, "buffer")
        offset, value = _word(instruction, "offset"), _word(instruction, "value")

        def step(w: Words, r: Refs, s: State) -> None:
            del s
            number = w[value] if mask is None else w[value] & mask
            _buffer(r[buffer]).store(layout, w[offset] * layout.size, number)

        return step

    return handler


def _buffer_fill(bank: str) -> Handler:
    layout = _LAYOUTS[bank if bank in _LAYOUTS else f"{bank}.u"]
    mask = _STORE_MASKS.get(bank)

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        buffer = _ref(instruction, "buffer")
        offset, length, value = (
            _word(instruction, f) for f in ("offset", "length", "value")
        )

        def step(w: Words, r: Refs, s: State) -> None:
            del s
            number = w[value] if mask is None else w[value] & mask
            size = layout.size
            _buffer(r[buffer]).fill(layout, w[offset] * size, w[length] * size, number)

        return step

    return handler


def _buffer_hash(instruction: Instruction, context: CodeContext) -> Step:
    del context
    buffer = _ref(instruction, "buffer")
    offset, length, result = (_word(instruction, f) for f in ("offset", "length", "result"))

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        data = _buffer(r[buffer]).range(w[offset], w[length])
        w[result] = integers.wrap_i64(sip_hash(bytes(data)))

    return step


_M64: Final = 0xFFFF_FFFF_FFFF_FFFF


def _sip_round(v: list[int]) -> None:
    def rotate(value: int, count: int) -> int:
        return (value << count | value >> 64 - count) & _M64

    v[0] = v[0] + v[1] & _M64
    v[1] = rotate(v[1], 13) ^ v[0]
    v[0] = rotate(v[0], 32)
    v[2] = v[2] + v[3] & _M64
    v[3] = rotate(v[3], 16) ^ v[2]
    v[0] = v[0] + v[3] & _M64
    v[3] = rotate(v[3], 21) ^ v[0]
    v[2] = v[2] + v[1] & _M64
    v[1] = rotate(v[1], 17) ^ v[2]
    v[2] = rotate(v[2], 32)


def sip_hash(data: bytes, key: tuple[int, int] = (0, 0)) -> int:
    """SipHash-2-4.

    Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, section 2.
    """
    first, second = key
    v = [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]
    padded = data + bytes(7 - len(data) % 8) + bytes((len(data) & 0xFF,))
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        _sip_round(v)
        _sip_round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        _sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


# --- lists -------------------------------------------------------------------------------------------------


def _list_alloc(instruction: Instruction, context: CodeContext) -> Step:
    result = _ref(instruction, "result")
    name = context.type_names[cast("int", instruction.value("type"))]
    element = (
        name.removeprefix("!vm.list<").removesuffix(">") if "vm.list" in name else name
    )

    def step(w: Words, r: Refs, s: State) -> None:
        del w, s
        r[result] = VmList(element)

    return step


def _list_reserve(instruction: Instruction, context: CodeContext) -> Step:
    del context
    operand = _ref(instruction, "list")

    def step(w: Words, r: Refs, s: State) -> None:
        del w, s
        _list(r[operand])  # room is made as it is needed

    return step


def _list_size(instruction: Instruction, context: CodeContext) -> Step:
    del context
    operand, result = _ref(instruction, "list"), _word(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        w[result] = len(_list(r[operand]).items)

    return step


def _list_resize(instruction: Instruction, context: CodeContext) -> Step:
    del context
    operand, size = _ref(instruction, "list"), _word(instruction, "size")

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        _list(r[operand]).resize(w[size])

    return step


_FROM_LIST: Final[Mapping[str, Callable[[float], float]]] = {
    "i32": lambda v: integers.wrap_i32(int(v)),
    "i64": lambda v: integers.wrap_i64(int(v)),
    "f32": lambda v: floats.round_f32(float(v)),
    "f64": float,
}


def _list_get(bank: str) -> Handler:
    convert = _FROM_LIST[bank]

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        operand = _ref(instruction, "list")
        index, result = _word(instruction, "index"), _word(instruction, "result")

        def step(w: Words, r: Refs, s: State) -> None:
            del s
            w[result] = convert(_list(r[operand]).get_number(w[index]))

        return step

    return handler


def _list_set(instruction: Instruction, context: CodeContext) -> Step:
    del context
    operand = _ref(instruction, "list")
    index, value = _word(instruction, "index"), _word(instruction, "value")

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        _list(r[operand]).set(w[index], w[value])

    return step


def _list_get_ref(instruction: Instruction, context: CodeContext) -> Step:
    operand, result = _ref(instruction, "list"), _ref(instruction, "result")
    index = _word(instruction, "index")
    wanted = context.types[cast("int", instruction.value("type"))]

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        value = _list(r[operand]).get_ref(w[index])
        # An element of another type reads as null, so that code can ask what it is.
        r[result] = value if wanted is None or isinstance(value, wanted) else None

    return step


def _list_set_ref(instruction: Instruction, context: CodeContext) -> Step:
    operand, value = _ref(instruction, "list"), _ref(instruction, "value")
    index = _word(instruction, "index")
    moves = _moves_ref(instruction, "value", context)

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        _list(r[operand]).set(w[index], r[value])
        if moves:
            r[value] = None

    return step


# --- control -------------------------------------------------------------------------------------------------


def _target(instruction: Instruction, field: str, context: CodeContext) -> int:
    return context.block_index[cast("int", instruction.value(field))]


def _branch(instruction: Instruction, context: CodeContext) -> Leave:
    target = _target(instruction, "target", context)
    transfer = _transfer(cast("Moves", instruction.value("moves")))

    def leave(w: Words, r: Refs, s: State) -> int:
        del s
        if transfer is not None:
            transfer(w, r)
        return target

    return leave


def _conditional_branch(instruction: Instruction, context: CodeContext) -> Leave:
    condition = _word(instruction, "condition")
    yes, no = _target(instruction, "true", context), _target(instruction, "false", context)
    yes_transfer = _transfer(cast("Moves", instruction.value("true_moves")))
    no_transfer = _transfer(cast("Moves", instruction.value("false_moves")))

    def leave(w: Words, r: Refs, s: State) -> int:
        del s
        transfer, target = (yes_transfer, yes) if w[condition] else (no_transfer, no)
        if transfer is not None:
            transfer(w, r)
        return target

    return leave


def _branch_table(instruction: Instruction, context: CodeContext) -> Leave:
    index = _word(instruction, "index")
    cases = cast("tuple[tuple[int, Moves], ...]", instruction.value("cases"))
    rows = tuple((context.block_index[pc], _transfer(moves)) for pc, moves in cases)
    default = (
        _target(instruction, "default", context),
        _transfer(cast("Moves", instruction.value("default_moves"))),
    )

    def leave(w: Words, r: Refs, s: State) -> int:
        del s
        choice = w[index]
        target, transfer = rows[choice] if 0 <= choice < len(rows) else default
        if transfer is not None:
            transfer(w, r)
        return target

    return leave


def _return(instruction: Instruction, context: CodeContext) -> Leave:
    del context
    gather = _gather(cast("tuple[int, ...]", instruction.value("operands")))

    def leave(w: Words, r: Refs, s: State) -> tuple[object, ...]:
        del s
        return tuple(gather(w, r))

    return leave


def _fail(instruction: Instruction, context: CodeContext) -> Leave:
    """A status of zero lets the function return without results, as IREE's does."""
    del context
    status = _word(instruction, "status")
    message = cast("bytes", instruction.value("message")).decode("utf-8", errors="replace")

    def leave(w: Words, r: Refs, s: State) -> tuple[object, ...]:
        del r, s
        code = w[status]
        if code:
            raise failure(code if code > 0 else UNKNOWN, message or "the module failed")
        return ()

    return leave


def _trace(instruction: Instruction, context: CodeContext) -> Step:
    event = cast("bytes", instruction.value("event")).decode("utf-8", errors="replace")
    registers = cast("tuple[int, ...]", instruction.value("operands"))
    del context
    gather = _gather([reg & ~MOVE_BIT if reg & REF_BIT else reg for reg in registers])

    def step(w: Words, r: Refs, s: State) -> None:
        if s.tracer is not None:
            s.tracer(event, gather(w, r))

    return step


# --- calls -----------------------------------------------------------------------------------------------------


def _import_resolved(instruction: Instruction, context: CodeContext) -> Step:
    del context
    index = cast("int", instruction.value("callee")) & ~IMPORT_BIT
    result = _word(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        del r
        w[result] = int(s.imports[index] is not None)

    return step


def _call(instruction: Instruction, context: CodeContext) -> Step:
    callee = cast("int", instruction.value("callee"))
    gather = _gather(cast("tuple[int, ...]", instruction.value("operands")))
    results = cast("tuple[int, ...]", instruction.value("results"))
    if callee & IMPORT_BIT:
        return _import_call(callee & ~IMPORT_BIT, gather, results)
    del context
    scatter = _scatter(results)

    def step(w: Words, r: Refs, s: State) -> None:
        scatter(w, r, s.call(callee, gather(w, r)))

    return step


def _call_variadic(instruction: Instruction, context: CodeContext) -> Step:
    callee = cast("int", instruction.value("callee"))
    gather = _gather(cast("tuple[int, ...]", instruction.value("operands")))
    results = cast("tuple[int, ...]", instruction.value("results"))
    segments = cast("tuple[int, ...]", instruction.value("segments"))
    fold = _fold(context.imports[callee & ~IMPORT_BIT], segments)
    return _import_call(callee & ~IMPORT_BIT, lambda w, r: fold(gather(w, r)), results)


def _fold(
    convention: CallingConvention, segments: Sequence[int]
) -> Callable[[list[Any]], list[Any]]:
    """Flat operands to arguments, with the entries of lists put together."""
    plan: list[tuple[int, int, int]] = []  # begin, end, width; width 0 for a plain argument
    position = 0
    for argument, segment in zip(convention.arguments, segments, strict=True):
        if segment == PLAIN_ARGUMENT:
            plan.append((position, position + 1, 0))
            position += 1
        else:
            end = position + segment * len(argument)
            plan.append((position, end, len(argument)))
            position = end

    def fold(values: list[Any]) -> list[Any]:
        arguments: list[Any] = []
        for begin, end, width in plan:
            if width == 0:
                arguments.append(values[begin])
            elif width == 1:
                arguments.append(values[begin:end])
            else:
                arguments.append(
                    [tuple(values[i : i + width]) for i in range(begin, end, width)]
                )
        return arguments

    return fold


def _import_call(
    index: int, gather: Callable[[Words, Refs], list[Any]], results: Sequence[int]
) -> Step:
    def callee(s: State) -> Callable[..., Any]:
        found = s.imports[index]
        if found is None:
            raise failure(NOT_FOUND, f"optional import {index} is not there")
        return found

    if not results:

        def call_none(w: Words, r: Refs, s: State) -> None:
            callee(s)(*gather(w, r))

        return call_none
    if len(results) == 1:
        register = results[0]
        is_ref = bool(register & REF_BIT)
        place = register & (REF_MASK if is_ref else WORD_MASK)

        def call_one(w: Words, r: Refs, s: State) -> None:
            value = callee(s)(*gather(w, r))
            (r if is_ref else w)[place] = value

        return call_one
    scatter = _scatter(results)

    def call_many(w: Words, r: Refs, s: State) -> None:
        scatter(w, r, callee(s)(*gather(w, r)))

    return call_many


def _then_branch(call: Handler) -> Handler:
    """A call that may suspend: this interpreter blocks instead, then goes to the block."""

    def handler(instruction: Instruction, context: CodeContext) -> Leave:
        step = cast("Step", call(instruction, context))
        target = _target(instruction, "target", context)

        def leave(w: Words, r: Refs, s: State) -> int:
            step(w, r, s)
            return target

        return leave

    return handler


def _block(instruction: Instruction, context: CodeContext) -> Step:
    del instruction, context
    raise failure(FAILED_PRECONDITION, "a block marker is no step")


# --- the table ---------------------------------------------------------------------------------------------------

_SPECIAL: Final[Mapping[str, Handler]] = {
    "const.ref.zero": _null,
    "const.ref.rodata": _rodata,
    "select.ref": _select_ref,
    "switch.ref": _switch_ref,
    "cmp.eq.ref": _compare_refs(equal=True),
    "cmp.ne.ref": _compare_refs(equal=False),
    "cmp.nz.ref": _is_ref,
    "cast.any.ref": _cast_ref,
    "assign.ref": _assign_ref,
    "discard.refs": _discard,
    "global.load.ref": _global_load_ref(indirect=False),
    "global.load.indirect.ref": _global_load_ref(indirect=True),
    "global.store.ref": _global_store_ref(indirect=False),
    "global.store.indirect.ref": _global_store_ref(indirect=True),
    "list.alloc": _list_alloc,
    "list.reserve": _list_reserve,
    "list.size": _list_size,
    "list.resize": _list_resize,
    "list.get.ref": _list_get_ref,
    "list.set.ref": _list_set_ref,
    "buffer.alloc": _buffer_alloc,
    "buffer.clone": _buffer_clone,
    "buffer.length": _buffer_length,
    "buffer.copy": _buffer_copy,
    "buffer.compare": _buffer_compare,
    "buffer.hash": _buffer_hash,
    "br": _branch,
    "yield": _branch,
    "break": _branch,
    "cond_break": _branch,
    "cond_br": _conditional_branch,
    "br_table": _branch_table,
    "return": _return,
    "fail": _fail,
    "trace": _trace,
    "print": _trace,
    "import.resolved": _import_resolved,
    "call": _call,
    "call.variadic": _call_variadic,
    "call.yieldable": _then_branch(_call),
    "call.variadic.yieldable": _then_branch(_call_variadic),
    "block": _block,
}
_PREFIXES: Final[Mapping[str, Callable[[str], Handler]]] = {
    "const.": lambda bank: _zero if bank.endswith(".zero") else _constant,
    "select.": lambda bank: _select,
    "switch.": lambda bank: _switch,
    "global.load.indirect.": lambda bank: _global_load(bank, indirect=True),
    "global.store.indirect.": lambda bank: _global_store(bank, indirect=True),
    "global.load.": lambda bank: _global_load(bank, indirect=False),
    "global.store.": lambda bank: _global_store(bank, indirect=False),
    "list.get.": _list_get,
    "list.set.": lambda bank: _list_set,
    "buffer.load.": _buffer_load,
    "buffer.store.": _buffer_store,
    "buffer.fill.": _buffer_fill,
}
_ARITY: Final = {1: _unary, 2: _binary, 3: _ternary}


def _handler(opcode: Opcode) -> Handler:
    special = _SPECIAL.get(opcode.name)
    if special is not None:
        return special
    for prefix, make in _PREFIXES.items():
        if opcode.name.startswith(prefix):
            return make(opcode.name.removeprefix(prefix))
    operation = integers.OPERATIONS.get(opcode.name) or floats.OPERATIONS[opcode.name]
    operands = sum(field.kind is FieldKind.OPERAND for field in opcode.fields)
    return _ARITY[operands](operation)


HANDLERS: Final[Mapping[str, Handler]] = {o.name: _handler(o) for o in OPCODES}
"""Opcode name to handler."""
