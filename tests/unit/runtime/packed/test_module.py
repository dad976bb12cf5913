"""The module tree: functions by name, imports, what a kind can do, and how a module crosses the border."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import InputError
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.packed.functions import packed_function
from tilewright.runtime.packed.module import Module, ModuleProperties


class Notes(Module):
    """A kind that is text: saved and shown, not run."""

    kind = "notes"
    properties = ModuleProperties.BINARY_SERIALIZABLE

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def save_to_bytes(self) -> bytes:
        return self.text.encode()

    def inspect_source(self, fmt: str = "") -> str:
        return self.text


def table(**functions: object) -> FunctionTable:
    return FunctionTable(functions)


def test_a_function_is_found_by_name_item_and_attribute() -> None:
    module = table(add=lambda a, b: a + b)
    assert module["add"](1, 2) == 3
    assert module.add(1, 2) == 3
    found = module.get_function("add")
    assert found is not None
    assert found(1, 2) == 3
    assert module.implements_function("add")
    assert not module.implements_function("sub")


def test_the_entry_function_is_what_a_module_called_runs() -> None:
    assert table(main=lambda x: -x)(5) == -5


def test_imports_are_asked_depth_first_and_only_on_request() -> None:
    root, left, right, deep = table(), table(), table(f=lambda: "right"), None
    deep = table(f=lambda: "deep")
    left.import_module(deep)
    root.import_module(left)
    root.import_module(right)
    assert root.get_function("f") is None
    found = root.get_function("f", query_imports=True)
    assert found is not None
    assert found() == "deep"
    assert root.implements_function("f", query_imports=True)
    assert list(root.walk()) == [root, left, deep, right]
    root.clear_imports()
    assert root.imports == ()


def test_a_module_imported_twice_is_walked_once() -> None:
    root, left, right, shared = (table() for _ in range(4))
    for parent in (left, right):
        parent.import_module(shared)
        root.import_module(parent)
    assert list(root.walk()) == [root, left, shared, right]


def test_a_circle_of_imports_is_refused() -> None:
    first, second, third = table(), table(), table()
    first.import_module(second)
    second.import_module(third)
    with pytest.raises(
        InputError, match="cannot import one of kind 'functions', which imp"
    ):
        third.import_module(first)
    with pytest.raises(InputError, match="which imports it"):
        first.import_module(first)


def test_an_unknown_function_is_refused_with_those_there_are() -> None:
    module = table(matmul=lambda: 0, relu=lambda: 0)
    with pytest.raises(InputError, match=r"no function 'matmull'") as caught:
        module["matmull"]
    assert "did you mean 'matmul'?" in str(caught.value)
    assert "it has matmul, relu" in str(caught.value)
    with pytest.raises(AttributeError, match="relo"):
        _ = module.relo
    with pytest.raises(InputError, match="it lists no functions"):
        Module()["f"]


def test_the_message_tells_of_an_import_that_has_the_function() -> None:
    module = table()
    module.import_module(table(f=lambda: 0))
    with pytest.raises(InputError, match=r"query_imports=True"):
        module["f"]


def test_the_mask_says_what_a_kind_can_do() -> None:
    notes, functions = Notes("a"), table()
    assert (notes.get_property_mask(), functions.get_property_mask()) == (1, 2)
    assert notes.is_binary_serializable()
    assert not notes.is_runnable()
    assert not notes.is_compilation_exportable()
    assert notes.is_dso_exportable is False
    assert functions.is_runnable()


def test_what_a_kind_does_not_have_is_refused_by_name(tmp_path) -> None:
    module = table()
    with pytest.raises(InputError, match="kind 'functions' cannot be saved as bytes"):
        module.save_to_bytes()
    with pytest.raises(InputError, match="kind 'functions' cannot be written for a linker"):
        module.write_to_file(tmp_path / "x.o")
    assert module.get_write_formats() == ()
    assert module.inspect_source() == ""


@pytest.mark.parametrize("wrap", [lambda m: m, lambda m: [m], lambda m: {"k": m}])
def test_a_module_crosses_the_border_as_itself(wrap) -> None:
    module = table(f=lambda: 1)
    seen = []

    def look(value: object) -> object:
        seen.append(value)
        return value

    result = packed_function(look)(wrap(module))
    for value in (seen[0], result):
        if isinstance(value, tvm_ffi.Array):
            (value,) = value
        if isinstance(value, tvm_ffi.Map):
            value = value["k"]
        assert value is module


def test_a_packed_function_can_give_a_module() -> None:
    module = table(f=lambda: 1)
    factory = table(default=lambda device: module)
    assert factory["default"](tw.cpu(0)) is module


def test_a_module_that_nobody_holds_is_freed() -> None:
    inner, outer = table(f=lambda: np.zeros(3)), table()
    outer.import_module(inner)
    packed_function(lambda m: m)(outer)
    ends = weakref.ref(inner), weakref.ref(outer)
    del inner, outer
    gc.collect()
    assert [end() for end in ends] == [None, None]


def test_only_modules_are_imported() -> None:
    with pytest.raises(InputError, match="'int' is no module"):
        table().import_module(3)


def test_functions_are_timed() -> None:
    calls: list[int] = []
    evaluator = table(f=calls.append).time_evaluator("f", number=2, repeat=3)
    assert len(evaluator(7).results) == 3
    assert calls == [7] * (1 + 2 * 3)
    with pytest.raises(InputError, match="has no function 'g'"):
        table().time_evaluator("g", tw.cpu(0))
