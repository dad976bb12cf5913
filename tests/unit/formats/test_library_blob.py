"""The blob of a library: TVM's bytes both ways, the legacy layout from its facts, and damage."""

from __future__ import annotations

import base64
import json
import random
import struct
from pathlib import Path

import pytest

from tilewright.base.budget import Budget, Limits
from tilewright.base.errors import ArchiveError, LimitError, UserError
from tilewright.formats.byte_cursor import ByteCursor
from tilewright.formats.library_blob import (
    LibraryBlob,
    SavedModule,
    blob_parts,
    read_blob,
    read_legacy_blob,
    write_blob,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "libraries" / "tvm_0_27_blobs.json"
TVM = {
    name: entry
    for name, entry in json.loads(GOLDEN.read_text()).items()
    if name != "made by"
}
LINKED = {"llvm", "c", "static_library"}


def tvm_bytes(name: str) -> bytes:
    return base64.b64decode(TVM[name]["blob"])


def tree_of(blob: LibraryBlob, index: int = 0) -> list:
    return [
        blob.modules[index].kind,
        [tree_of(blob, child) for child in blob.imports[index]],
    ]


def merged(tree: list) -> list:
    """A tree as TVM prints it, with what is linked as one `_lib`."""
    kind, children = tree
    below: list = []
    for child in map(merged, children):
        if child != ["_lib", []] or child not in below:
            below.append(child)
    return ["_lib" if kind in LINKED else kind, below]


def test_many_modules_are_charged_to_the_time_of_a_call() -> None:
    count = 10_000
    modules = (SavedModule("k", b"x"),) * count
    data = write_blob(LibraryBlob(modules, (tuple(range(1, count)), *[()] * (count - 1))))
    assert len(read_blob(data).modules) == count
    with (
        Budget(Limits(timeout_s=0)).call(),
        pytest.raises(LimitError, match="more than 0 seconds"),
    ):
        read_blob(data)


@pytest.mark.parametrize("name", sorted(TVM))
def test_a_blob_of_tvm_is_its_tree_and_is_written_byte_for_byte(name: str) -> None:
    data = tvm_bytes(name)
    blob = read_blob(data)
    assert tree_of(blob) == merged(TVM[name]["tree"])
    assert write_blob(blob) == data


SHARED = LibraryBlob(
    (SavedModule("a", b"1"), SavedModule("_lib"), SavedModule("b", b"22"), SavedModule("c", b"xyz")),
    ((1, 2), (3,), (3,), ()),
)  # fmt: skip


def test_a_tree_with_a_shared_module_comes_back() -> None:
    data = write_blob(SHARED)
    blob = read_blob(data + b"what follows in the library")
    assert [(m.kind, None if m.data is None else bytes(m.data)) for m in blob.modules] == [
        ("a", b"1"), ("_lib", None), ("b", b"22"), ("c", b"xyz"),
    ]  # fmt: skip
    assert blob.imports == SHARED.imports
    assert b"".join(bytes(part) for part in blob_parts(SHARED)) == data


def test_the_bytes_of_a_module_are_not_copied() -> None:
    data = bytearray(write_blob(SHARED))
    blob = read_blob(data)
    data[data.index(b"xyz")] = ord("w")
    assert blob.modules[3].data is not None
    assert bytes(blob.modules[3].data) == b"wyz"


def raw(pointers: list[int], children: list[int], body: bytes) -> bytes:
    head = struct.pack(f"<Q{len(pointers)}Q", len(pointers), *pointers)
    head += struct.pack(f"<Q{len(children)}Q", len(children), *children)
    return struct.pack("<Q", len(head + body)) + head + body


def text(*parts: bytes) -> bytes:
    return b"".join(struct.pack("<Q", len(part)) + part for part in parts)


LIB = text(b"_lib")
A = text(b"a", b"")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "length of the blob"),
        (struct.pack("<Q", 1 << 63), "blob at byte 8"),
        (raw([], [], b""), "0 modules"),
        (raw([0], [], b""), "0 modules"),
        (raw([0, 0], [], b""), "list of modules of 1 items does not fit"),
        (raw([0, 1], [1], LIB), "names module 1 of 1"),
        (raw([0, 2], [0], LIB), "do not divide 1 children"),
        (raw([1, 1], [0], LIB), "do not divide 1 children"),
        (raw([0, 2, 1, 1], [1], LIB + A + A), "do not divide 1 children"),
        (raw([0, 1], [0], LIB), "module 0 .kind '_lib'. imports itself"),
        (raw([0, 1, 2], [1, 0], LIB + A), "imports itself through others"),
        (raw([0, 0, 0], [], LIB + LIB), "the library is in its tree twice"),
        (raw([0, 0], [], LIB + b"x"), "1 bytes behind the last module"),
        (raw([0, 0], [], text(b"\xff")), "kind of module 0 is not UTF-8"),
        (raw([0, 0], [], text(b"a") + struct.pack("<Q", 9)), "module of kind 'a' at byte"),
        (raw([0] * 70_000, [], LIB * 70_000), "69999 modules, expected 1 to 65536"),
    ],
)
def test_damage_is_refused_with_its_place(data: bytes, said: str) -> None:
    with pytest.raises(ArchiveError, match=said) as caught:
        read_blob(data, "net.so")
    assert str(caught.value).startswith("net.so: ")


