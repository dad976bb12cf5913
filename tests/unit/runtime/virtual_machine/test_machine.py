from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm_ffi

from fakes.borrowed_tensors import call_with_borrowed
from tilewright import runtime
from tilewright.base.errors import InputError, UserError
from tilewright.runtime.packed.devices import cpu, device
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.packed.machine_module import (
    Instrument,
    InstrumentResult,
    MachineModule,
    MemoryManager,
)
from tilewright.runtime.packed.module import Module
from tilewright.runtime.virtual_machine.machine import VirtualMachine, kept_copy

DURATION = "Duration (us)"


def array(tensor: Any) -> np.ndarray:
    return np.from_dlpack(tensor)


class Engine:
    """Adds, nests and repeats, with one kernel call per function."""

    def __init__(self, manager: MemoryManager) -> None:
        self.manager = manager
        self.instrument: Instrument | None = None
        self.calls = 0

    def function_names(self) -> Sequence[str]:
        return ("add", "nest", "nothing")

    def parameter_names(self, function: str) -> Sequence[str] | None:
        return {"add": ("a", "b"), "nest": ("x",), "nothing": ()}[function]

    def call(self, function: str, arguments: Sequence[Any]) -> object:
        if self.instrument is not None:
            answer = self.instrument(None, f"k_{function}", True, None, *arguments)
            if answer == InstrumentResult.SKIP_RUN:
                return None
        self.calls += 1
        result: object = None
        if function == "add":
            result = array(arguments[0]) + array(arguments[1])
        if function == "nest":
            x = array(arguments[0])
            result = (x, (x + 1, 7), ())
        if self.instrument is not None:
            self.instrument(None, f"k_{function}", False, result, *arguments)
        return result

    def set_instrument(self, instrument: Instrument | None) -> None:
        self.instrument = instrument


class Executable(Module):
    kind = "executable of a test"

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[Engine] = []

    def find_function(self, name: str):
        made = FunctionTable({"vm_load_executable": self.load})
        return made.find_function(name)

    def load(self) -> Module:
        def open_engine(manager: MemoryManager) -> Engine:
            self.opened.append(Engine(manager))
            return self.opened[-1]

        return MachineModule(open_engine, ("add", "nest", "nothing"))


def machine(memory_cfg: Any = None) -> VirtualMachine:
    return VirtualMachine(Executable(), cpu(0), memory_cfg)


X, Y = np.arange(3, dtype=np.float32), np.full(3, 2, np.float32)


def test_functions_are_called_by_name() -> None:
    assert np.array_equal(array(machine()["add"](X, Y)), X + Y)


def test_an_unknown_function_says_which_there_are() -> None:
    with pytest.raises(InputError, match=r"no function 'ad'") as caught:
        _ = machine()["ad"]
    assert "add" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "manager"),
    [
        (None, MemoryManager.POOLED),
        ("naive", MemoryManager.NAIVE),
        ("pooled", MemoryManager.POOLED),
        ({}, MemoryManager.POOLED),
        ({cpu(0): "naive"}, MemoryManager.NAIVE),
    ],
)
def test_memory_is_managed_as_asked(config: Any, manager: MemoryManager) -> None:
    executable = Executable()
    VirtualMachine(executable, cpu(0), config)
    assert executable.opened[0].manager is manager


@pytest.mark.parametrize(
    "config", ["greedy", 3, {cpu(0): "greedy"}, {cpu(7): "naive"}, {"cpu": "naive"}]
)
def test_an_unknown_memory_manager_is_an_error(config: object) -> None:
    with pytest.raises(UserError, match="memory_cfg"):
        machine(config)


@pytest.mark.parametrize("wrong", ["cpu", None, [], [3]])
def test_what_is_no_device_is_an_error(wrong: Any) -> None:
    with pytest.raises(UserError, match="expected a device or several"):
        VirtualMachine(Executable(), wrong)


def test_memory_of_a_device_that_is_not_there_is_an_error() -> None:
    with pytest.raises(InputError, match="memory_cfg names 'cpu:1', the machine has cpu:0"):
        machine({cpu(1): "naive"})


def test_a_device_that_the_machine_cannot_run_on_is_an_error() -> None:
    with pytest.raises(
        InputError, match="runs on one CPU, got cuda:0, cpu:0\nhint: device="
    ):
        VirtualMachine(Executable(), device("cuda", 0))
    with pytest.raises(InputError, match="runs on one CPU, got cpu:0, cpu:0"):
        VirtualMachine(Executable(), [cpu(0), cpu(0)])
    with pytest.raises(InputError, match="got a device of type 99"):
        VirtualMachine(Executable(), cpu(0)).module["vm_initialization"](99, 0, 2)


def test_inputs_stay_until_they_are_set_again() -> None:
    vm = machine()
    x = X.copy()
    vm.set_input("add", x, Y)
    x[:] = 100  # the machine has a copy
    for _ in range(2):
        vm.invoke_stateful("add")
        assert np.array_equal(array(vm.get_outputs("add")), X + Y)
    vm.set_input("add", Y, Y)
    vm.invoke_stateful("add")
    assert np.array_equal(array(vm.get_outputs("add")), Y + Y)


