"""An artifact that is cut, replaced or overwritten while sessions have it mapped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from tilewright.base.errors import ArchiveError
from tilewright.runtime import native

needs_core = pytest.mark.skipif(
    not native.IS_NATIVE, reason="the Python fallback maps no files: it copies them"
)
ENGINES = ("plan", "vm")
PREAMBLE = """
import os; os.environ["OPENBLAS_NUM_THREADS"] = "1"
import faulthandler, mmap, signal, sys
import numpy as np
import tilewright as tw

path, engine = sys.argv[1], sys.argv[2]
x = np.full((4, 1024), 0.5, np.float32)

def cut():
    with open(path, "r+b") as file:
        file.truncate(8192)

def error_of(call):
    try:
        call()
    except tw.UserError as error:
        return str(error)
    raise AssertionError("it goes on as if nothing had happened")
"""
CUT = """
if sys.argv[3] == "early":
    faulthandler.enable()
session = tw.load(path, engine=engine, threads=int(sys.argv[4]))
for i in range(int(sys.argv[5])):
    session(x)
cut()
for _ in range(3):
    text = error_of(lambda: session(x))
    assert text.startswith(f"{path}: the file was cut or cannot be read any more"), text
    assert "copy=True" in text
text = error_of(lambda: session.begin(x).result(60))
assert text.startswith(path), text
text = error_of(lambda: tw.load(path))
assert "the file was cut" not in text, text  # what is left of it is no artifact
print("alive")
"""
OTHERS = """
faulthandler.enable()
session = tw.load(path, engine=engine, threads=2)
session(x)
cut()
error_of(lambda: session(x))
with open(sys.argv[3], "wb") as file:
    file.write(bytes(1 << 20))
with open(sys.argv[3], "r+b") as file:
    mine = mmap.mmap(file.fileno(), 1 << 20)
    file.truncate(0)
print("alive", flush=True)
mine[5]
"""


def make(folder: Path, name: str = "model.vmfb", seed: int = 1) -> Path:
    """A model of one product with 4 MB of weights."""
    weights = np.random.default_rng(seed).standard_normal((1024, 1024), np.float32) / 32
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
            "product",
            [onnx.helper.make_tensor_value_info("x", 1, [4, 1024])],
            [onnx.helper.make_tensor_value_info("y", 1, [4, 1024])],
            [onnx.numpy_helper.from_array(weights, "w")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 21)],
        ir_version=10,
    )
    path = folder / name
    tw.compile(model, threads=2, jobs=1).save(path)
    return path


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PREAMBLE + script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.thinned(3)
@needs_core
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("threads", [2, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("faults", "calls"), [("early", 0), ("none", 3)])
def test_a_file_that_is_cut_is_an_error_that_names_it(
    tmp_path: Path, engine: str, threads: int, faults: str, calls: int
) -> None:
    done = run(CUT, make(tmp_path), engine, faults, threads, calls)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr
    assert "Fatal Python error" not in done.stderr


@pytest.mark.slow
@needs_core
def test_bus_errors_of_others_go_where_they_went_before(tmp_path: Path) -> None:
    done = run(OTHERS, make(tmp_path), "plan", tmp_path / "other")
    assert done.stdout == "alive\n"
    assert done.returncode == -signal.SIGBUS
    assert done.stderr.count("Fatal Python error: Bus error") == 1, done.stderr


def test_a_copy_does_not_depend_on_the_file(tmp_path: Path) -> None:
    path = make(tmp_path)
    x = np.full((4, 1024), 0.5, np.float32)
    session = tw.load(path, copy=True)
    expected = session(x)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(data)
    np.testing.assert_array_equal(session(x), expected)
    os.truncate(path, 100)
    np.testing.assert_array_equal(session(x), expected)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("options", [{"copy": True}, {"verify": True}])
def test_damage_anywhere_is_found_when_all_of_it_is_checked(
    tmp_path: Path, options: dict[str, bool]
) -> None:
    path = make(tmp_path)
    sound = path.read_bytes()
    tw.load(path, **options)
    for place in np.linspace(0, len(sound) - 1, 41).astype(int):
        data = bytearray(sound)
        data[place] ^= 4
        path.write_bytes(data)
        with pytest.raises(ArchiveError):
            tw.load(path, **options)


@pytest.mark.slow
def test_damage_outside_of_the_weights_is_always_found(tmp_path: Path) -> None:
    path = make(tmp_path)
    sound = path.read_bytes()
    places = [*range(0, 4000, 97), *range(len(sound) - 24, len(sound) - 4)]
    for place in places:
        data = bytearray(sound)
        data[place] ^= 4
        path.write_bytes(data)
        with pytest.raises(ArchiveError):
            tw.load(path)
    for cut in (1, 23, 24, 64, 5000):
        path.write_bytes(sound[:-cut])
        with pytest.raises(ArchiveError):
            tw.load(path)
    path.write_bytes(sound + b"\0")
    with pytest.raises(ArchiveError):
        tw.load(path)
