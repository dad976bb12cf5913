from __future__ import annotations

import ctypes
import platform
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.compiler.linker import link_shared
from tilewright.formats.elf import ElfImage, parse_image

Compile = Callable[..., bytes]

native = pytest.mark.skipif(
    platform.machine() != "x86_64" or sys.platform != "linux",
    reason="runs x86-64 code through the system's own loader",
)

CALLER = """
declare i32 @callee(i32)
@data = external global i32
@counter = hidden global i32 40
@zeros = hidden global [9000 x i8] zeroinitializer, align 64
@text = internal constant [4 x i8] c"abc\\00"
@table = internal constant [3 x ptr] [ptr @local, ptr @callee, ptr @text]
define hidden i32 @local(i32 %x) noinline { %r = mul i32 %x, 3
  ret i32 %r }
define i32 @main(i32 %index, i32 %x) {
  %slot = getelementptr [3 x ptr], ptr @table, i32 0, i32 %index
  %function = load ptr, ptr %slot
  %r = call i32 %function(i32 %x)
  ret i32 %r
}
define i32 @tail(i32 %x) { %r = tail call i32 @callee(i32 %x)
  ret i32 %r }
define i32 @count() {
  %old = load i32, ptr @counter
  %new = add i32 %old, 1
  store i32 %new, ptr @counter
  %d = load i32, ptr @data
  %p = getelementptr [9000 x i8], ptr @zeros, i32 0, i32 8999
  %z = load i8, ptr %p
  %w = zext i8 %z to i32
  %s = add i32 %new, %d
  %t = add i32 %s, %w
  ret i32 %t
}
define i1 @is_data(ptr %p) { %r = icmp eq ptr %p, @data
  ret i1 %r }
define i32 @jump(i32 %x) {
  switch i32 %x, label %z [ i32 0, label %a
    i32 1, label %b
    i32 2, label %c
    i32 3, label %d
    i32 4, label %e ]
a: %ra = call i32 @local(i32 7)
   ret i32 %ra
b: ret i32 11
c: %rc = call i32 @callee(i32 5)
   ret i32 %rc
d: ret i32 13
e: %re = sub i32 0, %x
   ret i32 %re
z: ret i32 -1
}
"""
CALLEE = """
@data = global i32 1000
define i32 @callee(i32 %x) { %r = add i32 %x, 100
  ret i32 %r }
"""
EXPORTS = ["main", "tail", "count", "is_data", "jump"]


def link(compile_ir: Compile, *texts: str, exported: list[str] | None = None) -> bytes:
    return link_shared([compile_ir(text) for text in texts], exported=exported or ["main"])


def load(image: bytes, folder: Path) -> ctypes.CDLL:
    path = folder / "image.so"
    path.write_bytes(image)
    return ctypes.CDLL(str(path))


@native
def test_code_data_and_tables_of_two_objects_find_each_other(
    compile_ir: Compile, tmp_path: Path
) -> None:
    library = load(link(compile_ir, CALLER, CALLEE, exported=EXPORTS), tmp_path)
    assert [library.main(0, 5), library.main(1, 5)] == [15, 105]
    assert library.tail(1) == 101
    assert [library.count(), library.count()] == [1041, 1042]
    library.is_data.restype = ctypes.c_bool
    assert not library.is_data(None)
    assert [library.jump(i) for i in range(6)] == [21, 11, 105, 13, -4, -1]


@native
@pytest.mark.parametrize("codemodel", ["small", "medium", "large"])
def test_every_position_independent_code_model_links(
    compile_ir: Compile, tmp_path: Path, codemodel: str
) -> None:
    objects = [compile_ir(text, codemodel=codemodel) for text in (CALLER, CALLEE)]
    library = load(link_shared(objects, exported=EXPORTS), tmp_path)
    assert [library.main(0, 5), library.main(1, 5), library.tail(1)] == [15, 105, 101]
    assert [library.count(), library.count()] == [1041, 1042]
    assert [library.jump(i) for i in range(6)] == [21, 11, 105, 13, -4, -1]


def test_the_same_objects_give_the_same_bytes(compile_ir: Compile) -> None:
    objects = [compile_ir(CALLER), compile_ir(CALLEE)]
    assert link_shared(objects, exported=EXPORTS) == link_shared(objects, exported=EXPORTS)


