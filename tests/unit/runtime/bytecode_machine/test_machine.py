"""Modules of IREE's compilers run here, on every local device, with their numbers."""

from __future__ import annotations

import lzma
import threading
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.placed_arrays import placed
from tilewright.base.budget import Limits
from tilewright.base.dtypes import f32, i32
from tilewright.base.errors import ArchiveError, DeviceError, InputError, UserError
from tilewright.base.host import describe
from tilewright.base.status import StatusCode, failure
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.formats.vmfb import ModuleBuilder
from tilewright.runtime.bytecode_machine import (
    BytecodeExecutor,
    BytecodeMachine,
    parse_declaration,
)
from tilewright.runtime.bytecode_machine.wanted_device import tell_wanted_device
from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.vm.bytecode_module import BytecodeMode

ARCHIVES = Path(__file__).resolve().parents[3] / "golden" / "archives"
RELEASES = ("3.0.0", "3.4.0", "3.9.0", "3.10.0", "3.11.0", "3.13.0")
DEVICES = ("local-sync", "local-task://?threads=2")
# What iree-run-module 3.13 prints for its module; 3.0 and 3.4 lay the constants out differently.
RECENT = [
    0.0948316901922226, -0.04360006004571915, -0.06955385208129883, 0.10479225963354111,
    0.22333328425884247, -0.0666048601269722, -0.2226160615682602, -0.07520757615566254,
    0.09496638178825378, -0.006426461506634951,
]  # fmt: skip
OLD = [
    0.16804081201553345, -0.0016104355454444885, -0.09102791547775269, 0.03617296367883682,
    0.2531883418560028, -0.011137090623378754, -0.21989259123802185, -0.1252358853816986,
    0.06613259017467499, 0.048553578555583954,
]  # fmt: skip

pytestmark = pytest.mark.skipif(
    describe().arch != "x86_64", reason="the archives hold x86-64 code"
)


def archive(release: str) -> bytes:
    return lzma.decompress((ARCHIVES / f"iree-{release}-mlp_cpu.vmfb.xz").read_bytes())


def mlp_input() -> np.ndarray:
    return (((np.arange(784) % 17) - 8) / 16).astype(np.float32).reshape(1, 784)


def machine(release: str = "3.13.0", device: str = "local-sync") -> BytecodeMachine:
    made = BytecodeMachine(device)
    made.load(archive(release), "mlp.vmfb")
    return made


@pytest.mark.thinned(5)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("release", RELEASES)
def test_modules_of_every_release_give_their_numbers(release: str, device: str) -> None:
    (got,) = machine(release, device).invoke("mlp", mlp_input())
    assert got.shape == (1, 10)
    assert got.dtype == np.float32
    assert got[0].tolist() == (OLD if release in ("3.0.0", "3.4.0") else RECENT)


def test_inputs_at_any_address_and_of_any_layout_give_the_same() -> None:
    function = machine().function("mlp")
    x = mlp_input()
    for shift in (0, 4, 16):
        assert function(placed(x, shift))[0][0].tolist() == RECENT
    assert function(np.asfortranarray(x.T).T)[0][0].tolist() == RECENT
    frozen = x.copy()
    frozen.flags.writeable = False
    assert function(frozen)[0][0].tolist() == RECENT


def test_aligned_arrays_are_used_in_place() -> None:
    made = machine()
    aligned = placed(np.zeros(784, np.float32))
    view = made.to_view(aligned)
    aligned[3] = 5
    assert view.to_numpy()[3] == 5
    before = made.device.allocator.query_statistics().allocated_bytes
    made.to_view(aligned)
    assert made.device.allocator.query_statistics().allocated_bytes == before


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mode", ["translate", "interpret"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["cpu", "vmvx"])
def test_modules_that_sort_in_place_leave_inputs_alone(
    kind: str, device: str, mode: BytecodeMode, tmp_path: Path
) -> None:
    """Also where the input cannot be written at all, as memory of a file that is mapped."""
    path = ARCHIVES / f"iree-3.13.0-sort_{kind}.vmfb"
    function = BytecodeMachine.from_file(path, device, mode=mode).function("least")
    rows = np.random.default_rng(8).permutation(9 * 37).astype(np.float32).reshape(9, 37)
    order = np.argsort(rows, axis=1)[:, :3]
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for given in (placed(rows), mapped, rows[:, ::-1][:, ::-1]):
        for _ in range(4):  # the last ones are replayed, where calls are recorded
            values, places = function(given)
            np.testing.assert_array_equal(values, np.take_along_axis(rows, order, axis=1))
            np.testing.assert_array_equal(places, order)
            np.testing.assert_array_equal(given, rows)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["cpu", "vmvx", "inline_cpu", "inline_vmvx"])
