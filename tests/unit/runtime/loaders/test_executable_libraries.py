"""The same library as a system library, an embedded image and a static library: what each loader
accepts, what it refuses, and what kernels find in their environment."""

from __future__ import annotations

import ctypes
import gc
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import (
    ArchiveError,
    DeviceError,
    InputError,
    TargetError,
    UserError,
)
from tilewright.base.host import describe
from tilewright.formats.elf import (
    is_fat,
    join_images,
    machines_of,
    parse_image,
    select_image,
)
from tilewright.formats.elf.dynamic import DYNAMIC
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.buffer import BufferUsage, MemoryType
from tilewright.runtime.hal.command_buffer import BufferRef
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.executable import Executable, ExecutableParams
from tilewright.runtime.loaders import imports
from tilewright.runtime.loaders.local import create_local_loaders
from tilewright.runtime.loaders.static_library_loader import (
    register_static_library,
    unregister_static_library,
)
from tilewright.runtime.loaders.system_library_loader import load_system_library

ARCH = describe().arch
SYSTEM, EMBEDDED = f"system-elf-{ARCH}", f"embedded-elf-{ARCH}"
ARCHIVES = Path(__file__).resolve().parents[3] / "golden" / "archives"
TYPE, USAGE = int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT)


@pytest.fixture(params=["local-sync", "local-task"])
def device(request: pytest.FixtureRequest) -> Device:
    return registry.create_device(request.param)


@pytest.fixture
def providers() -> Iterator[list[imports.ImportProvider]]:
    """Providers that are registered for one test."""
    mine: list[imports.ImportProvider] = []
    yield mine
    for provider in mine:
        imports.unregister_import_provider(provider)


def prepare(
    device: Device, form: str, data: bytes, constants: Sequence[int] = ()
) -> Executable:
    loaders = device.executable_loaders
    params = ExecutableParams(format=form, data=data, constants=constants)
    return loaders.prepare_executable(params)


def dispatch(
    device: Device, executable: Executable, name: str, arrays: Sequence[np.ndarray],
    grid: int = 1, constants: Sequence[int] = (),
) -> list[np.ndarray]:  # fmt: skip
    """Run a kernel on copies of the arrays; what they are afterwards."""
    buffers = []
    for array in arrays:
        buffer = device.allocator.allocate(TYPE, USAGE, array.nbytes)
        buffer.write(array.tobytes())
        buffers.append(buffer)
    refs = [BufferRef(b, 0, a.nbytes) for b, a in zip(buffers, arrays, strict=True)]
    ordinal = executable.lookup_function_by_name(name)
    device.queue_dispatch(None, None, executable, ordinal, (grid, 1, 1), constants, refs)
    return [
        np.frombuffer(bytes(b.read()), a.dtype)
        for b, a in zip(buffers, arrays, strict=True)
    ]


X = np.arange(7, dtype=np.int32)
Y = np.full(7, -1, np.int32)


@pytest.mark.parametrize("form", [SYSTEM, EMBEDDED])
def test_kernels_run_from_either_form(device: Device, form: str, build) -> None:  # type: ignore[no-untyped-def]
    data = build("library.c", freestanding=form == EMBEDDED)
    executable = prepare(device, form, data)
    assert [f.name for f in executable.functions] == ["apply", "ready"]
    _, y = dispatch(device, executable, "apply", [X, Y], 7, [5])
    np.testing.assert_array_equal(y, 5 * X)


@pytest.mark.parametrize("form", [SYSTEM, EMBEDDED])
def test_initializers_run_once_before_the_first_kernel(
    device: Device, form: str, build
) -> None:  # type: ignore[no-untyped-def]
    data = build(
        "library.c", "-DINITIALIZERS", "-DCONSTANTS=1", freestanding=form == EMBEDDED
    )
    executable = prepare(device, form, data, [42])
    for _ in range(2):
        (y,) = dispatch(device, executable, "ready", [Y[:2]])
        assert y.tolist() == [11, 42]


