"""Programs of the C core: words, and built-ins that are given what a stranger's file may name."""

from __future__ import annotations

import gc
import signal
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from fakes.relax_code import F32, I64, MACHINE, NOTHING, U8, Program, Register, run_both
from fakes.relax_executables import stored_executables
from tilewright.base.errors import DeviceError, InputError
from tilewright.formats.dlpack_types import DataType
from tilewright.formats.relax_executable import Goto, read_relax_executable
from tilewright.runtime.native import IS_NATIVE
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.relax_machine.builtins import BUILTINS
from tilewright.runtime.relax_machine.native_program import encode, native_builtin

R0, R1, R2 = Register(0), Register(1), Register(2)
HUGE = 1 << 54


def test_a_frame_has_the_registers_that_its_code_names() -> None:
    program = Program(1, registers=1 << 20).call(".copy", R0, to=99_999).give(99_999)
    functions, constants, longest, kind, arguments, registers, first, *_ = encode(
        program.executable()
    )
    assert (functions, constants, longest) == (2, 0, 1)
    assert (kind, arguments, registers, first) == (1, 1, 2, 0)


def test_words_of_real_code_stay_within_their_function() -> None:
    executable = read_relax_executable(stored_executables("0.27")["loop.bytecode"].data)
    words = list(encode(executable))
    rows, code = words[3 : 3 + 4 * words[0]], words[3 + 4 * words[0] :]
    starts = [rows[4 * i + 3] for i in range(words[0]) if rows[4 * i] == 1]
    assert starts == sorted(starts)
    assert all(code[start] in (1, 2, 3, 4) for start in starts)


@pytest.mark.skipif(not IS_NATIVE, reason="no C core")
def test_the_core_has_the_frequent_built_ins_and_python_all() -> None:
    native = {name for name in BUILTINS if native_builtin(name) is not None}
    assert "vm.builtin.match_shape" in native
    assert "vm.builtin.call_py_func" not in native
    assert native_builtin("vm.builtin.no") is None


@pytest.mark.skipif(not IS_NATIVE, reason="no C core")
def test_a_built_in_outside_of_any_machine_is_refused() -> None:
    copy = native_builtin("vm.builtin.copy")
    assert copy is not None
    with pytest.raises(InputError, match="no virtual machine runs on this thread"):
        copy(1)


