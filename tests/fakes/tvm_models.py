"""Models that TVM compiles, with inputs and what TVM's own VM says: run by TVM's Python, not by ours.

What it is: a table of small IRModules that between them use every instruction, built-in and form of
argument that Relax code of apache-tvm 0.25 to 0.27 has.  Each is exported as `.so` and `.tar`, as
bytecode and compiled; arguments and results go into one `.npz`, their nesting into `cases.json`.
What it is not: a test.
Who calls it: `tvm_libraries.py` of this folder, in an environment that has apache-tvm::

    build/envs/tvm/bin/python tests/fakes/tvm_models.py OUT [--only mlp tuples]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
import tvm_modules
import tvm_modules_with_state
from tvm import relax
from tvm.ir import IRModule
from tvm_modules import f32


@dataclass
class Case:
    """One call: what goes in; TVM says what comes out, or which kind of error."""

    function: str
    arguments: tuple[Any, ...]
    name: str = ""


@dataclass
class Model:
    """A module and its calls."""

    make: Callable[[], IRModule]
    cases: Callable[[], list[Case]]
    modes: tuple[str, ...] = ("bytecode", "compiled")
    functions: dict[str, Callable[..., Any]] = field(default_factory=dict)


# --- the table ----------------------------------------------------------------------------------


def _pair(scale: float, flag: bool) -> Any:
    return tvm_ffi.convert([scale * 2, not flag])


def _describe(x: Any, greeting: str, text: str) -> str:
    return f"{greeting} {text} {tuple(x.shape)}"


def _join(*values: Any) -> str:
    return " ".join(str(value) for value in values)


def _tile(source: Any, target: Any) -> None:
    array = np.from_dlpack(source)
    np.from_dlpack(target)[...] = np.concatenate([array, array], axis=1)


def _draws() -> list[Case]:
    """Draws with most and with few of the tokens; penalties on logits."""
    logits = f32(1, 64)
    share = np.exp(logits) / np.exp(logits).sum()
    shares = np.exp(f32(3, 64))
    shares /= shares.sum(axis=1, keepdims=True)
    ids = np.array([3, 60, 0, 17, 5], np.int32)
    uniform = (0.0, 0.013, 0.4, 0.77, 0.999)
    return [
        *(Case("logits", (logits, 0.8, p, u)) for p in (0.2, 0.9, 1.0) for u in uniform),
        Case("logits", (logits, 0.0, 0.9, 0.5)),
        *(Case("prob", (share, p, u)) for p in (0.2, 0.9, 1.0) for u in uniform),
        Case("multinomial", (shares, np.array([[0.001], [0.5], [0.9999]], np.float32))),
        Case("repetition", (logits, ids, 1.3)),
        Case("presence", (logits, ids, ids + 1, 0.5, 0.25)),
        Case("softmax", (logits, 0.7)),
    ]


def _bad(function: str, good: tuple[Any, ...]) -> list[Case]:
    """The same call with an argument too few, of a wrong type, and of a wrong rank."""
    first, *rest = good
    return [
        Case(function, tuple(good[:-1]), "too few"),
        Case(function, (first.astype(np.float64), *rest), "wrong type"),
        Case(function, (first[None], *rest), "wrong rank"),
        Case(function, ("text", *rest), "no tensor"),
    ]


MODELS: dict[str, Model] = {
    "mlp": Model(
        lambda: tvm_modules.mlp(4),
        lambda: [
            Case("main", (f32(4, 16),)),
            Case("main", (np.full((4, 16), np.nan, np.float32),)),
            Case("main", (f32(3, 16),), "wrong size"),
            *_bad("main", (f32(4, 16),)),
        ],
    ),
    "mlp_dynamic": Model(
        lambda: tvm_modules.mlp(None),
        lambda: [
            *(Case("main", (f32(n, 16),)) for n in (1, 2, 7, 33, 0)),
            Case("main", (f32(3, 15),), "wrong size"),
        ],
    ),
    "convolutions": Model(
        tvm_modules.convolutions, lambda: [Case("main", (f32(2, 3, 17, 19),))]),
    "normalized": Model(
        tvm_modules.normalized,
        lambda: [
            *(Case("main", (f32(n, 32), f32(32), f32(32))) for n in (1, 5)),
            *_bad("main", (f32(5, 32), f32(32), f32(32))),
        ],
    ),
    "attention": Model(
        tvm_modules.attention,
        lambda: [
            *(
                Case("main", (f32(1, s, 2, 8), f32(1, t, 2, 8), f32(1, t, 2, 8)))
                for s, t in ((1, 1), (5, 9), (3, 3))
            ),
            Case("main", (f32(1, 2, 2, 8), f32(1, 3, 2, 8), f32(1, 4, 2, 8)), "two sizes"),
        ],
    ),
    "integers": Model(
        tvm_modules.integers,
        lambda: [
            Case(
                "main",
                (
                    tvm_modules.RNG.integers(-128, 128, (5, 12)).astype(np.int8),
                    tvm_modules.RNG.integers(-128, 128, (12, 7)).astype(np.int8),
                ),
            )
        ],
    ),
    "casts": Model(
        tvm_modules.casts,
        lambda: [
            Case(
                "main",
                (f32(3, 5).astype(np.float16), tvm_modules.RNG.integers(0, 9, (3, 5)).astype(np.uint8)),
            )
        ],
    ),
    "movement": Model(
        tvm_modules.movement,
        lambda: [
            Case("main", (f32(n, 6), np.array([5, 0, 3, 3], np.int64))) for n in (1, 3)
        ],
    ),
    "branch": Model(
        tvm_modules.branch,
        lambda: [
            Case("main", (np.array(True), f32(5))),
            Case("main", (np.array(False), f32(3))),
            Case("main", (np.array([True]), f32(3)), "wrong rank"),
        ],
    ),
    "loop": Model(
        tvm_modules.loop, lambda: [Case("main", (f32(n),)) for n in (1, 6)]),
    "calls": Model(
        tvm_modules.calls,
        lambda: [Case("main", (f32(3), f32(5))), Case("four", (f32(2),))],
    ),
    "closures": Model(
        tvm_modules.closures, lambda: [Case("main", (f32(4), f32(4)))]),
    "tuples": Model(
        tvm_modules.tuples,
        lambda: [
            Case("main", ((f32(5), (np.arange(3, dtype=np.int32), f32(5))),)),
            Case("main", ((f32(5), (np.arange(3, dtype=np.int32), f32(4))),), "two sizes"),
            Case("main", ((f32(5),),), "too short"),
        ],
    ),
    "shapes": Model(
        tvm_modules.shapes,
        lambda: [
            Case("product", (f32(3, 5),)),
            Case("main", (f32(3, 5), tvm_ffi.Shape([5, 3]))),
            Case("main", (f32(3, 5), tvm_ffi.Shape([3, 5])), "wrong shape"),
            Case("main", (f32(3, 5), tvm_ffi.Shape([5, 3, 1])), "wrong rank of shape"),
            Case("main", (f32(3, 5), f32(2)), "no shape"),
            Case("from_data", (f32(12), np.array([3, 4], np.int64))),
            Case("from_data", (f32(12), np.array([3, 5], np.int64)), "wrong product"),
            Case("cast", (f32(3, 7),)),
            Case("cast", (f32(4, 7),), "wrong size"),
            Case("cast", (f32(3),), "wrong rank"),
            Case("any_shape", (f32(2, 0, 4),)),
        ],
    ),
    "numbers": Model(
        tvm_modules.numbers,
        lambda: [
            Case("main", (4, f32(4))),
            Case("main", (4, f32(5)), "two sizes"),
            Case("main", (2.5, f32(2)), "no integer"),
            Case("chosen", (True, f32(3))),
            Case("chosen", (False, f32(3))),
            Case("fill", (3,)),
            Case("fill", (0,)),
            Case("scaled", (1.25, True)),
            Case("scaled", (f32(1), True), "no number"),
        ],
        functions={"tilewright.test.pair": _pair},
    ),
    "strings": Model(
        tvm_modules.strings,
        lambda: [Case("main", (f32(3), "again, and long enough")), Case("constants", ())],
        functions={"tilewright.test.describe": _describe, "tilewright.test.join": _join},
    ),
    "large_constants": Model(
        tvm_modules.large_constants, lambda: [Case("main", (f32(512),))]),
    "extern": Model(
        tvm_modules.extern,
        lambda: [Case("main", (f32(n, 4),)) for n in (1, 3)],
        functions={"tilewright.test.tile": _tile},
    ),
    "several": Model(
        tvm_modules.several,
        lambda: [
            Case("add", (f32(3), f32(3))),
            Case("sub", (f32(3), f32(3))),
            Case("same", (f32(2, 2),)),
            Case("same", (7,)),
            Case("same", ("text",)),
        ],
    ),
    "parallel": Model(
        tvm_modules.parallel, lambda: [Case("main", (f32(64, 96),))]),
    "in_place": Model(
        tvm_modules.in_place, lambda: [Case("main", (np.arange(6, dtype=np.int32),))]),
    "caches": Model(
        tvm_modules_with_state.caches,
        lambda: [
            Case("main", (f32(1, 3), f32(4, 3))),
            Case("changed", (f32(5, 3),)),
            Case("window", (f32(3, 3), f32(2, 3))),
            Case("sinks", (f32(3, 3), f32(2, 3))),
            Case("shortened", (f32(3, 3),)),
        ],
    ),
    "sampling": Model(tvm_modules_with_state.sampling, _draws),
}  # fmt: skip


# --- writing ------------------------------------------------------------------------------------


class Record:
    """Values as JSON, their arrays beside."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def __call__(self, value: Any) -> Any:
        """A value as JSON says it."""
        if isinstance(value, np.ndarray):
            key = f"a{len(self.arrays)}"
            self.arrays[key] = value
            return {"array": key}
        if isinstance(value, tvm_ffi.Shape):
            return {"shape": [int(size) for size in value]}
        if isinstance(value, (tuple, list, tvm_ffi.Array)):
            return {"tuple": [self(item) for item in value]}
        if hasattr(value, "__dlpack__"):
            return self(np.array(np.from_dlpack(value)))
        if isinstance(value, bool) or value is None:
            return {"plain": value}
        if isinstance(value, (int, float)):
            return {"plain": value}
        return {"text": str(value)}


