"""A test that asserts nothing passes whatever the code does; a case that stands twice shows nothing the second time."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import sizes

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
CHECKS = {"raises", "warns", "deprecated_call", "fail"}  # of pytest
LATER = {"slow", "sampled", "nightly", "needs_torch"}
IN_EVERY_RUN = {"cryptography", "gguf", "importlinter", "islpy", "onnxruntime", "tvm_ffi"}
"""What `make test` installs beside what Tilewright needs: the extras `test`, `peers` and `sign`."""
IN_NO_EXTRA = {"unicorn"}  # for those who have it
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Module:
    """What a file of the tests defines, and what of other files it can name."""

    path: Path
    tree: ast.Module
    functions: dict[str, Function] = field(default_factory=dict)
    names: dict[str, tuple[Path, str]] = field(default_factory=dict)
    modules: dict[str, Path] = field(default_factory=dict)


def read(path: Path) -> Module:
    module = Module(path, ast.parse(path.read_text()))
    for node in sizes.statements(module.tree):
        if isinstance(node, Function):
            module.functions[node.name] = node
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = alias.asname or alias.name
                module.names[name] = (file_of(node.module), alias.name)
                module.modules[name] = file_of(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.Import):
            for alias in node.names:
                module.modules[alias.asname or alias.name] = file_of(alias.name)
    return module


def file_of(module: str) -> Path:
    return TESTS / f"{module.replace('.', '/')}.py"


@cache
def modules() -> dict[Path, Module]:
    gc.disable()  # two million objects that live until the end, and no garbage: it is two thirds of the time
    try:
        return {path: read(path) for path in sorted(TESTS.rglob("*.py"))}
    finally:
        gc.freeze()
        gc.enable()


def fixtures_of(path: Path) -> Iterator[Module]:
    """The files whose fixtures a test can ask for."""
    for folder in path.parents:
        if (folder / "conftest.py") in modules():
            yield modules()[folder / "conftest.py"]


def called(module: Module, function: Function) -> Iterator[tuple[Path, str]]:
    """The functions of the tests that this one names or gets as fixtures."""
    for argument in function.args.args:
        for place in (module, *fixtures_of(module.path)):
            if argument.arg in place.functions:
                yield place.path, argument.arg
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            if node.id in module.functions:
                yield module.path, node.id
            elif node.id in module.names:
                yield module.names[node.id]
        elif isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id in module.modules:
                yield module.modules[node.value.id], node.attr
            elif node.attr in module.functions:  # a method of a class of this file
                yield module.path, node.attr


def narrows(node: ast.Assert) -> bool:
    """Is it there for the type checker?"""
    text = ast.unparse(node.test)
    return text.startswith("isinstance(") or text.endswith(" is not None")


def is_a_check(node: ast.AST, *, in_a_test: bool) -> bool:
    match node:
        case ast.Assert():
            return in_a_test or not narrows(node)
        case ast.Attribute(attr=name):
            return name in CHECKS or name.startswith("assert_")
        case ast.keyword(arg="check", value=ast.Constant(value=True)):  # of subprocess.run
            return True
        case ast.Raise():
            return "AssertionError" in ast.unparse(node)
    return False


@cache
def checks(path: Path, name: str, *, in_a_test: bool = False) -> bool:
    """Does the function check something, itself or by what it calls?"""
    seen: set[tuple[Path, str]] = set()
    waiting = [(path, name)]
    while waiting:
        place = waiting.pop()
        function = (
            modules()[place[0]].functions.get(place[1]) if place[0] in modules() else None
        )
        if place in seen or function is None:
            continue
        seen.add(place)
        first = in_a_test and place == (path, name)
        if any(is_a_check(node, in_a_test=first) for node in ast.walk(function)):
            return True
        waiting += called(modules()[place[0]], function)
    return False


def test_every_test_asserts_something() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{function.lineno} {name}"
        for path, module in modules().items()
        if path.name.startswith("test_")
        for name, function in module.functions.items()
        if name.startswith("test_") and not checks(path, name, in_a_test=True)
    ]
    assert silent == []


def test_no_case_of_a_test_stands_twice() -> None:
    twice = [
        f"{path.relative_to(ROOT)}:{case.lineno} {ast.unparse(case)}"
        for path, module in modules().items()
        for cases in lists_of_cases(module.tree)
        for case in repeated(cases)
    ]
    assert twice == []


def repeated(cases: list[ast.expr]) -> Iterator[ast.expr]:
    """The cases that stand behind an equal one."""
    seen: set[str] = set()
    for case in cases:
        text = ast.dump(case)
        if text in seen:
            yield case
        seen.add(text)


def all_tests() -> Iterator[tuple[str, Function]]:
    """Every test, with its place."""
    for path, module in modules().items():
        if path.name.startswith("test_"):
            for name, function in module.functions.items():
                if name.startswith("test_"):
                    yield f"{path.relative_to(ROOT)}:{function.lineno} {name}", function


def test_every_test_reads_what_its_cases_differ_in() -> None:
    unread = [
        f"{place}: {parameter}"
        for place, function in all_tests()
        for parameter in parameters_of(function)
        if parameter not in names_in(function)
    ]
    assert unread == []


def parameters_of(function: Function) -> Iterator[str]:
    """The names that `parametrize` gives values to."""
    for mark in function.decorator_list:
        if (
            isinstance(mark, ast.Call)
            and isinstance(mark.func, ast.Attribute)
            and mark.func.attr == "parametrize"
        ):
            names = ast.literal_eval(mark.args[0])
            yield from names.replace(",", " ").split() if isinstance(names, str) else names


def names_in(function: Function) -> set[str]:
    return {
        node.id
        for statement in function.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
    }


def test_no_test_compares_a_value_to_itself() -> None:
    same = [
        f"{place}: {ast.unparse(node)}"
        for place, function in all_tests()
        for node in ast.walk(function)
        if any(type(a) is type(b) and ast.dump(a) == ast.dump(b) for a, b in compared(node))
    ]
    assert same == []


def compared(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Pairs that must be equal; what is called may give something else the second time."""
    match node:
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            pair = left, right
        case ast.Call(func=ast.Attribute(attr=name), args=[left, right, *_]):
            if not name.startswith("assert_"):
                return
            pair = left, right
        case _:
            return
    if not any(isinstance(part, ast.Call) for part in ast.walk(pair[0])):
        yield pair


