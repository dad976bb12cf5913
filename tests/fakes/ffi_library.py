"""Libraries in C with packed functions, as other compilers make them: compiled by the system's compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.formats.library_blob import LibraryBlob, write_blob

SOURCE = r"""
#include <string.h>
#include <tvm/ffi/c_api.h>
#include <tvm/ffi/extra/c_env_api.h>

void* __tvm_ffi__library_ctx = 0;

#define PACKED(name) \
  int __tvm_ffi_##name(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result)

/* add(a, b): integers */
PACKED(add) {
  if (count != 2) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "add takes two numbers");
    return -1;
  }
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = args[0].v_int64 + args[1].v_int64;
  return 0;
}

/* type_of(x): the type index that arrived */
PACKED(type_of) {
  result->type_index = kTVMFFIInt;
  result->zero_padding = 0;
  result->v_int64 = args[0].type_index;
  return 0;
}

/* call(f, ...): calls a function with what follows */
PACKED(call) { return TVMFFIFunctionCall(args[0].v_obj, (TVMFFIAny*)args + 1, count - 1, result); }

/* call_import(...): calls the function 'imported' of the modules that this library imports */
PACKED(call_import) {
  TVMFFIObjectHandle found;
  if (TVMFFIEnvModLookupFromImports(__tvm_ffi__library_ctx, "imported", &found) != 0) return -1;
  return TVMFFIFunctionCall(found, (TVMFFIAny*)args, count, result);
}

/* fail(): an error of a kind that Python knows */
PACKED(fail) {
  TVMFFIErrorSetRaisedFromCStr("ValueError", "it failed in C");
  return -1;
}

/* twice(x): doubles the floats of a tensor in place */
PACKED(twice) {
  const DLTensor* tensor = args[0].type_index == kTVMFFITensor
                               ? (const DLTensor*)((const char*)args[0].v_obj + sizeof(TVMFFIObject))
                               : (const DLTensor*)args[0].v_ptr;
  int64_t elements = 1;
  for (int32_t i = 0; i < tensor->ndim; ++i) elements *= tensor->shape[i];
  float* data = (float*)((char*)tensor->data + tensor->byte_offset);
  for (int64_t i = 0; i < elements; ++i) data[i] *= 2;
  result->type_index = kTVMFFINone;
  result->zero_padding = 0;
  result->v_int64 = 0;
  return 0;
}
"""


def compiler() -> str:
    """The system's C compiler; skips the test where there is none."""
    found = shutil.which("cc") or shutil.which("gcc")
    if found is None:
        pytest.skip("no C compiler")
    return found


def compile_object(folder: Path, source: str = SOURCE, name: str = "lib0") -> Path:
    """An object of a source in C."""
    from tilewright.runtime.packed.ffi import tvm_ffi

    info = tvm_ffi.libinfo
    file = folder / f"{name}.c"
    file.write_text(source)
    includes = [info.find_include_path(), info.find_dlpack_include_path()]
    made = folder / f"{name}.o"
    subprocess.run(
        [
            compiler(),
            "-O1",
            "-fPIC",
            "-c",
            *(f"-I{one}" for one in includes),
            "-o",
            made,
            file,
        ],
        check=True,
    )
    return made


def blob_source(blob: LibraryBlob) -> str:
    """A source in C that holds a blob, as TVM writes one."""
    numbers = ",".join(map(str, write_blob(blob)))
    return f"const unsigned char __tvm_ffi__library_bin[] = {{{numbers}}};\n"


def link(folder: Path, objects: list[Path], name: str = "net.so") -> Path:
    """A shared library of objects."""
    made = folder / name
    subprocess.run([compiler(), "-shared", "-o", made, *objects], check=True)
    return made


def make_library(
    folder: Path,
    blob: LibraryBlob | None = None,
    source: str = SOURCE,
    name: str = "net.so",
) -> Path:
    """A shared library of `SOURCE`, with a blob of modules."""
    objects = [compile_object(folder, source)]
    if blob is not None:
        objects.append(compile_object(folder, blob_source(blob), "devc"))
    return link(folder, objects, name)
