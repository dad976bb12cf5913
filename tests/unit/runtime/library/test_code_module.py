"""Kernels without a host program: as functions here, and in libraries of every form."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.ffi_library import compiler
from fakes.small_models import mlp, scale_and_shift, scale_and_shift_reference
from tilewright.api.factory import Factory
from tilewright.base.errors import InputError, UserError
from tilewright.runtime import Module, load_module
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.tensors import tensor_of

X = np.random.default_rng(3).standard_normal((5, 20), np.float32)
CALLER = """\
#include "kernels.h"
#include <stdio.h>
int main(void) {
  int64_t shape[] = {5, 7};
  float data[35], result[35];
  for (int i = 0; i < 35; ++i) data[i] = (float)(i % 7);
  kernels_tensor x = {data, 1, 0, 2, 2, 32, 1, shape, NULL, 0};
  kernels_tensor y = {result, 1, 0, 2, 2, 32, 1, shape, NULL, 0};
  kernels_value values[] = {{7, 0, &x}, {7, 0, &y}}, nothing = {0, 0, NULL};
  if (__tvm_ffi_softmax(NULL, values, 2, &nothing) != 0) return 1;
  float sum = 0;
  for (int i = 0; i < 7; ++i) sum += result[i];
  y.shape = (int64_t[]){5, 6};
  const int code = __tvm_ffi_softmax(NULL, values, 2, &nothing);
  printf("%.3f %d %s", sum, code, kernels_error());
  return 0;
}
"""


@pytest.fixture(scope="module")
def factory() -> Factory:
    return tw.build(mlp(), target="x86_64")


@pytest.fixture(scope="module")
def wanted() -> np.ndarray:
    return np.asarray(tw.compile(mlp())(X))


@pytest.fixture(scope="module")
def folder(factory: Factory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels as a library, with its header."""
    compiler()
    made = tmp_path_factory.mktemp("kernels")
    factory.lib.export_library(made / "kernels.so", header=made / "kernels.h")
    return made


def run_graph(factory: Factory, lib: Module) -> np.ndarray:
    """The model's graph, with its kernels from a module."""
    executor = tw.graph_executor.create(factory.graph_json, lib, tw.cpu(0))
    net = tw.graph_executor.GraphModule(executor)
    for name, value in factory.params.items():
        net.set_input(name, value)
    net.run(x=X)
    return net.get_output(0)