def lists_of_cases(tree: ast.Module) -> Iterator[list[ast.expr]]:
    """The lists that parametrised tests take their cases from, written there or as a table above."""
    tables = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "parametrize"
            and len(node.args) > 1
        ):
            cases = node.args[1]
            if isinstance(cases, ast.Name):
                cases = tables.get(cases.id, cases)
            if isinstance(cases, ast.List | ast.Tuple):
                yield cases.elts


def needed(node: ast.AST) -> Iterator[str]:
    """The packages without which a test is skipped, those apart that every run has."""
    for part in ast.walk(node):
        match part:
            case ast.Call(
                func=ast.Attribute(attr="importorskip"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                package = name.partition(".")[0]
                if package not in IN_EVERY_RUN | IN_NO_EXTRA:
                    yield package


def marks_of(nodes: Iterable[ast.expr]) -> set[str]:
    return {
        part.attr
        for node in nodes
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
    }


def test_what_needs_a_package_that_comes_later_runs_later() -> None:
    """In `make test` of a fresh checkout it would be skipped, and the runs that have the package would leave it out."""
    never: list[str] = []
    for path, module in modules().items():
        if not path.name.startswith("test_") or "importorskip" not in path.read_text():
            continue
        body = module.tree.body
        if LATER & marks_of(
            node.value
            for node in body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        ):
            continue
        of_all = [
            name for node in body if not isinstance(node, Function) for name in needed(node)
        ]
        for name, function in module.functions.items():
            helpers = [
                module.functions[other]
                for place, other in called(module, function)
                if place == path and not other.startswith("test_")
            ]
            packages = [
                *of_all,
                *(p for part in (function, *helpers) for p in needed(part)),
            ]
            is_later = LATER & marks_of(function.decorator_list)
            if name.startswith("test_") and packages and not is_later:
                never.append(f"{path.relative_to(ROOT)}:{function.lineno} {packages[0]}")
    assert never == []
