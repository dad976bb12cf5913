"""The façade offers exactly the names it lists, and every package lists its names."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

import tilewright
from tilewright.api.factory import Factory
from tilewright.runtime import Module

SOURCE = Path(tilewright.__file__).parent
DOCSTRING = re.compile(
    r'(?:#[^\n]*\n|\s)*r?"""\s*[^\s"]'
)  # parsing a thousand files takes seconds
PROMISED = {"compile", "load", "Model", "__version__"}


def test_the_names_of_the_issue_are_there() -> None:
    assert set(tilewright.__all__) >= PROMISED - {"__version__"}
    assert isinstance(tilewright.__version__, str)


def test_every_listed_name_resolves_and_is_documented() -> None:
    members = {name: getattr(tilewright, name) for name in tilewright.__all__}
    silent = [
        name
        for name, member in members.items()
        if not isinstance(member, str) and not (member.__doc__ or "").strip()
    ]
    assert silent == []


def test_dir_lists_the_facade() -> None:
    assert set(tilewright.__all__) <= set(dir(tilewright))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tilewright.no_such_name


def test_the_version_is_that_of_the_distribution() -> None:
    from tilewright.base.version import VERSION

    assert tilewright.__version__ == VERSION


def test_every_module_says_what_it_is() -> None:
    silent = [
        path.relative_to(SOURCE).as_posix()
        for path in sorted(SOURCE.rglob("*.py"))
        if not DOCSTRING.match(path.read_text(encoding="utf-8"))
    ]
    assert silent == [], "modules without a docstring"


@pytest.mark.parametrize("name", ["byoc", "debug_executor", "graph_executor", "transform"])
def test_modules_of_the_facade_are_imported_in_every_form(name: str) -> None:
    module = importlib.import_module(f"tilewright.{name}")
    assert getattr(tilewright, name) is module


@pytest.mark.parametrize(
    "name", ["byoc", "debug_executor", "graph_executor", "runtime", "transform"]
)
def test_modules_of_the_facade_show_their_names_and_no_others(name: str) -> None:
    module = importlib.import_module(f"tilewright.{name}")
    shown = {one for one in dir(module) if not one.startswith("__")}
    assert shown == set(module.__all__)


def test_help_says_what_a_build_and_its_export_take() -> None:
    taken = inspect.signature(tilewright.build).parameters
    assert list(taken)[:3] == ["model", "target", "params"]  # in TVM's order
    assert taken.keys() - inspect.signature(tilewright.compile).parameters == {"params"}
    assert inspect.signature(tilewright.compile).parameters.keys() <= taken.keys()
    export = inspect.signature(Factory.export_library).parameters
    assert list(export) == list(inspect.signature(Module.export_library).parameters)
