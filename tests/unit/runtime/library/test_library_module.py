"""Libraries with modules inside: who makes them, who imports whom, and calls across the border."""

from __future__ import annotations

import concurrent.futures
import gc
import traceback
import weakref
from collections.abc import Hashable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fakes.ffi_library import make_library
from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.formats.library_blob import LibraryBlob, SavedModule
from tilewright.runtime import FunctionTable, Module, load_module, register_module_kind
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import (
    get_global_func,
    packed_function,
    register_global_func,
    remove_global_func,
)
from tilewright.runtime.packed.genuine import GenuineModule
from tilewright.runtime.packed.module_kinds import remove_module_kind

LIBRARY = SavedModule("_lib")


class Greeter(FunctionTable):
    """A user's kind: its bytes are a word."""

    kind = "test.greeter"

    def __init__(self, word: str) -> None:
        super().__init__({"imported": lambda name: f"{word} {name}", "word": lambda: word})
        self.word = word


def load_greeter(data: bytes) -> Greeter:
    if data == b"damaged":
        raise ArchiveError("not a word", location="greeter")
    return Greeter(data.decode())


@pytest.fixture
def greeter() -> Iterator[None]:
    register_module_kind("test.greeter", load_greeter)
    yield
    remove_module_kind("test.greeter")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Module:
    return load_module(make_library(tmp_path_factory.mktemp("plain")))


def word(text: str) -> SavedModule:
    return SavedModule("test.greeter", text.encode())


def test_compiled_code_finds_functions_of_the_python_modules_it_imports(
    tmp_path: Path, greeter: None
) -> None:
    blob = LibraryBlob((LIBRARY, word("hello")), ((1,), ()))
    module = load_module(make_library(tmp_path, blob))
    (imported,) = module.imports
    assert isinstance(imported, Greeter)
    assert module["call_import"]("you") == "hello you"
    found = module.get_function("word", query_imports=True)
    assert found is not None
    assert found() == "hello"


def test_two_libraries_have_their_own_imports(tmp_path: Path, greeter: None) -> None:
    modules = []
    for text in ("one", "two"):
        (tmp_path / text).mkdir()
        blob = LibraryBlob((LIBRARY, word(text)), ((1,), ()))
        modules.append(load_module(make_library(tmp_path / text, blob)))
    assert [module["call_import"]("x") for module in modules] == ["one x", "two x"]


def test_functions_are_found_below_imports_of_imports(
    tmp_path: Path, greeter: None
) -> None:
    class Silent(Module):
        kind = "test.silent"

    register_module_kind("test.silent", lambda data: Silent())
    try:
        silent = SavedModule("test.silent", b"-")
        blob = LibraryBlob((LIBRARY, silent, word("deep")), ((1,), (2,), ()))
        module = load_module(make_library(tmp_path, blob))
        assert module["call_import"]("x") == "deep x"
        assert [one.kind for one in module.walk()] == [
            "library",
            "test.silent",
            "test.greeter",
        ]
    finally:
        remove_module_kind("test.silent")


