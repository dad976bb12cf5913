"""Modules of IREE's compilers with kernels in bytecode: six releases, two devices, the CLI."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from fakes.command_line import tilewright
from tilewright.base.errors import DeviceError
from tilewright.runtime.bytecode_machine import BytecodeMachine
from tilewright.runtime.vm.bytecode_module import BytecodeMode

ARCHIVES = Path(__file__).resolve().parents[1] / "golden" / "archives"
RECORDED = np.load(ARCHIVES / "iree-vmvx_results.npz")
RELEASES = ("3.0.0", "3.4.0", "3.9.0", "3.10.0", "3.11.0", "3.13.0")
DEVICES = ("local-sync", "local-task://?threads=2")
MODES: tuple[BytecodeMode, ...] = ("translate", "interpret")


def opened(
    name: str, device: str, *, mode: BytecodeMode | None = None, untrusted: bool = False
) -> BytecodeMachine:
    path = ARCHIVES / f"iree-{name}.vmfb"
    return BytecodeMachine.from_file(path, device, mode=mode, untrusted=untrusted)


def arrays(machine: BytecodeMachine, function: str, *inputs: object) -> list[np.ndarray]:
    return [np.asarray(result) for result in machine.invoke(function, *inputs)]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("release", RELEASES)
def test_an_addition_is_that_of_every_release(release: str, device: str) -> None:
    (got,) = arrays(
        opened(f"{release}-add_vmvx", device), "add", RECORDED["add_a"], RECORDED["add_b"]
    )
    np.testing.assert_array_equal(got, RECORDED["add"])


@pytest.mark.thinned(5)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("release", RELEASES)
def test_control_flow_takes_both_arms(
    release: str, device: str, mode: BytecodeMode
) -> None:
    machine = opened(f"{release}-ctrl_vmvx", device, mode=mode)
    for count in (5, 2, 5):
        got, steps = arrays(machine, "ctrl", RECORDED["ctrl_x"], count)
        np.testing.assert_array_equal(got, RECORDED[f"ctrl_{count}"])
        assert steps == count


@pytest.mark.thinned(5)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("release", RELEASES)
def test_a_loop_that_ends_when_its_data_say_so(release: str, device: str) -> None:
    machine = opened(f"{release}-dd_vmvx", device)
    for call in (1, 2):
        got, total, counter = arrays(machine, "dd", RECORDED["dd_x"], 100.0)
        np.testing.assert_array_equal(got, RECORDED["dd"])
        assert total == pytest.approx(187.475, abs=1e-3)
        assert counter == call, "a global of the module counts the calls"


@pytest.mark.thinned(5)
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("device", ["local-sync", "local-task"])
def test_the_command_line_runs_them(tmp_path: Path, release: str, device: str) -> None:
    for name in ("add_a", "add_b", "add"):
        np.save(tmp_path / f"{name}.npy", RECORDED[name])
    path = ARCHIVES / f"iree-{release}-add_vmvx.vmfb"
    ran = tilewright(
        "run", f"--module={path}", f"--device={device}", f"--input=@{tmp_path}/add_a.npy",
        f"--input=@{tmp_path}/add_b.npy", f"--expected_output=@{tmp_path}/add.npy",
        "--expected_rtol=0", "--expected_atol=0",
    )  # fmt: skip
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("untrusted", [False, True])
def test_a_module_with_both_kinds_of_kernels_takes_what_it_may(untrusted: bool) -> None:
    machine = opened("3.13.0-add_vmvx_and_cpu", "local-sync", untrusted=untrusted)
    (got,) = arrays(machine, "add", RECORDED["add_a"], RECORDED["add_b"])
    np.testing.assert_array_equal(got, RECORDED["add"])


@pytest.mark.parametrize("name", ["3.13.0-two_inline_dynamic_cpu", "3.13.0-check_cpu"])
def test_machine_code_of_an_untrusted_module_is_refused_in_words(name: str) -> None:
    with pytest.raises(
        DeviceError, match=r"wants to run machine code \(embedded-elf-x86_64\)"
    ) as caught:
        opened(name, "local-sync", untrusted=True)
    assert "target-backends=vmvx" in (caught.value.hint or "")


KINDS = ["inline_static", "inline_dynamic_vmvx", "inline_dynamic_cpu"]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [0, 1, 7, 64])
def test_programs_without_queues(kind: str, rows: int) -> None:
    machine = opened(f"3.13.0-two_{kind}", "local-sync")
    random = np.random.default_rng(rows)
    a = random.standard_normal((rows, 5)).astype(np.float32)
    b = random.standard_normal((5, 3)).astype(np.float32)
    for _ in range(2):
        product, truncated = arrays(machine, "two", a, b)
        np.testing.assert_allclose(product, a @ b, rtol=1e-5, atol=1e-6)
        # In bytecode, casts round to nearest: see tilewright.runtime.vm.floats.
        wanted = (
            np.trunc(a) if kind.endswith("cpu") else np.copysign(np.floor(abs(a) + 0.5), a)
        )
        np.testing.assert_array_equal(truncated, wanted.astype(np.int32))


@pytest.mark.parametrize("kind", KINDS)
def test_programs_without_queues_run_from_memory_that_is_not_aligned(kind: str) -> None:
    data = (ARCHIVES / f"iree-3.13.0-two_{kind}.vmfb").read_bytes()
    a, b = np.ones((4, 5), np.float32), np.ones((5, 3), np.float32)
    for shift in (1, 4, 32):
        machine = BytecodeMachine("local-sync")
        machine.load(memoryview(bytes(shift) + data)[shift:])
        np.testing.assert_array_equal(arrays(machine, "two", a, b)[0], np.full((4, 3), 5.0))


@pytest.mark.parametrize("device", DEVICES)
def test_matrices_in_tiles_through_the_whole_row_functions(device: str) -> None:
    machine = opened("3.13.0-matmul_microkernels", device)
    random = np.random.default_rng(4)
    a, b, c = (
        random.standard_normal(s).astype(np.float32) for s in ((13, 29), (29, 7), (13, 7))
    )
    np.testing.assert_allclose(
        arrays(machine, "mm", a, b, c)[0], a @ b + c, rtol=1e-4, atol=1e-4
    )
    a, b = (random.integers(-128, 128, s).astype(np.int8) for s in ((13, 29), (29, 7)))
    c = random.integers(-(2**31), 2**31, (13, 7)).astype(np.int32)
    wanted = a.astype(np.int32) @ b.astype(np.int32) + c
    np.testing.assert_array_equal(arrays(machine, "mmi", a, b, c)[0], wanted)


def test_threads_share_an_executable_and_none_sees_anothers_numbers() -> None:
    machine = opened("3.13.0-matmul_microkernels", "local-task://?threads=2")
    b, c = np.eye(29, 7, dtype=np.float32), np.zeros((13, 7), np.float32)
    wrong: list[int] = []

    def call(number: int) -> None:
        a = np.full((13, 29), number, np.float32)
        results = (arrays(machine, "mm", a, b, c)[0] for _ in range(20))
        wrong.extend(number for got in results if not (got == number).all())

    threads = [threading.Thread(target=call, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_profiles_name_the_kernels_in_bytecode() -> None:
    machine = opened("3.13.0-ctrl_vmvx", "local-sync")
    machine.device.profiling_begin()
    arrays(machine, "ctrl", RECORDED["ctrl_x"], 2)
    kernels = [t for t in machine.device.profiling_end() if "dispatch" in t.name]
    assert [t.name for t in kernels] == ["ctrl_dispatch_0_elementwise_D_f32"] * 2
    assert all(t.duration_ns > 0 for t in kernels)
