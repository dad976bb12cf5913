"""Calls a library of ours where Tilewright is not: run by the Python of another environment.

    build/envs/tvmffi/bin/python foreign_caller.py tvm_ffi net.so cases.npz

Arrays `x0`, `x1`, ... go in and `y0`, ... come out; each kind of array that the environment has is tried.
Writes the kinds.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

assert importlib.util.find_spec("tilewright") is None


def _converters() -> dict[str, Callable[[np.ndarray], Any]]:
    import tvm_ffi

    found: dict[str, Callable[[np.ndarray], Any]] = {
        "numpy": lambda array: array,
        "tvm_ffi": tvm_ffi.from_dlpack,
    }
    if importlib.util.find_spec("jax"):
        jax = importlib.import_module("jax.numpy")
        found["jax"] = lambda array: jax.from_dlpack(np.ascontiguousarray(array))
    return found


def _as_tuple(value: Any) -> Sequence[Any]:
    return [value] if hasattr(value, "__dlpack__") else list(value)


def main() -> int:
    """Load, call with every kind of array, compare."""
    loader, path, cases = sys.argv[1:]
    load = {
        "tvm_ffi": lambda: importlib.import_module("tvm_ffi").load_module(path),
        "tvm": lambda: importlib.import_module("tvm").runtime.load_module(path),
    }[loader]
    function = load()["main"]
    stored = np.load(cases)
    inputs = [stored[key] for key in sorted(stored) if key.startswith("x")]
    outputs = [stored[key] for key in sorted(stored) if key.startswith("y")]
    for kind, convert in _converters().items():
        found = _as_tuple(function(*map(convert, inputs)))
        assert len(found) == len(outputs), kind
        for one, expected in zip(found, outputs, strict=True):
            np.testing.assert_array_equal(np.from_dlpack(one), expected, err_msg=kind)
        sys.stdout.write(f"{kind}\n")
    try:
        function(*[one.astype(np.float64) for one in inputs])
    except Exception as error:
        sys.stdout.write(f"refused: {type(error).__name__} {error}\n")
    else:
        raise AssertionError("a float64 was taken for a float32")
    return 0


if __name__ == "__main__":
    sys.exit(main())