def test_segments_are_on_pages_of_their_own_and_never_writable_code(
    compile_ir: Compile,
) -> None:
    image = parse_image(link(compile_ir, CALLER, CALLEE, exported=EXPORTS))
    assert [segment.flags for segment in image.segments] == [4, 5, 6, 6]
    pages: set[int] = set()
    for segment in image.segments:
        last = segment.address + segment.memory_bytes - 1
        mine = set(range(segment.address // 4096, last // 4096 + 1))
        assert not mine & pages
        pages |= mine
        assert segment.offset % 4096 == segment.address % 4096


def test_pointers_are_patched_in_pages_that_become_read_only(compile_ir: Compile) -> None:
    image = parse_image(link(compile_ir, CALLER, CALLEE, exported=EXPORTS))
    assert image.relro is not None
    start, size = image.relro
    assert image.relocations
    assert all(start <= item.offset < start + size for item in image.relocations)


def test_what_nothing_exported_reaches_is_left_out(compile_ir: Compile) -> None:
    unused = '@big = global [50000 x i8] c"' + "x" * 50000 + '"'
    image = link(compile_ir, CALLER, CALLEE, unused, exported=EXPORTS)
    assert image == link(compile_ir, CALLER, CALLEE, exported=EXPORTS)


def test_undefined_names_in_unused_objects_do_not_matter(compile_ir: Compile) -> None:
    stray = (
        "declare void @nowhere()\ndefine void @stray() { call void @nowhere()\n ret void }"
    )
    assert link(compile_ir, CALLEE, stray, exported=["callee"])


def test_local_names_stay_for_disassemblers_unless_told(compile_ir: Compile) -> None:
    objects = [compile_ir(CALLER), compile_ir(CALLEE)]
    full = link_shared(objects, exported=EXPORTS)
    bare = link_shared(objects, exported=EXPORTS, symbols=False)
    assert b"\0local\0" in full
    assert b"\0local\0" not in bare
    assert list(parse_image(bare).symbols) == EXPORTS


UNDEFINED = """
declare void @memset_of_nobody()
define void @main() { call void @memset_of_nobody()
  ret void }
"""
THREAD_LOCAL = """
@t = thread_local global i32 0
define i32 @main() { %p = load i32, ptr @t
  ret i32 %p }
"""
COMMON = """
@c = common global i32 0
define ptr @main() { ret ptr @c }
"""
CONSTRUCTOR = """
%entry = type { i32, ptr, ptr }
@llvm.global_ctors = appending global [1 x %entry] [%entry { i32 1, ptr @main, ptr null }]
define void @main() { ret void }
"""
INDIRECT = """
@i = ifunc i32 (i32), ptr @resolver
define ptr @resolver() { ret ptr null }
define i32 @main() { %r = call i32 @i(i32 1)
  ret i32 %r }
"""


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (UNDEFINED, "undefined symbol 'memset_of_nobody', used by section '.text'"),
        (THREAD_LOCAL, "thread-local"),
        (COMMON, "'c' is a common block"),
        (CONSTRUCTOR, "constructors"),
        (INDIRECT, "'i' is an indirect function"),
        ("define void @other() { ret void }", "symbol 'main' is to be exported"),
    ],
)
def test_what_a_kernel_cannot_have_is_refused_by_name(
    compile_ir: Compile, text: str, complaint: str
) -> None:
    with pytest.raises(ArchiveError, match=complaint):
        link(compile_ir, text)


def test_absolute_addresses_are_refused_with_their_symbol(compile_ir: Compile) -> None:
    text = """
    @table = internal constant [2 x i32] [i32 1, i32 2]
    define i32 @main(i64 %i) { %p = getelementptr [2 x i32], ptr @table, i64 0, i64 %i
      %v = load i32, ptr %p
      ret i32 %v }
    """
    with pytest.raises(ArchiveError, match="position-independent"):
        link_shared([compile_ir(text, reloc="static")], exported=["main"])


def test_a_name_defined_twice_names_both_objects(compile_ir: Compile) -> None:
    item = compile_ir(CALLEE)
    with pytest.raises(
        ArchiveError, match=r"b\.o: symbol 'callee' is defined twice, .* 'a\.o'"
    ):
        link_shared([item, item], exported=["callee"], names=["a.o", "b.o"])


@native
def test_a_strong_definition_wins_over_weak_ones(
    compile_ir: Compile, tmp_path: Path
) -> None:
    weak = "define weak i32 @pick() { ret i32 1 }\n"
    strong = "define i32 @pick() { ret i32 2 }"
    main = "define i32 @main() { %r = call i32 @pick()\n ret i32 %r }"
    caller = "declare i32 @pick()\n" + main
    orders = ((caller, weak, strong), (caller, strong, weak), (weak + main, strong))
    for number, order in enumerate(orders):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert load(link(compile_ir, *order), folder).main() == 2


