from __future__ import annotations

import pytest

from tilewright.base.errors import ArchiveError, InternalError
from tilewright.formats.bytecode.isa import IMPORT_BIT
from tilewright.formats.bytecode.limits import FEATURE_F32, FEATURE_UNWIND
from tilewright.formats.vmfb import OPTIONAL, ModuleBuilder, decode_module


def test_equal_things_are_stored_once() -> None:
    build = ModuleBuilder("m")
    assert [build.type(name) for name in ("i32", "!hal.buffer", "i32")] == [0, 1, 0]
    assert [build.text(text) for text in ("a", "b", "a")] == [0, 1, 0]
    assert build.rodata(b"a") == 2
    first = build.import_("hal.f", "0i_i")
    assert build.import_("hal.g", "0v_v", optional=True) == IMPORT_BIT | 1
    assert build.import_("hal.f", "0i_i") == first == IMPORT_BIT
    assert build.finish().imports[1].flags == OPTIONAL


def test_an_import_has_one_signature() -> None:
    build = ModuleBuilder("m")
    build.import_("hal.f", "0i_i")
    with pytest.raises(InternalError, match=r"'hal\.f' has two signatures"):
        build.import_("hal.f", "0I_i")


def test_globals_are_aligned_to_their_width() -> None:
    build = ModuleBuilder("m")
    assert [build.global_word(bank) for bank in ("i32", "i64", "f32", "f64")] == [
        0,
        8,
        16,
        24,
    ]
    assert [build.global_ref(), build.global_ref()] == [0, 1]
    state = build.finish().state
    assert (state.global_bytes, state.global_refs) == (32, 2)


def test_functions_of_a_module_call_each_other() -> None:
    build = ModuleBuilder("m", version=3, attributes={"who": "test"})
    outer = build.function("0i_i", export="outer", attributes={"doc": "twice"})
    inner = build.function("0i_i")
    (doubled,) = outer.call(build.ordinal_of(inner), outer.arguments, ["i32"])
    outer.return_(doubled)
    inner.return_(inner.emit("add.i32", *inner.arguments, *inner.arguments))
    module = build.finish()
    assert module.version == 3
    assert module.attributes == {"who": "test"}
    assert module.signatures[0].attributes == {"doc": "twice"}
    assert module.function_names()[0] == "outer"
    assert module.function_names()[1] == "function_1"
    call = next(i for i in decode_module(module)[0] if i.opcode.name == "call")
    assert call.value("callee") == 1
    assert module.functions[1].offset % 8 == 0
    with pytest.raises(InternalError, match="another module"):
        ModuleBuilder("n").ordinal_of(outer)


def test_a_module_needs_what_its_functions_need() -> None:
    build = ModuleBuilder("m")
    function = build.function("0rf_f")
    function.return_(function.emit("neg.f32", function.arguments[1]))
    assert build.finish().requirements == FEATURE_F32 | FEATURE_UNWIND


def test_code_that_may_not_run_is_not_handed_out() -> None:
    build = ModuleBuilder("m")
    function = build.function("0v_v")
    function.emit("global.load.i32", 0)
    function.return_()
    with pytest.raises(ArchiveError, match="bytes 0 to 4 of 0"):
        build.finish()
