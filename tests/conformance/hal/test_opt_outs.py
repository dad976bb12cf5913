"""Opt-out files name real cases and give reasons."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FILES = sorted((FOLDER / "opt_outs").glob("*.py"))


def cases() -> set[str]:
    return {
        node.name
        for path in FOLDER.glob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_opt_out_names_a_case_and_a_reason(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    table = next(n for n in tree.body if isinstance(n, ast.Assign | ast.AnnAssign))
    assert table.value is not None
    reasons = ast.literal_eval(table.value)
    named = {name.partition("[")[0] for name in reasons}  # some opt out of one argument
    assert named <= cases()
    assert all(len(reason.split()) >= 3 for reason in reasons.values())


def test_every_driver_has_an_opt_out_file() -> None:
    from tilewright.runtime.drivers import registry

    assert {p.stem for p in FILES} == {
        n.replace("-", "_") for n in registry.REGISTRY.names()
    }
