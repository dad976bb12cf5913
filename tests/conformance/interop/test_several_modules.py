"""Modules that call each other run here as they do under `iree-run-module`; ours among them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from conformance.interop.program_cases import floats
from conformance.interop.toolchain import LLVM_CPU, compile_text, needs_iree, run_module
from tilewright.base.errors import DeviceError

pytestmark = [needs_iree, pytest.mark.slow]
SOURCE = Path(__file__).parents[2] / "golden" / "archives" / "iree-modules_that_call.mlir"
WAYS = {
    "async-external": (*LLVM_CPU, "--iree-execution-model=async-external"),
    "vmvx": (
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=vmvx",
    ),
    "llvm-cpu": LLVM_CPU,
}


def built(text: str, way: str) -> Path:
    module = compile_text(text, WAYS[way])
    assert module.error == ""
    return module.path


def parts() -> list[str]:
    """The modules of the source, those that are called first."""
    text = SOURCE.read_text(encoding="utf-8")
    return ["module @" + part.split("// ")[0] for part in text.split("module @")[1:]]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("device", ["local-sync", "local-task"])
@pytest.mark.parametrize("way", WAYS)
def test_modules_of_iree_call_each_other(way: str, device: str, tmp_path: Path) -> None:
    *libraries, main = (built(part, way) for part in parts())
    x = floats(67)
    banks = ("ref", "ref")
    wanted = run_module(main, [x], banks, tmp_path, device=device, libraries=libraries)
    assert wanted.error == ""
    for bytecode in ("translate", "interpret"):
        session = tw.load(main, libraries=libraries, device=device, bytecode=bytecode)
        for call in (1, 2, 3):
            y, count = session(x)
            assert y.tobytes() == np.asarray(wanted.results[0]).tobytes()
            np.testing.assert_array_equal(count, [2 * call])


def ours(folder: Path) -> Path:
    head = '<ir_version: 10, opset_import: ["" : 21]>'
    text = "f (float[n] x, float[n] y) => (float[n] z) { z = Mul (x, y) }"
    path = folder / "ours.vmfb"
    tw.compile(onnx.parser.parse_model(head + text)).save(path)
    return path


CALLS_OURS = """
    module @caller {
      func.func private @module.main(tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
      func.func @cube(%x: tensor<?xf32>) -> tensor<?xf32> {
        %y = call @module.main(%x, %x) : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
        %z = arith.mulf %x, %y : tensor<?xf32>
        return %z : tensor<?xf32>
      }
    }"""


def test_a_module_of_iree_calls_one_of_ours(tmp_path: Path) -> None:
    library, main = ours(tmp_path), built(CALLS_OURS, "llvm-cpu")
    x = floats(33)
    wanted = run_module(main, [x], ["ref"], tmp_path, libraries=[library])
    assert wanted.error == ""
    session = tw.load(main, libraries=[library])
    np.testing.assert_array_equal(session(x), x * (x * x))
    np.testing.assert_array_equal(session(x), wanted.results[0])
    inner = tw.load(main, libraries=[library], function="module.main")
    np.testing.assert_array_equal(inner(x, x), x * x)


def test_callers_with_fences_do_not_fit_functions_without(tmp_path: Path) -> None:
    library, main = ours(tmp_path), built(CALLS_OURS, "async-external")
    theirs = run_module(main, [floats(3)], ["ref"], tmp_path, libraries=[library])
    assert "expected 0rrrr_r but got 0rr_r" in theirs.error
    with pytest.raises(
        DeviceError, match=r"signature '0rrrr_r', the module offers '0rr_r'"
    ):
        tw.load(main, libraries=[library])
