"""Translated functions are Python that debuggers and tracebacks can show."""

from __future__ import annotations

import gc
import linecache
import traceback

import pytest

from tilewright.base.errors import DeviceError
from tilewright.formats.vmfb import ModuleBuilder, ModuleDef
from tilewright.formats.vmfb.text import assemble_module
from tilewright.runtime.vm.bytecode_module import BytecodeModule
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.ref import Instance


def source_of(definition: ModuleDef, function: int = 0) -> str:
    module = BytecodeModule(definition, Instance(), mode="translate")
    return module.translated(function, frozenset()).source


def branching() -> ModuleDef:
    return assemble_module(
        """
        vm.module @m version 0
        vm.export @f
        vm.func @f(%i0: i32) -> (i32) {
        ^bb0:
          %i1 = vm.const.i32 2
          vm.cond_br %i0, ^bb1(), ^bb2()
        ^bb1:
          %i1 = vm.mul.i32 %i1, %i0
          vm.return %i1
        ^bb2:
          vm.return %i1
        }
        """
    )


def looping() -> ModuleDef:
    return assemble_module(
        """
        vm.module @m version 0
        vm.export @f
        vm.func @f(%i0: i32) -> (i32) {
        ^bb0:
          %i1 = vm.const.i32 1
          %i2 = vm.const.i32.zero
          vm.br ^bb1()
        ^bb1:
          %i2 = vm.add.i32 %i2, %i0
          %i0 = vm.sub.i32 %i0, %i1
          vm.cond_br %i0, ^bb1(), ^bb2()
        ^bb2:
          vm.return %i2
        }
        """
    )


def test_code_without_loops_has_none() -> None:
    source = source_of(branching())
    assert "while" not in source
    assert source.count("return w1") == 2


def test_loops_stay_in_one_function() -> None:
    source = source_of(looping())
    assert source.count("while True:") == 1
    for mode in ("translate", "interpret"):
        f = Context([BytecodeModule(looping(), Instance(), mode=mode)]).lookup("m.f")
        assert f(100) == 5050


def test_tracebacks_show_the_line_and_the_instruction() -> None:
    module = ModuleBuilder("m")
    build = module.function("0II_I", export="f")
    build.return_(build.emit("div.i64.s", *build.arguments))
    loaded = BytecodeModule(module.finish(), Instance(), mode="translate")
    with pytest.raises(DeviceError, match="division by zero") as caught:
        Context([loaded]).lookup("m.f")(1, 0)
    shown = "".join(traceback.format_exception(caught.value))
    assert 'File "<vm m.f #' in shown
    assert "# %i0:1 = vm.div.i64.s %i0:1, %i2:3" in shown


def test_sources_are_forgotten_with_their_modules() -> None:
    module = BytecodeModule(branching(), Instance(), mode="translate")
    filename = module.translated(0, frozenset()).filename
    assert linecache.getline(filename, 2).startswith("    def translated(w0, *")
    del module
    gc.collect()
    assert filename not in linecache.cache


def test_names_of_functions_cannot_reach_into_the_source() -> None:
    module = ModuleBuilder("m")
    name = 'f"\n\0 + import os'
    module.import_("host.x\ny", "0v_v", optional=True)
    build = module.function("0v_v", export=name)
    build.call(module.import_("host.it's", "0v_v", optional=True), [])
    build.return_()
    definition = module.finish()
    f = Context([BytecodeModule(definition, Instance(), mode="translate")])
    with pytest.raises(DeviceError, match=r"host.it's"):
        f.lookup(f"m.{name}")()


def test_breaks_call_the_debugger() -> None:
    text = """
        vm.module @m version 0
        vm.export @f
        vm.func @f(%i0: i32) -> (i32) {
        ^bb0:
          vm.break ^bb1()
        ^bb1:
          vm.cond_break %i0, ^bb2()
        ^bb2:
          vm.return %i0
        }
        """
    stops: list[int] = []
    module = BytecodeModule(
        assemble_module(text), Instance(), debugger=lambda: stops.append(1)
    )
    f = Context([module]).lookup("m.f")
    assert (f(0), len(stops)) == (0, 1)
    assert (f(1), len(stops)) == (1, 3)


def test_deep_nesting_and_wide_tables_can_be_translated() -> None:
    module = ModuleBuilder("m")
    nested = module.function("0i_i", export="nested")
    ends = []
    for _ in range(150):
        inner, end = nested.block(), nested.block()
        nested.branch_if(nested.arguments[0], inner, end)
        nested.place(inner)
        ends.append(end)
    nested.return_(nested.arguments[0])
    for end in ends:
        nested.place(end)
        nested.return_(nested.constant("i32", 7))
    table = module.function("0i_i", export="table")
    cases = [table.block() for _ in range(200)]
    default = table.block()
    table.branch_table(table.arguments[0], default, cases)
    for number, case in enumerate(cases):
        table.place(case)
        table.return_(table.constant("i32", number))
    table.place(default)
    table.return_(table.constant("i32", -1))
    context = Context([BytecodeModule(module.finish(), Instance(), mode="translate")])
    assert [context.lookup("m.nested")(value) for value in (0, 1)] == [7, 1]
    assert [context.lookup("m.table")(value) for value in (0, 199, 200, -1)] == [
        0, 199, -1, -1,
    ]  # fmt: skip


def test_initialisers_are_not_worth_translating() -> None:
    module = ModuleBuilder("m")
    place = module.global_word("i32")
    begin = module.function("0v_v", export="__init")
    begin.emit("global.store.i32", place, begin.constant("i32", 5))
    begin.return_()
    build = module.function("0v_i", export="f")
    build.return_(build.emit("global.load.i32", place))
    loaded = BytecodeModule(module.finish(), Instance(), mode="translate")
    assert Context([loaded]).lookup("m.f")() == 5
    assert loaded.translated_count == 1