def test_denormals_are_what_they_are_under_iree(kind: str, device: str) -> None:
    """Its local devices take them as zero, its inline HAL computes with them."""
    path = ARCHIVES / f"iree-3.13.0-half_{kind}.vmfb"
    function = BytecodeMachine.from_file(path, device).function("half")
    least = np.finfo(np.float32).smallest_normal
    x = np.linspace(0.1 * least, 4 * least, 9 * 37, dtype=np.float32).reshape(9, 37)
    flushed = np.where(x < 2 * least, 0, x / 2).astype(np.float32)
    assert 0 < np.count_nonzero(flushed) < x.size
    for _ in range(4):
        expected = x / 2 if kind.startswith("inline") else flushed
        np.testing.assert_array_equal(function(x)[0], expected)
    assert np.count_nonzero(x / 2) == x.size, "this thread computes with denormals again"


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_kernels_of_ours_compute_with_denormals(
    engine: Literal["plan", "vm"], tmp_path: Path
) -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> half (float[N] x) => (float[N] y)'
    half = "<float h = {0.5}> { y = Mul(x, h) }"
    tw.compile(onnx.parser.parse_model(f"{text} {half}")).save(tmp_path / "half.vmfb")
    session = tw.load(tmp_path / "half.vmfb", engine=engine)
    least = np.finfo(np.float32).smallest_normal
    x = np.linspace(0.1 * least, 4 * least, 333, dtype=np.float32)
    for _ in range(4):
        np.testing.assert_array_equal(session(x), x / 2)


def test_buffer_views_go_in_as_they_are() -> None:
    made = machine()
    view = made.to_view(mlp_input())
    assert isinstance(view, BufferView)
    assert made.invoke("mlp", view)[0][0].tolist() == RECENT


def test_results_outlive_the_machine() -> None:
    results = [machine().invoke("mlp", mlp_input())[0] for _ in range(5)]
    assert [r[0].tolist() for r in results] == [RECENT] * 5


def test_calls_from_many_threads_are_independent() -> None:
    function = machine("3.13.0", "local-task://?threads=2").function("mlp")
    wrong: list[int] = []

    def work(index: int) -> None:
        results = [function(mlp_input())[0][0].tolist() for _ in range(20)]
        wrong.extend(index for result in results if result != RECENT)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_memory_stays_flat_over_many_calls() -> None:
    made = machine()
    function = made.function("mlp")
    x = mlp_input()
    for _ in range(3):
        function(x)
    before = made.device.allocator.query_statistics()
    for _ in range(200):
        function(x)
    after = made.device.allocator.query_statistics()
    assert after.live_bytes == before.live_bytes
    assert after.pooled_bytes == before.pooled_bytes


def test_functions_are_found_with_and_without_their_module() -> None:
    made = machine()
    assert made.functions == ("mlp_mod.mlp",)
    assert made.function().name == "mlp_mod.mlp"
    assert made.function("mlp").name == made.function("mlp_mod.mlp").name
    with pytest.raises(UserError, match="no function 'mpl'\nhint: did you mean 'mlp'"):
        made.function("mpl")


def test_several_functions_must_be_chosen_from() -> None:
    module = ModuleBuilder("m")
    for name in ("f", "g"):
        module.function("0v_v", export=name).return_()
    made = BytecodeMachine("local-sync")
    made.load_module(module.finish())
    with pytest.raises(UserError, match=r"has 2 functions, say which\nhint: .*m.f, m.g"):
        made.function()
    assert made.invoke("g") == []


def test_numbers_of_every_bank_go_in_and_out() -> None:
    module = ModuleBuilder("m")
    build = module.function("0iIfF_FfIi", export="f")
    build.return_(*reversed(build.arguments))
    made = BytecodeMachine("local-sync")
    made.load_module(module.finish())
    got = made.invoke("f", 2**31, np.int64(-1), np.float32(0.5), 1)
    assert got == [1.0, 0.5, -1, -(2**31)]