@pytest.mark.slow
def test_a_graph_names_functions_of_a_library_of_kernels_alone(
    factory: Factory, wanted: np.ndarray, folder: Path
) -> None:
    lib = load_module(folder / "kernels.so")
    assert set(lib.function_names()) == set(factory.lib.function_names())
    np.testing.assert_allclose(run_graph(factory, lib), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("form", [".o", ".a", ".tar"])
def test_every_form_of_kernels_alone_loads(
    factory: Factory, wanted: np.ndarray, tmp_path: Path, form: str
) -> None:
    compiler()
    factory.lib.export_library(tmp_path / f"kernels{form}")
    lib = load_module(tmp_path / f"kernels{form}")
    np.testing.assert_allclose(run_graph(factory, lib), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_tvm_ffi_calls_them_and_hears_what_is_wrong(folder: Path) -> None:
    softmax = tvm_ffi.load_module(str(folder / "kernels.so"))["softmax"]
    x, y = X[:, :7].copy(), np.zeros((5, 7), np.float32)
    softmax(x, y)
    np.testing.assert_allclose(y.sum(1), np.ones(5), rtol=1e-6)
    with pytest.raises(
        TypeError, match="kernel 'softmax': got 1 tensors, expected 1 operands"
    ):
        softmax(x)
    with pytest.raises(
        ValueError, match=r"output '1: .*': got f32\[5, 6\], expected f32\[5, 7\]"
    ):
        softmax(x, y[:, :6].copy())
    with pytest.raises(ValueError, match=r"input '0.*': got f64\[5, 7\], expected f32"):
        softmax(x.astype(np.float64), y)
    with pytest.raises(ValueError, match=r"output '1: .*': is not contiguous"):
        softmax(x, np.zeros((7, 5), np.float32).T)


@pytest.mark.slow
def test_a_kernel_takes_types_that_numpy_does_not_exchange_and_names_what_is_no_tensor() -> (
    None
):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> m (bfloat16[4] x, bfloat16[4] w) => (bfloat16[4] y) '
        "{ y = Add(x, w) }"
    )
    lib = tw.build(model).lib
    (name,) = lib.function_names()
    x, y = np.ones(4, ml_dtypes.bfloat16), np.zeros(4, ml_dtypes.bfloat16)
    lib[name](*map(tensor_of, (x, x, y)))
    np.testing.assert_array_equal(y, np.full(4, 2, ml_dtypes.bfloat16))
    with pytest.raises(InputError, match="tensor 1: got NoneType, expected a tensor"):
        lib[name](tensor_of(x), None, tensor_of(y))


@pytest.mark.slow
def test_c_calls_them_by_the_header(folder: Path) -> None:
    (folder / "caller.c").write_text(CALLER)
    words = [compiler(), "-Wall", "-Werror", "caller.c", "./kernels.so", "-o", "caller"]
    subprocess.run(words, cwd=folder, check=True)
    done = subprocess.run(
        ["./caller"], cwd=folder, check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("1.000 -1 output '1: "), done.stdout
    assert "got f32[5, 6], expected f32[5, 7]" in done.stdout


@pytest.mark.slow
def test_sizes_of_a_call_are_told_by_its_tensors(tmp_path: Path) -> None:
    compiler()
    factory = tw.build(scale_and_shift())
    multiply, transpose = factory.lib.function_names()
    factory.lib.export_library(tmp_path / "kernels.so")
    exported = load_module(tmp_path / "kernels.so")
    scale = np.array([1, 2, 3], np.float32)
    for rows in (1, 4, 5, 4):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        y, z = np.zeros_like(x), np.zeros((3, rows), np.float32)
        for module in (factory.lib, exported):
            module[multiply](x, scale, y)
            module[transpose](x, z)
            wanted = scale_and_shift_reference(x, scale)
            np.testing.assert_allclose(y, wanted[0], rtol=1e-6)
            np.testing.assert_array_equal(z, wanted[1])
    with pytest.raises(
        ValueError, match=r"got f32\[3, 3\], expected f32\[3, batch\] with batch = 4"
    ):
        exported[transpose](x, np.zeros((3, 3), np.float32))


@pytest.mark.slow
def test_a_kernel_alone_knows_its_own_sizes_not_those_of_the_model(tmp_path: Path) -> None:
    """The first size of this kernel is the second one of the model."""
    compiler()
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        agraph (float[A] x, float[B,3] z) => (float[A] y, float[3,B] w) {
          y = Neg(x)
          w = Transpose(z)
        }"""
    )
    factory = tw.build(model)
    names = factory.lib.function_names()
    factory.lib.export_library(tmp_path / "kernels.so")
    exported = load_module(tmp_path / "kernels.so")
    (transpose,) = (name for name in names if name.startswith("transpose"))
    z = np.arange(15, dtype=np.float32).reshape(5, 3)
    for lib in (factory.lib, exported):
        w = np.zeros((3, 5), np.float32)
        lib[transpose](z, w)
        np.testing.assert_array_equal(w, z.T)


@pytest.mark.slow
def test_the_library_of_a_model_has_them_when_it_is_asked_to(
    factory: Factory, wanted: np.ndarray, tmp_path: Path
) -> None:
    compiler()
    factory.export_library(tmp_path / "net.so", kernel_functions=True)
    names = set(factory.lib.function_names())
    lib = load_module(tmp_path / "net.so")
    assert {"main", "default", *names} <= set(lib.function_names())
    np.testing.assert_allclose(np.from_dlpack(lib["main"](X)), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(run_graph(factory, lib), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("form", "options", "problem"),
    [
        ("k.so", {"weights": "k.irpa"}, "kernels alone have no weights"),
        ("k", {}, "a program runs a model, and these modules have none"),
    ],
)
def test_what_kernels_alone_do_not_have_is_an_error(
    factory: Factory, tmp_path: Path, form: str, options: dict[str, Any], problem: str
) -> None:
    compiler()
    with pytest.raises(UserError, match=problem):
        factory.lib.export_library(tmp_path / form, **options)
