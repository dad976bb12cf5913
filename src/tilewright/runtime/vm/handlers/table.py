"""The table of what every row of the instruction set does, for both engines.

A row's handler binds an instruction to a step of the interpreter; its template, or its emitter, is
how the translator writes it as Python.  A row with neither runs as a step in translated code too,
so a new opcode needs a handler alone.  A test holds the rows to the instruction set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, final

from tilewright.formats.bytecode.forms import FieldKind
from tilewright.formats.bytecode.isa import (
    OPCODES,
    Opcode,
)
from tilewright.runtime.vm import floats, integers
from tilewright.runtime.vm.handlers.buffers import (
    buffer_alloc,
    buffer_clone,
    buffer_compare,
    buffer_copy,
    buffer_fill,
    buffer_hash,
    buffer_length,
    buffer_load,
    buffer_store,
)
from tilewright.runtime.vm.handlers.calls import (
    block,
    call,
    call_variadic,
    import_resolved,
    then_branch,
)
from tilewright.runtime.vm.handlers.control import (
    branch,
    branch_table,
    break_,
    conditional_branch,
    fail,
    failed,
    return_,
    trace,
)
from tilewright.runtime.vm.handlers.emission import Emitter
from tilewright.runtime.vm.handlers.emitters import (
    emit_branch,
    emit_branch_table,
    emit_break,
    emit_call,
    emit_call_variadic,
    emit_conditional_branch,
    emit_conditional_break,
    emit_discard,
    emit_fail,
    emit_import_resolved,
    emit_resumable,
    emit_return,
    emit_trace,
)
from tilewright.runtime.vm.handlers.global_values import (
    LAYOUTS,
    global_load,
    global_load_ref,
    global_store,
    global_store_ref,
)
from tilewright.runtime.vm.handlers.lists import (
    list_alloc,
    list_get,
    list_get_ref,
    list_reserve,
    list_resize,
    list_set,
    list_set_ref,
    list_size,
)
from tilewright.runtime.vm.handlers.operands import Handler, as_buffer, as_list
from tilewright.runtime.vm.handlers.pure import (
    binary,
    constant,
    pick,
    select,
    switch,
    ternary,
    unary,
    zero,
)
from tilewright.runtime.vm.handlers.references import (
    assign_ref,
    cast_ref,
    compare_refs,
    discard,
    is_ref,
    null,
    rodata,
    select_ref,
    switch_ref,
)


@final
@dataclass(frozen=True, slots=True)
class Row:
    """What an opcode does.

    Attributes:
        handler: binds an instruction to a step.
        source: a statement with `{field}` for the fields, or a function that writes several; None
            to run the step.
    """

    handler: Handler
    source: str | Emitter | None = None


_LIST: Final = "as_list({list})"
_BUFFER: Final = "as_buffer({buffer})"
_SPECIAL: Final[Mapping[str, Row]] = {
    "const.ref.zero": Row(null, "{result} = None"),
    "const.ref.rodata": Row(rodata, "{result} = rodata[{segment}]"),
    "select.ref": Row(select_ref, "{result} = {true} if {condition} else {false}"),
    "switch.ref": Row(switch_ref, "{result} = pick({index}, {values}, {default})"),
    "cmp.eq.ref": Row(compare_refs(equal=True), "{result} = 1 if {left} is {right} else 0"),
    "cmp.ne.ref": Row(
        compare_refs(equal=False), "{result} = 0 if {left} is {right} else 1"
    ),
    "cmp.nz.ref": Row(is_ref, "{result} = 0 if {operand} is None else 1"),
    "cast.any.ref": Row(cast_ref),
    "assign.ref": Row(assign_ref, "{result} = {operand}"),
    "discard.refs": Row(discard, emit_discard),
    "global.load.ref": Row(global_load_ref(indirect=False), "{result} = refs[{place}]"),
    "global.load.indirect.ref": Row(global_load_ref(indirect=True)),
    "global.store.ref": Row(global_store_ref(indirect=False), "refs[{place}] = {value}"),
    "global.store.indirect.ref": Row(global_store_ref(indirect=True)),
    "list.alloc": Row(list_alloc),
    "list.reserve": Row(list_reserve),
    "list.size": Row(list_size, f"{{result}} = len({_LIST}.items)"),
    "list.resize": Row(list_resize),
    "list.get.ref": Row(list_get_ref),
    "list.set.ref": Row(list_set_ref, f"{_LIST}.set({{index}}, {{value}})"),
    "buffer.alloc": Row(buffer_alloc),
    "buffer.clone": Row(buffer_clone),
    "buffer.length": Row(buffer_length, f"{{result}} = len({_BUFFER}.data)"),
    "buffer.copy": Row(buffer_copy),
    "buffer.compare": Row(buffer_compare),
    "buffer.hash": Row(buffer_hash),
    "br": Row(branch, emit_branch),
    "yield": Row(branch, emit_branch),
    "break": Row(break_, emit_break),
    "cond_break": Row(break_, emit_conditional_break),
    "cond_br": Row(conditional_branch, emit_conditional_branch),
    "br_table": Row(branch_table, emit_branch_table),
    "return": Row(return_, emit_return),
    "fail": Row(fail, emit_fail),
    "trace": Row(trace, emit_trace),
    "print": Row(trace, emit_trace),
    "import.resolved": Row(import_resolved, emit_import_resolved),
    "call": Row(call, emit_call),
    "call.variadic": Row(call_variadic, emit_call_variadic),
    "call.yieldable": Row(then_branch(call), emit_resumable),
    "call.variadic.yieldable": Row(then_branch(call_variadic), emit_resumable),
    "block": Row(block),
}
_PREFIXES: Final[Mapping[str, Callable[[str], Row]]] = {
    "const.": lambda bank: (
        Row(zero, "{result} = 0.0" if bank.startswith("f") else "{result} = 0")
        if bank.endswith(".zero")
        else Row(constant, "{result} = {value}")
    ),
    "select.": lambda _: Row(select, "{result} = {true} if {condition} else {false}"),
    "switch.": lambda _: Row(switch, "{result} = pick({index}, {values}, {default})"),
    "global.load.indirect.": lambda bank: Row(global_load(bank, indirect=True)),
    "global.store.indirect.": lambda bank: Row(global_store(bank, indirect=True)),
    "global.load.": lambda bank: Row(
        global_load(bank, indirect=False),
        f"{{result}} = unpack_{bank}(words, {{place}})[0]",
    ),
    "global.store.": lambda bank: Row(
        global_store(bank, indirect=False), f"pack_{bank}(words, {{place}}, {{value}})"
    ),
    "list.get.": lambda bank: Row(list_get(bank)),
    "list.set.": lambda _: Row(list_set, f"{_LIST}.set({{index}}, {{value}})"),
    "buffer.load.": lambda bank: Row(
        buffer_load(bank),
        f"{{result}} = {_BUFFER}.load(layout_{bank.replace('.', '_')}, "
        f"{{offset}} * {LAYOUTS[bank].size})",
    ),
    "buffer.store.": lambda bank: Row(buffer_store(bank)),
    "buffer.fill.": lambda bank: Row(buffer_fill(bank)),
}
_ARITY: Final = {1: unary, 2: binary, 3: ternary}


def _row(opcode: Opcode) -> Row:
    special = _SPECIAL.get(opcode.name)
    if special is not None:
        return special
    for prefix, make in _PREFIXES.items():
        if opcode.name.startswith(prefix):
            return make(opcode.name.removeprefix(prefix))
    operands = [f"{{{f.name}}}" for f in opcode.fields if f.kind is FieldKind.OPERAND]
    operation = integers.OPERATIONS.get(opcode.name)
    if operation is not None:
        expression = integers.EXPRESSIONS[opcode.name].format(*operands)
    else:
        operation = floats.OPERATIONS[opcode.name]
        expression = f"{operation_name(opcode.name)}({', '.join(operands)})"
    return Row(_ARITY[len(operands)](operation), f"{{result}} = {expression}")


def operation_name(opcode: str) -> str:
    """How translated code calls the operation of an opcode: `add_f32`."""
    return opcode.replace(".", "_")


ROWS: Final[Mapping[str, Row]] = {o.name: _row(o) for o in OPCODES}
"""Opcode name to what it does."""

NAMES: Final[Mapping[str, object]] = {
    "as_buffer": as_buffer,
    "as_list": as_list,
    "failed": failed,
    "pick": pick,
    **integers.NAMES,
    **{operation_name(name): function for name, function in floats.OPERATIONS.items()},
    **{f"unpack_{bank}": layout.unpack_from for bank, layout in LAYOUTS.items()},
    **{f"pack_{bank}": layout.pack_into for bank, layout in LAYOUTS.items()},
    **{f"layout_{bank.replace('.', '_')}": layout for bank, layout in LAYOUTS.items()},
}
"""What the sources in the rows may name beside registers and the module's state."""
