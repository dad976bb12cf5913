"""Bodies of functions as modules, run by the oracles of all ops."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.frontends.stablehlo import load
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph


def run(body: str, arguments: str, *values: np.ndarray) -> list[np.ndarray]:
    """What `main` gives; the last line of the body is its `return`.  Complex values are two arguments."""
    given = [part for value in values for part in _parts(np.asarray(value))]
    return evaluate(graph_of(body, arguments), given)


def graph_of(body: str, arguments: str) -> Graph:
    """The graph of `main`; the last line of the body is its `return`."""
    results = (
        body.rsplit("return", 1)[1].split(":", 1)[1].strip() if "return" in body else ""
    )
    text = f"func.func @main({arguments}) -> ({results}) {{\n{body}\n}}"
    return load(text.encode()).graph


def _parts(value: np.ndarray) -> list[np.ndarray]:
    if value.dtype.kind != "c":
        return [value]
    return [np.ascontiguousarray(value.real), np.ascontiguousarray(value.imag)]


def type_of(value: np.ndarray) -> str:
    """The MLIR type of an array."""
    names = {"float32": "f32", "float64": "f64", "float16": "f16", "complex64": "complex<f32>",
             "complex128": "complex<f64>", "bool": "i1"}  # fmt: skip
    name = names.get(value.dtype.name) or (
        value.dtype.name.replace("uint", "ui").replace("int", "i")
    )
    return f"tensor<{''.join(f'{n}x' for n in value.shape)}{name}>"


def apply(op: str, *values: np.ndarray, result: str = "") -> np.ndarray:
    """One operation of operands of one type each; a complex result is joined."""
    names = [f"%a{i}" for i in range(len(values))]
    types = [type_of(np.asarray(v)) for v in values]
    result = result or types[0]
    body = (
        f'%r = "{op}"({", ".join(names)}) : ({", ".join(types)}) -> {result}\n'
        f"return %r : {result}"
    )
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    found = run(body, arguments, *values)
    return found[0] if len(found) == 1 else joined(*found)


def joined(real: np.ndarray, imaginary: np.ndarray) -> np.ndarray:
    """Complex numbers of their parts; infinities stay what they are."""
    found = np.empty(real.shape, np.result_type(real, np.complex64))
    found.real, found.imag = real, imaginary
    return found
