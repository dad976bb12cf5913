from __future__ import annotations

import random
import struct

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.formats.cuda_executable import (
    BINDING_INDIRECT,
    BINDING_READ_ONLY,
    CudaExecutableDef,
    CudaExport,
    is_cuda_executable,
    read_cuda_executable,
    write_cuda_executable,
)
from tilewright.formats.vmfb import read_archive
from unit.formats.conftest import ARCHIVES
from unit.formats.test_corruption import damaged

TWO = CudaExecutableDef(
    exports=(
        CudaExport(
            name="first",
            kernel_name="first_kernel",
            block=(32, 8, 1),
            shared_bytes=4096,
            constant_count=3,
            binding_flags=(BINDING_READ_ONLY | BINDING_INDIRECT, 0, BINDING_INDIRECT),
        ),
        CudaExport(name="second", module=1, kernel_name="k", block=(1, 1, 64)),
    ),
    images=(b".version 7.6\n", b"\x7fELF and so on"),
)


def executables(name: str) -> list[bytes]:
    module = read_archive((ARCHIVES / name).read_bytes())
    return [bytes(r.data) for r in module.rodata if is_cuda_executable(r.data)]


def test_what_is_written_is_read() -> None:
    assert read_cuda_executable(write_cuda_executable(TWO)) == TWO


def test_binding_flags_are_aligned_as_checking_readers_want() -> None:
    data = write_cuda_executable(TWO)
    flags = struct.pack("<3Q", 3, 0, 2)
    assert (data.index(flags) - 64) % 8 == 0


@pytest.mark.parametrize(
    ("name", "has_header"),
    [
        ("iree-3.0.0-add_cuda.vmfb", False),
        ("iree-3.9.0-add_cuda.vmfb", True),
        ("iree-3.13.0-add_cuda.vmfb", True),
    ],
)
def test_executables_of_every_framing_are_read(name: str, has_header: bool) -> None:
    (data,) = executables(name)
    assert (data[:4] == b"CDA1") is has_header
    definition = read_cuda_executable(data)
    (export,) = definition.exports
    assert export.name == export.kernel_name == "add_dispatch_0_elementwise_1024_f32"
    assert export.block == (32, 1, 1)
    assert export.binding_flags == (3, 3, 2)
    (image,) = definition.images
    assert b".entry add_dispatch_0_elementwise_1024_f32" in image
    assert read_cuda_executable(write_cuda_executable(definition)) == definition


def replaced(**fields: object) -> CudaExecutableDef:
    export = CudaExport(**{"name": "f", "kernel_name": "f", **fields})
    return CudaExecutableDef(exports=(export,), images=(b"ptx",))


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (replaced(module=1), "export 0 'f': module 1 of 1"),
        (replaced(block=(0, 1, 1)), r"block of \(0, 1, 1\) threads"),
        (replaced(block=(1 << 31, 2, 1)), "threads"),
        (replaced(kernel_name=""), "export 0 has no name"),
        (CudaExecutableDef(exports=(), images=(b"",)), "module 0 has no image"),
    ],
)
def test_impossible_contents_are_refused(
    definition: CudaExecutableDef, message: str
) -> None:
    with pytest.raises(ArchiveError, match=message):
        read_cuda_executable(write_cuda_executable(definition))


def test_a_foreign_header_is_refused() -> None:
    data = bytearray(write_cuda_executable(TWO))
    data[4] = 7
    with pytest.raises(ArchiveError, match="header version 7, expected 0"):
        read_cuda_executable(data)
    for other in (b"", b"CDA", b"PTXE" * 4):
        assert not is_cuda_executable(other)
        with pytest.raises(ArchiveError):
            read_cuda_executable(other)


def test_damage_ends_in_an_archive_error_or_is_read() -> None:
    originals = [*executables("iree-3.0.0-add_cuda.vmfb"), write_cuda_executable(TWO)]
    outcomes = {True: 0, False: 0}
    for number, original in enumerate(originals):
        for seed in range(4):
            for copy in damaged(original, seed=10 * number + seed):
                try:
                    read_cuda_executable(copy)
                except ArchiveError:
                    outcomes[False] += 1
                else:
                    outcomes[True] += 1
    assert min(outcomes.values()) > 10


def test_a_file_cut_anywhere_is_refused() -> None:
    data = write_cuda_executable(TWO)
    for length in random.Random(1).sample(range(len(data)), 100):
        with pytest.raises(ArchiveError):
            read_cuda_executable(data[:length])
