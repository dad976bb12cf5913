"""Executables in bytecode: what is loaded, what is refused, what a dispatch passes."""

from __future__ import annotations

import sys
import threading
from itertools import product

import numpy as np
import pytest

from fakes.scarce_threads import threads_left
from fakes.vmvx_kernels import FORMAT, SCALE, executable
from tilewright.base.budget import Budget, Limits
from tilewright.base.errors import ArchiveError, DeviceError
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.vmfb import ModuleBuilder, archive_bytes
from tilewright.runtime.hal.executable import ExecutableParams
from tilewright.runtime.hal.local.host_executable import HostExecutable
from tilewright.runtime.loaders.vmvx_loader import VmvxLoader


def load(data: bytes, constants: tuple[int, ...] = ()) -> HostExecutable:
    params = ExecutableParams(format=FORMAT, data=data, constants=constants)
    loaded = VmvxLoader().load(params)
    assert isinstance(loaded, HostExecutable)
    return loaded


def run(
    loaded: HostExecutable,
    name: str,
    *bindings: np.ndarray,
    grid: tuple[int, int, int] = (1, 1, 1),
    constants: tuple[int, ...] = (),
    threads: int = 1,
) -> None:
    ordinal = loaded.lookup_function_by_name(name)
    loaded.run(
        ordinal, grid, constants, [view_bytes(b.view(np.uint8)) for b in bindings], threads
    )


def module_with(signature: str, attributes: dict[str, str] | None = None) -> bytes:
    module = ModuleBuilder("kernels")
    module.function(signature, export="kernel", attributes=attributes).return_()
    return archive_bytes(module.finish())


def test_the_format_is_recognised_by_its_bytes() -> None:
    loader = VmvxLoader()
    assert loader.query_support(FORMAT)
    assert not loader.query_support("embedded-elf-x86_64")
    assert loader.infer_format(executable()) == FORMAT
    assert loader.infer_format(b"\x7fELF" + bytes(60)) is None
    assert loader.infer_format(b"") is None


def test_kernels_say_what_they_take() -> None:
    functions = load(executable()).functions
    assert [f.name for f in functions] == [
        "number",
        "__copy_first",
        "outside",
        "forever",
        "use_local",
    ]
    assert [f.binding_count for f in functions] == [1, 2, 1, 0, 1]
    assert [f.constant_count for f in functions] == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("grid", [(1, 1, 1), (5, 1, 1), (2, 3, 4), (1, 7, 1), (1, 1, 9)])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_workgroup_runs_once(grid: tuple[int, int, int], threads: int) -> None:
    out = np.full(int(np.prod(grid)) + 1, -1, np.int32)
    run(load(executable()), "number", out, grid=grid, constants=(100,), threads=threads)
    assert out.tolist() == [*range(100, 100 + len(out) - 1), -1]


@pytest.mark.parametrize("grid", list(product((0, 3), (0, 1), (0, 2)))[:-1])
def test_an_empty_grid_runs_nothing(grid: tuple[int, int, int]) -> None:
    out = np.zeros(6, np.int32)
    run(load(executable()), "number", out, grid=grid, constants=(1,))
    assert not out.any()


def test_constants_are_unsigned_words() -> None:
    out = np.zeros(2, np.int32)
    run(load(executable()), "number", out, grid=(2, 1, 1), constants=(2**32 - 5,))
    assert out.tolist() == [-5, -4]


def test_specialisation_constants_reach_every_context() -> None:
    loaded = load(executable(specialised=True), (3,))
    wrong: list[object] = []

    def call() -> None:
        out = np.zeros(4, np.int32)
        for _ in range(20):
            run(loaded, "number", out, grid=(4, 1, 1), constants=(0,))
            if out.tolist() != [3 * SCALE + i for i in range(4)]:
                wrong.append(out.tolist())

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_specialisation_constants_must_be_wanted_and_given() -> None:
    with pytest.raises(DeviceError, match="got 0 specialisation constants, expected some"):
        load(executable(specialised=True))
    with pytest.raises(DeviceError, match="got 2 specialisation constants, expected none"):
        load(executable(), (1, 2))


def test_local_memory_has_the_size_that_the_kernel_asks_for() -> None:
    for size in (0, 1, 4096, 5000):
        out = np.full(1, -1, np.int32)
        run(load(executable(local_memory=size)), "use_local", out)
        assert out.tolist() == [size]


def test_a_write_behind_a_binding_fails_and_names_the_kernel() -> None:
    guarded = np.arange(8, dtype=np.int32)
    with pytest.raises(DeviceError, match="OUT_OF_RANGE") as caught:
        run(load(executable()), "outside", guarded[:4])
    assert guarded.tolist() == list(range(8))
    assert any("kernels." in note for note in caught.value.__notes__)


