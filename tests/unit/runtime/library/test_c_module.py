"""Packed functions in C: compiled when they are called, written for a linker, saved as text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.base.c_compiler.toolchain import find_toolchain
from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.runtime.library.c_module import CSourceModule, load_c_module

SOURCE = """
#include <dlpack/dlpack.h>
#include <tvm/ffi/c_api.h>

static DLTensor* tensor(const TVMFFIAny* value) {
  if (value->type_index == kTVMFFIDLTensorPtr) return (DLTensor*)value->v_ptr;
  return (DLTensor*)((char*)value->v_obj + sizeof(TVMFFIObject));
}

int __tvm_ffi_twice(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  const DLTensor* x = tensor(&args[0]);
  float* y = (float*)tensor(&args[1])->data;
  for (int64_t i = 0; i < x->shape[0]; ++i) y[i] = 2 * ((float*)x->data)[i];
  return 0;
}
"""


@pytest.fixture(autouse=True)
def has_compiler() -> None:
    try:
        find_toolchain()
    except UserError as error:
        pytest.skip(error.message)


def check(module: Any) -> None:
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    module["twice"](x, y)
    np.testing.assert_array_equal(y, 2 * x)


def test_a_function_is_compiled_when_it_is_looked_for() -> None:
    module = CSourceModule(SOURCE, ["twice"])
    assert module.get_function("thrice") is None
    check(module)
    check(module)
    assert module.inspect_source() == SOURCE


def test_its_bytes_make_the_same_module_again() -> None:
    module = CSourceModule(SOURCE, ["twice"], ["-O1"])
    again = load_c_module(module.save_to_bytes())
    assert again.save_to_bytes() == module.save_to_bytes()
    check(again)


@pytest.mark.slow
def test_the_source_is_utf8_wherever_it_is_compiled(tmp_path: Path) -> None:
    source = (
        "#include <tvm/ffi/c_api.h>\n// Größe\n"
        "int __tvm_ffi_size(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {\n"
        "  (void)self; (void)args; (void)count;\n"
        '  result->type_index = kTVMFFIInt; result->v_int64 = sizeof("ö") - 1; return 0;\n}\n'
    )
    (tmp_path / "module.json").write_bytes(CSourceModule(source, ["size"]).save_to_bytes())
    program = (
        "import pathlib, sys\n"
        "from tilewright.runtime.library.c_module import load_c_module\n"
        "print(load_c_module(pathlib.Path(sys.argv[1]).read_bytes()).get_function('size')())\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-c", program, str(tmp_path / "module.json")],
        env={
            **os.environ,
            "LC_ALL": "C",
            "PYTHONCOERCECLOCALE": "0",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "2\n", done.stderr


def test_it_is_written_as_source_or_object(tmp_path: Path) -> None:
    module = CSourceModule(SOURCE, ["twice"])
    module.write_to_file(tmp_path / "m.c")
    assert (tmp_path / "m.c").read_text() == SOURCE
    module.write_to_file(tmp_path / "m.o")
    names = subprocess.run(
        ["nm", str(tmp_path / "m.o")], capture_output=True, text=True, check=True
    )
    assert " T __tvm_ffi_twice" in names.stdout
    with pytest.raises(InputError, match="sources of C are not written as 'll'"):
        module.write_to_file(tmp_path / "m.ll")


def test_a_name_that_the_source_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="does not define '__tvm_ffi_thrice'"):
        CSourceModule(SOURCE, ["thrice"])


def test_what_the_compiler_says_is_told() -> None:
    with pytest.raises(UserError, match="expected"):
        CSourceModule("int __tvm_ffi_f(", ["f"]).get_function("f")


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"source": 1, "functions": [], "options": []}', b"\xff",
     b'{"source": "", "functions": ["f"], "options": []}',
     b'{"source": "", "functions": [1], "options": []}'],
)  # fmt: skip
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ArchiveError, match="malformed module of kind 'c'"):
        load_c_module(data)
