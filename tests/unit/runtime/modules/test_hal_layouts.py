"""Programs of `hal` versions before 5 push operands; a kernel gets what its layout names."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.kernel_image import FORMAT, KERNELS, kernel_image
from tilewright.base.budget import OBJECT_BYTES, Budget, Limits
from tilewright.base.errors import DeviceError, LimitError
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.nested_commands import NESTED
from tilewright.runtime.modules.hal import create_hal_module
from tilewright.runtime.vm.buffer import VmBuffer

STORAGE, READ_ONLY = 7, 1
SIGNATURES = {
    "command_buffer.create": "0riii_r",
    "command_buffer.dispatch": "0rriiii_v",
    "command_buffer.copy_buffer": "0rrIrII_v",
    "command_buffer.fill_buffer": "0rrIIii_v",
    "command_buffer.dispatch.indirect": "0rrirI_v",
    "executable.create": "0rrrrCrD_r",
    "device.queue.execute": "0rIrrCrD_v",
    "fence.await": "0iCrD_i",
    "fence.create": "0ri_r",
}
SCALE, TOTAL, GRID, LENGTHS = 0, 1, 2, 4


class Program:
    """Calls the module's functions as a compiler of 2024 does."""

    def __init__(self, uri: str) -> None:
        self.device = registry.create_device(uri)
        self.module = create_hal_module([self.device])
        self.state = self.module._create_state()

    def __call__(self, name: str, *arguments: object) -> object:
        callee = self.module.bind(self.state, name, SIGNATURES.get(name))
        assert callee is not None, name
        return callee(*arguments)

    def layout(self, constant_count: int, *sets: int) -> object:
        """A layout of sets with so many bindings."""
        made = [
            self(
                "descriptor_set_layout.create",
                self.device,
                0,
                [(n, STORAGE, READ_ONLY) for n in range(count)],
            )
            for count in sets
        ]
        return self("pipeline_layout.create", self.device, constant_count, made)

    def executable(self, layouts: list[object]) -> object:
        data = VmBuffer(FORMAT.encode()), VmBuffer(kernel_image())
        return self("executable.create", self.device, *data, None, layouts)

    def commands(self, mode: int = 1, capacity: int = 0) -> object:
        return self("command_buffer.create", self.device, mode, 3, capacity)

    def run(self, commands: object) -> None:
        self("command_buffer.finalize", commands)
        done = self("fence.create", self.device, 0)
        self("device.queue.execute", self.device, -1, None, done, [commands])
        assert self("fence.await", -1, [done]) == 0

    def buffer(self, *values: int) -> object:
        data = np.array(values, np.int32).tobytes()
        made = self("allocator.allocate", self.device.allocator, -1, 48, 0xD03, len(data))
        made.write(data)
        return made


def numbers(buffer: object) -> list[int]:
    return np.frombuffer(buffer.read(), np.int32).tolist()


@pytest.fixture(params=["local-sync", "local-task://?threads=2"])
def hal(request: pytest.FixtureRequest) -> Program:
    return Program(request.param)


def test_pushed_operands_stay_until_others_are_pushed(hal: Program) -> None:
    layout = hal.layout(1, 2)
    executable = hal.executable([layout] * len(KERNELS))
    source, target, other = hal.buffer(1, 2, 3), hal.buffer(0, 0, 0), hal.buffer(0, 0, 0)
    commands = hal.commands()
    hal("command_buffer.push_constants", commands, layout, 0, [5])
    places = [(0, 0, source, 0, 12), (1, 0, target, 0, 12)]
    hal("command_buffer.push_descriptor_set", commands, layout, 0, places)
    hal("command_buffer.dispatch", commands, executable, SCALE, 3, 1, 1)
    hal("command_buffer.push_constants", commands, layout, 0, [7])
    hal("command_buffer.push_descriptor_set", commands, layout, 0, [(1, 0, other, 4, 8)])
    hal("command_buffer.dispatch", commands, executable, SCALE, 2, 1, 1)
    hal.run(commands)
    assert numbers(target) == [5, 10, 15]
    assert numbers(other) == [0, 7, 14]


def test_constants_are_pushed_by_element_and_bindings_of_sets_become_one_list(
    hal: Program,
) -> None:
    layout = hal.layout(2, 1, 1)
    executable = hal.executable([layout] * len(KERNELS))
    source, target = hal.buffer(1, 2, 3, 4), hal.buffer(0, 0)
    commands = hal.commands()
    hal("command_buffer.push_constants", commands, layout, 1, [40])
    hal("command_buffer.push_constants", commands, layout, 0, [2])
    hal("command_buffer.push_descriptor_set", commands, layout, 1, [(0, 0, source, 4, 12)])
    hal("command_buffer.push_descriptor_set", commands, layout, 0, [(0, 0, target, 0, 8)])
    hal("command_buffer.dispatch", commands, executable, LENGTHS, 1, 1, 1)
    hal.run(commands)
    assert numbers(target) == [12, 42]