def test_a_binding_that_nothing_may_write_is_not_written() -> None:
    fixed, out = np.full(1, 7, np.int32), np.zeros(1, np.int32)
    fixed.flags.writeable = False
    loaded = load(executable())
    run(loaded, "__copy_first", fixed, out)
    assert out.tolist() == [7]
    with pytest.raises(DeviceError, match="read-only"):
        run(loaded, "__copy_first", out, fixed)
    assert fixed.tolist() == [7]


def test_a_failure_on_one_thread_reaches_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    loaded = load(executable())  # takes threads, as without the interpreter's lock
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        run(loaded, "outside", np.zeros(4, np.int32), grid=(50, 1, 1), threads=4)
    out = np.zeros(50, np.int32)
    run(loaded, "number", out, grid=(50, 1, 1), constants=(0,), threads=4)
    assert out.tolist() == list(range(50)), "it still works afterwards"


@pytest.mark.parametrize("signature", ["0rrriiiiiiii_v", "0rrriiiiiiiii_i", "0v_v"])
def test_functions_that_are_no_kernels_are_refused(signature: str) -> None:
    module = ModuleBuilder("kernels")
    build = module.function(signature, export="kernel")
    build.return_(*([build.constant("i32", 0)] if signature.endswith("_i") else []))
    with pytest.raises(ArchiveError, match=f"signature '{signature}', expected"):
        load(archive_bytes(module.finish()))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"binding_count": "-1"}, "binding_count is '-1', expected a number"),
        ({"constant_count": "many"}, "constant_count is 'many'"),
        ({"local_memory": str(2**40)}, "bytes of local memory, at most"),
    ],
)
def test_attributes_that_make_no_sense_are_refused(
    attributes: dict[str, str], message: str
) -> None:
    with pytest.raises(ArchiveError, match=message):
        load(module_with("0rrriiiiiiiii_v", attributes))


def test_kernels_may_import_nothing_but_whole_row_functions() -> None:
    module = ModuleBuilder("kernels")
    module.dependency("hal")
    module.import_("hal.devices.count", "0v_i")
    module.function("0rrriiiiiiiii_v", export="kernel").return_()
    with pytest.raises(DeviceError, match="module 'hal' is missing"):
        load(archive_bytes(module.finish()))


def test_damaged_executables_fail_cleanly() -> None:
    data = executable()
    random = np.random.default_rng(5)
    for _ in range(300):
        damaged = bytearray(data)
        for place in random.integers(0, len(data), 3):
            damaged[place] = random.integers(0, 256)
        try:
            loaded = load(bytes(damaged))
        except (ArchiveError, DeviceError):
            continue
        assert len(loaded.functions) <= 5
    with pytest.raises(ArchiveError):
        load(data[: len(data) // 2])
    with pytest.raises(ArchiveError):
        load(b"")


def limited(max_steps: int | None = None, timeout_s: float | None = None) -> HostExecutable:
    budget = Budget(Limits(max_steps=max_steps, timeout_s=timeout_s))
    params = ExecutableParams(format=FORMAT, data=executable(), budget=budget)
    loaded = VmvxLoader().load(params)
    assert isinstance(loaded, HostExecutable)
    return loaded


def test_a_kernel_that_does_not_end_is_ended() -> None:
    with pytest.raises(DeviceError, match="takes more than 1000 steps"):
        run(limited(max_steps=1000), "forever")
    with pytest.raises(DeviceError, match=r"takes more than 0\.05 seconds"):
        run(limited(timeout_s=0.05), "forever")


def test_a_grid_without_end_is_ended() -> None:
    grid = 2**32 - 1, 2**32 - 1, 2**32 - 1
    one, other = np.zeros(1, np.int32), np.zeros(1, np.int32)
    with pytest.raises(DeviceError, match="takes more than 100 steps"):
        run(limited(max_steps=100), "__copy_first", one, other, grid=grid)
    with pytest.raises(DeviceError, match=r"takes more than 0\.05 seconds"):
        run(limited(timeout_s=0.05), "__copy_first", one, other, grid=grid)


def test_every_dispatch_has_the_whole_budget() -> None:
    loaded = limited(max_steps=60)
    out = np.zeros(3, np.int32)
    for _ in range(20):
        run(loaded, "number", out, grid=(3, 1, 1), constants=(5,), threads=4)
    assert out.tolist() == [5, 6, 7]


@pytest.mark.parametrize("count", [0, 1])
def test_every_workgroup_runs_once_where_threads_are_scarce(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    loaded, out = load(executable()), np.full(50, -1, np.int32)
    with threads_left(count):
        run(loaded, "number", out, grid=(50, 1, 1), constants=(0,), threads=4)
    assert out.tolist() == [*range(50)]
