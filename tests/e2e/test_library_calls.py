"""A library through tvm-ffi, where no Tilewright is; and steps of it that call somebody else's functions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from fakes import small_models
from fakes.exported_library import CModel, LibraryError, c_compiler, export
from fakes.onnx_models import parse
from fakes.plans import calling_plan
from tilewright.compiler.packaging.library import Level, make_host_sources
from tilewright.formats.byte_view import view_bytes
from tilewright.runtime.packed.ffi import tvm_ffi


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tw.compile(small_models.scale_and_shift(), threads=1)
    return export(model, tmp_path_factory.mktemp("packed") / "net.so")


@pytest.fixture(scope="module")
def negation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tw.compile(parse("g (float[2] x) => (float[2] y) { y = Neg(x) }"), threads=1)
    return export(model, tmp_path_factory.mktemp("negation") / "net.so")


ALONE = """
import sys
sys.modules["tilewright"] = None
import numpy as np
import tvm_ffi
module = tvm_ffi.load_module(sys.argv[1])
x, scale = np.arange(12, dtype="f4").reshape(4, 3), np.full(3, 2, "f4")
y, z = module.main(x, scale)
assert np.array_equal(np.from_dlpack(y), x * 2 + 1) and np.array_equal(np.from_dlpack(z), x.T)
assert np.from_dlpack(y).ctypes.data % 64 == 0
into = np.empty((4, 3), "f4"), np.empty((3, 4), "f4")
assert module.main(tvm_ffi.from_dlpack(x), scale, *into) is None
assert np.array_equal(into[0], x * 2 + 1)
names = [str(module.get_input_name(i)) for i in range(module.get_num_inputs())]
print(names, module.get_num_outputs(), module.get_output_name(1), '"nodes"' in module.get_graph_json())
"""


@pytest.mark.slow
def test_the_library_runs_where_no_tilewright_is(library: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ALONE, str(library)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['x', 'scale'] 2 z True\n"


FORKS_BESIDE_CALLS = """
import os, sys, threading, time
import numpy as np
import tvm_ffi
module = tvm_ffi.load_module(sys.argv[1])
x, scale = np.ones((1 << 20, 3), "f4"), np.ones(3, "f4")
into = lambda: (np.empty((len(x), 3), "f4"), np.empty((3, len(x)), "f4"))
def call_for_ever():
    y, z = into()
    while True:
        module.main(x, scale, y, z)
