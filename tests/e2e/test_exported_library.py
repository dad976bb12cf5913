"""Exported libraries compute what a session computes, and refuse what it refuses, in the same words."""

from __future__ import annotations

import _ctypes
import ctypes
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes import small_models
from fakes.exported_library import (
    CModel,
    LibraryError,
    c_compiler,
    compile_and_run,
    described,
    export,
)
from fakes.onnx_models import parse

RANDOM = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape, np.float32)


def compiled(source: onnx.ModelProto, **options: Any) -> tw.Model:
    options.setdefault("threads", 1)
    return tw.compile(source, **options)


def as_tuple(value: Any) -> tuple[np.ndarray, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> tuple[tw.Model, Path]:
    """Two inputs, two outputs, a batch that varies."""
    model = compiled(small_models.scale_and_shift())
    return model, export(model, tmp_path_factory.mktemp("dynamic") / "net.so")


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> tuple[tw.Model, Path]:
    """Weights, intermediate tensors, one shape."""
    model = compiled(small_models.mlp())
    return model, export(model, tmp_path_factory.mktemp("static") / "net.so")


def message_of(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(LibraryError) as caught:
        call()
    return caught.value.args


def same_message(model: tw.Model, library: CModel, *inputs: np.ndarray) -> str:
    """The error that both give for these inputs."""
    outputs = [np.empty(1, np.float32) for _ in model.outputs]
    status, text = message_of(lambda: library.run_tensors(inputs, outputs))
    with pytest.raises(tw.InputError) as caught:
        model(*inputs)
    assert status == 1
    assert text.split("\n")[0] == str(caught.value).split("\n")[0]
    return text


# ---- results ----


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2, 7, 64, 0])
def test_results_are_those_of_a_session(dynamic: tuple[tw.Model, Path], batch: int) -> None:
    model, path = dynamic
    library = CModel(path, threads=1)
    inputs = [floats(batch, 3), floats(3)]
    wanted = as_tuple(model(*inputs))
    outputs = [np.full_like(w, 9) for w in wanted]
    library.run(inputs, outputs, dims=[batch])
    assert library.output_shape([batch], 1, 2) == (3, batch)
    for got, want in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    again = [np.full_like(w, 9) for w in wanted]
    library.run_tensors(inputs, again)
    for got, want in zip(again, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    library.close()


@pytest.mark.slow
def test_more_sizes_than_are_kept_take_turns(dynamic: tuple[tw.Model, Path]) -> None:
    model, path = dynamic
    library = CModel(path, threads=1)
    for batch in [*range(1, 45), *range(1, 45)]:
        inputs = [floats(batch, 3), floats(3)]
        wanted = as_tuple(model(*inputs))
        outputs = [np.empty_like(w) for w in wanted]
        library.run(inputs, outputs, dims=[batch])
        np.testing.assert_array_equal(outputs[0], wanted[0])
    library.close()


@pytest.mark.parametrize("concurrency", [0, 1, 3])
def test_threads_share_a_model(dynamic: tuple[tw.Model, Path], concurrency: int) -> None:
    _, path = dynamic
    library = CModel(path, threads=2, concurrency=concurrency)
    sizes = (1, 5, 40)
    for batch in sizes:
        library.prepare([batch])
    failures: list[object] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for turn in range(60):
            batch = sizes[(turn + seed) % len(sizes)]
            x = random.standard_normal((batch, 3), np.float32)
            scale = random.standard_normal(3, np.float32)
            outputs = [np.empty((batch, 3), np.float32), np.empty((3, batch), np.float32)]
            library.run([x, scale], outputs, dims=[batch])
            y, z = small_models.scale_and_shift_reference(x, scale)
            if not (np.array_equal(outputs[1], z) and np.allclose(outputs[0], y)):
                failures.append((seed, turn))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    library.close()


SMALL_MODELS = {
    "window": (
        "g (float[1,2,n,9] x, float[4,2,3,3] w) => (float[1,4,a,b] y) { y = Conv (x, w) }",
        lambda n: [floats(1, 2, n, 9), floats(4, 2, 3, 3)],
    ),
    "types": (
        """g (float16[n] h, bool[n] b, int64[n] i, uint8[n] u)
            => (float16[n] p, bool[n] q, int64[n] r, uint8[n] s)
            { p = Add (h, h) q = Not (b) r = Mul (i, i) s = Identity (u) }""",
        lambda n: [
            floats(n).astype(np.float16),
            RANDOM.random(n) > 0.5,
            RANDOM.integers(-9, 9, n),
            RANDOM.integers(0, 255, n).astype(np.uint8),
        ],
    ),
    "chain": (
        """g (float[n,m] x, float[m,n] w) => (float[n] y)
            { h = MatMul (x, w) s = Softmax (h) t = Transpose (s) u = MatMul (s, t)
              axes = Constant <value_ints = [1]> () y = ReduceSum <keepdims = 0> (u, axes) }""",
        lambda n: [floats(n, n + 3), floats(n + 3, n)],
    ),
    "scalar": ("g (float x) => (float y) { y = Neg (x) }", lambda n: [floats()]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_MODELS)
def test_models_of_every_kind_are_equal_to_the_bit(name: str, tmp_path: Path) -> None:
    text, make = SMALL_MODELS[name]
    model = compiled(parse(text))
    library = CModel(export(model, tmp_path / "net.so"), threads=1)
    for n in (3, 4, 9, 17, 33):
        inputs = [np.asarray(a, order="C") for a in make(n)]
        wanted = as_tuple(model(*inputs))
        outputs = [np.empty_like(np.asarray(w)) for w in wanted]
        library.run_tensors(inputs, outputs)
        for got, want in zip(outputs, wanted, strict=True):
            assert got.tobytes() == np.asarray(want).tobytes()
    if name == "window":
        text = same_message(model, library, floats(1, 2, 1, 9), floats(4, 2, 3, 3))
        assert "a size is below zero" in text
    library.close()


def test_what_callers_leave_out_is_named(dynamic: tuple[tw.Model, Path]) -> None:
    library = CModel(dynamic[1], threads=1)
    arrays = (ctypes.c_void_p * 2)()
    dims, answer = (ctypes.c_int64 * 1)(2), (ctypes.c_int64 * 8)()
    model = library.handle
    for name, arguments, missing in (
        ("create", (None, None), "the place for the model"),
        ("run_dims", (None, dims, arrays, arrays), "model"),
        ("run_dims", (model, None, arrays, arrays), "dims"),
        ("run_dims", (model, dims, None, arrays), "inputs"),
        ("run_dims", (model, dims, arrays, None), "outputs"),
        ("run_tensors", (model, None, arrays), "inputs"),
        ("run_tensors", (model, arrays, None), "outputs"),
        ("prepare", (model, None), "dims"),
        ("output_shape", (model, None, 0, answer), "dims"),
        ("input_shape", (model, dims, 0, None), "the place for the answer"),
        ("workspace_bytes", (model, dims, None), "the place for the answer"),
    ):
        status, text = message_of(
            lambda n=name, a=arguments: library.check(library.function(n)(*a))
        )
        assert (status, text) == (1, f"{missing} is NULL")
    assert library.function("level")(None) is None
    library.close()


def test_a_model_that_is_not_made_is_null_and_may_be_destroyed(
    dynamic: tuple[tw.Model, Path],
) -> None:
    """Whatever the variable held before: programs destroy it on the way out, made or not."""
    library = CModel(dynamic[1], threads=1)
    held = ctypes.c_void_p(1)
    refused = (ctypes.c_uint64 * 2)(16, 5000)  # struct_bytes, threads
    status = library.function("create")(refused, ctypes.byref(held))
    assert (status, held.value) == (1, None)
    library.function("destroy")(held)
    library.close()


def test_a_rank_that_no_tensor_has_reads_no_extents(
    dynamic: tuple[tw.Model, Path],
) -> None:
    library = CModel(dynamic[1], threads=1)
    inputs, outputs = [floats(2, 3), floats(3)], [floats(2, 3), floats(3, 2)]
    for rank, words in ((1_000_000, "of rank 1000000"), (-1, "of rank -1")):
        tensors = described(inputs)
        tensors[0].rank = rank
        status, text = message_of(lambda given=tensors: library.run_rows(given, outputs))
        assert (status, text) == (1, f"input 'x': got f32 {words}, expected f32[batch, 3]")
    tensors = described(inputs)
    tensors[0].shape = None
    assert message_of(lambda: library.run_rows(tensors, outputs)) == (
        1,
        "input 'x': has no shape",
    )
    library.close()


# ---- what does not fit ----


def test_a_tensor_that_does_not_fit_is_named(dynamic: tuple[tw.Model, Path]) -> None:
    model, path = dynamic
    library = CModel(path, threads=1)
    text = same_message(model, library, floats(2, 4), floats(3))
    assert text == "input 'x': got f32[2, 4], expected f32[batch, 3] with batch = 2"
    same_message(model, library, floats(2, 3), floats(2, 3))
    same_message(model, library, floats(2), floats(3))
    text = same_message(model, library, floats(2, 3).astype(np.float64), floats(3))
    assert text.endswith("hint: convert it to f32")
    library.close()


@pytest.mark.slow
def test_outputs_and_addresses_are_checked_too(static: tuple[tw.Model, Path]) -> None:
    _, path = static
    library = CModel(path, threads=1)
    x, y = floats(5, 20), floats(5, 7)
    status, text = message_of(lambda: library.run_tensors([x], [floats(7, 5)]))
    assert (status, text) == (1, "output 'y': got f32[7, 5], expected f32[5, 7]")
    room = np.zeros(5 * 20 * 4 + 1, np.uint8)
    odd = room[1:].view(np.float32).reshape(5, 20)
    _, text = message_of(lambda: library.run_tensors([odd], [y]))
    assert "expected a multiple of 4" in text
    pointers = (ctypes.c_void_p * 1)(None)
    status = library.function("run")(library.handle, pointers, pointers)
    assert status == 1
    assert library.function("error")() == b"input 'x': has no data"
    library.close()


@pytest.mark.slow
def test_an_index_out_of_range_has_the_error_of_a_session(tmp_path: Path) -> None:
    model = compiled(
        parse(
            "f (float[n,3] t, int64[4] i) => (float[4,3] y) { [embed] g = Gather (t, i) y = Relu (g) }"
        )
    )
    library = CModel(export(model, tmp_path / "net.so"), threads=1)
    table, good = floats(5, 3), np.array([0, -1, -5, 4])
    out = np.empty((4, 3), np.float32)
    library.run_tensors([table, good], [out])
    np.testing.assert_array_equal(out, model(table, good))
    for bad in (5, -6, 2**40):
        indices = np.array([0, bad, 1, 2])
        text = same_message_for(model, library, table, indices, out)
        assert f"index {bad} is out of range on axis 0 of size 5, expected -5 .. 4" in text
    library.run_tensors([table, good], [out])  # and goes on
    library.close()


def same_message_for(
    model: tw.Model,
    library: CModel,
    table: np.ndarray,
    indices: np.ndarray,
    out: np.ndarray,
) -> str:
    _, text = message_of(lambda: library.run_tensors([table, indices], [out]))
    with pytest.raises(tw.InputError) as caught:
        model(table, indices)
    assert text == str(caught.value)
    return text


def test_options_that_do_not_fit_are_refused(static: tuple[tw.Model, Path]) -> None:
    _, path = static
    for options, words in (
        ({"level": b"v9"}, "no level 'v9', expected one of '"),
        ({"weights_path": b"/x"}, "the weights are in the library"),
        ({"threads": 5000}, "threads is 5000, expected at most 4096"),
        ({"concurrency": 5000}, "concurrency is 5000, expected at most 1024"),
        ({"workspace": 8, "workspace_bytes": 8}, "expected a multiple of 64"),
    ):
        assert words in message_of(partial(CModel, path, **options))[1]


def test_a_workspace_of_the_caller_is_used_and_measured(
    static: tuple[tw.Model, Path],
) -> None:
    model, path = static
    header = path.with_suffix(".h")
    header_size = None if not header.exists() else header.read_text()
    block = np.zeros(1 << 20, np.uint8)
    start = -block.ctypes.data % 64
    small: dict[str, Any] = {"workspace": block.ctypes.data + start, "workspace_bytes": 64}
    assert (
        "the workspace has 64 bytes, expected at least"
        in message_of(lambda: CModel(path, threads=1, **small))[1]
    )
    options: dict[str, Any] = {**small, "workspace_bytes": block.size - start}
    library = CModel(path, threads=1, **options)
    x, y = floats(5, 20), np.empty((5, 7), np.float32)
    library.run([x], [y])
    np.testing.assert_array_equal(y, model(x))
    assert block.any()
    assert header_size is None or "WORKSPACE_BYTES" in header_size
    library.close()


def test_sizes_that_were_not_prepared_do_not_run_without_allocating(
    dynamic: tuple[tw.Model, Path],
) -> None:
    _, path = dynamic
    library = CModel(path, threads=1, concurrency=1)
    inputs = [floats(4, 3), floats(3)]
    outputs = [np.empty((4, 3), np.float32), np.empty((3, 4), np.float32)]
    _, text = message_of(lambda: library.run(inputs, outputs, dims=[4]))
    assert "were not prepared" in text
    library.prepare([4])
    library.run(inputs, outputs, dims=[4])
    library.close()


# ---- C ----

NO_ALLOCATION = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include "net.h"
static _Atomic int counting, count;
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
void* malloc(size_t n) { count += counting; return __libc_malloc(n); }
void* calloc(size_t n, size_t m) { count += counting; return __libc_calloc(n, m); }
void* realloc(void* p, size_t n) { count += counting; return __libc_realloc(p, n); }
int posix_memalign(void** p, size_t a, size_t n) { count += counting; *p = __libc_memalign(a, n); return *p == NULL; }
void* mmap(void* a, size_t n, int p, int f, int d, long o) {
  static void* (*next)(void*, size_t, int, int, int, long);
  if (next == NULL) next = (void* (*)(void*, size_t, int, int, int, long))dlsym(RTLD_NEXT, "mmap");
  count += counting;
  return next(a, n, p, f, d, o);
}
int main(void) {
  net_options options = {.threads = 2, .concurrency = CONCURRENCY};
  net* model = NULL;
  static float x[NET_INPUT_X_ELEMENTS], y[NET_OUTPUT_Y_ELEMENTS];
  const void* inputs[] = {x};
  void* outputs[] = {y};
  if (net_create(&options, &model) != NET_OK) { puts(net_error()); return 1; }
  counting = 1;
  for (int i = 0; i < 100; ++i) if (net_run(model, inputs, outputs) != NET_OK) return 2;
  counting = 0;
  printf("%d\\n", count);
  net_destroy(model);
  return 0;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="hooks of glibc")
def test_calls_of_a_model_with_concurrency_allocate_nothing(tmp_path: Path) -> None:
    model = compiled(small_models.mlp(batch=200), threads=2)
    export(model, tmp_path / "libnet.so", name="net", header=tmp_path / "net.h")
    flags = ("-L.", "-lnet", "-Wl,-rpath,$ORIGIN", "-ldl")
    prepared = compile_and_run(NO_ALLOCATION, tmp_path, "-DCONCURRENCY=1", *flags)
    assert prepared == "0\n"
    hooked = compile_and_run(NO_ALLOCATION, tmp_path, "-DCONCURRENCY=0", *flags)
    assert int(hooked) > 0  # the hooks see what a call takes that was not prepared


# ---- weights, levels, several models ----


@pytest.mark.slow
def test_weights_beside_the_library_are_found_and_verified(tmp_path: Path) -> None:
    model = compiled(small_models.mlp())
    path = export(model, tmp_path / "net.so", weights=tmp_path / "net.irpa")
    x, y = floats(5, 20), np.empty((5, 7), np.float32)
    library = CModel(path, threads=1)
    library.run([x], [y])
    np.testing.assert_array_equal(y, model(x))
    library.close()
    moved = tmp_path / "elsewhere.irpa"
    shutil.move(tmp_path / "net.irpa", moved)
    status, text = message_of(lambda: CModel(path))
    assert (status, "cannot map the file of the weights" in text) == (4, True)
    CModel(path, weights_path=str(moved).encode()).close()
    data = bytearray(moved.read_bytes())
    (tmp_path / "cut.irpa").write_bytes(data[:-1])
    data[100] ^= 1
    (tmp_path / "other.irpa").write_bytes(bytes(data))
    for name, words in (("cut", "bytes, expected"), ("other", "the header of the file")):
        broken = str(tmp_path / f"{name}.irpa").encode()
        assert words in message_of(lambda path_=broken: CModel(path, weights_path=path_))[1]


@pytest.mark.slow
def test_a_library_that_refused_its_weights_is_not_unmapped(tmp_path: Path) -> None:
    model = compiled(small_models.mlp())
    path = export(model, tmp_path / "net.so", weights=tmp_path / "net.irpa")
    (tmp_path / "net.irpa").write_bytes(b"x" * 5000)
    failed = CModel.__new__(CModel)
    assert message_of(lambda: failed.__init__(path))[0] == 4
    _ctypes.dlclose(failed.library._handle)
    # Its handler of reads that fail may be called at any time from now on.
    assert str(path) in Path("/proc/self/maps").read_text()


@pytest.mark.slow
def test_one_library_has_code_for_several_processors(tmp_path: Path) -> None:
    if tw.Target.host().arch != "x86_64":
        pytest.skip("levels are those of x86-64")
    model = compiled(small_models.mlp(), target="x86_64", levels=("v2", "v3", "v4"))
    path = export(model, tmp_path / "net.so")
    x, y = floats(5, 20), np.empty((5, 7), np.float32)
    best = CModel(path, threads=1)
    assert model.session.variant is not None
    assert best.level == model.session.variant.target.rpartition("-")[2]
    best.run([x], [y])
    np.testing.assert_array_equal(y, model(x))
    best.close()
    oldest = CModel(path, threads=1, level=b"v2")
    oldest.run([x], [y])
    np.testing.assert_allclose(y, as_tuple(model(x))[0], rtol=1e-5, atol=1e-6)
    oldest.close()


@pytest.mark.slow
def test_a_processor_without_the_features_gets_an_error(tmp_path: Path) -> None:
    from dataclasses import replace

    from tilewright.api import factory
    from tilewright.runtime.library.link_files import LinkOptions

    model = compiled(small_models.mlp())
    files = factory.link_files(model.compiled, LinkOptions(name="net"))
    old, new = b"features[] = {", b'features[] = {"flux-capacitor", '
    sources = {
        name: bytes(data).replace(old, new) if name.startswith("net_") else data
        for name, data in files.files.items()
    }
    broken = replace(files, files=sources)
    for name, data in {**broken.files, **broken.objects}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(data))
    program = """
#include <stdio.h>
#include "net.h"
int main(void) {
  net* model = NULL;
  const int status = net_create(NULL, &model);
  printf("%d %s", status, net_error());
  return 0;
}
"""
    out = compile_and_run(
        program,
        tmp_path,
        *(*files.flags[1:], *files.units, *files.objects, *files.link_flags),
    )
    assert out.startswith("3 mlp: no code for this processor; the library has '")
    assert out.endswith("missing here: flux-capacitor")


@pytest.mark.filterwarnings("ignore::tilewright.base.diagnostics.TilewrightWarning")
def test_ops_that_run_in_python_are_refused_with_the_list(tmp_path: Path) -> None:
    model = compiled(small_models.with_host_op())
    with pytest.raises(
        tw.UserError, match="run in Python, which a library does not have"
    ) as caught:
        model.build().export_library(tmp_path / "net.so")
    assert caught.value.hint is not None


@pytest.mark.slow
def test_a_process_has_several_models_as_system_libraries(tmp_path: Path) -> None:
    models = {"a_": small_models.mlp(seed=1), "b_": small_models.mlp(seed=2)}
    words: list[str] = []
    for prefix, model in models.items():
        path = tmp_path / f"{prefix}net.a"
        tw.build(model).export_library(path, system_lib=True, c_symbol_prefix=prefix)
        words += ["-Wl,--whole-archive", str(path), "-Wl,--no-whole-archive"]
    library = tmp_path / "both.so"
    subprocess.run([*c_compiler(), "-shared", "-o", library, *words, "-lm"], check=True)
    caller = f"""
import ctypes, sys, numpy, tvm_ffi
ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi(), ctypes.RTLD_GLOBAL)
ctypes.CDLL("{library}")
x = numpy.ones((5, 20), numpy.float32)
for prefix in ("a_", "b_"):
    y = tvm_ffi.system_lib(prefix)["main"](x)
    sys.stdout.write(repr(numpy.from_dlpack(y).tolist()) + "\\n")
"""
    done = subprocess.run(
        [sys.executable, "-c", caller], check=True, capture_output=True, text=True
    )
    found = [np.array(json.loads(line)) for line in done.stdout.splitlines()]
    x = np.ones((5, 20), np.float32)
    for y, model in zip(found, models.values(), strict=True):
        np.testing.assert_allclose(y, as_tuple(tw.compile(model)(x))[0], rtol=1e-5)
