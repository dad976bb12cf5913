"""What we compile runs under `iree-run-module` with our numbers: element types, open sizes, outputs.

Whole models are in `test_models`; random graphs in `tests/e2e/test_small_graphs.py`.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

import tilewright as tw
from conformance.interop.program_cases import floats, integers
from conformance.interop.toolchain import needs_iree, program, run_module
from tilewright.base.target import Target
from tilewright.compiler.packaging.parts import make_artifact

pytestmark = [needs_iree, pytest.mark.slow]
DEVICES = ("local-sync", "local-task")
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'
TYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "uint32": np.uint32,
}


def check(text: str, calls: list[list[np.ndarray]], folder: Path) -> None:
    """Compile once, then compare every call on every device of IREE's with both of our engines."""
    model = tw.compile(onnx.parser.parse_model(HEAD + text))
    archive = folder / "ours.vmfb"
    model.save(archive)
    engines = [tw.load(archive, engine=engine) for engine in ("plan", "vm")]
    for inputs in calls:
        wanted, again = (_many(session(*inputs)) for session in engines)
        for device in DEVICES:
            answer = run_module(
                archive, inputs, ["ref"] * len(wanted), folder, device=device
            )
            assert answer.error == ""
            for theirs, plan, vm in zip(answer.results, wanted, again, strict=True):
                assert plan.tobytes() == vm.tobytes()
                if isinstance(theirs, np.ndarray):
                    assert (theirs.dtype, theirs.shape) == (plan.dtype, plan.shape)
                    theirs = theirs.tobytes()
                assert theirs == plan.tobytes()


def _many(result: object) -> list[np.ndarray]:
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", TYPES)
def test_sums_of_every_type_and_open_sizes(name: str, tmp_path: Path) -> None:
    dtype = TYPES[name]
    make = floats if np.dtype(dtype).kind not in "iu" else integers
    text = f"""
        f ({name}[n,3] x, {name}[3] b) => ({name}[n,3] y, {name}[3,n] z) {{
            y = Add (x, b)
            z = Transpose <perm = [1, 0]> (x)
        }}"""
    calls = [[make(n, 3, dtype=dtype), make(3, dtype=dtype, seed=n)] for n in (1, 7, 64)]
    check(text, calls, tmp_path)


def test_booleans_go_in_and_come_out(tmp_path: Path) -> None:
    text = """
        f (bool[n] flag, float[n] a, float[n] b) => (float[n] y, bool[n] less) {
            y = Where (flag, a, b)
            less = Less (a, b)
        }"""
    calls = [
        [integers(n, dtype=np.int8) > 0, floats(n), floats(n, seed=n)] for n in (1, 9, 65)
    ]
    check(text, calls, tmp_path)


def test_products_of_open_sizes_in_all_directions(tmp_path: Path) -> None:
    text = """
        f (float[m,k] a, float[k,n] b) => (float[m,n] y) { y = MatMul (a, b) }"""
    sizes = ((1, 1, 1), (5, 7, 3), (17, 33, 65), (64, 64, 64))
    calls = [[floats(m, k), floats(k, n, seed=3)] for m, k, n in sizes]
    check(text, calls, tmp_path)