def test_a_tree_of_many_ways_is_put_together_in_time(
    tmp_path: Path, greeter: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred modules import one that imports two hundred others."""
    count, looks = 200, 0
    identity = Module.identity

    def counted(module: Module) -> Hashable:
        nonlocal looks
        looks += 1
        return identity(module)

    monkeypatch.setattr(Module, "identity", counted)
    first = tuple(range(2, 2 + count))
    others = tuple(range(2 + count, 2 + 2 * count))
    rows = ((1, *first), others, *((1,) for _ in first), *(() for _ in others))
    modules = (LIBRARY, *(word(str(i)) for i in range(len(rows) - 1)))
    root = load_module(make_library(tmp_path, LibraryBlob(modules, rows)))
    assert looks < 20 * len(rows)
    assert len(list(root.walk())) == len(rows)
    assert [len(one.imports) for one in root.imports] == [count, *(1 for _ in first)]


def test_the_root_is_the_first_module_and_holds_the_library(
    tmp_path: Path, greeter: None
) -> None:
    blob = LibraryBlob((word("root"), LIBRARY, word("leaf")), ((1, 2), (2,), ()))
    root = load_module(make_library(tmp_path, blob))
    assert isinstance(root, Greeter)
    assert root.word == "root"
    library, leaf = root.imports
    assert library.kind == "library"
    assert library["add"](1, 2) == 3
    assert library.imports == (leaf,)
    assert library["call_import"]("x") == "leaf x"


def test_an_import_that_nobody_has_is_looked_for_among_the_global_functions(
    tmp_path: Path,
) -> None:
    module = load_module(make_library(tmp_path))
    with pytest.raises(RuntimeError, match="Cannot find function imported"):
        module["call_import"](1)
    register_global_func("imported", lambda x: x + 1)
    try:
        assert module["call_import"](1) == 2
    finally:
        remove_global_func("imported")


def test_a_module_can_be_imported_into_a_library_later(tmp_path: Path) -> None:
    module = load_module(make_library(tmp_path))
    table = FunctionTable({"imported": lambda x: -x})
    module.import_module(table)
    assert module.imports == (table,)
    assert module["call_import"](7) == -7


def test_a_loader_that_fails_says_so_and_leaves_nothing_behind(
    tmp_path: Path, greeter: None
) -> None:
    blob = LibraryBlob((LIBRARY, word("fine"), word("damaged")), ((1, 2), (), ()))
    with pytest.raises(ArchiveError, match="not a word"):
        load_module(make_library(tmp_path, blob))
    name = "ffi.Module.load_from_bytes.test.greeter"
    assert get_global_func(name, allow_missing=True) is None


def test_a_loader_of_tvm_ffis_registry_counts(tmp_path: Path) -> None:
    made = GenuineModule(tvm_ffi.system_lib("tilewright.test.nothing."))
    name = "ffi.Module.load_from_bytes.test.theirs"
    register_global_func(name, lambda data: made)
    try:
        blob = LibraryBlob((LIBRARY, SavedModule("test.theirs", b"1")), ((1,), ()))
        (imported,) = load_module(make_library(tmp_path, blob)).imports
        assert imported.identity() == made.identity()
        assert get_global_func(name, allow_missing=True) is not None
    finally:
        remove_global_func(name)


def test_a_kind_is_registered_once(greeter: None) -> None:
    with pytest.raises(InputError, match="have a loader already"):
        register_module_kind("test.greeter", load_greeter)
    register_module_kind("test.greeter", load_greeter, override=True)
    with pytest.raises(InputError, match="is no name for a kind"):
        register_module_kind("_lib", load_greeter)
    with pytest.raises(InputError, match=r"no loader for modules of kind 'test.none'"):
        remove_module_kind("test.none")


def test_a_python_root_frees_what_it_held(tmp_path: Path, greeter: None) -> None:
    blob = LibraryBlob((word("root"), LIBRARY), ((1,), ()))
    path = make_library(tmp_path, blob)
    ends = [weakref.ref(load_module(path, keep_module_alive=False)) for _ in range(3)]
    gc.collect()
    assert [end() for end in ends] == [None] * 3


# --- calls across the border --------------------------------------------------------------------


def test_compiled_code_calls_back_into_python(plain: Module) -> None:
    assert plain["call"](lambda a, b: [a, b], "x", 2.5)[1] == 2.5
    registered = register_global_func("tilewright.test.twice", lambda x: 2 * x)
    try:
        assert plain["call"](registered, 21) == 42
    finally:
        remove_global_func("tilewright.test.twice")


def test_an_error_of_a_callback_crosses_compiled_code_whole(plain: Module) -> None:
    def deepest() -> None:
        raise InputError("the deepest place", location="here")

    with pytest.raises(InputError, match="the deepest place") as caught:
        plain["call"](deepest)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "deepest" in frames


def test_an_error_of_compiled_code_has_its_kind_and_message(plain: Module) -> None:
    with pytest.raises(ValueError, match="it failed in C"):
        plain["fail"]()
    with pytest.raises(TypeError, match="add takes two numbers"):
        plain["add"](1)
    with pytest.raises(ValueError, match="it failed in C"):
        plain["call"](plain["fail"])


@pytest.mark.parametrize(
    ("value", "index"),
    [
        (None, 0), (1, 1), (True, 2), (1.5, 3), (tvm_ffi.dtype("int8"), 5),
        (tvm_ffi.device("cpu", 0), 6), (np.ones(3), 70), ([1], 71), ({"a": 1}, 72),
        (tvm_ffi.Shape((1,)), 69), (abs, 68), (FunctionTable({}), 74),
    ],
)  # fmt: skip
def test_every_kind_of_argument_arrives_as_tvm_ffis(
    plain: Module, value: object, index: int
) -> None:
    found = plain["type_of"](value)
    assert found == index or (index == 70 and found == 7)


def test_texts_and_modules_arrive_as_tvm_ffis(plain: Module) -> None:
    assert plain["type_of"]("short") in (8, 11, 65)
    assert plain["type_of"]("long " * 40) in (8, 65)
    assert plain["type_of"](b"bytes") in (9, 12, 66)
    assert plain["type_of"](plain) == 73


def test_a_library_goes_through_packed_functions_as_itself(plain: Module) -> None:
    passed = packed_function(lambda m: m)(plain)
    assert isinstance(passed, tvm_ffi.Module)
    assert passed.add(1, 2) == 3


def test_threads_call_a_library_and_its_callbacks_at_once(
    tmp_path: Path, greeter: None
) -> None:
    blob = LibraryBlob((LIBRARY, word("hi")), ((1,), ()))
    module = load_module(make_library(tmp_path, blob))
    call, add = module["call_import"], module["add"]

    def work(number: int) -> bool:
        for i in range(100):
            if call(str(i)) != f"hi {i}" or add(number, i) != number + i:
                return False
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(16)))


def test_an_unknown_function_is_refused_with_those_there_are(plain: Module) -> None:
    with pytest.raises(InputError, match="did you mean 'twice'") as caught:
        plain["twicee"]
    assert "it has add, call, call_import, fail, twice, type_of" in str(caught.value)


def test_a_library_that_is_to_be_written_says_what_it_is(
    plain: Module, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="kind 'library' is not written") as caught:
        plain.write_to_file(tmp_path / "again.o")
    assert caught.value.hint == "formats: none"


def test_a_loader_that_gives_no_module_is_named_with_kind_and_file(tmp_path: Path) -> None:
    register_module_kind("test.number", lambda data: 5)  # type: ignore[arg-type,return-value]
    try:
        path = make_library(
            tmp_path, LibraryBlob((LIBRARY, SavedModule("test.number", b"-")), ((1,), ()))
        )
        with pytest.raises(
            InputError,
            match=r"\.so: the loader of modules of kind 'test.number' gave a 'int'",
        ):
            load_module(path)
    finally:
        remove_module_kind("test.number")


def test_what_is_no_loader_is_not_registered() -> None:
    with pytest.raises(UserError, match="load_from_bytes is 3, expected a function"):
        register_module_kind("test.number", 3)  # type: ignore[arg-type]