# What a call is given, and whether it can be done.
_CALLS: list[tuple[str, tuple[Any, ...], bool]] = [
    (".alloc_shape_heap", (MACHINE, 4), True),
    (".alloc_shape_heap", (MACHINE, -1), False),
    (".alloc_shape_heap", (MACHINE, HUGE), False),
    (".alloc_shape_heap", (MACHINE, "x"), False),
    (".alloc_shape_heap", (MACHINE,), False),
    (".match_shape", (R0, R1, 1, 1, 0, ""), True),
    (".match_shape", (R0, R1, 1, 1, 1 << 40, ""), False),
    (".match_shape", (R0, R1, 1, 1, -1, ""), False),
    (".match_shape", (R0, R1, 1, 3, 9, ""), False),
    (".match_shape", (R0, NOTHING, 1, 1, 0, ""), False),
    (".match_shape", (R0, R0, 1, 1, 0, ""), False),
    (".match_shape", (R0, R1, 1, 9, 0, ""), False),
    (".match_shape", (R0, R1, 1 << 40, 1, 0, ""), False),
    (".match_shape", (R0, R1, -1, 1, 0, ""), False),
    (".match_shape", (R0, R1, 2, 1, 0, ""), False),
    (".match_shape", (7, R1, 1, 1, 0, ""), False),
    (".match_prim_value", (5, R1, 1, 0, ""), True),
    (".match_prim_value", (5, R1, 1, 77, ""), False),
    (".match_prim_value", (R0, R1, 1, 0, ""), False),
    (".make_shape", (R1, 2, 0, 3, 0, 4), True),
    (".make_shape", (R1, 1, 1, 8), False),
    (".make_shape", (R1, 1, 1, -1), False),
    (".make_shape", (R1, 3, 0, 3), False),
    (".make_shape", (R1, -1), False),
    (".make_shape", (R1, 1, 7, 0), False),
    (".make_prim_value", (R1, 0, 3), True),
    (".make_prim_value", (R1, 1, 44), False),
    (".make_prim_value", (R1,), False),
    (".alloc_storage", (MACHINE, (64,), 0, U8, "global"), True),
    (".alloc_storage", (MACHINE, (64,), 3, U8, "global"), False),
    (".alloc_storage", (MACHINE, (64,), 0, U8, "texture"), False),
    (".alloc_storage", (MACHINE, (-64,), 0, U8, ""), False),
    (".alloc_storage", (MACHINE, (1 << 62, 1 << 62), 0, F32, ""), False),
    (".alloc_storage", (MACHINE, (1 << 62,), 0, U8, ""), False),
    (".alloc_storage", (MACHINE, R0, 0, U8, ""), False),
    (".alloc_storage", (MACHINE, (64,), 0, 7, ""), False),
    (".alloc_tensor", (R2, 0, (4, 4), F32), True),
    (".alloc_tensor", (R2, 60, (1,), F32), True),
    (".alloc_tensor", (R2, 61, (1,), F32), False),
    (".alloc_tensor", (R2, -4, (1,), F32), False),
    (".alloc_tensor", (R2, (1 << 55) - 1, (1,), F32), False),
    (".alloc_tensor", (R2, 0, (1 << 31, 1 << 31, 1 << 31), F32), False),
    (".alloc_tensor", (R2, 0, (-1, -1), F32), False),
    (".alloc_tensor", (R2, 0, (17,), F32), False),
    (".alloc_tensor", (R2, 0, (0, 1 << 60, 1 << 60), F32), True),
    (".alloc_tensor", (R2, 0, (1,) * 65, U8), False),
    (".alloc_tensor", (R1, 0, (1,), F32), False),
    (".alloc_tensor", ("x", 0, (1,), F32), False),
    (".reshape", (R0, (1, 3)), True),
    (".reshape", (R0, (4,)), False),
    (".reshape", (R0, (-3,)), False),
    (".reshape", (R0, (1 << 33, 1 << 33)), False),
    (".reshape", (R0, R0), False),
    (".reshape", ((3,), (3,)), False),
    (".shape_of", (R0,), True),
    (".shape_of", ((3,),), False),
    (".tensor_to_shape", (R1,), True),
    (".tensor_to_shape", (R0,), False),
    (".tensor_to_shape", ("x",), False),
    (".read_if_cond", (1,), True),
    (".read_if_cond", (R1,), True),
    (".read_if_cond", (R0,), False),
    (".read_if_cond", ("x",), False),
    (".make_tuple", (), True),
    (".make_tuple", (R0, 1, "x", NOTHING), True),
    (".tuple_getitem", (R0, 0), False),
    (".tuple_reset_item", (R0, 0), False),
    (".check_tensor_info", (R0, 1, F32, ""), True),
    (".check_tensor_info", (R0, -1, DataType(3, 0, 0), "x"), True),
    (".check_tensor_info", (R0, 1, ""), True),
    (".check_tensor_info", (R0, 2, F32, ""), False),
    (".check_tensor_info", (R0, 1, I64, ""), False),
    (".check_tensor_info", (R0, "x", F32, ""), False),
    (".check_tensor_info", (R0,), False),
    (".check_shape_info", ((1, 2), 2, ""), True),
    (".check_shape_info", ((1, 2), 1, ""), False),
    (".check_shape_info", (R0, 1, ""), False),
    (".check_prim_value_info", (1, I64, ""), True),
    (".check_prim_value_info", (R0, I64, ""), False),
    (".check_prim_value_info", (1, "x", ""), False),
    (".check_tuple_info", (R0, 1, ""), False),
    (".check_func_info", (R0, ""), False),
    (".make_closure", (R0,), False),
    (".invoke_closure", (MACHINE, R0), False),
    (".call_tir_dyn", (R0, (1,)), False),
    (".copy", (), False),
    (".null_value", (), True),
    (".ensure_zero_offset", (R0,), True),
    (".to_device", (R0, 1, 0), True),
    (".to_device", (R0, 2, 0), False),
]


@pytest.mark.parametrize(("name", "arguments", "works"), _CALLS)
def test_a_call_of_a_built_in_works_as_in_python_or_is_refused_in_its_place(
    name: str, arguments: tuple[Any, ...], works: bool
) -> None:
    program = (
        Program(1)
        .call(".alloc_shape_heap", MACHINE, 4, to=1)
        .call(".match_shape", R0, R1, 1, 1, 0, "")
        .call(".alloc_storage", MACHINE, (64,), 0, U8, "", to=2)
        .call(name, *arguments, to=3)
        .give(
            3 if works and name in (".make_shape", ".make_prim_value", ".shape_of") else 4
        )
    )
    found, other = run_both(program, [np.array([1, 2, 3], np.float32)])
    if works:
        assert found == other
        return
    if not IS_NATIVE:
        return  # Python's own bounds hold there
    assert isinstance(found, (InputError, DeviceError, IndexError, MemoryError)), found
    if name != ".to_device":  # which is Python's: the place is in the traceback
        assert f"net.so: function 'main': instruction 3 ('vm.builtin{name}')" in str(found)