def test_an_announced_size_makes_no_memory() -> None:
    data = struct.pack("<QQ", 16, 1 << 60) + bytes(8)
    with pytest.raises(ArchiveError, match="does not fit the file"):
        read_blob(data)


def pass_text(cursor: ByteCursor) -> None:
    cursor.raw_text("text")


def legacy(*entries: bytes) -> bytes:
    body = struct.pack("<Q", len(entries)) + b"".join(entries)
    return struct.pack("<Q", len(body)) + body


def legacy_tree(pointers: list[int], children: list[int]) -> bytes:
    return text(b"_import_tree") + raw(pointers, children, b"")[8:]


def test_a_legacy_blob_has_its_tree_at_the_end() -> None:
    data = legacy(text(b"factory", b"{}"), LIB, legacy_tree([0, 1, 1], [1]))
    blob = read_legacy_blob(data, {"factory": pass_text})
    assert tree_of(blob) == ["factory", [["_lib", []]]]
    assert blob.modules[0].data is not None
    assert bytes(blob.modules[0].data) == text(b"{}")


def test_a_legacy_blob_without_a_tree_is_what_the_library_imports() -> None:
    data = legacy(text(b"a", b"1"), text(b"a", b"22"))
    blob = read_legacy_blob(data, {"a": pass_text})
    assert tree_of(blob) == ["_lib", [["a", []], ["a", []]]]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (legacy(), "0 modules"),
        (legacy(text(b"cuda", b"")), "kind 'cuda' in the layout of TVM up to 0.19"),
        (legacy(LIB, legacy_tree([0, 0, 0], [])), "tree of 2 modules, there are 1"),
        (legacy(LIB, legacy_tree([0, 0], []), LIB), "modules behind the import tree"),
        (legacy(LIB, text(b"a") + struct.pack("<Q", 99)), "text at byte"),
    ],
)
def test_damage_of_a_legacy_blob_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        read_legacy_blob(data, {"a": pass_text})


def test_a_module_of_no_bytes_is_not_written() -> None:
    with pytest.raises(UserError, match="kind 'a' is saved as no bytes"):
        write_blob(LibraryBlob((SavedModule("a", b""),), ((),)))


def test_random_trees_come_back() -> None:
    rng = random.Random(7)
    for _ in range(100):
        count = rng.randint(1, 9)
        imports = tuple(
            tuple(rng.sample(range(i + 1, count), rng.randint(0, count - i - 1)))
            for i in range(count)
        )
        library = rng.randrange(count)
        modules = tuple(
            SavedModule("_lib")
            if i == library
            else SavedModule(f"k{i}", rng.randbytes(i + 1))
            for i in range(count)
        )
        blob = LibraryBlob(modules, imports)
        back = read_blob(write_blob(blob))
        assert back.imports == imports
        assert write_blob(back) == write_blob(blob)
