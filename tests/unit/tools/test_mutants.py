"""tools/mutants.py: which small changes are made of a source text, and where."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mutants import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[3]


def mutants(tmp_path: Path, text: str) -> list[Mutant]:
    path = tmp_path / "a.py"
    path.write_text(text)
    return mutants_of(path, tmp_path)


def changed(tmp_path: Path, text: str, operator: str) -> list[str]:
    return [m.apply(text) for m in mutants(tmp_path, text) if m.operator == operator]


@pytest.mark.parametrize(
    ("operator", "text", "expected"),
    [
        ("comparison", "x = a < b <= c", ["x = a <= b <= c", "x = a < b < c"]),
        ("comparison", "x = (a) is not (b)", ["x = (a) is (b)"]),
        ("comparison", "x = a not in b", ["x = a in b"]),
        ("boolean", "x = a and b or c", ["x = a or b or c", "x = a and b and c"]),
        ("boolean", "x = not a", ["x = (a)"]),
        ("arithmetic", "x = (a + 'é') * b", ["x = (a - 'é') * b", "x = (a + 'é') // b"]),
        ("one more", "x = -7", ["x = -(7 + 1)"]),
        ("one less", "x = a[0]", ["x = a[(0 - 1)]"]),
        ("constant", "x = True", ["x = False"]),
        ("opposite", "x = min(a, b)", ["x = max(a, b)"]),
        ("swapped arguments", "f(a, b, c)", ["f(b, a, c)", "f(a, c, b)"]),
        ("swapped branches", "x = a if b else c", ["x = (c if b else a)"]),
        ("dropped statement", "f(1)\nx += 1", ["pass\nx += 1", "f(1)\npass"]),
        ("dropped statement", "if a:\n    raise b\nc = 1", ["pass\nc = 1"]),
    ],
)
def test_an_operator_changes_one_place(
    tmp_path: Path, operator: str, text: str, expected: list[str]
) -> None:
    assert changed(tmp_path, text, operator) == expected


@pytest.mark.parametrize(
    "text",
    [
        "'a docstring'",
        "def f(x: Literal[1]) -> Literal[2]: ...",
        "assert a < b",
        "raise ValueError(1 + 2)",
        "x = f'{a + 1}'",
        "@cache(1)\ndef f(): ...",
        "x = zip(a, strict=True)",
        "x = f(a, *b)",
        "x = f(a, a)",
        "if a:\n    b = a\nelse:\n    b = c",
        "match a:\n    case 1 | 2: ...",
    ],
)
def test_what_would_show_nothing_is_left_alone(tmp_path: Path, text: str) -> None:
    assert mutants(tmp_path, text) == []


def test_a_mutant_knows_its_function_and_its_lines(tmp_path: Path) -> None:
    text = "class A:\n    def f(self):\n        return (\n            a +\n            b)\n"
    (mutant,) = mutants(tmp_path, text)
    assert mutant.key == "a.py::A.f: a + -> a -"
    assert mutant.line == 4


@pytest.mark.parametrize("name", ["kernel/rewrite.py", "schedule/primitives/loops.py"])
def test_every_mutant_of_a_source_file_is_python(name: str) -> None:
    path = ROOT / "src" / "tilewright" / "compiler" / name
    text = path.read_text()
    found = mutants_of(path, ROOT)
    assert len(found) > 50
    for mutant in found[::5]:
        ast.parse(mutant.apply(text))
