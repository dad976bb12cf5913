"""`tilewright run` and `devices`: modules of other compilers, engines, devices, lists."""

from __future__ import annotations

import lzma
import os
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import tilewright as tw
from fakes import parameter_files
from tilewright.base import knobs
from tilewright.base.errors import LimitError, TilewrightError
from tilewright.base.host import describe
from tilewright.cli.devices import command as devices
from tilewright.cli.run import command as run

ARCHIVES = Path(__file__).resolve().parents[2] / "golden" / "archives"
needs_x86 = pytest.mark.skipif(describe().arch != "x86_64", reason="x86-64 code")


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "mlp.vmfb"
    path.write_bytes(
        lzma.decompress((ARCHIVES / "iree-3.13.0-mlp_cpu.vmfb.xz").read_bytes())
    )
    return path


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(run, [str(a) for a in arguments])


@needs_x86
@pytest.mark.parametrize("device", ["local-sync", "local-task://?threads=2"])
def test_a_module_of_iree_runs_with_its_flags(module: Path, device: str) -> None:
    result = invoke(
        f"--module={module}", "--function=mlp", f"--device={device}", "--input=1x784xf32=0"
    )
    assert result.exit_code == 0, result.output
    head, values = result.stdout.splitlines()
    assert head == "result[0]: hal.buffer_view"
    assert values.startswith("1x10xf32=[")


@needs_x86
def test_expected_outputs_are_compared(module: Path, tmp_path: Path) -> None:
    saved = tmp_path / "y.npy"
    first = invoke(module, "--input=1x784xf32=0.5", f"--output=@{saved}")
    assert first.exit_code == 0
    assert np.load(saved).shape == (1, 10)
    same = invoke(module, "--input=1x784xf32=0.5", f"--expected_output=@{saved}")
    assert same.exit_code == 0
    other = invoke(module, "--input=1x784xf32=0.25", f"--expected_output=@{saved}")
    assert other.exit_code == 1


@needs_x86
def test_errors_reach_the_command_with_their_trace(module: Path) -> None:
    result = invoke(module, "--input=5xf32")
    assert isinstance(result.exception, TilewrightError)
    assert "expected f32[1, 784]" in str(result.exception)
    assert result.exception.__notes__[1].startswith("  at mlp_mod.mlp")
    unknown = invoke(module, "--function=none")
    assert "no function 'none'" in str(unknown.exception)