@native
def test_copies_in_section_groups_are_kept_once(
    compile_ir: Compile, tmp_path: Path
) -> None:
    shared = """
    $twice = comdat any
    define linkonce_odr i32 @twice(i32 %x) noinline comdat { %r = shl i32 %x, 1
      ret i32 %r }
    """
    first = shared + "define i32 @one() { %r = call i32 @twice(i32 21)\n ret i32 %r }"
    second = shared + "define i32 @two() { %r = call i32 @twice(i32 4)\n ret i32 %r }"
    library = load(link(compile_ir, first, second, exported=["one", "two"]), tmp_path)
    assert (library.one(), library.two()) == (42, 8)


def test_objects_for_different_machines_do_not_mix(compile_ir: Compile) -> None:
    text = "define void @main() { ret void }"
    arm = compile_ir(text, triple="aarch64-unknown-linux-gnu")
    with pytest.raises(ArchiveError, match="object is for 'aarch64', expected 'x86_64'"):
        link_shared([compile_ir(text), arm], exported=["main"])
    with pytest.raises(ArchiveError, match="expected 'x86_64'"):
        link_shared([arm], exported=["main"], machine="x86_64")
    with pytest.raises(ArchiveError, match="unknown machine 'vax'"):
        link_shared([arm], exported=["main"], machine="vax")
    with pytest.raises(ArchiveError, match="at least one"):
        link_shared([])


# --- other machines ----------------------------------------------------------------------------

FOREIGN = {
    "aarch64": ("aarch64-unknown-linux-gnu", "small", ""),
    "riscv64": ("riscv64-unknown-linux-gnu", "medium", "+m,+a,+f,+d,+c"),
}


def link_foreign(compile_ir: Compile, machine: str) -> ElfImage:
    triple, codemodel, features = FOREIGN[machine]
    objects = [
        compile_ir(text, triple=triple, codemodel=codemodel, features=features)
        for text in (CALLER, CALLEE)
    ]
    return parse_image(link_shared(objects, exported=EXPORTS, machine=machine))


@pytest.mark.parametrize("machine", FOREIGN)
def test_other_machines_link_to_the_same_shape(compile_ir: Compile, machine: str) -> None:
    image = link_foreign(compile_ir, machine)
    assert image.machine == machine
    assert list(image.symbols) == EXPORTS
    assert [segment.flags for segment in image.segments] == [4, 5, 6, 6]


def test_an_arm_call_reaches_its_target(compile_ir: Compile) -> None:
    image = link_foreign(compile_ir, "aarch64")
    code = next(segment for segment in image.segments if segment.executable)
    place = image.symbols["tail"]
    (word,) = struct.unpack_from("<I", image.contents(code), place - code.address)
    assert word >> 26 == 0b000101  # b
    distance = (word & 0x3FF_FFFF) - ((word & 0x200_0000) << 1)
    target = place + 4 * distance
    (add,) = struct.unpack_from("<I", image.contents(code), target - code.address)
    assert add == 0x11019000  # add w0, w0, #100


@pytest.mark.parametrize("machine", FOREIGN)
def test_code_of_other_machines_runs_in_an_emulator(
    compile_ir: Compile, machine: str
) -> None:
    unicorn = pytest.importorskip(
        "unicorn", reason="the emulator 'unicorn' is not installed"
    )
    from unicorn import arm64_const, riscv_const

    arm = machine == "aarch64"
    if arm:
        cpu = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        stack, first, second, link_register = (
            getattr(arm64_const, f"UC_ARM64_REG_{name}")
            for name in ("SP", "X0", "X1", "X30")
        )
    else:
        cpu = unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV64)
        stack, first, second, link_register = (
            getattr(riscv_const, f"UC_RISCV_REG_{name}")
            for name in ("X2", "X10", "X11", "X1")
        )
    image = link_foreign(compile_ir, machine)
    base, end = 0x4000_0000, 0x1000_0000
    cpu.mem_map(base, 0x10_0000)
    cpu.mem_map(end, 0x10_0000)
    for segment in image.segments:
        cpu.mem_write(base + segment.address, bytes(image.contents(segment)))
    for patch in image.patches(base):
        cpu.mem_write(patch.address, struct.pack("<Q", patch.value))

    def call(name: str, a: int = 0, b: int = 0) -> int:
        cpu.reg_write(stack, end + 0x8_0000)
        cpu.reg_write(first, a)
        cpu.reg_write(second, b)
        cpu.reg_write(link_register, end)
        cpu.emu_start(base + image.symbols[name], end, timeout=5_000_000)
        return ctypes.c_int32(cpu.reg_read(first)).value

    assert [call("main", 0, 5), call("main", 1, 5), call("tail", 1)] == [15, 105, 101]
    assert [call("count"), call("count")] == [1041, 1042]
    assert [call("jump", i) for i in range(6)] == [21, 11, 105, 13, -4, -1]
