"""The self-checking modules of StableHLO's own tests, where their archives lie beside the repository."""

from __future__ import annotations

import tarfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from tilewright.compiler.frontends.stablehlo.load import import_modules
from tilewright.compiler.frontends.stablehlo.parser import parse
from tilewright.compiler.frontends.stablehlo.tree import (
    Block,
    ComplexType,
    Function,
    Module,
    Symbol,
    TensorType,
)
from tilewright.compiler.graph.evaluator import evaluate

FOLDER: Final = Path(__file__).resolve().parents[3] / "shared" / "stablehlo"
REASON: Final = f"the suites of StableHLO are not in {FOLDER}"
SUITES: Final = ("interpret", "testdata")


def is_there() -> bool:
    return all((FOLDER / f"{name}.tar.xz").exists() for name in SUITES)


@cache
def texts(suite: str) -> dict[str, str]:
    """The text of every file of a suite, by name."""
    found: dict[str, str] = {}
    with tarfile.open(FOLDER / f"{suite}.tar.xz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".mlir") else None
            if file is not None:
                found[Path(member.name).name] = file.read().decode()
    return found


def modules(suite: str) -> list[tuple[str, Module]]:
    """Every module of a suite, with the name of its file."""
    return [(n, m) for n, text in sorted(texts(suite).items()) for m in parse(text, n)]


def with_arguments(module: Module) -> tuple[Module, list[np.ndarray]]:
    """What `main` calls `@inputs` for becomes its arguments, so that nothing of it is a constant.

    Returns: the module, and the values; as it is where it has no such call.
    """
    main, inputs = module.functions["main"], module.functions.get("inputs")
    assert main.body is not None
    asks = {Symbol("inputs")}
    calls = [o for o in main.body.operations if o.attributes.get("callee") in asks]
    if inputs is None or len(calls) != 1 or _is_complex(inputs):
        return module, []
    rest = tuple(o for o in main.body.operations if o is not calls[0])
    body = Block(calls[0].results, rest)
    alone = Module("inputs", {"main": replace(inputs, name="main")})
    imported = import_modules([alone], "inputs")
    assert not imported.problems
    changed = {**module.functions, "main": replace(main, body=body)}
    return replace(module, functions=changed), evaluate(imported.graph, [])


def _is_complex(inputs: Function) -> bool:
    return any(
        isinstance(t, TensorType) and isinstance(t.element, ComplexType)
        for t in inputs.type.results
    )
