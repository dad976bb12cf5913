from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import ArchiveError
from tilewright.compiler.linker import link_shared
from tilewright.formats.executable import (
    DISPATCH_STATE,
    ENVIRONMENT,
    EXPORT_ATTRIBUTES,
    EXPORT_ATTRIBUTES_5,
    FLAG_KEEPS_DENORMALS,
    HEADER,
    LIBRARIES,
    LIBRARY,
    QUERY_FUNCTION,
    WORKGROUP_STATE,
    ExportDecl,
    Layout,
    library_tables_ir,
)

native = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux",
    reason="loads x86-64 ELF with the system's own loader",
)
KERNELS = """
define hidden i32 @first(ptr %e, ptr %d, ptr %w) nounwind "no-builtins" { ret i32 11 }
define hidden i32 @"odd name"(ptr %e, ptr %d, ptr %w) nounwind "no-builtins" { ret i32 22 }
"""


@pytest.mark.parametrize(
    ("layout", "size", "field", "offset"),
    [
        (ENVIRONMENT, 96, "processor_data", 32),
        (DISPATCH_STATE, 48, "constants", 24),
        (DISPATCH_STATE, 48, "binding_count", 23),
        (DISPATCH_STATE, 48, "binding_lengths", 40),
        (WORKGROUP_STATE, 32, "local_memory", 16),
        (HEADER, 24, "sanitizer", 20),
        (EXPORT_ATTRIBUTES, 64, "parameter_count", 22),
        (EXPORT_ATTRIBUTES_5, 72, "binding_count", 3),
        (LIBRARY, 128, "export_names", 64),
    ],
)
def test_layouts_are_those_of_the_c_header(
    layout: Layout, size: int, field: str, offset: int
) -> None:
    assert layout.size == size
    assert layout.offset(field) == offset
    assert layout.dtype.itemsize == size


def test_a_layout_packs_as_a_numpy_record() -> None:
    state = np.zeros(1, DISPATCH_STATE.dtype)
    state["workgroup_count_z"] = 7
    state["constants"] = 0x1122334455667788
    data = state.tobytes()
    assert data[20:22] == b"\x07\x00"
    assert data[24:32] == bytes.fromhex("8877665544332211")


@pytest.mark.parametrize(
    "fields",
    [
        {"constant_count": 65},
        {"binding_count": -1},
        {"local_memory_pages": 1 << 16},
        {"workgroup_size": (1, 1, 1 << 16)},
    ],
)
def test_an_export_beyond_the_limits_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(ArchiveError, match="kernel 'k'"):
        ExportDecl(name="k", **fields)


@native
def test_the_query_function_gives_the_declared_tables(
    compile_ir: Callable[..., bytes], tmp_path: Path
) -> None:
    exports = [
        ExportDecl(name="first", constant_count=3, binding_count=2, local_memory_pages=5),
        ExportDecl(name='quo"te\\', symbol="odd name", workgroup_size=(4, 5, 6), flags=1),
    ]
    tables = compile_ir(library_tables_ir("my library", exports))
    path = tmp_path / "kernels.so"
    path.write_bytes(link_shared([compile_ir(KERNELS), tables]))
    query = getattr(ctypes.CDLL(str(path)), QUERY_FUNCTION)
    query.restype = ctypes.c_void_p
    assert query(5, None) is None
    assert query(7, None) == query(6, None)
    library_layout, attribute_layout = LIBRARIES[6]
    library = read(query(6, None), library_layout.dtype, 1)[0]
    header = read(int(library["header"]), HEADER.dtype, 1)[0]
    assert header["version"] == 6
    assert ctypes.string_at(int(header["name"])) == b"my library"
    assert library["export_count"] == 2
    names = read(int(library["export_names"]), np.dtype("<u8"), 2)
    assert [ctypes.string_at(int(name)) for name in names] == [b"first", b'quo"te\\']
    attributes = read(int(library["export_attributes"]), attribute_layout.dtype, 2)
    assert attributes["constant_count"].tolist() == [3, 0]
    assert attributes["binding_count"].tolist() == [2, 0]
    assert attributes["local_memory_pages"].tolist() == [5, 0]
    assert attributes["workgroup_size_z"].tolist() == [0, 6]
    assert attributes["flags"].tolist() == [FLAG_KEEPS_DENORMALS, 1]
    functions = read(int(library["export_functions"]), np.dtype("<u8"), 2)
    kernel = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)
    assert [kernel(int(f))(None, None, None) for f in functions] == [11, 22]


def read(address: int, dtype: np.dtype[np.generic], count: int) -> np.ndarray:
    data = ctypes.string_at(address, dtype.itemsize * count)
    return np.frombuffer(data, dtype, count)


@native
@pytest.mark.parametrize(("release", "version"), [("3.0.0", 5), ("3.13.0", 6)])
def test_libraries_of_iree_read_through_the_layouts(release: str, version: int) -> None:
    path = (
        Path(__file__).resolve().parents[2]
        / f"golden/archives/iree-{release}-mlp_kernels.so"
    )
    query = getattr(ctypes.CDLL(str(path)), QUERY_FUNCTION)
    query.restype = ctypes.c_void_p
    library_layout, attribute_layout = LIBRARIES[version]
    library = read(query(version, None), library_layout.dtype, 1)[0]
    assert read(int(library["header"]), HEADER.dtype, 1)[0]["version"] == version
    count = int(library["export_count"])
    names = read(int(library["export_names"]), np.dtype("<u8"), count)
    shown = [ctypes.string_at(int(name)).decode() for name in names]
    assert all(name.startswith("mlp_dispatch_") for name in shown)
    attributes = read(int(library["export_attributes"]), attribute_layout.dtype, count)
    assert set(attributes["binding_count"].tolist()) <= {2, 3, 4}