def test_tuples_are_read_within_their_bounds() -> None:
    for index, works in ((0, True), (1, False), (-1, False), (1 << 40, False)):
        program = (
            Program(1).call(".make_tuple", 5, to=1).call(".tuple_getitem", R1, index, to=2)
        )
        for found in run_both(program.give(2), [1]):
            assert found == 5 if works else isinstance(found, IndexError)


def test_a_storage_lives_as_long_as_what_lies_in_it() -> None:
    program = (
        Program(0)
        .call(".alloc_storage", MACHINE, (64,), 0, U8, "", to=0)
        .call(".alloc_tensor", Register(0), 16, (4,), F32, to=1)
        .call(".null_value", to=0)
        .give(1)
    )
    machine = program.machine()
    array = np.from_dlpack(machine.call("main", []))
    heap = machine.host.heap
    del machine, program
    gc.collect()
    array[...] = 7
    assert heap.report()[-1] == 1
    assert array.tolist() == [7, 7, 7, 7]
    del array
    gc.collect()
    assert heap.report()[-1] == 0


def test_endless_calls_are_an_error() -> None:
    program = Program(1)
    program.call("main", R0, to=1).give(1)
    with pytest.raises(InputError, match="nested too deeply"):
        program.machine().call("main", [1])


@pytest.mark.skipif(not IS_NATIVE, reason="no C core")
def test_loops_are_as_long_as_the_stack_allows() -> None:
    """Bytecode has frames of its own; closures take the thread's stack."""
    countdown: dict[str, Any] = {"less": lambda n: int(n > 0), "minus": lambda n: n - 1}
    loop = Program(1).call("less", R0, to=1).branch(1, 3).call("minus", R0, to=2)
    loop.call("main", R2, to=2).give(0)
    assert loop.machine(countdown).call("main", [20_000]) == 20_000
    closed = Program(1).call("less", R0, to=1).branch(1, 3).call("minus", R0, to=2)
    closed.call(".invoke_closure", MACHINE, closed.function("main"), R2, to=2).give(0)
    assert closed.machine(countdown).call("main", [300]) == 300


def test_endless_closures_are_an_error() -> None:
    closures = Program(1)
    closures.call(".invoke_closure", MACHINE, closures.function("main"), R0, to=1).give(1)
    with pytest.raises(InputError, match="nested too deeply"):
        closures.machine().call("main", [1])


def test_a_function_as_a_value_does_not_keep_the_machine() -> None:
    program = Program(1)
    program.call(".make_tuple", program.function("main"), to=1).give(1)
    machine = program.machine()
    (value,) = machine.call("main", [1])
    assert isinstance(value, tvm_ffi.Function)
    gone = weakref.ref(machine)
    del machine
    gc.collect()
    assert gone() is None
    with pytest.raises(InputError, match="is gone, keep it as long"):
        value(1)


def test_an_entry_keeps_what_it_runs() -> None:
    entry = Program(1).call(".make_tuple", R0, to=1).give(1).machine().packed("main")
    gc.collect()
    assert list(entry(4)) == [4]
    with pytest.raises(TypeError, match="got 2 arguments, expected 1"):
        entry(1, 2)


def test_what_a_call_holds_goes_when_it_ends() -> None:
    program = Program(1).call(".make_tuple", R0, to=1).call("look", R1, to=2).give(2)
    for fails in (False, True):

        def look(_: Any, fails: bool = fails) -> None:
            if fails:
                raise ValueError("no")

        array = np.zeros(4, np.float32)
        before = sys.getrefcount(array)
        machine = program.machine({"look": look})
        for _ in range(3):
            try:
                machine.packed("main")(array)
            except ValueError:
                gc.collect()
        gc.collect()
        assert sys.getrefcount(array) == before


def test_many_arguments_and_registers_find_room() -> None:
    program = Program(40, registers=400)
    numbers = [Register(i) for i in range(40)]
    for place in range(40, 300):
        program.call(".make_tuple", *numbers, place, to=place)
    machine = program.give(299).machine()
    assert list(machine.call("main", range(40))) == [*range(40), 299]


def test_threads_run_one_program() -> None:
    program = Program(1).call("double", R0, to=1).call("double", R1, to=2).give(2)
    entry = program.machine({"double": lambda x: 2 * x}).packed("main")
    wrong: list[int] = []

    def work(number: int) -> None:
        wrong.extend(number for _ in range(200) if entry(number) != 4 * number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers")
def test_a_signal_ends_code_that_does_not_end() -> None:
    program = Program(1).branch(0, 3).call(".null_value", to=1)
    program.code.append(Goto(-2))
    run = program.give(0).machine().packed("main")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt("enough")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt, match="enough"):
            run(1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