def to_tvm(value: Any) -> Any:
    """A value as TVM's VM takes it."""
    if isinstance(value, np.ndarray):
        return tvm.runtime.tensor(value)
    if isinstance(value, tuple) and not isinstance(value, tvm_ffi.Shape):
        return tvm_ffi.convert([to_tvm(item) for item in value])
    return value


def run(machine: relax.VirtualMachine, case: Case, record: Record) -> dict[str, Any]:
    """One call of TVM's VM, as it is written down."""
    row: dict[str, Any] = {
        "function": case.function,
        "name": case.name,
        "arguments": [record(argument) for argument in case.arguments],
    }
    try:
        result = machine[case.function](*(to_tvm(value) for value in case.arguments))
    except Exception as error:  # whatever TVM raises is what is recorded
        return {**row, "error": type(error).__name__, "message": str(error)}
    return {**row, "result": record(result)}


def write(name: str, folder: Path) -> dict[str, Any]:
    """Compile, export and run a model in all its forms."""
    model = MODELS[name]
    for symbol, function in model.functions.items():
        tvm_ffi.register_global_func(symbol, function, override=True)
    cases, record, rows, files = model.cases(), Record(), [], {}
    module = model.make()
    for mode in model.modes:
        executable = relax.build(module, tvm.target.Target("llvm"), exec_mode=mode)
        files[mode] = []
        for suffix in ("so", "tar"):
            path = folder / f"{name}.{mode}.{suffix}"
            executable.export_library(str(path))
            files[mode].append(path.name)
        machine = relax.VirtualMachine(
            tvm.runtime.load_module(str(folder / files[mode][0])), tvm.cpu()
        )
        (folder / f"{name}.{mode}.txt").write_text(executable.as_text())
        (folder / f"{name}.{mode}.stats").write_text(executable.stats())
        rows = rows or [run(machine, case, record) for case in cases]
    np.savez(folder / f"{name}.npz", **record.arrays)
    return {"files": files, "arrays": f"{name}.npz", "calls": rows}


def main() -> int:
    """Write all models, or some."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    tvm_modules.RNG = np.random.default_rng(options.seed)
    options.folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name in options.only:
        try:
            written[name] = write(name, options.folder)
        except (Exception, SystemExit) as error:  # a release may lack what a model uses
            failed[name] = f"{type(error).__name__}: {error}"
    document = {
        "tvm": tvm.__version__,
        "tvm_ffi": tvm_ffi.__version__,
        "models": written,
        "failed": failed,
    }
    (options.folder / "cases.json").write_text(json.dumps(document, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
