"""Which modules are linked, and the tree of the others."""

from __future__ import annotations

import pytest

from fakes.linked_modules import LinkedModule, SavedModule
from tilewright.base.errors import UserError
from tilewright.runtime.library.module_groups import group_modules
from tilewright.runtime.packed.module import Module


def tree(root: Module, *children: Module) -> Module:
    for child in children:
        root.import_module(child)
    return root


def test_a_tree_of_linked_modules_has_no_blob() -> None:
    root = tree(LinkedModule(), LinkedModule())
    groups = group_modules(root)
    assert groups.linked == (root, root.imports[0])
    assert groups.blob is None


def test_linked_modules_become_one_place_that_imports_what_they_import() -> None:
    first, second = SavedModule(b"1", "a"), SavedModule(b"2", "b")
    root = tree(LinkedModule(), tree(LinkedModule(), first), second)
    blob = group_modules(root).blob
    assert blob is not None
    assert [m.kind for m in blob.modules] == ["_lib", "a", "b"]
    assert [m.data for m in blob.modules] == [None, b"1", b"2"]
    assert blob.imports == ((2, 1), (), ()) or blob.imports == ((1, 2), (), ())


def test_a_root_that_is_saved_comes_first() -> None:
    blob = group_modules(tree(SavedModule(), LinkedModule())).blob
    assert blob is not None
    assert [m.kind for m in blob.modules] == ["fake_saved", "_lib"]
    assert blob.imports == ((1,), ())


def test_a_tree_without_linked_modules_still_has_the_place_of_the_library() -> None:
    blob = group_modules(SavedModule()).blob
    assert blob is not None
    assert [m.kind for m in blob.modules] == ["fake_saved", "_lib"]
    assert blob.imports == ((), ())


def test_a_module_that_two_import_is_saved_once() -> None:
    shared = SavedModule()
    root = tree(SavedModule(b"", "a"), tree(SavedModule(b"", "b"), shared), shared)
    blob = group_modules(root).blob
    assert blob is not None
    assert [m.kind for m in blob.modules] == ["a", "b", "fake_saved", "_lib"]
    assert blob.imports == ((1, 2), (2,), (), ())


def test_a_circle_by_way_of_the_library_is_an_error() -> None:
    root = tree(LinkedModule(), tree(SavedModule(b"", "a"), LinkedModule()))
    with pytest.raises(UserError, match=r"would import itself: .*'a'"):
        group_modules(root)


def test_a_module_that_can_neither_be_linked_nor_saved_is_an_error() -> None:
    with pytest.raises(UserError, match="of kind '' can neither be linked nor saved"):
        group_modules(tree(LinkedModule(), Module()))
