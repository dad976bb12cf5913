"""The loader takes this machine's images of both library versions, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.kernel_image import FORMAT, kernel_image
from tilewright.base.errors import ArchiveError
from tilewright.base.host import describe
from tilewright.runtime.hal.executable import ExecutableParams
from tilewright.runtime.loaders.embedded_elf import load_embedded_elf
from tilewright.runtime.loaders.embedded_elf_loader import EmbeddedElfLoader

ARCHIVES = Path(__file__).resolve().parents[3] / "golden" / "archives"


def test_it_takes_the_format_of_this_machine() -> None:
    loader = EmbeddedElfLoader()
    assert loader.query_support(FORMAT)
    assert not loader.query_support("embedded-elf-sparc")
    assert not loader.query_support("system-elf-x86_64")
    assert loader.infer_format(kernel_image()) == FORMAT
    assert loader.infer_format(b"MZ") is None
    assert loader.infer_format(b"\x7fELF" + bytes(30)) is None


@pytest.mark.skipif(describe().arch != "x86_64", reason="the images hold x86-64 code")
@pytest.mark.parametrize(
    ("release", "version", "kernels"), [("3.0.0", 5, 4), ("3.13.0", 6, 2)]
)
def test_libraries_of_both_versions_are_read(
    release: str, version: int, kernels: int
) -> None:
    data = (ARCHIVES / f"iree-{release}-mlp_kernels.so").read_bytes()
    loaded = load_embedded_elf(data)
    assert loaded.library.version == version
    assert len(loaded.exports) == kernels
    assert all(e.binding_count in (2, 3) for e in loaded.exports.values())
    executable = EmbeddedElfLoader().load(ExecutableParams(format=FORMAT, data=data))
    assert [f.name for f in executable.functions] == list(loaded.exports)


@pytest.mark.parametrize("keep", [0, 3, 64, 300])
def test_truncated_images_are_refused(keep: int) -> None:
    with pytest.raises(ArchiveError):
        EmbeddedElfLoader().load(
            ExecutableParams(format=FORMAT, data=kernel_image()[:keep])
        )