def test_iree_runs_what_is_signed(tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra 'sign' is not installed")
    archive, key = tmp_path / "ours.vmfb", tmp_path / "key"
    text = "f (float[n,4] x) => (float[n,4] y) { y = Softmax <axis = -1> (x) }"
    tw.compile(onnx.parser.parse_model(HEAD + text)).save(archive)
    tw.generate_key(key)
    tw.sign(archive, key)
    x = floats(3, 4)
    wanted = tw.load(archive, trusted_keys=[f"{key}.pub"])(x)
    answer = run_module(archive, [x], ["ref"], tmp_path)
    assert answer.error == ""
    np.testing.assert_array_equal(answer.results[0], wanted)


def test_iree_dumps_what_it_is_given(tmp_path: Path) -> None:
    text = "f (float[n,4] x) => (float[n,4] y) { y = Softmax <axis = -1> (x) }"
    tw.compile(onnx.parser.parse_model(HEAD + text)).save(tmp_path / "ours.vmfb")
    shown = {
        kind: subprocess.run(
            [program("iree-dump-module"), f"--output={kind}", tmp_path / "ours.vmfb"],
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for kind in ("metadata", "flatbuffer-json", "disassembly")
    }
    assert "hal.command_buffer.dispatch" in shown["metadata"]
    exports = json.loads(shown["flatbuffer-json"])["exported_functions"]
    assert "main" in [function["local_name"] for function in exports]
    assert "vm.return" in shown["disassembly"]


@pytest.mark.skipif(Target.host().arch != "x86_64", reason="levels are for x86-64")
@pytest.mark.parametrize("sizes", ["64,256,128", "m,k,n"])
def test_iree_takes_the_best_code_for_the_cpu(sizes: str, tmp_path: Path) -> None:
    """Static sizes share `main`; open ones have a grid, so a body of it, for each level."""
    m, k, n = sizes.split(",")
    text = f"f (float[{m},{k}] a, float[{k},{n}] b) => (float[{m},{n}] y) {{ y = MatMul (a, b) }}"
    levels = ("v2", "v3", "v4")
    model = tw.compile(onnx.parser.parse_model(HEAD + text), target="v3", levels=levels)
    archive = tmp_path / "ours.vmfb"
    model.save(archive)
    inputs = [floats(64, 256), floats(256, 128, seed=3)]
    host = Target.host()
    bits = {
        level: tw.load(archive, engine="vm", device=f"local-sync://?machine={level}")(
            *inputs
        ).tobytes()
        for level in levels
        if Target.level(level).runs_on(host)
    }
    best = max(bits)
    if best > "v2":
        assert bits[best] != bits["v2"], "products round once with FMA"
    for device in DEVICES:
        answer = run_module(archive, inputs, ["ref"], tmp_path, device=device)
        assert answer.error == ""
        (result,) = answer.results
        assert isinstance(result, np.ndarray)
        assert result.tobytes() == bits[best]


@pytest.mark.slow
@pytest.mark.skipif(Target.host().arch != "x86_64", reason="levels are for x86-64")
@pytest.mark.parametrize("outside", [False, True], ids=["inside", "outside"])
def test_iree_takes_the_weights_of_the_code_that_it_chose(
    tmp_path: Path, *, outside: bool
) -> None:
    """Bytes for AVX-512 lie in other panels than for AVX2."""
    weights = integers(256, 128, dtype=np.int8, seed=3)
    text = "f (uint8[64,256] a) => (int32[64,128] y) { y = MatMulInteger (a, w) }"
    proto = onnx.parser.parse_model(HEAD + text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    model = tw.compile(proto, target="v3", levels=("v3", "v4"))
    first, second = make_artifact(model.compiled.parts).variants
    assert not {*first.constants} & {*second.constants}
    archive, file = tmp_path / "ours.vmfb", tmp_path / "weights.irpa"
    model.save(archive, weights=file if outside else None)
    a = integers(64, 256, dtype=np.uint8, seed=4)
    more = [f"--parameters={file}"] if outside else []
    for device in DEVICES:
        answer = run_module(archive, [a], ["ref"], tmp_path, device=device, flags=more)
        assert answer.error == ""
        np.testing.assert_array_equal(
            answer.results[0], a.astype(int) @ weights.astype(int)
        )


def test_an_index_out_of_range_fails_there_too(tmp_path: Path) -> None:
    text = "f (float[n,3] t, int64[k] i) => (float[k,3] y) { [embed] y = Gather (t, i) }"
    table = floats(5, 3)
    check(text, [[table, np.array([4, -5])], [table[:2], np.array([1, -2, 0])]], tmp_path)
    bad = [table, np.array([1, 5])]
    for device in DEVICES:
        answer = run_module(tmp_path / "ours.vmfb", bad, ["ref"], tmp_path, device=device)
        assert "node 'embed': an index is out of range on axis 0" in answer.error