@pytest.mark.parametrize(
    ("inputs", "name"),
    [
        (("x", 1, 1, 1), "input0': got 'x'|input0.*got 'x', expected a number for i32"),
        ((1 << 32, 1, 1, 1), "got 4294967296, expected a number for i32"),
        ((-(1 << 31) - 1, 1, 1, 1), "got -2147483649, expected a number for i32"),
        ((1.5, 1, 1, 1), "got 1.5, expected a number for i32"),
        (
            (np.ones((9, 2), np.float32), 1, 1, 1),
            r"got float32\[9, 2\], expected a number for i32",
        ),
        ((1, 1 << 64, 1, 1), "input 'input1': got 18446744073709551616, expected a number"),
        ((1, 1, None, 1), "input 'input2': got None, expected a number for f32"),
        ((1, 1, 1, [1]), r"input 'input3': got \[1\], expected a number for f64"),
        ((1, float("nan"), 1, 1), "got nan, expected a number for i64"),
    ],
)
def test_what_is_no_number_is_named(inputs: tuple[object, ...], name: str) -> None:
    module = ModuleBuilder("m")
    build = module.function("0iIfF_FfIi", export="f")
    build.return_(*reversed(build.arguments))
    made = BytecodeMachine("local-sync")
    made.load_module(module.finish())
    with pytest.raises(InputError, match=name):
        made.invoke("f", *inputs)


def test_wrong_inputs_are_named_with_what_was_expected() -> None:
    function = machine().function("mlp")
    with pytest.raises(InputError, match=r"mlp_mod.mlp: got 2 inputs, expected 1: input0"):
        function(mlp_input(), mlp_input())
    with pytest.raises(
        InputError, match=r"input0: got f32\[784\], expected f32\[1, 784\]"
    ) as caught:
        function(mlp_input()[0])
    assert caught.value.__notes__[0] == "  in hal.buffer_view.assert"
    assert caught.value.__notes__[1].startswith("  at mlp_mod.mlp +0x")
    with pytest.raises(InputError, match=r"got f64\[1, 784\]"):
        function(mlp_input().astype(np.float64))
    with pytest.raises(InputError, match="no tensor data type"):
        function(np.array(["text"]))


def test_a_module_for_another_device_says_what_it_needs() -> None:
    with pytest.raises(DeviceError) as caught:
        BytecodeMachine.from_file(ARCHIVES / "iree-3.13.0-add_cuda.vmfb", "local-sync")
    assert caught.value.message == (
        "the module needs a device 'cuda' for executables of the format 'cuda-nvptx-fb', "
        "which 'local' is not (INCOMPATIBLE)"
    )
    assert caught.value.hint == 'device="cuda" (of commands: --device=cuda)'
    assert str(caught.value.location).endswith("iree-3.13.0-add_cuda.vmfb")
    assert caught.value.__notes__[0].startswith("  at add_mod.__init")
    with pytest.raises(
        DeviceError, match=r"'local' .*which 'null' is not .INCOMPATIBLE"
    ) as caught:
        BytecodeMachine.from_file(ARCHIVES / "iree-3.13.0-add_vmvx.vmfb", "null")
    assert caught.value.hint == 'device="local-task" (of commands: --device=local-task)'


def test_a_module_for_another_processor_says_what_it_has() -> None:
    target = '#hal.executable.target<"llvm-cpu", "embedded-elf-arm_64", {cpu = "generic"}>'
    error = failure(
        StatusCode.INCOMPATIBLE,
        f'HAL device `__device_0` not found or unavailable: #hal.device.target<"local", [{target}]>',
    )
    tell_wanted_device(error, "local", ["cuda", "local-task"])
    assert error.message == (
        "the module has executables of the format 'embedded-elf-arm_64', which 'local' does not run "
        "(INCOMPATIBLE)"
    )
    assert "compile it for this machine" in str(error.hint)
    other = failure(StatusCode.INCOMPATIBLE, "something else")
    tell_wanted_device(other, "local", ["local-task"])
    assert (other.message, other.hint) == ("something else (INCOMPATIBLE)", None)


def test_a_missing_file_is_an_archive_error(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"none.vmfb: cannot read the file"):
        BytecodeMachine.from_file(tmp_path / "none.vmfb")


