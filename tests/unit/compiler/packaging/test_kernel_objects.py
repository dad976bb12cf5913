"""Kernels as objects for the linkers of a system, under names of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import small_models
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.codegen.llvm import CompiledKernel
from tilewright.compiler.packaging.kernel_objects import kernel_objects
from tilewright.formats.elf.objects import parse_object
from tilewright.runtime.library.toolchain import find_toolchain

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
