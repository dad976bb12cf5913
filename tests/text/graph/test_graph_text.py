"""Runs every case of the `.twir` files beside this file.

A file is a list of cases, each:

    // CASE: what it shows
    // PASSES: simplify fold-constants(limit_bytes=4096)
    graph @before … { … }
    // BECOMES
    graph @after … { … }

`standard` stands for all standard passes.  Results are compared by structure (names do not
count), and both graphs are run on random inputs.  `TILEWRIGHT_UPDATE_TEXT=1 pytest tests/text`
writes what comes out into the files.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes.graphs import EVERYTHING_HELD, assert_same_results, copy_of, parse
from fakes.standard_passes import standard_passes
from tilewright.compiler.graph.compare import difference
from tilewright.compiler.graph.text import resources, to_text
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.ops import catalogue
from tilewright.compiler.passes import run_passes
from tilewright.compiler.readers.graph_text import parse_graph

UPDATE = bool(os.environ.get("TILEWRIGHT_UPDATE_TEXT"))
STANDARD = standard_passes(
    choose_panel=lambda rows, columns, depth, dtype: 8,
    choose_tile=lambda *_: 0,
)
BY_NAME = {graph_pass.name: graph_pass for graph_pass in STANDARD}


@dataclass
class Case:
    file: Path
    name: str
    passes: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file.stem}: {self.name}"


def read_cases(file: Path) -> list[Case]:
    found = []
    for part in re.split(r"^// CASE: ", file.read_text(), flags=re.MULTILINE)[1:]:
        name, rest = part.split("\n", 1)
        header, before, after = re.fullmatch(
            r"// PASSES: ([^\n]*)\n(.*?)// BECOMES\n(.*)", rest, re.DOTALL
        ).groups()
        found.append(Case(file, name.strip(), header.strip(), before, after))
    return found


CASES = [
    case
    for file in sorted(Path(__file__).parent.glob("*.twir"))
    for case in read_cases(file)
]


def passes_of(text: str) -> list:
    if text == "standard":
        return list(STANDARD)
    found = []
    for name, options in re.findall(r"([a-z-]+)(?:\(([^)]*)\))?", text):
        pairs = [o.split("=") for o in options.split(",") if o]
        found.append(BY_NAME[name].configured({k.strip(): v.strip() for k, v in pairs}))
    return found


def written_back(case: Case, result: str) -> None:
    text = case.file.read_text()
    head = f"// CASE: {case.name}\n"
    start = text.index("// BECOMES\n", text.index(head)) + len("// BECOMES\n")
    end = text.find("// CASE: ", start)
    tail = "" if end < 0 else "\n" + text[end:]
    case.file.write_text(text[:start] + result + tail)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_passes_turn_the_one_text_into_the_other(case: Case) -> None:
    graph = parse(case.before)
    before = copy_of(graph)
    run_passes(graph, passes_of(case.passes), held=EVERYTHING_HELD)
    verify(graph)
    result = to_text(graph)
    if UPDATE:
        written_back(case, result)
        return
    # A resource is named by its content, so one that is not there is a difference too.
    expected = parse_graph(case.after, catalogue.schema, resources=resources(graph))
    found = difference(graph, expected)
    assert found is None, f"{found}\n{result}"
    assert_same_results(before, graph)


def test_there_are_cases() -> None:
    assert len(CASES) >= 5
    assert len({str(c) for c in CASES}) == len(CASES)
