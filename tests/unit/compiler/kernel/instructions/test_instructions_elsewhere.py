"""Instructions of aarch64: machine code under qemu, and what a C compiler makes of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from fakes.cross_machines import cross_compiler, host_program, run
from fakes.dot_kernels import applied, operands, samples
from fakes.lowered import lower
from fakes.tile_kernels import product_in_tiles
from tilewright.base.target import Target
from tilewright.compiler.backends.cpu.backend import BACKEND
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.instructions import INSTRUCTIONS
from tilewright.compiler.printers.c_text.function import FLAGS, emit_kernel, file_text
from tilewright.compiler.printers.llvm_text.function import emit_kernel as llvm_kernel
from tilewright.compiler.schedule.primitives import tensorize

pytestmark = pytest.mark.slow  # needs a cross compiler and an emulator

NAMES = (
    "sdot",
    "udot",
    "usdot",
    "vpdpbusd",
    "vpdpwssd",
    "vpmaddwd_i8",
    "vpmaddubsw",
    "smmla",
    "ummla",
    "usmmla",
)
TARGETS = {
    "with all of them": "aarch64 -mcpu=neoverse-n2 -mattr=-sve,-sve2,-bf16",
    "with two of them": "aarch64 -mcpu=neoverse-n1",
    "with none": "aarch64",
}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return host_program("aarch64", tmp_path_factory.mktemp("aarch64"))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("name", NAMES)
def test_instructions_agree_with_their_meaning(
    host: list[str], name: str, target: str, lanes: int
) -> None:
    there, row = Target.parse(target), INSTRUCTIONS[name]
    kernel, arrays = applied(row, 64, lanes), operands(row, 64)
    (compiled,) = BACKEND.generate([kernel], there)
    image = BACKEND.link([compiled], "test", there)
    found = run(host, image, compiled.name, 1, (), arrays)
    evaluate(kernel, arrays)
    np.testing.assert_array_equal(found[0], arrays[0])


@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(1, 8, 1), (3, 11, 5), (7, 3, 9), (17, 40, 6)]
)
@pytest.mark.parametrize("name", ["smmla", "ummla", "usmmla"])
def test_a_product_in_tiles_is_exact(
    host: list[str], name: str, rows: int, depth: int, columns: int
) -> None:
    """The oracle is numpy."""
    there, row = Target.parse(TARGETS["with all of them"]), INSTRUCTIONS[name]
    _, left, right = row.parameters
    kernel = tensorize(
        product_in_tiles(left.dtype, right.dtype, rows, depth, columns), "i", name
    )
    assert f"@llvm.aarch64.neon.{name}." in llvm_kernel(lower(kernel, there), there).text
    (compiled,) = BACKEND.generate([kernel], there)
    image = BACKEND.link([compiled], "test", there)
    arrays = [
        samples(left.dtype, rows * depth, 1).reshape(rows, depth),
        samples(right.dtype, depth * columns, 2).reshape(depth, columns),
        *(np.zeros(p.buffer.shape, p.buffer.dtype.numpy) for p in kernel.parameters[2:]),
    ]
    found = run(host, image, compiled.name, 1, (), arrays)
    want = arrays[0].astype(np.int64) @ arrays[1].astype(np.int64)
    np.testing.assert_array_equal(found[2], want)


ALL, DOTS = "+dotprod+i8mm", "+dotprod"


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "flags", "written"),
    [
        ("sdot", ALL, "sdot"), ("udot", ALL, "udot"), ("usdot", ALL, "usdot"),
        ("sdot", "", ""), ("udot", "", ""), ("usdot", "", ""), ("usdot", DOTS, "sdot"),
        ("smmla", ALL, "smmla"), ("ummla", ALL, "ummla"), ("usmmla", ALL, "usmmla"), ("usmmla", DOTS, ""),
    ],
)  # fmt: skip
def test_c_has_the_instruction_where_the_compiler_does(
    tmp_path: Path, name: str, flags: str, written: str
) -> None:
    target = Target.parse("aarch64")
    kernel = emit_kernel(lower(applied(INSTRUCTIONS[name], 16, 4), target), target)
    source, assembly = tmp_path / "kernels.c", tmp_path / "kernels.s"
    source.write_text(file_text([kernel], target))
    command = [
        *cross_compiler("aarch64"), "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-unused-command-line-argument", *FLAGS,
        f"-mcpu=generic{flags}", "-S", str(source), "-o", str(assembly),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    text = assembly.read_text()
    found = {word for word in NAMES if f"\t{word}\t" in text}
    assert found == ({written} if written else set())
