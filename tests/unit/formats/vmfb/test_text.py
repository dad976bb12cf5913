from __future__ import annotations

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.formats.bytecode.encoding import decode_function
from tilewright.formats.vmfb import read_archive
from tilewright.formats.vmfb.text import (
    assemble_module,
    disassemble_function,
    disassemble_module,
    module_names,
)
from unit.formats.vmfb.modules import add_module

COUNTDOWN = """
vm.module @loops version 2
vm.type i32
vm.dependency @hal version 7
vm.import optional @hal.trace cconv "0I_v"
vm.rodata[0] = 00FF

vm.export @countdown
vm.func @countdown(%i0:1: i64) -> (i64) {
^entry:
  %i2:3 = vm.const.i64.zero
  vm.br ^loop()
^loop:
  %i4:5 = vm.const.i64 -1  // any comment
  %i0:1 = vm.add.i64 %i0:1, %i4:5
  vm.call @hal.trace(%i0)
  %i6 = vm.cmp.lt.i64.s %i2:3, %i0:1
  vm.cond_br %i6, ^loop(), ^done()
^done:
  vm.global.store.i64 %i0:1, .rwdata[8]
  vm.return %i0
}

vm.export @init = @hidden
vm.func @hidden() -> () {
^bb0:
  vm.return
}
"""


def test_text_becomes_a_module() -> None:
    module = assemble_module(COUNTDOWN)
    assert (module.name, module.version) == ("loops", 2)
    assert [(e.name, e.function) for e in module.exports] == [("countdown", 0), ("init", 1)]
    assert module.signatures[0].calling_convention == "0I_I"
    assert module.functions[0].block_count == 3
    assert module.functions[0].word_registers == 8
    assert module.state.global_bytes == 16
    assert module.dependencies[0].minimum_version == 7
    assert module.imports[0].flags == 2
    assert bytes(module.rodata[0].data) == b"\x00\xff"


@pytest.mark.thinned(3)
def test_a_module_is_printed_and_read_back(iree_archive: bytes) -> None:
    module = read_archive(iree_archive)
    again = assemble_module(disassemble_module(module))
    assert again.types == module.types
    assert again.exports == module.exports
    assert [bytes(again.code(i)) for i in range(len(again.functions))] == [
        bytes(module.code(i)) for i in range(len(module.functions))
    ]
    for ours, theirs in zip(again.functions, module.functions, strict=True):
        assert ours.block_count == theirs.block_count
        assert ours.ref_registers == theirs.ref_registers
        assert ours.word_registers - theirs.word_registers in (0, 1)  # we count whole pairs


def test_our_own_module_reads_like_this() -> None:
    text = disassemble_module(add_module())
    assert 'vm.import @hal.fence.await cconv "0iICrD_i"' in text
    assert "vm.func @add(%r0: !vm.ref<?>, %r1: !vm.ref<?>) -> (!vm.ref<?>) {" in text
    assert ', "the addition failed"' in text


def test_offsets_and_large_data_are_shown_on_request() -> None:
    module = assemble_module(COUNTDOWN)
    lines = disassemble_function(
        decode_function(module.code(1)), module_names(module), offsets=True
    )
    assert lines == ["[00000000] ^bb0:", "[00000001]   vm.return"]
    assert "vm.rodata[0] = ...  // 2b" in disassemble_module(module, rodata_limit=1)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("vm.type i32", "vm.typo i32", "text:3: 'vm.typo i32' is not understood"),
        ("= 00FF", "= 0FF", "text:6: .* is not understood"),
        ("%i6 = vm.cmp", "%i6 = vm.cmpx", "text:17: unknown opcode"),
        ("^loop(), ^done", "^loop(), ^gone", r"text:18: unknown block '\^gone'"),
        ("@hidden()", "@hid()", "exported function '@hidden' is missing"),
        ("(%i0:1: i64)", "(%i0:1: i65)", "'i65' is not the type of an argument"),
        ("  vm.return\n}", "  vm.return", "function '@hidden' has no end"),
        ("  vm.return %i0\n", "", "the last block has no terminator"),
        ("vm.return %i0", "vm.return", "0 results, expected 1"),
        ("version 2", "version two", "text:2: .* is not understood"),
    ],
)
def test_mistakes_are_named_with_their_line(old: str, new: str, complaint: str) -> None:
    assert old in COUNTDOWN
    with pytest.raises(ArchiveError, match=complaint):
        assemble_module(COUNTDOWN.replace(old, new))