def test_a_tensor_that_is_set_is_copied_like_an_array() -> None:
    vm, x = machine(), X.copy()
    vm.set_input("add", tvm_ffi.from_dlpack(x), Y)
    x[:] = 100
    vm.invoke_stateful("add")
    assert np.array_equal(array(vm.get_outputs("add")), X + Y)


@pytest.mark.parametrize(
    "call",
    [
        lambda vm: vm.set_instrument(5),
        lambda vm: vm.time_evaluator("add", f_preproc=5),
    ],
)
def test_what_cannot_be_called_is_refused(call: Callable[[VirtualMachine], object]) -> None:
    with pytest.raises(UserError, match="is 5, expected a function or"):
        call(machine())


def test_a_tensor_of_another_device_is_kept_as_it_is() -> None:
    class Far:
        """On a GPU, so to speak."""

        def __dlpack__(self, **_: object) -> object:
            raise AssertionError("nobody may ask for its memory")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

    far = Far()
    assert kept_copy(far) is far
    assert kept_copy(3) == 3


@pytest.mark.parametrize(
    "call",
    [
        lambda vm, x: vm.set_input("add", x, Y),
        lambda vm, x: vm.set_input("add", Y, b=x),
        lambda vm, x: vm.save_function("add", "saved", x, Y),
        lambda vm, x: vm.profile("add", x, Y),
        lambda vm, x: vm.invoke_closure(vm["add"], Y, x),
        lambda vm, x: vm.set_input("nest", (Y, [x])),
    ],
)
def test_elements_below_a_mask_are_no_argument(
    call: Callable[[VirtualMachine, object], object],
) -> None:
    masked = np.ma.masked_equal(X, 1)
    with pytest.raises(InputError, match="got MaskedArray with elements below its mask"):
        call(machine(), masked)
    vm = machine()
    vm.set_input("add", masked.filled(5), np.ma.masked_array(Y))
    vm.invoke_stateful("add")
    assert array(vm.get_outputs("add")).tolist() == [2, 7, 4]


def test_members_of_what_is_set_are_copied_too() -> None:
    x = X.copy()
    kept, number, (inner,) = kept_copy((x, 3, [x]))
    x[:] = 100
    assert np.array_equal(array(kept), X)
    assert np.array_equal(array(inner), X)
    assert number == 3


def test_arguments_by_name_go_to_their_places() -> None:
    vm = machine()
    vm.set_input("add", X, a=Y)
    vm.invoke_stateful("add")
    assert np.array_equal(array(vm.get_outputs("add")), X + Y)
    vm.set_input("add", b=X, a=Y)
    with pytest.raises(InputError, match="no parameter 'c'"):
        vm.set_input("add", X, c=Y)
    with pytest.raises(InputError, match="got 3 arguments, expected 2: a, b"):
        vm.set_input("add", X, Y, a=Y)


def test_outputs_are_nested_as_the_function_nests_them() -> None:
    vm = machine()
    vm.set_input("nest", X)
    vm.invoke_stateful("nest")
    first, (second, number), empty = vm.get_outputs("nest")
    assert np.array_equal(array(first), X)
    assert np.array_equal(array(second), X + 1)
    assert number == 7
    assert empty == ()


def test_what_is_set_is_called_by_invoke_stateful_alone() -> None:
    vm = machine()
    vm.set_input("add", X, Y)
    with pytest.raises(InputError, match="invoke_stateful"):
        vm["add"](X, Y)
    vm["nest"](X)


def test_the_order_of_the_three_calls_matters() -> None:
    vm = machine()
    with pytest.raises(InputError, match="no inputs of 'add' are set"):
        vm.invoke_stateful("add")
    vm.set_input("add", X, Y)
    with pytest.raises(InputError, match="no outputs yet"):
        vm.get_outputs("add")
    vm.invoke_stateful("add")
    vm.set_input("add", X, Y)
    with pytest.raises(InputError, match="no outputs yet"):
        vm.get_outputs("add")


@pytest.mark.parametrize("arguments", [(X,), (X, Y, Y)])
def test_a_wrong_number_of_inputs_is_an_error(arguments: tuple[np.ndarray, ...]) -> None:
    with pytest.raises(InputError, match="expected 2: a, b"):
        machine().set_input("add", *arguments)
    with pytest.raises(InputError, match="expected 2: a, b"):
        machine().save_function("add", "saved", *arguments)


def test_a_saved_function_has_its_arguments() -> None:
    vm = machine()
    vm.save_function("add", "both", X, b=Y)
    assert np.array_equal(array(vm["both"]()), X + Y)
    vm.save_function("add", "both", X, Y, include_return=False)
    assert vm["both"]() is None
    with pytest.raises(InputError, match="'nest' is a function"):
        vm.save_function("add", "nest", X, Y)
    with pytest.raises(InputError, match="no function 'sub'"):
        vm.save_function("sub", "s", X)


