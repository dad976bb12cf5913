"""The table of all handlers, one per row of the instruction set.

A test compares the two. Called by the interpreter when it binds a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

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
    conditional_branch,
    fail,
    return_,
    trace,
)
from tilewright.runtime.vm.handlers.global_values import (
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
from tilewright.runtime.vm.handlers.operands import (
    Handler,
)
from tilewright.runtime.vm.handlers.pure import (
    binary,
    constant,
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

_SPECIAL: Final[Mapping[str, Handler]] = {
    "const.ref.zero": null,
    "const.ref.rodata": rodata,
    "select.ref": select_ref,
    "switch.ref": switch_ref,
    "cmp.eq.ref": compare_refs(equal=True),
    "cmp.ne.ref": compare_refs(equal=False),
    "cmp.nz.ref": is_ref,
    "cast.any.ref": cast_ref,
    "assign.ref": assign_ref,
    "discard.refs": discard,
    "global.load.ref": global_load_ref(indirect=False),
    "global.load.indirect.ref": global_load_ref(indirect=True),
    "global.store.ref": global_store_ref(indirect=False),
    "global.store.indirect.ref": global_store_ref(indirect=True),
    "list.alloc": list_alloc,
    "list.reserve": list_reserve,
    "list.size": list_size,
    "list.resize": list_resize,
    "list.get.ref": list_get_ref,
    "list.set.ref": list_set_ref,
    "buffer.alloc": buffer_alloc,
    "buffer.clone": buffer_clone,
    "buffer.length": buffer_length,
    "buffer.copy": buffer_copy,
    "buffer.compare": buffer_compare,
    "buffer.hash": buffer_hash,
    "br": branch,
    "yield": branch,
    "break": branch,
    "cond_break": branch,
    "cond_br": conditional_branch,
    "br_table": branch_table,
    "return": return_,
    "fail": fail,
    "trace": trace,
    "print": trace,
    "import.resolved": import_resolved,
    "call": call,
    "call.variadic": call_variadic,
    "call.yieldable": then_branch(call),
    "call.variadic.yieldable": then_branch(call_variadic),
    "block": block,
}
_PREFIXES: Final[Mapping[str, Callable[[str], Handler]]] = {
    "const.": lambda bank: zero if bank.endswith(".zero") else constant,
    "select.": lambda _: select,
    "switch.": lambda _: switch,
    "global.load.indirect.": lambda bank: global_load(bank, indirect=True),
    "global.store.indirect.": lambda bank: global_store(bank, indirect=True),
    "global.load.": lambda bank: global_load(bank, indirect=False),
    "global.store.": lambda bank: global_store(bank, indirect=False),
    "list.get.": list_get,
    "list.set.": lambda _: list_set,
    "buffer.load.": buffer_load,
    "buffer.store.": buffer_store,
    "buffer.fill.": buffer_fill,
}
_ARITY: Final = {1: unary, 2: binary, 3: ternary}


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
