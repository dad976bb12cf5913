"""Kernels as objects for the linkers of a system, under names of their own."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes import small_models
from tilewright.base.c_compiler.toolchain import find_toolchain
from tilewright.base.symbolic import substitute
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.backends.backend import CompiledKernel
from tilewright.compiler.packaging.kernel_objects import kernel_objects
from tilewright.formats.elf.objects import parse_object
from tilewright.formats.executable import DISPATCH_STATE, WORKGROUP_STATE

GLOBAL = 1
FORMATS = {
    "x86_64 -mcpu=x86-64-v3": b"\x7fELF",
    "aarch64": b"\x7fELF",
    "riscv64": b"\x7fELF",
    "aarch64-macos": b"\xcf\xfa\xed\xfe",
    "x86_64-windows": b"\x64\x86",
    "aarch64-windows": b"\x64\xaa",
}


def compiled_for(target: Target) -> list[CompiledKernel]:
    options = pipeline.CompileOptions(targets=(target,), threads=1, jobs=1)
    compiled = pipeline.compile_model(small_models.mlp(), options)
    return [record.compiled for record in compiled.kernels[0]]


def symbols_of(data: bytes) -> set[str]:
    return {s.name for s in parse_object(data).symbols if s.binding == GLOBAL}


@pytest.mark.slow
@pytest.mark.parametrize(("text", "magic"), FORMATS.items())
def test_objects_have_the_format_of_the_system(text: str, magic: bytes) -> None:
    target = Target.parse(text)
    for kernel in kernel_objects(compiled_for(target), target, "net/v3"):
        assert kernel.object_bytes.startswith(magic)
        assert kernel.export.function.encode() in kernel.object_bytes


def test_an_object_defines_the_symbol_of_its_declaration_and_no_other() -> None:
    target = Target.parse("x86_64-v3")
    for kernel in kernel_objects(compiled_for(target), target, "net/v3"):
        assert symbols_of(kernel.object_bytes) == {kernel.export.function}


def test_two_owners_have_no_symbol_in_common_and_link_together(tmp_path: Path) -> None:
    target = Target.host()
    compiled = compiled_for(target)
    both = [
        *kernel_objects(compiled, target, "net/v2"),
        *kernel_objects(compiled, target, "net/v3"),
    ]
    distinct = {kernel.export.function: kernel.object_bytes for kernel in both}
    assert len(distinct) == 2 * len({kernel.export.function for kernel in compiled})
    files: list[Path] = []
    for symbol, data in distinct.items():
        files.append(tmp_path / f"{symbol}.o")
        files[-1].write_bytes(data)
    find_toolchain().merge(tmp_path / "both.o", files)
    assert distinct.keys() <= symbols_of((tmp_path / "both.o").read_bytes())


def test_the_same_owner_gives_the_same_symbols_again() -> None:
    target = Target.parse("x86_64-v3")
    compiled = compiled_for(target)
    once, again = (kernel_objects(compiled, target, "net/v3") for _ in range(2))
    assert once == again


SHIM = """
typedef int (__attribute__((ms_abi)) *windows_kernel_t)(const void*, const void*, const void*);
extern char windows_code[];
__asm__(".text\\n.p2align 6\\nwindows_code:\\n.incbin \\"code.bin\\"\\n.section .note.GNU-stack,\\"\\",@progbits\\n.text");
int run_windows(const void* environment, const void* dispatch, const void* workgroup) {
  return ((windows_kernel_t)windows_code)(environment, dispatch, workgroup);
}
"""


def code_of_coff(data: bytes) -> bytes | None:
    """The code of an object for Windows that refers to nothing; None for another."""
    sections, optional = struct.unpack_from("<H", data, 2)[0], 20
    for index in range(sections):
        at = optional + 40 * index
        size, offset = struct.unpack_from("<II", data, at + 16)
        (relocations,) = struct.unpack_from("<H", data, at + 32)
        if data[at : at + 8].rstrip(b"\0") == b".text":
            return None if relocations else data[offset : offset + size]
    return None


@pytest.mark.skipif(Target.host().arch != "x86_64", reason="code for x86-64")
def test_kernels_for_windows_take_their_arguments_where_windows_passes_them(
    tmp_path: Path,
) -> None:
    target = Target.parse("x86_64-windows")
    model = tw.compile(small_models.scale_and_shift(), target=target)
    plan = model.compiled.parts[0].plan
    step = next(s for s in plan.steps if s.target == "transpose")
    compiled = [r.compiled for r in model.compiled.kernels[0]]
    kernels = {k.name: k for k in kernel_objects(compiled, target, "net/v2")}
    code = code_of_coff(kernels[step.target].object_bytes)
    assert code is not None, "this kernel has no constants in memory"
    (tmp_path / "code.bin").write_bytes(code)
    (tmp_path / "shim.c").write_text(SHIM)
    toolchain = find_toolchain()
    toolchain.link_shared(tmp_path / "shim.so", toolchain.compile(["shim.c"], tmp_path))
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3), np.zeros((3, 4), np.float32)
    pointers = np.array([x.ctypes.data, y.ctypes.data], np.uint64)
    constants = np.array([4], np.uint32)
    grid = [substitute(d, {"batch": 4}) for d in step.grid]
    dispatch = np.zeros(1, DISPATCH_STATE.dtype)
    dispatch["constants"], dispatch["binding_pointers"] = (
        constants.ctypes.data,
        pointers.ctypes.data,
    )
    workgroup = np.zeros(1, WORKGROUP_STATE.dtype)
    run = ctypes.CDLL(str(tmp_path / "shim.so")).run_windows
    for index in range(int(grid[0])):
        workgroup["workgroup_id_x"] = index
        assert (
            run(None, *(ctypes.c_void_p(a.ctypes.data) for a in (dispatch, workgroup))) == 0
        )
    np.testing.assert_array_equal(y, x.T)
