"""Libraries for other processors, linked with a program in C and run under qemu, beside the session here.

Forms: a shared library, which the emulated machine's loader loads, and archive, object, objects in a tar and
sources, which are linked into the program.  The C library of those machines comes from Debian's packages
`libc6-arm64-cross` and `libc6-riscv64-cross`; without it, or without qemu, the tests are skipped.
(Programs that a model is made: `test_exported_models.py`.)
"""

from __future__ import annotations

import shlex
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.cross_machines import SYSTEM_ROOTS, cross_compiler, emulator
from tilewright.api.model import Model
from tilewright.formats.tensor_spec import TensorSpec

MODELS = Path(__file__).parents[2] / "build" / "models"
CLIENT = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"
// What tvm-ffi gives functions: values, here pointers to tensors of DLPack (type 7).
typedef struct { int32_t type; uint32_t padding; void* pointer; } any;
typedef struct {
  void* data; int32_t device[2]; int32_t rank; uint8_t code, bits; uint16_t lanes;
  int64_t* shape; int64_t* strides; uint64_t offset;
} tensor;
int __tvm_ffi_main(void* self, const any* args, int32_t count, any* result) __attribute__((weak));
enum { LIMIT = 16, RANK_LIMIT = 8 };
static const net_interface* api;
static int64_t dims[LIMIT], shapes[LIMIT][RANK_LIMIT];
static size_t sizes[LIMIT];
static void* buffers[LIMIT];
static tensor tensors[LIMIT];
static any values[LIMIT];
// A tensor as large as these sizes have it.
static int prepare(net* model, uint32_t slot) {
  const uint32_t inputs = api->input_count, output = slot - inputs;
  const net_tensor_info* info = slot < inputs ? &api->inputs[slot] : &api->outputs[output];
  int64_t* shape = shapes[slot];
  const int status = slot < inputs ? api->input_shape(model, dims, slot, shape) : api->output_shape(model, dims, output, shape);
  if (status != NET_OK) return status;
  sizes[slot] = info->item_bytes;
  for (int axis = 0; axis < info->rank; ++axis) sizes[slot] *= (size_t)shape[axis];
  buffers[slot] = aligned_alloc(64, (sizes[slot] + 63) / 64 * 64);
  tensors[slot] = (tensor){buffers[slot], {1, 0}, info->rank, info->type_code, info->type_bits, 1, shape, NULL, 0};
  values[slot] = (any){7, 0, &tensors[slot]};
  return NET_OK;
}
static int transfer(uint32_t slot, const char* path, int writes) {
  FILE* file = fopen(path, writes ? "wb" : "rb");
  if (file == NULL) return 0;
  const size_t size = sizes[slot];
  const size_t done = writes ? fwrite(buffers[slot], 1, size, file) : fread(buffers[slot], 1, size, file);
  return fclose(file) == 0 && done == size;
}
static int fail(int code) {
  puts(net_error());
  return code;
}
// The extents of all inputs, then a file of bytes for each input and output.
int main(int argc, char** argv) {
  net_options options = {.struct_bytes = sizeof(options), .threads = 2};
  net* model = NULL;
  api = net_get_interface();
  const uint32_t inputs = api->input_count, all = inputs + api->output_count;
  char** next = argv + 1;
  if (all > LIMIT || api->dim_count > LIMIT) return 1;
  for (uint32_t i = 0; i < inputs; ++i) {
    for (int32_t axis = 0; axis < api->inputs[i].rank; ++axis) {
      const int64_t extent = atoll(*next++);
      for (uint32_t j = 0; j < api->dim_count; ++j) {
        if (api->dims[j].input == i && (int32_t)api->dims[j].axis == axis) dims[j] = extent;
      }
    }
  }
  char** files = next;
  if (files + all != argv + argc) return 1;
  if (net_create(&options, &model) != NET_OK) return fail(2);
  for (uint32_t i = 0; i < all; ++i) {
    if (prepare(model, i) != NET_OK) return fail(3);
    if (i < inputs && !transfer(i, files[i], 0)) return 4;
  }
  if (api->run(model, dims, (const void* const*)buffers, buffers + inputs) != NET_OK) return fail(5);
  for (uint32_t i = inputs; i < all; ++i) {
    if (!transfer(i, files[i], 1)) return 6;
    void* first = memcpy(malloc(sizes[i]), buffers[i], sizes[i]);
    memset(buffers[i], 1, sizes[i]);
    any result = {0, 0, NULL};
    if (__tvm_ffi_main != NULL && __tvm_ffi_main(NULL, values, (int32_t)all, &result) != 0) return fail(7);
    if (__tvm_ffi_main != NULL && memcmp(first, buffers[i], sizes[i]) != 0) return 8;
    free(first);
  }
  net_destroy(model);
  puts(__tvm_ffi_main == NULL ? "by its header" : "by its header and as a packed function");
  return 0;
}
"""
Arrays = Mapping[str, np.ndarray]


def link_shared(folder: Path) -> list[str]:
    return ["client.c", "-L.", "-l:net.so", "-Wl,-rpath,$ORIGIN"]


def link_file(folder: Path) -> list[str]:
    (file,) = (path.name for path in folder.iterdir() if path.suffix in {".a", ".o"})
    return ["client.c", file]


def link_tar(folder: Path) -> list[str]:
    with tarfile.open(folder / "net.tar") as archive:
        archive.extractall(folder / "objects", filter="data")
    return [
        "client.c",
        *(f"objects/{path.name}" for path in (folder / "objects").iterdir()),
    ]


def link_sources(folder: Path) -> list[str]:
    """What the first line of the sources says, after the name of the compiler."""
    words = shlex.split(
        (folder / "net.c").read_text().splitlines()[0].removeprefix("// cc ")
    )
    found: list[str] = []
    for word in words:
        if word == "app.c":
            found.append("client.c")
        elif "*" in word:
            found += sorted(str(path.relative_to(folder)) for path in folder.glob(word))
        else:
            found.append(word)
    return found


FORMS: Mapping[str, Callable[[Path], Sequence[str]]] = {
    "net.so": link_shared,
    "net.a": link_file,
    "net.o": link_file,
    "net.tar": link_tar,
    "net.c": link_sources,
}
PACKED_FORMS = {"net.so", "net.o", "net.tar", "net.c"}
"""What brings the packed function along; of an archive a linker takes only what is asked for."""


def run_elsewhere(
    model: Model, arch: str, form: str, inputs: Arrays, folder: Path
) -> list[np.ndarray]:
    """The results of a library on another processor."""
    started, compiler = emulator(arch), cross_compiler(arch)
    model.export_library(folder / form, name="net", header=folder / "net.h")
    (folder / "client.c").write_text(CLIENT)
    command = [*compiler, *FORMS[form](folder), "-pthread", "-o", "client"]
    subprocess.run(command, cwd=folder, check=True)
    extents = [str(extent) for array in inputs.values() for extent in array.shape]
    given = [f"in_{index}" for index in range(len(inputs))]
    made = [f"out_{index}" for index in range(len(model.outputs))]
    for file, array in zip(given, inputs.values(), strict=True):
        np.ascontiguousarray(array).tofile(folder / file)
    done = subprocess.run(
        [*started, "client", *extents, *given, *made],
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert done.stdout.endswith("packed function\n") == (form in PACKED_FORMS)
    return [
        np.fromfile(folder / file, spec.dtype.numpy)
        for file, spec in zip(made, model.outputs, strict=True)
    ]


def shorten(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """A few elements of the axes that may have any number: emulation takes its time."""
    return array[tuple(slice(None if isinstance(dim, int) else 3) for dim in spec.shape)]


def results_of(model: Model, inputs: Arrays) -> list[np.ndarray]:
    found = model(**inputs)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.sampled(9)
@pytest.mark.parametrize("arch", SYSTEM_ROOTS)
@pytest.mark.parametrize(
    ("name", "form"),
    [
        *(("mlp_b64", form) for form in FORMS),
        ("mobilenetv2", "net.so"),
        ("minilm_l6", "net.so"),
    ],
)
def test_libraries_give_the_same_results_on_other_processors(
    name: str, form: str, arch: str, tmp_path: Path
) -> None:
    path = MODELS / f"{name}.onnx"
    here = tw.compile(path)
    given = np.load(path.with_name(f"{name}.inputs.npz"))
    inputs = {spec.name: shorten(given[spec.name], spec) for spec in here.inputs}
    expected = results_of(here, inputs)
    elsewhere = tw.compile(path, target=arch)
    results = run_elsewhere(elsewhere, arch, form, inputs, tmp_path)
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=2e-4, atol=2e-4)
