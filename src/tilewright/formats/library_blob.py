"""The blob of a library: modules as bytes, and who imports whom, as TVM writes and reads them.

A library that was exported from a tree of modules holds, as data under one symbol, those that no linker
takes: `read_blob` and `write_blob` are between these bytes and a `LibraryBlob`.  The kinds are text here;
who makes modules of the bytes is `runtime.library`, who puts them into a library `export` there.

Two layouts, told apart by their symbol.  Current (tvm-ffi): the import tree, then a kind and its bytes per
module.  Legacy (TVM up to 0.19): the same pairs without lengths, and the tree at the end; such bytes
end where their own reader stops, so only kinds whose shape is known here can be passed.

Source: tvm-ffi 0.1.15, `src/ffi/extra/library_module.cc`; TVM 0.19, `src/target/codegen.cc`.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, final

from tilewright.base.budget import pace
from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.record import record
from tilewright.formats.byte_cursor import ByteCursor
from tilewright.formats.byte_view import Buffer, ByteView, view_bytes

SYMBOL: Final = "__tvm_ffi__library_bin"
LEGACY_SYMBOL: Final = "__tvm_dev_mblob"
LIBRARY_ITSELF: Final = "_lib"
"""Not a kind: the place in the tree of the library that the blob is in."""
_IMPORT_TREE: Final = "_import_tree"

_LENGTH: Final = struct.Struct("<Q")
_MODULES_AT_MOST: Final = 1 << 16


@final
@record
class SavedModule:
    """A module as bytes; `data` is None for the library itself."""

    kind: str
    data: Buffer | None = None

    @property
    def is_library(self) -> bool:
        """Whether it is the place of the library."""
        return self.kind == LIBRARY_ITSELF


@final
@record
class LibraryBlob:
    """A tree of modules; the first one is the root.

    Attributes:
        modules: in the order of the file.
        imports: for each module, the places of those that it imports.
    """

    modules: tuple[SavedModule, ...]
    imports: tuple[tuple[int, ...], ...]


# --- reading ------------------------------------------------------------------------------------


def read_blob(data: Buffer, location: str = "library blob") -> LibraryBlob:
    """A blob in the current layout.

    Args:
        data: from its length on; what follows the blob is not looked at.  Not copied: the bytes of
            modules are views.
        location: how errors call it.

    Raises: ArchiveError for bytes that are none, or a tree with a circle.
    """
    cursor = _begin(data, location)
    pointers = _numbers(cursor, "row pointers of the import tree")
    children = _numbers(cursor, "children of the import tree")
    count = len(pointers) - 1
    _check_count(cursor, count)
    modules: list[SavedModule] = []
    for index in cursor.counted(count, _LENGTH.size, "list of modules"):
        pace(1)
        kind = cursor.text(f"kind of module {index}")
        if kind == LIBRARY_ITSELF:
            modules.append(SavedModule(kind))
        else:
            modules.append(SavedModule(kind, cursor.raw_text(f"module of kind '{kind}'")))
    return _finished(cursor, modules, _tree(cursor, pointers, children))


PassOver = Callable[[ByteCursor], None]


def read_legacy_blob(
    data: Buffer, shapes: Mapping[str, PassOver], location: str = "library blob"
) -> LibraryBlob:
    """A blob in the layout of TVM up to 0.19.

    Args:
        data: as for `read_blob`.
        shapes: for each kind that can be there, a function that passes its bytes.
        location: how errors call it.

    Raises: ArchiveError as `read_blob`, and for a kind of unknown shape.
    """
    cursor = _begin(data, location)
    modules: list[SavedModule] = []
    tree: tuple[tuple[int, ...], ...] | None = None
    count = cursor.u64("number of modules")
    _check_count(cursor, count)
    for index in cursor.counted(count, _LENGTH.size, "list of modules"):
        pace(1)
        if tree is not None:
            raise ArchiveError("modules behind the import tree", location=location)
        kind = cursor.text(f"kind of module {index}")
        if kind == _IMPORT_TREE:
            pointers = _numbers(cursor, "row pointers of the import tree")
            children = _numbers(cursor, "children of the import tree")
            tree = _tree(cursor, pointers, children)
        elif kind == LIBRARY_ITSELF:
            modules.append(SavedModule(kind))
        else:
            modules.append(SavedModule(kind, _pass(cursor, kind, shapes)))
    if tree is None:
        # Without a tree the library comes first, and imports all that was written.
        modules.insert(0, SavedModule(LIBRARY_ITSELF))
        tree = (tuple(range(1, len(modules))), *(() for _ in modules[1:]))
    return _finished(cursor, modules, tree)


def _pass(cursor: ByteCursor, kind: str, shapes: Mapping[str, PassOver]) -> memoryview:
    if kind not in shapes:
        raise ArchiveError(
            f"a module of kind '{kind}' in the layout of TVM up to 0.19, which does not say "
            "how long it is",
            location=cursor.view.location,
            hint="known are " + (", ".join(sorted(shapes)) or "none"),
        )
    begin = cursor.offset
    shapes[kind](cursor)
    return cursor.view.sub(begin, cursor.offset - begin, f"module of kind '{kind}'")


def _begin(data: Buffer, location: str) -> ByteCursor:
    """At the first field, in a view that ends where the blob says that it does."""
    view = ByteView(data, location)
    length = view.u64(0, "length of the blob")
    return ByteCursor(ByteView(view.sub(_LENGTH.size, length, "blob"), location))


def _numbers(cursor: ByteCursor, subject: str) -> tuple[int, ...]:
    count = len(cursor.counted(cursor.u64(f"number of {subject}"), _LENGTH.size, subject))
    at = cursor.skip(count * _LENGTH.size, subject)
    return cursor.view.unpack(struct.Struct(f"<{count}Q"), at, subject)


def _check_count(cursor: ByteCursor, count: int) -> None:
    if not 0 < count <= _MODULES_AT_MOST:
        raise ArchiveError(
            f"{max(count, 0)} modules, expected 1 to {_MODULES_AT_MOST}",
            location=cursor.view.location,
        )


def _tree(
    cursor: ByteCursor, pointers: Sequence[int], children: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """The children of each module, from the compressed rows."""
    rows = list(itertools.pairwise(pointers))
    rising = all(begin <= end for begin, end in rows)
    if not rows or pointers[0] != 0 or not rising or pointers[-1] != len(children):
        raise ArchiveError(
            f"the row pointers of the import tree do not divide {len(children)} children",
            location=cursor.view.location,
        )
    beyond = next((child for child in children if child >= len(rows)), None)
    if beyond is not None:
        raise ArchiveError(
            f"the import tree names module {beyond} of {len(rows)}",
            location=cursor.view.location,
        )
    return tuple(tuple(children[begin:end]) for begin, end in rows)


def _finished(
    cursor: ByteCursor, modules: Sequence[SavedModule], tree: tuple[tuple[int, ...], ...]
) -> LibraryBlob:
    """The blob, when it is whole: a tree of these modules, and nothing behind."""
    location = cursor.view.location
    if cursor.offset != cursor.view.size:
        raise ArchiveError(
            f"{cursor.view.size - cursor.offset} bytes behind the last module",
            location=location,
        )
    if len(tree) != len(modules):
        raise ArchiveError(
            f"an import tree of {len(tree)} modules, there are {len(modules)}",
            location=location,
        )
    if sum(module.is_library for module in modules) > 1:
        raise ArchiveError("the library is in its tree twice", location=location)
    _check_no_circle(modules, tree, location)
    return LibraryBlob(tuple(modules), tree)


def _check_no_circle(
    modules: Sequence[SavedModule], tree: Sequence[tuple[int, ...]], location: str
) -> None:
    """Refuse a module that imports itself, directly or not (takes away what imports nothing)."""
    importers: list[list[int]] = [[] for _ in tree]
    waiting_for = [len(row) for row in tree]
    for index, row in enumerate(tree):
        for child in row:
            importers[child].append(index)
    free = [index for index, count in enumerate(waiting_for) if count == 0]
    taken = 0
    while free:
        taken += 1
        for importer in importers[free.pop()]:
            waiting_for[importer] -= 1
            if waiting_for[importer] == 0:
                free.append(importer)
    if taken < len(tree):
        stuck = next(index for index, count in enumerate(waiting_for) if count)
        raise ArchiveError(
            f"module {stuck} (kind '{modules[stuck].kind}') imports itself through others",
            location=location,
        )


# --- writing ------------------------------------------------------------------------------------


def write_blob(blob: LibraryBlob) -> bytes:
    """The bytes of a tree in the current layout, their length first.  Raises: as `blob_parts`."""
    return b"".join(view_bytes(part) for part in blob_parts(blob))


def blob_parts(blob: LibraryBlob) -> Iterator[Buffer]:
    """The same piece by piece; the bytes of modules are not copied.

    Raises: UserError for a module of no bytes, where tvm-ffi 0.1.15 takes the blob for cut off.
    """
    empty = next(
        (m for m in blob.modules if m.data is not None and not len(view_bytes(m.data))),
        None,
    )
    if empty is not None:
        raise UserError(
            f"a module of kind '{empty.kind}' is saved as no bytes, which tvm-ffi cannot read",
            hint="save at least one byte",
        )
    rows = [len(row) for row in blob.imports]
    head = _vector([0, *itertools.accumulate(rows)])
    head += _vector([child for row in blob.imports for child in row])
    parts: list[Buffer] = [head]
    for module in blob.modules:
        parts.append(_text(module.kind.encode()))
        if module.data is not None:
            parts += [_LENGTH.pack(view_bytes(module.data).nbytes), module.data]
    yield _LENGTH.pack(sum(view_bytes(part).nbytes for part in parts))
    yield from parts


def _vector(numbers: Iterable[int]) -> bytes:
    items = list(numbers)
    return struct.pack(f"<Q{len(items)}Q", len(items), *items)


def _text(text: bytes) -> bytes:
    return _LENGTH.pack(len(text)) + text