@pytest.mark.parametrize("form", [SYSTEM, EMBEDDED])
def test_constants_are_counted(device: Device, form: str, build) -> None:  # type: ignore[no-untyped-def]
    data = build("library.c", "-DCONSTANTS=2", freestanding=form == EMBEDDED)
    with pytest.raises(ArchiveError, match="got 1 specialisation constants, expected 2"):
        prepare(device, form, data, [1])


@pytest.mark.thinned(3)
@pytest.mark.parametrize("form", [SYSTEM, EMBEDDED])
def test_other_versions_and_sanitizers_are_refused(
    device: Device, form: str, build
) -> None:  # type: ignore[no-untyped-def]
    free = form == EMBEDDED
    with pytest.raises(ArchiveError, match=r"has version 7 .* knows 4 to 6"):
        prepare(device, form, build("library.c", "-DVERSION=7", freestanding=free))
    with pytest.raises(
        ArchiveError, match="the address sanitizer, which is not in this process"
    ):
        prepare(device, form, build("library.c", "-DSANITIZER=1", freestanding=free))
    # The undefined behaviour sanitizer needs nothing of the process.
    prepare(device, form, build("library.c", "-DSANITIZER=4", freestanding=free))


def test_broken_system_libraries_are_refused(device: Device, build) -> None:  # type: ignore[no-untyped-def]
    data = build("library.c")
    for broken in (b"", b"\x7fELF", data[:100], data[: len(data) // 3], b"text" * 100):
        with pytest.raises(ArchiveError):
            prepare(device, SYSTEM, broken)
    with pytest.raises(ArchiveError, match="iree_hal_executable_library_query"):
        prepare(device, SYSTEM, build("plugin.c"))


def test_a_system_library_stays_open_as_long_as_it_is_used(build) -> None:  # type: ignore[no-untyped-def]
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("tilewright-executable")

    if not Path("/proc/self/maps").exists():
        pytest.skip("no /proc")
    before = mapped()
    loaded = load_system_library(build("library.c"))
    exports = loaded.exports
    assert mapped() > before
    del loaded
    gc.collect()
    assert mapped() == before
    assert exports["apply"].function  # plain numbers outlive the code


# --- functions of the host


TWIST = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int32), ctypes.c_void_p, ctypes.c_void_p)  # fmt: skip


@pytest.mark.parametrize("form", [SYSTEM, EMBEDDED])
def test_kernels_call_functions_of_the_host(
    device: Device, form: str, build, providers
) -> None:  # type: ignore[no-untyped-def]
    @TWIST
    def twist(pair, context, reserved) -> int:  # type: ignore[no-untyped-def]
        pair[1] = pair[0] + 100 + (context or 0)
        return 0

    address = ctypes.cast(twist, ctypes.c_void_p).value
    providers.append(imports.FunctionTable({"twist": (address, 7), "other": twist}))
    imports.register_import_provider(providers[0])
    executable = prepare(
        device, form, build("library.c", "-DIMPORTS", freestanding=form == EMBEDDED)
    )
    _, y = dispatch(device, executable, "apply", [X, Y], 7, [0])
    np.testing.assert_array_equal(y, X + 107)


