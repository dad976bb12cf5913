"""Functions run, call each other and natives, and fail with a trace that says where."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tilewright.base.errors import DeviceError, InputError
from tilewright.formats.bytecode.assembler import FunctionBuilder
from tilewright.formats.vmfb import DebugDatabase, FileLine, ModuleBuilder, SourceMap
from tilewright.formats.vmfb.text import assemble_module
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.bytecode_module import BytecodeModule
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.native_module import NativeFunction, NativeModule
from tilewright.runtime.vm.ref import Instance
from tilewright.runtime.vm.stack import DEPTH_LIMIT


def context_of(module: ModuleBuilder, *natives: NativeModule) -> Context:
    return Context([*natives, BytecodeModule(module.finish(), Instance())])


def module_with(
    fill: Callable[[ModuleBuilder, FunctionBuilder], None], convention: str = "0v_v"
) -> ModuleBuilder:
    module = ModuleBuilder("m")
    fill(module, module.function(convention, export="f"))
    return module


def native(
    function: Callable[..., object], convention: str, refs: str = "", name: str = "call"
) -> NativeModule:
    row = NativeFunction(name, (convention,), function, refs)
    return NativeModule("host", (row,), types={"bytes": VmBuffer})


def notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def test_arguments_and_results_of_every_bank_pass_through() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        build.return_(*reversed(build.arguments))

    f = context_of(module_with(fill, "0iIfFr_rFfIi")).lookup("m.f")
    data = VmBuffer(b"x")
    assert f(1, -(2**40), 0.5, 1e300, data) == (data, 1e300, 0.5, -(2**40), 1)


def test_lists_of_a_variadic_call_arrive_as_python_lists() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        callee = module.import_("host.call", "0iCiIDICrD_v")
        one, two = build.constant("i32", 1), build.constant("i64", 2)
        buffer = build.emit("const.ref.rodata", module.rodata(b"abc"))
        build.call_variadic(callee, [one, [(one, two), (one, two)], two, []])
        build.call_variadic(callee, [one, [], two, [buffer]])
        build.return_()

    seen: list[tuple[object, ...]] = []
    host = native(lambda *a: seen.append(a), "0iCiIDICrD_v", "bytes")
    context_of(module_with(fill), host).lookup("m.f")()
    assert seen[0] == (1, [(1, 2), (1, 2)], 2, [])
    assert seen[1][:3] == (1, [], 2)
    assert isinstance(seen[1][3][0], VmBuffer)


def test_a_yieldable_variadic_call_goes_on_at_its_block() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        callee = module.import_("host.call", "0CID_I")
        one = build.constant("i64", 1)
        (result,) = build.call_yieldable(callee, [[one, one, one]], ["i64"])
        build.return_(result)

    host = native(sum, "0CID_I")
    assert context_of(module_with(fill, "0v_I"), host).lookup("m.f")() == 3


def test_natives_return_none_one_or_many() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        callee = module.import_("host.call", "0i_Iir")
        build.return_(*build.call(callee, build.arguments, ["i64", "i32", "ref"]))

    host = native(lambda a: (a + 1, a + 2, None), "0i_Iir")
    assert context_of(module_with(fill, "0i_Iir"), host).lookup("m.f")(4) == (5, 6, None)


def test_fail_raises_its_status_and_message_with_the_place() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        build.fail(build.constant("i32", 9), "not ready")

    with pytest.raises(DeviceError, match=r"not ready \(FAILED_PRECONDITION\)") as caught:
        context_of(module_with(fill)).lookup("m.f")()
    assert caught.value.code == 9
    assert notes(caught.value) == ["  at m.f +0x8"]


def test_fail_with_status_zero_returns_from_the_last_block() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        build.fail(build.arguments[0], "not ready")

    f = context_of(module_with(fill, "0i_v")).lookup("m.f")
    assert f(0) is None
    with pytest.raises(DeviceError, match="UNKNOWN"):
        f(-1)


def test_a_trace_lists_natives_and_functions_innermost_first() -> None:
    module = ModuleBuilder("m")
    inner = module.function("0i_v", export="inner")
    inner.call(module.import_("host.call", "0i_v"), inner.arguments)
    inner.return_()
    outer = module.function("0v_v", export="outer")
    outer.emit("const.i32", 5)
    outer.call(module.ordinal_of(inner), [outer.constant("i32", 3)])
    outer.return_()

    def refuse(value: int) -> None:
        raise InputError(f"got {value}")

    with pytest.raises(InputError, match="got 3") as caught:
        context_of(module, native(refuse, "0i_v")).lookup("m.outer")()
    lines = notes(caught.value)
    assert lines[0] == "  in host.call"
    assert lines[1].startswith("  at m.inner +0x")
    assert lines[2].startswith("  at m.outer +0x")
    assert len(lines) == 3


def test_a_trace_names_source_lines_where_the_module_has_them() -> None:
    from dataclasses import replace

    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        build.fail(build.constant("i32", 3), "bad")

    definition = replace(
        module_with(fill).finish(),
        debug=DebugDatabase(
            locations=(None, FileLine("model.mlir", 7, 2), FileLine("model.mlir", 8, 4)),
            functions=(SourceMap(name="f", locations=((0, 1), (8, 2), (90, 0))),),
        ),
    )
    with pytest.raises(DeviceError) as caught:
        Context([BytecodeModule(definition, Instance())]).lookup("m.f")()
    assert notes(caught.value) == ["  at m.f +0x8 (model.mlir:8:4)"]


def test_errors_of_python_become_errors_with_a_code() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        build.call(module.import_("host.call", "0v_v"), [])
        build.return_()

    def divide() -> None:
        _ = 1 / 0

    with pytest.raises(DeviceError, match=r"ZeroDivisionError: .* \(INTERNAL\)") as caught:
        context_of(module_with(fill), native(divide, "0v_v")).lookup("m.f")()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_integers_do_not_divide_by_zero() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        build.return_(build.emit("div.i64.s", *build.arguments))

    f = context_of(module_with(fill, "0II_I")).lookup("m.f")
    assert f(-7, 2) == -3
    assert f(-(2**63), -1) == -(2**63)
    with pytest.raises(DeviceError, match="division by zero"):
        f(1, 0)


def test_endless_recursion_is_an_error() -> None:
    module = ModuleBuilder("m")
    build = module.function("0v_v", export="f")
    build.call(module.ordinal_of(build), [])
    build.return_()
    context = context_of(module)
    for _ in range(2):
        with pytest.raises(DeviceError, match=f"deeper than {DEPTH_LIMIT}"):
            context.lookup("m.f")()


def test_moved_references_are_released_at_once() -> None:
    alive: list[int] = []

    class Resource:
        def __init__(self) -> None:
            alive.append(1)

        def __del__(self) -> None:
            alive.pop()

    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        make = module.import_("host.make", "0v_r")
        use = module.import_("host.use", "0r_v")
        for _ in range(3):
            (resource,) = build.call(make, [], ["ref"])
            build.call(use, [resource])
        build.return_()

    counts: list[int] = []
    rows = (
        NativeFunction("make", ("0v_r",), Resource),
        NativeFunction("use", ("0r_v",), lambda resource: counts.append(len(alive)), "any"),
    )
    context_of(module_with(fill), NativeModule("host", rows)).lookup("m.f")()
    assert counts == [1, 1, 1]
    assert alive == []


def test_a_missing_optional_import_is_named_when_it_is_called() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        build.call(module.import_("host.nothing", "0v_v", optional=True), [])
        build.return_()

    with pytest.raises(DeviceError, match=r"optional import 'host.nothing' is not there"):
        context_of(module_with(fill)).lookup("m.f")()


@pytest.mark.parametrize(
    ("opcode", "operands", "message"),
    [
        ("buffer.load.i32", (3,), "4 bytes at 12 of a buffer with 8"),
        ("buffer.load.i8.u", (-1,), "1 bytes at -1"),
        ("buffer.load.i64", (2**62,), "of a buffer with 8"),
        ("buffer.store.i8", (0, 1), "write to a read-only buffer"),
        ("buffer.clone", (4, 5, 1), "5 bytes at 4"),
        ("buffer.hash", (0, -1), "-1 bytes at 0"),
    ],
)
def test_buffers_are_checked_at_their_bounds(
    opcode: str, operands: tuple[int, ...], message: str
) -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        buffer = build.emit("const.ref.rodata", module.rodata(b"01234567"))
        fields = [f.bank for f in _fields(opcode)][1:]
        values = [build.constant(b, v) for b, v in zip(fields, operands, strict=False)]
        build.emit(opcode, buffer, *values)
        build.return_()

    with pytest.raises(DeviceError, match=message):
        context_of(module_with(fill)).lookup("m.f")()


def _fields(opcode: str) -> list:
    from tilewright.formats.bytecode.isa import opcode_by_name

    return list(opcode_by_name(opcode).fields)


@pytest.mark.parametrize(
    ("opcode", "banks", "operands", "message"),
    [
        ("list.get.i32", "i32", (2,), "index 2 of a list with 2"),
        ("list.get.i32", "i32", (-1,), "index -1"),
        ("list.resize", "i32", (-1,), "list of -1 elements"),
        ("list.resize", "i32", (2**30,), "list of 1073741824 elements"),
    ],
)
def test_lists_are_checked_at_their_bounds(
    opcode: str, banks: str, operands: tuple[int, ...], message: str
) -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        made = build.emit("list.alloc", module.type("i32"), build.constant("i32", 0))
        build.emit("list.resize", made, build.constant("i32", 2))
        build.emit(opcode, made, *(build.constant(banks, v) for v in operands))
        build.return_()

    with pytest.raises(DeviceError, match=message):
        context_of(module_with(fill)).lookup("m.f")()


def test_null_and_foreign_references_are_refused_by_buffer_opcodes() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        build.return_(build.emit("buffer.length", build.arguments[0]))

    f = context_of(module_with(fill, "0r_I")).lookup("m.f")
    with pytest.raises(DeviceError, match="operand is null, expected VmBuffer"):
        f(None)
    with pytest.raises(DeviceError, match="operand is dict, expected VmBuffer"):
        f({})


def test_indirect_globals_are_checked_at_their_bounds() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        module.global_word("i32")
        build.return_(build.emit("global.load.indirect.i32", build.arguments[0]))

    f = context_of(module_with(fill, "0i_i")).lookup("m.f")
    assert f(0) == 0
    for place in (-4, 1, 4):
        with pytest.raises(DeviceError, match="of 4 bytes of globals"):
            f(place)


def test_floats_in_integer_registers_do_no_harm() -> None:
    """The verifier knows no difference between i32 and f32 words; the interpreter must not care."""

    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        word = build.register("i32")
        build.emit("xor.i32", word, word, into=word)
        build.return_(build.emit("and.i32", build.arguments[0], word))

    f = context_of(module_with(fill, "0i_i")).lookup("m.f")
    with pytest.raises(DeviceError, match="TypeError"):
        f(1.5)


def test_threads_run_the_same_function_independently() -> None:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> None:
        head, body, done = build.block("i64", "i64"), build.block(), build.block()
        build.branch(head, build.arguments[0], build.constant("i64", 0))
        left, total = build.place(head)
        build.branch_if(build.emit("cmp.nz.i64", left), body, done)
        build.place(body)
        less = build.emit("sub.i64", left, build.constant("i64", 1))
        build.branch(head, less, build.emit("add.i64", total, left))
        build.place(done)
        build.return_(total)

    f = context_of(module_with(fill, "0I_I")).lookup("m.f")
    results: list[bool] = []

    def work(n: int) -> None:
        results.extend(f(n) == n * (n + 1) // 2 for _ in range(50))

    threads = [threading.Thread(target=work, args=(n,)) for n in (10, 50, 90)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 150


def test_moves_to_a_block_happen_one_after_the_other_as_in_iree() -> None:
    """Compilers swap through a scratch register: the third move reads what the first wrote."""
    definition = assemble_module(
        """
        vm.module @m version 0
        vm.export @f
        vm.func @f() -> (i32) {
        ^bb0:
          %i0 = vm.const.i32 5
          %i1 = vm.const.i32 7
          %i2 = vm.const.i32 9
          %i3 = vm.const.i32 100
          vm.br ^bb1(%i0->%i2, %i1->%i0, %i2->%i1)
        ^bb1:
          %i0 = vm.mul.i32 %i0, %i3
          %i0 = vm.add.i32 %i0, %i1
          %i0 = vm.mul.i32 %i0, %i3
          %i0 = vm.add.i32 %i0, %i2
          vm.return %i0
        }
        """
    )
    context = Context([BytecodeModule(definition, Instance())])
    assert context.lookup("m.f")() == 70505  # what IREE's interpreter answers


def test_references_are_swapped_through_a_scratch_register() -> None:
    definition = assemble_module(
        """
        vm.module @m version 0
        vm.export @f
        vm.func @f(%r0: !vm.ref<?>, %r1: !vm.ref<?>) -> (!vm.ref<?>, !vm.ref<?>, !vm.ref<?>) {
        ^bb0:
          vm.br ^bb1(%R0->%r2, %R1->%r0, %R2->%r1)
        ^bb1:
          vm.return %r0, %r1, %r2
        }
        """
    )
    first, second = VmBuffer(b"1"), VmBuffer(b"2")
    context = Context([BytecodeModule(definition, Instance())])
    assert context.lookup("m.f")(first, second) == (second, first, None)