def test_the_layout_of_the_kernel_says_how_much_of_what_was_pushed_it_gets(
    hal: Program,
) -> None:
    one, two = hal.layout(0, 1), hal.layout(1, 2)
    executable = hal.executable([two, two, one, one, two])
    source, target = hal.buffer(3, 4), hal.buffer(0, 0, 0)
    commands = hal.commands()
    places = [(0, 0, target, 0, 12), (1, 0, source, 0, 8)]
    hal("command_buffer.push_descriptor_set", commands, two, 0, places)
    hal("command_buffer.dispatch", commands, executable, GRID, 3, 1, 1)
    hal.run(commands)
    assert numbers(target) == [1, 2, 3]


def test_transfers_and_grids_in_buffers(hal: Program) -> None:
    layout = hal.layout(0, 1)
    executable = hal.executable([layout] * len(KERNELS))
    target, copy, grid = hal.buffer(0, 0, 0), hal.buffer(9, 9, 9), hal.buffer(7, 2, 1, 1)
    commands = hal.commands()
    hal("command_buffer.fill_buffer", commands, target, 8, 4, 6, 4)
    hal("command_buffer.push_descriptor_set", commands, layout, 0, [(0, 0, target, 0, 12)])
    hal("command_buffer.dispatch.indirect", commands, executable, GRID, grid, 4)
    hal("command_buffer.execution_barrier", commands, 28, 13, 0)
    hal("command_buffer.copy_buffer", commands, target, 4, copy, 0, 8)
    hal.run(commands)
    assert numbers(target) == [1, 2, 6]
    assert numbers(copy) == [2, 6, 9]


def test_nested_commands_run_where_they_are_executed(hal: Program) -> None:
    layout = hal.layout(1, 2)
    executable = hal.executable([layout] * len(KERNELS))
    source, target, grid = hal.buffer(1, 2, 3), hal.buffer(0, 0, 0), hal.buffer(3, 1, 1)
    nested = hal.commands(NESTED, 2)
    hal("command_buffer.push_constants", nested, layout, 0, [5])
    places = [(0, 0, None, 0, 12), (1, 1, None, 0, 12)]
    hal("command_buffer.push_descriptor_set", nested, layout, 0, places)
    hal("command_buffer.dispatch", nested, executable, SCALE, 3, 1, 1)
    hal("command_buffer.execution_barrier", nested, 28, 13, 0)
    hal("command_buffer.fill_buffer", nested, source, 0, 4, 8, 4)
    hal("command_buffer.copy_buffer", nested, source, 0, target, 8, 4)
    hal("command_buffer.dispatch.indirect", nested, executable, SCALE, grid, 0)
    hal("command_buffer.finalize", nested)
    outer = hal.commands()
    table = [(source, 0, 12), (target, 0, 12)]
    hal("command_buffer.execute.commands", outer, nested, table)
    hal.run(outer)
    assert numbers(target)[1:] == [10, 15]
    with pytest.raises(DeviceError, match="made nested"):
        hal("command_buffer.execute.commands", hal.commands(), hal.commands(), [])
    with pytest.raises(DeviceError, match="slot 1 of a binding table with 1"):
        hal("command_buffer.execute.commands", hal.commands(), nested, table[:1])


def test_what_does_not_fit_is_refused(hal: Program) -> None:
    layout = hal.layout(1, 2)
    executable = hal.executable([layout])
    commands, buffer = hal.commands(), hal.buffer(1)
    push = "command_buffer.push_descriptor_set", commands, layout
    for call, text in (
        (("command_buffer.push_constants", commands, layout, 63, [1, 2]), "from 63 on"),
        (("command_buffer.push_constants", commands, layout, -1, [1]), "from -1 on"),
        ((*push, 4, [(0, 0, buffer, 0, 4)]), "got 4, expected at most 3"),
        ((*push, 0, [(32, 0, buffer, 0, 4)]), "got 32, expected at most 31"),
        (("command_buffer.dispatch", commands, executable, SCALE, 1, 1, 1), "binding 0 of"),
        (("command_buffer.dispatch", commands, executable, 1, 1, 1, 1), "made with 1 lay"),
        (("command_buffer.dispatch", commands, executable, -1, 1, 1, 1), "made with 1 lay"),
    ):
        with pytest.raises(DeviceError, match=text):
            hal(*call)
    for constants, sets in ((65, [1]), (-1, [1]), (0, [1] * 5), (0, [33])):
        with pytest.raises(DeviceError, match="expected at most"):
            hal.layout(constants, *sets)


def test_layouts_of_strangers_are_paid_for() -> None:
    hal = Program("local-sync")
    with Budget(Limits(max_bytes=OBJECT_BYTES * 20)).call():
        kept = [hal.layout(0, 1) for _ in range(3)]
        with pytest.raises(LimitError, match="max_bytes"):
            kept.extend(hal.layout(0, 1) for _ in range(20))


def test_what_was_pushed_lives_as_long_as_the_command_buffer(hal: Program) -> None:
    layout = hal.layout(1, 2)
    executable = hal.executable([layout])
    commands = hal.commands()
    hal("command_buffer.push_constants", commands, layout, 0, [1])
    assert len(hal.state.pushed) == len(hal.state.layouts) == 1
    del commands, executable
    assert not hal.state.pushed
    assert not hal.state.layouts