def test_a_plugin_provides_functions(
    device: Device, build, providers, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "plugin.so"
    path.write_bytes(build("plugin.c"))
    plugin = imports.Plugin(path, {"factor": "4"})
    assert plugin.name == "twister"
    providers.append(plugin)
    imports.register_import_provider(plugin)
    executable = prepare(device, SYSTEM, build("library.c", "-DIMPORTS"))
    _, y = dispatch(device, executable, "apply", [X, Y], 7, [0])
    np.testing.assert_array_equal(y, 4 * X)
    with pytest.raises(
        DeviceError, match="13"
    ):  # what the import returned fails the kernel
        dispatch(device, executable, "apply", [-X, Y], 7, [0])


def test_plugins_that_do_not_fit_are_refused(build, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "plugin.so"
    path.write_bytes(build("plugin.c", "-DPLUGIN_VERSION=2"))
    with pytest.raises(ArchiveError, match="needs a version of the interface above 1"):
        imports.Plugin(path)
    other = tmp_path / "other.so"
    other.write_bytes(build("library.c"))
    with pytest.raises(InputError, match=r"other\.so"):
        imports.Plugin(other)
    with pytest.raises(InputError, match="nowhere"):
        imports.Plugin(tmp_path / "nowhere.so")
    good = tmp_path / "good.so"
    good.write_bytes(build("plugin.c"))
    with pytest.raises(ArchiveError, match="INVALID_ARGUMENT"):
        imports.Plugin(good, {"speed": "11"})
    imports.Plugin(good).close()


def test_imports_that_nobody_provides_are_named(device: Device, build, providers) -> None:  # type: ignore[no-untyped-def]
    data = build("library.c", "-DIMPORTS")
    with pytest.raises(ArchiveError, match="imports 'twist', which nobody provides"):
        prepare(device, SYSTEM, data)
    providers.append(imports.FunctionTable({"twist2": 4096}))
    imports.register_import_provider(providers[0])
    with pytest.raises(ArchiveError, match="did you mean 'twist2'"):
        prepare(device, SYSTEM, data)
    with pytest.raises(UserError, match="expected a ctypes function"):
        imports.FunctionTable({"f": object()})


# --- static libraries


def test_registered_libraries_are_found_by_name(
    device: Device, build, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "static.so"
    path.write_bytes(build("library.c", '-DNAME="linked in"'))
    library = ctypes.CDLL(str(path))
    query = library.iree_hal_executable_library_query
    with pytest.raises(ArchiveError, match="no static library 'linked in'"):
        prepare(device, "static", b"linked in")
    assert register_static_library(query, library) == "linked in"
    try:
        with pytest.raises(UserError, match="registered already"):
            register_static_library(query)
        assert device.executable_loaders.infer_format(b"linked in") == "static"
        executable = prepare(device, "static", b"linked in")
        _, y = dispatch(device, executable, "apply", [X, Y], 7, [3])
        np.testing.assert_array_equal(y, 3 * X)
        with pytest.raises(ArchiveError, match="did you mean 'linked in'"):
            prepare(device, "static", b"linked on")
    finally:
        unregister_static_library("linked in")
    with pytest.raises(UserError, match="no static library"):
        unregister_static_library("linked in")


# --- FatELF


@pytest.mark.skipif(ARCH != "x86_64", reason="the images hold x86-64 code")
def test_the_image_of_this_machine_is_taken(device: Device, build) -> None:  # type: ignore[no-untyped-def]
    mine = build("library.c", freestanding=True)
    other = (ARCHIVES / "iree-3.13.0-scale_aarch64.so").read_bytes()
    fat = join_images([other, mine])
    assert is_fat(fat)
    assert not is_fat(mine)
    assert machines_of(fat) == ("aarch64", "x86_64")
    assert select_image(fat, "x86_64") == mine
    assert bytes(select_image(fat, "aarch64")) == other
    assert select_image(mine, "x86_64") == mine
    loaders = device.executable_loaders
    assert loaders.infer_format(fat) == EMBEDDED
    executable = prepare(device, EMBEDDED, fat)
    _, y = dispatch(device, executable, "apply", [X, Y], 7, [2])
    np.testing.assert_array_equal(y, 2 * X)
    with pytest.raises(TargetError, match="no image for 'x86_64'; the file has aarch64"):
        prepare(device, EMBEDDED, join_images([other]))


def test_broken_fat_files_are_refused(build) -> None:  # type: ignore[no-untyped-def]
    mine = build("library.c", freestanding=True)
    fat = join_images([mine])
    with pytest.raises(ArchiveError, match="two images for one machine"):
        join_images([mine, mine])
    with pytest.raises(ArchiveError, match="FatELF version 9"):
        select_image(fat[:4] + b"\x09\0" + fat[6:], ARCH)
    for keep in (5, 8, 20, 40, 5000):
        with pytest.raises(ArchiveError):
            select_image(fat[:keep], ARCH)
    assert machines_of(join_images([])) == ()


# --- what is guessed


def test_formats_are_told_apart(build) -> None:  # type: ignore[no-untyped-def]
    formats = {EMBEDDED, SYSTEM, "static", "vmvx-bytecode-fb"}
    loaders = create_local_loaders()
    for form in formats:
        assert sum(loader.query_support(form) for loader in loaders) == 1
    assert parse_image(build("library.c", freestanding=True)).machine == ARCH


# --- what is called must be code


def table_pointer(data: bytes, addend: int) -> int:
    """Where the image has the relocation that stores the address `addend`."""
    parsed = parse_image(data)
    for place in range(0, len(data) - 24, 8):
        offset, info, value = struct.unpack_from("<QQq", data, place)
        if value == addend and info == DYNAMIC[parsed.machine].relative and offset:
            return place
    raise AssertionError(hex(addend))


def patched(data: bytes, place: int, value: int) -> bytes:
    copy = bytearray(data)
    struct.pack_into("<Q", copy, place, value)
    return bytes(copy)


SEPARATE = "-Wl,-z,separate-code"


@pytest.mark.parametrize("is_fat_file", [False, True])
def test_exports_of_an_image_that_point_to_data_are_refused(
    device: Device, build, is_fat_file: bool
) -> None:  # type: ignore[no-untyped-def]
    data = build("library.c", SEPARATE, freestanding=True)
    parsed = parse_image(data)
    code = next(s for s in parsed.segments if s.executable)
    targets = {
        item.addend: item
        for item in parsed.relocations
        if code.address <= item.addend < code.address + code.memory_bytes
    }
    assert len(targets) == 2
    rodata = next(s for s in parsed.segments if not s.executable)
    broken = patched(data, table_pointer(data, min(targets)) + 16, rodata.address)
    broken = join_images([broken]) if is_fat_file else broken
    with pytest.raises(ArchiveError, match="points to data, expected code"):
        prepare(device, EMBEDDED, broken)


def test_initializers_of_an_image_that_point_to_data_are_refused(
    device: Device, build
) -> None:  # type: ignore[no-untyped-def]
    data = build("library.c", SEPARATE, "-DINITIALIZERS", freestanding=True)
    parsed = parse_image(data)
    table, length = parsed.init_array
    assert length == 16
    pointers = [i.addend for i in parsed.relocations if table <= i.offset < table + length]
    rodata = next(s for s in parsed.segments if not s.executable)
    # The second: nothing runs before all of them are checked.
    broken = patched(data, table_pointer(data, pointers[1]) + 16, rodata.address)
    with pytest.raises(ArchiveError, match="an initializer points to data, expected code"):
        prepare(device, EMBEDDED, broken)


def test_a_query_function_that_is_data_is_refused(device: Device, build) -> None:  # type: ignore[no-untyped-def]
    image = build("library.c", "-DQUERY_IS_DATA", SEPARATE, freestanding=True)
    library = build("library.c", "-DQUERY_IS_DATA")
    for form, data in ((EMBEDDED, image), (SYSTEM, library)):
        with pytest.raises(ArchiveError, match="points to data, expected code"):
            prepare(device, form, data)
    text = ctypes.create_string_buffer(64)
    with pytest.raises(ArchiveError, match="the query function points to data"):
        register_static_library(ctypes.addressof(text), text)


def test_exports_of_libraries_in_the_process_that_are_data_are_refused(
    device: Device, build, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    data = build("library.c", "-DEXPORT_IS_DATA", '-DNAME="not code"')
    with pytest.raises(ArchiveError, match="export 'apply' points to data, expected code"):
        prepare(device, SYSTEM, data)
    path = tmp_path / "data.so"
    path.write_bytes(data)
    library = ctypes.CDLL(str(path))
    with pytest.raises(ArchiveError, match="export 'apply' points to data, expected code"):
        register_static_library(library.iree_hal_executable_library_query, library)