def test_a_file_is_mapped_and_its_constants_are_used_in_place(tmp_path: Path) -> None:
    path = tmp_path / "mlp.vmfb"
    path.write_bytes(archive("3.13.0"))
    made = BytecodeMachine.from_file(path, "local-sync")
    weights = 814080
    assert made.device.allocator.query_statistics().peak_bytes < weights, (
        "constants were copied"
    )
    path.unlink()
    assert made.invoke("mlp", mlp_input())[0][0].tolist() == RECENT


def test_declarations_give_names_types_and_shapes() -> None:
    text = "sync func @f(%x: tensor<?x4xf32>, %n: tensor<i32>) -> (%y: tensor<2xi1> {iree.abi.output = 0 : index})"
    inputs, outputs = parse_declaration(text)
    assert [(n, d, str(s)) for n, d, s in inputs] == [
        ("x", f32, "(x_0, 4)"),
        ("n", i32, "()"),
    ]
    assert [(n, str(d), s) for n, d, s in outputs] == [("y", "bool", (2,))]
    assert parse_declaration("") == ((), ())
    assert parse_declaration("sync func @f(%x: !hal.buffer, %n: i32) -> ()") == ((), ())
    assert (
        parse_declaration("func @f(%c: tensor<2xcomplex<f32>>) -> (%y: tensor<f32>)")[0]
        == ()
    )


def test_constants_that_lie_badly_in_memory_are_copied() -> None:
    made = BytecodeMachine("local-sync")
    made.load(placed(np.frombuffer(archive("3.13.0"), np.uint8), 8))
    assert made.device.allocator.query_statistics().peak_bytes > 814080
    assert made.invoke("mlp", mlp_input())[0][0].tolist() == RECENT


def test_the_executor_says_what_is_better_known_than_declared() -> None:
    given = (TensorSpec("image", f32, (1, 784)),), (TensorSpec("digit", f32, (1, 10)),)
    executor = BytecodeExecutor(machine(), inputs=given[0], outputs=given[1])
    assert (executor.inputs, executor.outputs) == given
    assert (executor.input_names, executor.output_names) == (("image",), ("digit",))
    declared = BytecodeExecutor(machine())
    assert declared.outputs == declared.function.outputs
    assert executor.dimensions_of([mlp_input()]) == {}


def test_the_executor_names_an_input_of_a_type_that_tensors_do_not_have() -> None:
    executor = BytecodeExecutor(machine())
    for _ in range(3):  # calls that repeat themselves are recorded
        with pytest.raises(
            InputError, match="input 'input0': numpy type '>f4' has no tensor"
        ):
            executor(mlp_input().astype(">f4"))


def test_a_function_names_an_input_with_elements_below_a_mask() -> None:
    function = machine().function("mlp")
    with pytest.raises(InputError, match="input 'input0': got MaskedArray with elements"):
        function(np.ma.masked_greater(mlp_input(), 0))
    assert function(np.ma.masked_array(mlp_input()))[0][0].tolist() == RECENT


def test_the_executor_profiles_kernels_by_name() -> None:
    executor = BytecodeExecutor(machine())
    assert executor.input_names == ("input0",)
    assert executor.output_names == ("output0",)
    steps = executor.profile([mlp_input()])
    assert [step.target for step, _ in steps] == [
        "mlp_dispatch_0_matmul_1x256x784_f32",
        "mlp_dispatch_1_matmul_1x10x256_f32",
    ]
    assert all(timing.duration_ns > 0 and timing.begin_ns > 0 for _, timing in steps)
    assert all(timing.threads for _, timing in steps)
    assert steps[0][0].grid == (4, 1, 1)


def test_begun_calls_give_the_same_as_calls() -> None:
    function = machine().function("mlp")
    call = function.begin(mlp_input())
    (view,) = call.run()
    assert isinstance(view, BufferView)
    np.testing.assert_array_equal(view.to_numpy(), function(mlp_input())[0])


def test_modules_that_are_not_trusted_have_a_budget() -> None:
    made = BytecodeMachine("local-sync", limits=Limits(max_steps=5))
    with pytest.raises(DeviceError, match=r"more than 5 steps.*RESOURCE_EXHAUSTED"):
        made.load(archive("3.13.0"))
