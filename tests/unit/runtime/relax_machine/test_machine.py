"""Executables that TVM wrote, with kernels in numpy: control flow, values, memory, errors."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from typing import Any

import numpy as np
import pytest

from fakes.relax_executables import RELEASES, stored_executables
from fakes.relax_kernels import KERNELS, executable_module, machine, tensor
from tilewright.base.errors import InputError
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.packed.machine_module import MachineModule
from tilewright.runtime.relax_machine import RelaxExecutableModule, RelaxMachine
from tilewright.runtime.relax_machine.errors import (
    ArgumentMatchError,
    ArgumentTypeError,
    ArgumentValueError,
)


def _floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def _engine(module: MachineModule) -> RelaxMachine:
    assert isinstance(module.engine, RelaxMachine)
    return module.engine


def _looped(x: np.ndarray) -> np.ndarray:
    for _ in range(10):
        x = x + x * np.float32(0.5)
    return x


@pytest.mark.parametrize("manager", [1, 2])
@pytest.mark.parametrize("release", RELEASES)
def test_a_function_that_calls_itself_is_a_loop(release: str, manager: int) -> None:
    loop = machine("loop", release=release, manager=manager)
    for size in (3, 1, 3, 0):
        x = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(np.from_dlpack(loop["main"](x)), _looped(x))


def test_a_branch_takes_the_side_that_the_data_says() -> None:
    branch = machine("branch")
    x = _floats(2, -3)
    taken = branch["main"](tensor(True), tensor(x))
    np.testing.assert_array_equal(np.from_dlpack(taken), (x + x) * x + 1)
    other = branch["main"](tensor(False), tensor(x))
    np.testing.assert_array_equal(np.from_dlpack(other), -x + 1)


def test_functions_call_functions_and_results_are_tuples() -> None:
    first, second = machine("calls")["main"](_floats(1, 2), _floats(3))
    np.testing.assert_array_equal(np.from_dlpack(first), [4, 8])
    np.testing.assert_array_equal(np.from_dlpack(second), [6])


def test_tuples_are_taken_apart_and_put_together() -> None:
    inner = (_floats(1, 2), (np.arange(3, dtype=np.int32), _floats(5, 6)))
    (total, whole), empty, first = machine("tuples")["main"](inner)
    np.testing.assert_array_equal(np.from_dlpack(total), [6, 8])
    np.testing.assert_array_equal(np.from_dlpack(whole), [0, 1, 2])
    assert len(empty) == 0
    np.testing.assert_array_equal(np.from_dlpack(first), [1, 2])


def test_a_closure_keeps_what_it_saw() -> None:
    closures = machine("closures")
    x, y = _floats(1, 2, 3, 4), _floats(5, 5, 5, 5)
    np.testing.assert_array_equal(np.from_dlpack(closures["main"](x, y)), y - 2 * x)
    kept = closures["make"](x)
    del x
    gc.collect()
    called = closures["invoke_closure"](kept, y)
    np.testing.assert_array_equal(np.from_dlpack(called), [5, 10, 15, 20])
    np.testing.assert_array_equal(np.from_dlpack(kept(tensor(y))), [5, 10, 15, 20])


def test_shapes_are_values() -> None:
    shapes = machine("shapes")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert shapes["product"](x) == (6, 3)
    assert isinstance(shapes["product"](x), tvm_ffi.Shape)
    assert shapes["any_shape"](np.zeros((2, 0, 4), np.int8)) == (2, 0, 4)
    result = shapes["main"](x, tvm_ffi.Shape((3, 2)))
    np.testing.assert_array_equal(np.from_dlpack(result), 2 * x.reshape(-1))
    view = shapes["from_data"](np.arange(6, dtype=np.float32), np.array([3, 2], np.int64))
    np.testing.assert_array_equal(np.from_dlpack(view), np.arange(6).reshape(3, 2))


def test_texts_numbers_and_types_reach_registered_functions() -> None:
    strings = machine("strings")
    assert strings["main"](_floats(1), "you") == "hello, world you (1,)"
    assert strings["constants"]() == "-1099511627776 0.25 float16 (3, 4, 5)"


@pytest.mark.parametrize(
    ("name", "function", "arguments", "error", "text"),
    [
        ("calls", "main", (_floats(1),), ArgumentTypeError, r"function 'main': got 1 arguments, expected 2 \(x, y\)"),
        ("loop", "main", ("x",), ArgumentTypeError, r"instruction 1 \('vm.builtin.check_tensor_info'\): expected a tensor, got 'str' \(ErrorContext\(fn=main, loc=param\[0\], param=x"),
        ("loop", "main", (np.zeros(2),), ArgumentValueError, "expected a tensor of type float32, got float64"),
        ("loop", "main", (np.zeros((2, 1), np.float32),), ArgumentValueError, "expected a tensor of rank 1, got rank 2"),
        ("shapes", "cast", (np.zeros((4, 2), np.float32),), ArgumentMatchError, "size 4 on axis 0, expected 3"),
        ("shapes", "main", (np.zeros((4, 2), np.float32), tvm_ffi.Shape((4, 2))), ArgumentMatchError, "size 4 on axis 0, expected 2"),
        ("shapes", "main", (np.zeros((4, 2), np.float32), _floats(1)), ArgumentTypeError, "expected a shape, got 'Tensor'"),
        ("shapes", "from_data", (_floats(1), np.array([3, 2])), ArgumentValueError, r"a view of shape \[3, 2\] takes 24 bytes, the tensor has 4"),
        ("shapes", "from_data", (_floats(1), np.array([-1, -1])), ArgumentValueError, "a view of shape"),
        ("tuples", "main", ((_floats(1),),), ArgumentValueError, "expected a tuple of 2, got one of 1"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused_as_tvm_refuses_them(
    name: str, function: str, arguments: tuple[Any, ...], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        machine(name)[function](*arguments)
    assert isinstance(caught.value, InputError)
    assert isinstance(caught.value, (ValueError, TypeError, RuntimeError))


def test_an_error_of_a_kernel_says_which_instruction_called_it() -> None:
    def fail(*_: Any) -> None:
        raise KeyError("no")

    module = RelaxExecutableModule(
        stored_executables("0.27")["calls.bytecode"].data, "net.so"
    )
    module.import_module(FunctionTable({**KERNELS["calls"], "add": fail}))
    vm = module.load_machine()
    vm["vm_initialization"](1, 0, 2)
    with pytest.raises(KeyError) as caught:
        vm.engine.call("four", [_floats(1)])
    places = [
        (one.filename, one.name)
        for one in traceback.extract_tb(caught.value.__traceback__)
        if one.filename == "net.so"
    ]
    assert places == [("net.so", "four"), ("net.so", "twice")]


def test_an_error_of_a_kernel_says_so_in_the_interpreter() -> None:
    def fail(*_: Any) -> None:
        raise KeyError("no")

    module = RelaxExecutableModule(
        stored_executables("0.27")["calls.bytecode"].data, "net.so"
    )
    module.import_module(FunctionTable({**KERNELS["calls"], "add": fail}))
    vm = module.load_machine()
    vm["vm_initialization"](1, 0, 2)
    with pytest.raises(KeyError) as caught:
        _engine(vm).call_value(0, [tensor(_floats(1))])
    assert any(
        "net.so: function 'twice': instruction" in note for note in caught.value.__notes__
    )


def test_functions_that_nobody_has_are_named_together() -> None:
    module = RelaxExecutableModule(
        stored_executables("0.27")["branch.bytecode"].data, "net.so"
    )
    with pytest.raises(
        InputError, match=r"'shape_func', 'add', 'multiply', 'tir_negative', 'add1'"
    ):
        module.load_machine()["vm_initialization"](1, 0, 2)


def test_other_devices_and_other_functions_are_refused() -> None:
    with pytest.raises(InputError, match="CPU"):
        executable_module("loop").load_machine()["vm_initialization"](2, 0, 2)
    loop = machine("loop")
    with pytest.raises(InputError, match="no function 'mian'"):
        loop["mian"]
    with pytest.raises(InputError, match="no function 'less'"):
        loop.engine.call("less", [])


def test_results_have_memory_of_their_own() -> None:
    loop = machine("loop")
    first = loop["main"](_floats(1, 2))
    kept = np.array(np.from_dlpack(first))
    second = loop["main"](_floats(3, 4))
    np.testing.assert_array_equal(np.from_dlpack(first), kept)
    assert first.data_ptr() != second.data_ptr()


class _Keeper:
    """A function that keeps the tensors it is given."""

    def __init__(self) -> None:
        self.kept: list[np.ndarray] = []

    def __call__(self, *tensors: Any) -> None:
        *operands, result = (np.from_dlpack(one) for one in tensors)
        np.add(*operands, out=result)
        self.kept.append(result)


def test_what_a_stranger_keeps_is_not_written_again() -> None:
    keeper = _Keeper()
    module = RelaxExecutableModule(
        stored_executables("0.27")["calls.bytecode"].data, "net.so"
    )
    module.import_module(FunctionTable({**KERNELS["calls"], "add": keeper}))
    vm = module.load_machine()
    vm["vm_initialization"](1, 0, 2)
    for value in (1.0, 2.0, 3.0):
        vm["four"](_floats(value))
    assert [one.item() for one in keeper.kept] == [2, 4, 4, 8, 6, 12]


def test_memory_goes_with_the_last_that_holds_it() -> None:
    loop = machine("loop")
    result = np.from_dlpack(loop["main"](np.ones(50_000, np.float32)))
    heap = _engine(loop).host.heap
    del loop
    gc.collect()
    assert result[0] == pytest.approx(1.5**10)
    before = heap.report()
    del result
    gc.collect()
    assert sum(heap.report()[:3]) < sum(before[:3])


def test_threads_call_a_function_at_the_same_time() -> None:
    loop = machine("loop")
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.full(100, seed, np.float32)
        results = [np.from_dlpack(loop["main"](x)) for _ in range(40)]
        wrong.extend(seed for one in results if not np.array_equal(one, _looped(x)))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_instrument_sees_every_call_and_may_skip_it() -> None:
    branch = machine("branch")
    seen: list[tuple[str, bool]] = []

    def instrument(_: Any, symbol: str, before: bool, result: Any, *arguments: Any) -> int:
        seen.append((symbol, before))
        return 1 if symbol == "add1" and before else 0

    branch["set_instrument"](instrument)
    result = branch["main"](tensor(True), tensor(_floats(2)))
    assert np.from_dlpack(result).shape == (1,)  # what add1 did not write
    assert ("multiply", True) in seen
    assert ("multiply", False) in seen
    assert ("add1", True) in seen
    assert ("add1", False) not in seen
    assert ("vm.builtin.check_tensor_info", True) in seen


def test_an_instrument_sees_arguments_and_results_and_ends_a_call_with_its_error() -> None:
    loop = machine("loop")
    run = loop["main"]  # asked for before anybody listens
    seen: list[tuple[Any, ...]] = []

    def instrument(
        function: Any, symbol: str, before: bool, result: Any, *given: Any
    ) -> None:
        if symbol == "vm.builtin.make_shape" and not before:
            seen.append((type(function), result, len(given)))
        if symbol == "add1" and len(seen) > 2:
            raise KeyError("enough")

    loop["set_instrument"](instrument)
    with pytest.raises(KeyError, match="enough"):
        run(_floats(1, 2))
    assert seen[0][:2] == (tvm_ffi.Function, (8,))  # bytes of a storage
    assert seen[0][2] > 2
    loop["set_instrument"](None)
    np.testing.assert_array_equal(
        np.from_dlpack(run(_floats(1, 2))), _looped(_floats(1, 2))
    )


def test_inputs_are_set_and_outputs_asked_for() -> None:
    tuples = machine("calls")
    assert tuples["get_function_arity"]("main") == 2
    assert tuples["get_function_param_name"]("main", 1) == "y"
    tuples["set_input"]("main", tensor(_floats(1)), tensor(_floats(2)))
    tuples["invoke_stateful"]("main")
    assert tuples["get_output_arity"]("main") == 2
    assert np.from_dlpack(tuples["get_output"]("main", 0)) == 4
    tuples["save_function"]("four", "eight", True, tensor(_floats(2)))
    assert np.from_dlpack(tuples["eight"]()) == 8


@pytest.mark.parametrize("name", ["calls", "closures"])
def test_a_machine_that_nobody_holds_goes(name: str) -> None:
    module = machine(name)
    module["main"](_floats(1, 2, 3, 4), _floats(1, 2, 3, 4))
    gone = weakref.ref(module.engine)
    del module
    gc.collect()
    assert gone() is None


def test_the_module_shows_and_saves_what_it_was_made_of() -> None:
    stored = stored_executables("0.27")["loop.bytecode"]
    module = executable_module("loop")
    assert module.kind == "relax.VMExecutable"
    assert module["as_text"]() == module.inspect_source() == stored.text
    assert module["stats"]() == module.inspect_source("stats")
    assert module["as_python"]().startswith("ib = rx.Builder()")
    assert module["has_function"]("step")
    assert not module["has_function"]("stop")
    assert module.save_to_bytes() == stored.data
    with pytest.raises(
        InputError, match="format 'c', expected 'text', 'python' or 'stats'"
    ):
        module.inspect_source("c")
