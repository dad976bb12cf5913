"""Runs kernels of other machines under qemu: the C core's image loader, cross-compiled, calls them."""

from __future__ import annotations

import importlib.util
import shutil
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.host import describe
from tilewright.formats import executable as abi
from tilewright.formats.elf import parse_image
from tilewright.runtime.loaders.embedded_elf import image_layout

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
PROGRAM = ROOT / "tests" / "unit" / "runtime" / "loaders" / "cross_host.c"
SYSTEM_ROOTS = {
    "aarch64": Path("/usr/aarch64-linux-gnu"),
    "riscv64": Path("/usr/riscv64-linux-gnu"),
}
"""Where Debian's packages `libc6-arm64-cross` and `libc6-riscv64-cross` have the C library of a machine."""


def cross_compiler(machine: str) -> list[str]:
    """The command of a compiler for that machine, with its C library.  Skips the test where there is none.

    ziglang compiles at their first use what it has as sources only, for a minute of a processor each: a C library that is
    linked statically, and what sanitizers call.  So programs are linked to the C library that `emulator` runs them with.
    """
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed (extra 'cross')")
    command = [sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=undefined"]
    return [*command, "-target", f"{machine}-linux-gnu"]


def emulator(machine: str) -> list[str]:
    """The command that runs a program for that machine.  Skips the test where there is none."""
    if machine == describe().arch:
        return []
    found = shutil.which(f"qemu-{machine}")
    if found is None:
        pytest.skip(f"qemu-{machine} is not installed (Debian: qemu-user)")
    if not SYSTEM_ROOTS[machine].exists():
        pytest.skip(f"the C library of {machine} is not installed (Debian: libc6-*-cross)")
    return [found, "-L", str(SYSTEM_ROOTS[machine])]


def host_program(machine: str, folder: Path) -> list[str]:
    """The command that runs the host program on that machine."""
    started = emulator(machine)
    program = folder / "host"
    command = [
        *cross_compiler(machine),
        "-std=gnu11", "-O1", f"-I{NATIVE / 'include'}", str(PROGRAM),
        str(NATIVE / "src" / "image.c"), "-o", str(program),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return [*started, str(program)]


def run(
    host: Sequence[str], image: bytes, kernel: str, grid: int,
    constants: Sequence[int], bindings: Sequence[np.ndarray],
) -> list[np.ndarray]:  # fmt: skip
    """Run a kernel; the bindings as it leaves them."""
    parsed = parse_image(image)
    layout = image_layout(parsed)
    start, _ = parsed.span
    text = struct.pack("<QQ", layout.size_bytes, len(layout.segments))
    for offset, data in layout.segments:
        text += struct.pack("<QQ", offset, len(data)) + bytes(data)
    for rows in (layout.relocations, layout.protections):
        text += struct.pack("<Q", len(rows))
        text += b"".join(struct.pack("<3Q", *row) for row in rows)
    query = parsed.symbols[abi.QUERY_FUNCTION] - start
    text += struct.pack("<QQ", query, len(kernel)) + kernel.encode()
    text += struct.pack("<QQ", grid, len(constants))
    text += struct.pack(f"<{len(constants)}IQ", *constants, len(bindings))
    for binding in bindings:
        text += struct.pack("<Q", binding.nbytes) + binding.tobytes()
    done = subprocess.run(host, input=text, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    results, at = [], 0
    for binding in bindings:
        piece = done.stdout[at : at + binding.nbytes]
        results.append(np.frombuffer(piece, binding.dtype).reshape(binding.shape))
        at += binding.nbytes
    assert at == len(done.stdout)
    return results
