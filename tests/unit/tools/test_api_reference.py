"""The page of the Python interface has every public name, with its signature and its docstring."""

from __future__ import annotations

import dataclasses
import inspect
import re
from operator import attrgetter
from typing import NamedTuple

import api_reference
import tilewright
from gendocs import DOCS


def test_every_public_name_stands_in_one_group() -> None:
    listed = [name for names in api_reference.GROUPS.values() for name in names]
    assert len(set(listed)) == len(listed)
    heads = {name.partition(".")[0] for name in listed}  # of a module its main names
    assert heads == set(tilewright.__all__) - {"__version__"}


def test_every_member_of_the_page_says_what_it_is() -> None:
    silent: list[str] = []
    for names in api_reference.GROUPS.values():
        for name in names:
            owner = attrgetter(name)(tilewright)
            if not inspect.getdoc(owner):
                silent.append(name)
            rows = api_reference.members(owner) if isinstance(owner, type) else ()
            silent += [f"{name}.{member}" for member, value in rows if not value.__doc__]
    assert silent == []


def test_every_parameter_of_a_function_is_explained() -> None:
    found: list[str] = []
    for name in ("compile", "coverage", "load", "compare", "graph_executor.create"):
        function = attrgetter(name)(tilewright)
        text = api_reference._text(function)
        wanted = api_reference.signature_of(function).parameters
        found += [f"{name}({key})" for key in wanted if f"`{key}`" not in text]
    assert found == []


def test_sections_of_a_docstring_become_lists_and_paragraphs() -> None:
    def function() -> None:
        """Do it.  Raises: UserError.

        More words.

            shown as it is

        Args:
            first: one
                line.
            second, third: two.

        Returns: nothing
        at all.
        """

    assert api_reference._text(function) == (
        "Do it.\n\n**Raises:** UserError.\n\nMore words.\n\n```text\nshown as it is\n```\n\n"
        "- `first`: one line.\n- `second`, `third`: two.\n\n**Returns:** nothing at all."
    )


def test_signatures_are_those_of_the_source() -> None:
    def function(a: int, *, b: str = "x", **rest: object) -> None: ...

    @dataclasses.dataclass(kw_only=True)
    class Row:
        size: int
        names: list[str] = dataclasses.field(default_factory=list)

    class Pair(NamedTuple):
        left: int

    line = api_reference._line
    assert (
        line("f", api_reference.signature_of(function))
        == "f(a: int, *, b: str = 'x', **rest: object) -> None"
    )
    assert line("R", api_reference.signature_of(Row)) == (
        "R(*, size: int, names: list[str] = [])"
    )
    assert line("P", api_reference.signature_of(Pair)).startswith("P(left: ")


def test_links_within_the_page_lead_to_its_headings() -> None:
    # That it is what `page` makes now is for `test_gendocs`: making it takes seconds.
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    headings = {
        api_reference._anchor(name)
        for name in re.findall(r"^### (\S+)$", text, re.MULTILINE)
    }
    linked = set(re.findall(r"\]\(#([\w-]+)\)", text))
    assert "A kind of" in text
    assert linked <= headings, linked - headings