def test_a_model_runs_through_both_engines(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (float[3] y) { y = Relu(x) }'
    path = tmp_path / "relu.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    for engine in ("plan", "vm"):
        for device in ("local-sync", "local-task"):
            result = invoke(
                path, f"--engine={engine}", f"--device={device}", "--input=3xf32=-1 0.5 2"
            )
            assert result.exit_code == 0, result.output
            assert "3xf32=0 0.5 2" in result.stdout


def test_drivers_and_devices_are_listed() -> None:
    with knobs.override(cuda_library="/no/such/libcuda.so"):
        drivers = invoke("--list_drivers").stdout.splitlines()
        result = invoke("--list_devices")
    assert [line.partition(":")[0] for line in drivers][:2] == ["cuda", "local-sync"]
    assert "unavailable: no CUDA driver: /no/such/libcuda.so" in drivers[0]
    listed = result.stdout.splitlines()
    assert listed == ["local-sync://default", "local-task://default", "null://default"]
    assert "cuda: (unavailable" in result.stderr
    assert "local-task://default\n  " in invoke("--dump_devices").stdout
    shown = CliRunner().invoke(devices, [])
    assert shown.exit_code == 0


def test_a_model_must_be_named() -> None:
    assert "no model given" in str(invoke().exception)


@needs_x86
def test_inputs_that_are_left_out_say_how_to_give_them(mlp_vmfb: Path) -> None:
    error = invoke(mlp_vmfb).exception
    assert isinstance(error, TilewrightError)
    assert error.message.startswith("got 0 inputs, expected 1")
    assert error.hint == "give one --input for each, or --random"


def test_inputs_are_given_or_made_up(mlp_vmfb: Path) -> None:
    error = invoke(mlp_vmfb, "--random", "--input=1xf32").exception
    assert str(error) == "--random makes up every input, --input gives them: choose one"


def test_sizes_without_random_inputs_are_refused(mlp_vmfb: Path) -> None:
    error = invoke(mlp_vmfb, "--dim=batch=2", "--input=1xf32").exception
    assert str(error) == "--dim 'batch=2': goes with --random only"


def test_weights_outside_of_the_module(tmp_path: Path) -> None:
    weights = {"w0": np.ones((7, 5), np.float32), "w1": np.full(5, 2, np.float32)}
    numbers = np.arange(21, dtype=np.int16)
    path = tmp_path / "weights.irpa"
    path.write_bytes(parameter_files.irpa({**weights, "w2": numbers}))
    module = ARCHIVES / "iree-3.13.0-parameters_cpu.vmfb"
    flags = (
        "--input=3x7xf32=1",
        "--expected_output=3x5xf32=9",
        "--expected_output=(ignored)",
    )
    result = invoke(f"--module={module}", f"--parameters=model={path}", *flags)
    assert result.exit_code == 0, result.output
    missing = invoke(f"--module={module}", *flags)
    assert isinstance(missing.exception, TilewrightError)
    assert "io_parameters" in str(missing.exception)


@needs_x86
def test_modules_that_test_themselves() -> None:
    module = ARCHIVES / "iree-3.13.0-check_cpu.vmfb"
    assert invoke(f"--module={module}", "--function=ok").exit_code == 0
    failed = invoke(f"--module={module}", "--function=bad")
    assert "1 of 3 elements differ" in str(failed.exception)


@needs_x86
def test_strangers_files_run_in_bytecode_alone(module: Path, mlp_vmfb: Path) -> None:
    vmvx = ARCHIVES / "iree-3.13.0-add_vmvx.vmfb"
    inputs = ("--input=1024xf32=1.5", "--input=1024xf32=10")
    result = invoke(
        f"--module={vmvx}", "--untrusted", *inputs, "--expected_output=1024xf32=11.5"
    )
    assert result.exit_code == 0, result.output
    for native in (module, mlp_vmfb):
        refused = invoke(f"--module={native}", "--untrusted")
        assert isinstance(refused.exception, TilewrightError)
        assert "trusted" in str(refused.exception)
        # The compiler that the hint names can make such kernels; ours cannot.
        assert "iree-compile --iree-hal-target-backends=vmvx" in str(refused.exception)


def test_limits_of_the_command_line_hold_a_strangers_file() -> None:
    vmvx = ARCHIVES / "iree-3.13.0-add_vmvx.vmfb"
    run = (f"--module={vmvx}", "--untrusted", "--input=1024xf32=1", "--input=1024xf32=1")
    assert (
        invoke(*run, "--max-steps=1000000", "--max-bytes=64M", "--timeout=60").exit_code
        == 0
    )
    steps = invoke(*run, "--max-steps=10").exception
    assert isinstance(steps, LimitError)
    assert "more than 10 steps" in str(steps)
    assert "--max-steps" in str(steps)
    assert "more than 1024 are not allowed" in str(invoke(*run, "--max-bytes=1K").exception)
    wrong = invoke(*run, "--max-bytes=lots")
    assert wrong.exit_code == 2
    assert "got 'lots', expected a size like 4096, 512M or 2G" in wrong.output


def test_a_plugin_that_is_none_is_named(module: Path, tmp_path: Path) -> None:
    path = tmp_path / "plugin.so"
    path.write_bytes(b"text")
    result = invoke(f"--module={module}", f"--executable_plugin={path}")
    assert "plugin.so" in str(result.exception)


@needs_x86
def test_results_never_overwrite_what_is_read(mlp_vmfb: Path, tmp_path: Path) -> None:
    (tmp_path / "lr=0.1").mkdir()
    x, y = tmp_path / "lr=0.1" / "x.npy", tmp_path / "y.npy"
    np.save(x, np.ones((5, 20), np.float32))
    y.symlink_to(x)
    before = mlp_vmfb.read_bytes()
    for output in (f"@{x}", f"+{x}", f"@{y}", f"@{mlp_vmfb}"):
        error = invoke(mlp_vmfb, f"--input=@{x}", f"--output={output}").exception
        assert "is an input, which writing there would destroy" in str(error)
    assert np.load(x).shape == (5, 20)
    assert mlp_vmfb.read_bytes() == before


@needs_x86
def test_one_result_never_overwrites_another(scale_vmfb: Path, tmp_path: Path) -> None:
    path = tmp_path / "y.npy"
    flags = ("--random", f"--output=@{path}")
    error = invoke(scale_vmfb, *flags, f"--output=@{path}").exception
    assert "the second would overwrite the first" in str(error)
    assert invoke(scale_vmfb, *flags, f"--output=+{path}").exit_code == 0
    with path.open("rb") as file:
        assert [np.load(file).shape for _ in range(2)] == [(1, 3), (3, 1)]
    assert invoke(scale_vmfb, "--random", *2 * ["--output=@/dev/null"]).exit_code == 0


@needs_x86
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_results_go_through_a_fifo(mlp_vmfb: Path, tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    result = invoke(mlp_vmfb, "--random", f"--output=@{path}")
    reader.join(60)
    assert result.exit_code == 0, result.output
    assert len(read[0]) == 5 * 7 * 4
    assert path.is_fifo()


CHECKED = """func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
  %0 = stablehlo.add %a, %a : tensor<2xf32>
  check.expect_eq_const %0, dense<[2.0, 5.0]> : tensor<2xf32>
  return %0 : tensor<2xf32>
}"""


def test_a_module_that_checks_itself_fails_where_a_check_does(tmp_path: Path) -> None:
    path = tmp_path / "case.mlir"
    path.write_text(CHECKED)
    right = invoke(path, "--input=2xf32=1 2.5")
    assert right.exit_code == 0
    assert "2xf32=2 5" in right.output
    assert "actual" not in right.output
    assert "1 check passed" in right.output
    wrong = invoke(path, "--input=2xf32=1 2")
    assert wrong.exit_code == 1
    assert "case.mlir:3:3: check failed: element [1] is 4.0, expected 5.0" in wrong.output


def test_an_artifact_of_a_module_that_checks_itself_fails_as_the_module_does(
    tmp_path: Path,
) -> None:
    path = tmp_path / "case.vmfb"
    tw.compile(CHECKED.encode()).save(path)
    right = invoke(path, "--input=2xf32=1 2.5")
    assert right.exit_code == 0, right.output
    assert "1 check passed" in right.output
    assert "actual" not in right.output
    wrong = invoke(path, "--input=2xf32=1 2")
    assert wrong.exit_code == 1
    assert "3:3: check failed: element [1] is 4.0, expected 5.0" in wrong.output