threads = [threading.Thread(target=call_for_ever, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
time.sleep(0.2)
for _ in range(5):
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm(60)
        y, z = into()
        module.main(x, scale, y, z)
        small = np.ones((5, 3), "f4")
        module.main(small, scale)
        os._exit(0 if (y == 2).all() and (z == 1).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_forked_children_call_while_threads_of_the_parent_are_in_calls(
    library: Path,
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS_BESIDE_CALLS, str(library)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_arguments_that_do_not_fit_are_errors_of_python(library: Path) -> None:
    main = tvm_ffi.load_module(str(library)).main
    x, scale = np.zeros((4, 3), np.float32), np.ones(3, np.float32)
    y, z = np.empty((4, 3), np.float32), np.empty((3, 4), np.float32)
    for arguments, kind, words in (
        ((x,), TypeError, "got 1 arguments, expected 2 inputs, or these and 2 outputs"),
        ((), TypeError, "got 0 arguments"),
        (
            (x, 1),
            ValueError,
            "input 'scale': got int, expected a tensor",
        ),
        ((x, "s"), ValueError, "expected a tensor"),
        ((x, None), ValueError, "expected a tensor"),
        ((x.astype("f8"), scale), ValueError, r"got f64\[4, 3\], expected f32\[batch, 3\]"),
        ((x[:, :2].copy(), scale), ValueError, "with batch = 4"),
        ((x[::2], scale), ValueError, "is not contiguous"),
        ((np.zeros((4, 6), np.float32)[:, ::2], scale), ValueError, "is not contiguous"),
        ((x, scale, y, y), ValueError, "output 'z': got f32"),
        ((x, scale, y, z.astype("f8")), ValueError, "output 'z': got f64"),
    ):
        with pytest.raises(kind, match=words):
            main(*arguments)
    assert main(x, scale, y, z) is None
    assert (y == 1).all()
    empty = main(x[:0], scale)
    assert np.from_dlpack(empty[0]).shape == (0, 3)


def test_arguments_in_odd_but_dense_memory_are_taken(library: Path) -> None:
    main = tvm_ffi.load_module(str(library)).main
    scale = np.array([1, 2, 3], np.float32)
    rows = np.arange(60, dtype=np.float32).reshape(4, 15)
    one = rows[1:2, :3]  # a single row: how far the next one would be does not matter
    assert one.strides == (60, 4)
    later = rows.reshape(-1)[7:22].reshape(5, 3)
    flipped = np.ones((0, 3), np.float32)[::-1]
    for x in (one, later, flipped):
        y, z = main(x, scale)
        np.testing.assert_array_equal(np.from_dlpack(y), x * scale + 1)
        into = np.empty((len(x) + 1, 3), np.float32)[1:], np.empty((3, len(x)), np.float32)
        assert main(x, scale, *into) is None
        np.testing.assert_array_equal(into[0], x * scale + 1)
        np.testing.assert_array_equal(into[1], np.from_dlpack(z))


def test_an_address_between_elements_is_an_error(library: Path) -> None:
    main = tvm_ffi.load_module(str(library)).main
    scale = np.ones(3, np.float32)
    x = np.frombuffer(bytearray(64), np.uint8)[1:25].view(np.float32).reshape(2, 3)
    with pytest.raises(
        ValueError, match=r"input 'x': is at address .*, expected a multiple of 4"
    ):
        main(x, scale)
    assert np.from_dlpack(main(x.copy(), scale)[0]).shape == (2, 3)


def test_names_are_asked_for_by_an_index(library: Path) -> None:
    module = tvm_ffi.load_module(str(library))
    with pytest.raises(IndexError, match="got index 2, expected less than 2"):
        module.get_input_name(2)
    with pytest.raises(TypeError, match="expected one argument"):
        module.get_input_name()


INTERRUPTED = """
import signal
import sys
import numpy as np
import tvm_ffi
main = tvm_ffi.load_module(sys.argv[1]).main
x = np.ones((2048, 2048), "f4")  # a call that lasts longer than the library goes without asking

def rings(number, frame):
    raise TimeoutError("rings")

signal.signal(signal.SIGALRM, rings)
for _ in range(3):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.03)
        while True:
            main(x, x)
    except TimeoutError as error:
        print(error)
print(np.from_dlpack(main(x[:1], x))[0, 0])
"""


@pytest.mark.slow
def test_a_signal_ends_a_call_with_the_exception_of_its_handler(tmp_path: Path) -> None:
    source = parse(
        "g (float[n, 2048] a, float[2048, 2048] b) => (float[n, 2048] c) { c = MatMul(a, b) }"
    )
    path = export(tw.compile(source, threads=1), tmp_path / "net.so")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "TILEWRIGHT_THREADS": "1"},
    )
    assert (done.returncode, done.stdout) == (0, "rings\n" * 3 + "2048.0\n"), done.stderr


@pytest.mark.slow
def test_types_that_numpy_does_not_exchange_go_in_and_out_as_tensors(
    tmp_path: Path,
) -> None:
    source = parse("g (bfloat16[n] x) => (bfloat16[n] y) { y = Neg(x) }")
    path = export(tw.compile(source, threads=1), tmp_path / "net.so")
    x = np.arange(5).astype(ml_dtypes.bfloat16)
    library = tw.runtime.load_module(path)
    for main in (library["main"], tw.VirtualMachine(library, tw.cpu(0))["main"]):
        y = tw.runtime.array_of(main(tw.runtime.tensor_of(x)))
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y.astype("f4"), -np.arange(5))


OUTLIVES = """
import gc
import sys
import numpy as np
import tvm_ffi
module = tvm_ffi.load_module(sys.argv[1], keep_module_alive=False)
x, scale = np.arange(12, dtype="f4").reshape(4, 3), np.full(3, 2, "f4")
y, z = module.main(x, scale)
seen = np.from_dlpack(y)
del module
gc.collect()
print(sys.argv[1] in open("/proc/self/maps").read())
assert np.array_equal(seen, x * 2 + 1)
del seen, y, z
gc.collect()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what is mapped")
def test_results_outlive_the_library(library: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OUTLIVES, str(library)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


# ---- steps that call ----

SCALE = """
#include <stdint.h>
typedef struct { int32_t type; uint32_t pad; void* ptr; } any;
typedef struct { float* data; int32_t device[2]; int32_t rank; uint8_t code, bits; uint16_t lanes; int64_t* shape; } tensor;
// A pointer (7), or a tensor of tvm-ffi behind the head of its object.
static const tensor* tensor_of(const any* value) {
  return (const tensor*)(const void*)((const char*)value->ptr + (value->type == 7 ? 0 : 24));
}
__attribute__((visibility("default"))) int scale(void* self, const any* args, int32_t count, any* result)
    __asm__("__tvm_ffi_ext.scale");
int scale(void* self, const any* args, int32_t count, any* result) {
  const tensor* x = tensor_of(&args[0]);
  const tensor* w = tensor_of(&args[1]);
  const tensor* y = tensor_of(&args[2]);
  (void)self; (void)result;
  if (count != 3 || x->rank != 2 || y->shape[0] != x->shape[0] || w->shape[0] != 3) return -1;
  if (x->code != 2 || x->bits != 32 || x->lanes != 1) return -1;
  for (int64_t i = 0; i < x->shape[0] * 3; ++i) y->data[i] = x->data[i] * w->data[i % 3];
  return 0;
}
"""
WEIGHTS = np.array([1, 2, 3], np.float32)
X = np.arange(15, dtype=np.float32).reshape(5, 3)


def link(folder: Path, *units: str) -> Path:
    """The plan that calls `ext.scale` as a library, with further sources."""
    level = Level(
        label="any",
        arch="any",
        features=frozenset(),
        plan=calling_plan(),
        kernels={},
        constants=(0,),
    )
    sources = make_host_sources([level], [WEIGHTS.tobytes()], "net")
    for name, data in sources.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(view_bytes(data))
    (folder / "scale.c").write_text(SCALE)
    strict = ("-Wall", "-Wextra", "-Werror", "-shared")
    words = [*sources.flags, *strict, *sources.units, *sources.entry_units, *units]
    command = [*c_compiler(), *words, *sources.link_flags, "-o", "net.so"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "net.so"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="weak symbols are those of ELF")
def test_a_step_calls_a_function_that_is_linked(tmp_path: Path) -> None:
    model = CModel(link(tmp_path, "scale.c"), threads=1)
    y = np.empty_like(X)
    model.run([X], [y], dims=[5])
    np.testing.assert_array_equal(y, X * WEIGHTS)
    model.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="weak symbols are those of ELF")
def test_a_step_calls_a_function_of_an_import(tmp_path: Path) -> None:
    path = link(tmp_path)
    lonely = CModel(path, threads=1)
    y = np.empty_like(X)
    with pytest.raises(LibraryError, match=r"function 'ext\.scale' is not linked"):
        lonely.run([X], [y], dims=[5])
    lonely.close()
    command = [*c_compiler(), "-shared", "-fPIC", "scale.c", "-o", "scale.so"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    module = tvm_ffi.load_module(str(path))
    with pytest.raises(RuntimeError, match=r"ext\.scale"):
        module.main(X)
    module.import_module(tvm_ffi.load_module(str(tmp_path / "scale.so")))
    np.testing.assert_array_equal(np.from_dlpack(module.main(X)), X * WEIGHTS)


FAILS = """
int fails(void* self, const void* args, int count, void* result) __asm__("__tvm_ffi_ext.scale");
__attribute__((visibility("default"))) int fails(void* self, const void* args, int count, void* result) {
  (void)self; (void)args; (void)count; (void)result;
  return -1;
}
"""
CALLED = """
import sys
import numpy as np
import tvm_ffi
try:
    tvm_ffi.load_module(sys.argv[1]).main(np.zeros((5, 3), "f4"))
except RuntimeError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="weak symbols are those of ELF")
def test_a_linked_function_that_fails_without_a_word_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "fails.c").write_text(FAILS)
    path = link(tmp_path, "fails.c")
    done = subprocess.run(
        [sys.executable, "-c", CALLED, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "function 'ext.scale' failed\n")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "raised", [KeyboardInterrupt("rings"), ValueError("mine")], ids=repr
)
def test_what_an_import_raises_arrives_through_every_face(
    raised: BaseException, tmp_path: Path
) -> None:
    def scale(*tensors: object) -> None:
        del tensors
        raise raised

    library = tw.runtime.load_module(link(tmp_path))
    library.import_module(tw.runtime.FunctionTable({"ext.scale": scale}))
    net = tw.graph_executor.GraphModule(library["default"](tw.cpu(0)))
    machine = tw.VirtualMachine(library, tw.cpu(0))
    for call in (
        lambda: net.run(x=X),
        lambda: library["main"](X),
        lambda: machine["main"](X),
    ):
        with pytest.raises(type(raised), match=str(raised)):
            call()


@pytest.mark.parametrize(
    "text", ["4097", "-1", "two", "1e3", "", " ", "99999999999999999999", "x" + "é" * 60]
)
def test_threads_that_are_no_number_of_threads_are_refused_by_the_variable(
    text: str, negation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than 1024 were 1024 without a word, and what is no number was one per processor."""
    # Its threads are made once, so each case has a library of its own.
    module = tvm_ffi.load_module(shutil.copy(negation, tmp_path / "net.so"))
    x = np.ones(2, np.float32)
    monkeypatch.setenv("TILEWRIGHT_THREADS", text)
    told = rf"TILEWRIGHT_THREADS: got '{text}', expected a number from 0 to 4096"
    with pytest.raises(ValueError, match=told):
        module.main(x)
    monkeypatch.setenv("TILEWRIGHT_THREADS", " 2 ")
    np.testing.assert_array_equal(np.from_dlpack(module.main(x)), -x)