def test_closures_are_called() -> None:
    assert machine().invoke_closure(lambda a, b: a + b, 3, 4) == 7


def test_numbers_that_cross_the_border_are_those_of_tvm() -> None:
    assert runtime.InstrumentResult is InstrumentResult
    assert {one.name: int(one) for one in InstrumentResult} == {"NO_OP": 0, "SKIP_RUN": 1}
    assert {one.name: int(one) for one in MemoryManager} == {"NAIVE": 1, "POOLED": 2}


def test_an_instrument_hears_of_each_call_and_may_leave_it_out() -> None:
    vm = machine()
    heard: list[tuple[str, bool]] = []

    def instrument(function: object, symbol: str, before: bool, *rest: object) -> int:
        heard.append((symbol, before))
        return InstrumentResult.SKIP_RUN if symbol == "k_nest" else InstrumentResult.NO_OP

    vm.set_instrument(instrument)
    vm["add"](X, Y)
    vm["nest"](X)
    assert heard == [("k_add", True), ("k_add", False), ("k_nest", True)]
    vm.set_instrument(None)
    vm["add"](X, Y)
    assert len(heard) == 3


def test_an_error_in_an_instrument_arrives() -> None:
    vm = machine()

    def instrument(*_: object) -> int:
        raise ValueError("not today")

    vm.set_instrument(instrument)
    with pytest.raises(ValueError, match="not today"):
        vm["add"](X, Y)


def test_a_function_is_timed() -> None:
    executable = Executable()
    vm = VirtualMachine(executable, cpu(0))
    before: list[object] = []
    result = vm.time_evaluator(
        "add", cpu(0), number=2, repeat=3, f_preproc=lambda *a: before.append(a)
    )(X, Y)
    assert executable.opened[0].calls == 1 + 2 * 3
    assert len(result.results) == len(before) == 3


def test_a_profile_has_a_row_per_kernel_with_its_shapes() -> None:
    vm = machine()
    report = vm.profile("add", X, Y)
    (row,) = report.calls
    assert row["Name"] == "k_add"
    assert row["Argument Shapes"] == "float32[3], float32[3]"
    durations: list[Any] = [report.device_metrics["cpu0"][DURATION], row[DURATION]]
    assert durations[0].value >= durations[1].value
    assert "k_add" in report.table()


def test_a_module_that_knows_no_machine_is_called_function_by_function() -> None:
    table = FunctionTable({"twice": lambda x: array(x) * 2})
    vm = VirtualMachine(table, cpu(0), "naive")
    assert np.array_equal(array(vm["twice"](X)), X * 2)
    vm.set_input("twice", X)
    vm.invoke_stateful("twice")
    assert np.array_equal(array(vm.get_outputs("twice")), X * 2)
    vm.save_function("twice", "mine", X)
    assert np.array_equal(array(vm["mine"]()), X * 2)
    assert [row["Name"] for row in vm.profile("mine").calls] == ["twice"]
    with pytest.raises(InputError, match="nobody knows the parameters"):
        vm.set_input("twice", x=X)


def test_an_exported_model_says_what_its_parameters_are_called() -> None:
    names = ("x", "y")
    table = FunctionTable(
        {
            "main": lambda x, y: array(x) - array(y),
            "get_num_inputs": lambda: len(names),
            "get_input_name": lambda index: names[index],
        }
    )
    vm = VirtualMachine(table, cpu(0))
    vm.set_input("main", y=X, x=X * 3)
    vm.invoke_stateful("main")
    assert np.array_equal(array(vm.get_outputs("main")), X * 2)
    with pytest.raises(InputError, match="has no parameter 'z'"):
        vm.set_input("main", X, z=X)


def test_a_module_without_functions_is_an_error() -> None:
    with pytest.raises(InputError, match="has no functions"):
        VirtualMachine(FunctionTable({}), cpu(0))


@pytest.mark.parametrize(
    "numbers",
    [(), (1, 0), (1, 0, 9), (1, 5, 2), (1, 0, 2, 3), (2, 0, 2), (1, 0, 2, 1, 0, 2)],
)
def test_devices_that_make_no_sense_are_errors(numbers: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        Executable().load()["vm_initialization"](*numbers)


def test_a_machine_without_devices_says_what_to_do() -> None:
    with pytest.raises(InputError, match="vm_initialization"):
        Executable().load()["add"](X, Y)


def test_tensors_that_are_borrowed_for_a_call_are_copied_to_be_kept() -> None:
    vm = machine()
    x = np.array([1, 2], np.float32)
    lent = [tvm_ffi.from_dlpack(x.copy()) for _ in range(2)]
    call_with_borrowed(vm.module["set_input"], "add", *lent)
    call_with_borrowed(vm.module["save_function"], "add", "saved", 1, *lent)
    for one in lent:
        np.from_dlpack(one)[...] = 100  # whoever lent it uses it again
    vm.invoke_stateful("add")
    assert array(vm.get_outputs("add")).tolist() == [2, 4]
    assert array(vm["saved"]()).tolist() == [2, 4]
