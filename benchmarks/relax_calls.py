"""Calls of models that TVM made: our Relax machine beside TVM's own, on the same libraries.

TVM runs in an environment of its own (`make build/envs/tvm`); both sides take turns, each with a tensor of
its own tvm-ffi as argument.  Prints the least time of a call and the ratio.

    python benchmarks/relax_calls.py
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

# What makes the libraries.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import numpy as np

from tilewright.runtime import load_module
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import register_global_func

made_by_tvm: Final[Any] = importlib.import_module("fakes.tvm_libraries")
CASES: Final = (
    ("mlp", "main"), ("mlp_dynamic", "main"), ("branch", "main"), ("calls", "main"),
    ("normalized", "main"), ("attention", "main"), ("several", "add"), ("convolutions", "main"),
)  # fmt: skip
CALLS: Final = 2000
ROUNDS: Final = 7
# What runs in TVM's environment: reads a line per round, answers with the seconds of a call.
PEER: Final = """
import sys, time, numpy as np, tvm
from tvm import relax
path, arrays, function, names, calls = sys.argv[1:]
stored = np.load(arrays)
machine = relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())
run = machine[function]
given = [tvm.runtime.tensor(stored[name]) for name in names.split(",")]
for line in sys.stdin:
    begin = time.perf_counter()
    for _ in range(int(calls)):
        run(*given)
    print((time.perf_counter() - begin) / int(calls), flush=True)
"""


def _seconds(run: Callable[..., Any], given: list[Any]) -> float:
    begin = time.perf_counter()
    for _ in range(CALLS):
        run(*given)
    return (time.perf_counter() - begin) / CALLS


def compare(model: str, function: str, mode: str) -> tuple[float, float]:
    """The least seconds of a call, ours and TVM's."""
    made = made_by_tvm.libraries()
    assert made is not None
    path, arrays = made.path(model, mode, "so"), made.arrays(model)
    call = next(one for one in made.calls(model) if one["function"] == function)
    names = [one["array"] for one in call["arguments"]]
    machine = load_module(path)["vm_load_executable"]()
    machine["vm_initialization"](1, 0, 2)
    run = machine[function]
    given = [tvm_ffi.from_dlpack(np.array(arrays[name])) for name in names]
    words = [
        str(made_by_tvm.python_of()),
        "-c",
        PEER,
        str(path),
        str(made.folder / f"{model}.npz"),
    ]
    words += [function, ",".join(names), str(CALLS)]
    ours: list[float] = []
    theirs: list[float] = []
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        for _ in range(ROUNDS):
            ours.append(_seconds(run, given))
            peer.stdin.write("\n")
            theirs.append(float(peer.stdout.readline()))
        peer.stdin.close()
    return min(ours), min(theirs)


def main() -> int:
    """Print a line per model and mode."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    if made_by_tvm.libraries() is None:
        print("there is no environment with TVM: make build/envs/tvm")
        return 1
    for name, registered in made_by_tvm.registered_functions(tvm_ffi.convert).items():
        register_global_func(name, registered, override=True)
    print(f"{'model':<14} {'mode':<10} {'ours us':>9} {'TVM us':>9} {'ratio':>7}")
    for mode in ("bytecode", "compiled"):
        for model, function in CASES:
            ours, theirs = compare(model, function, mode)
            print(
                f"{model:<14} {mode:<10} {ours * 1e6:9.2f} {theirs * 1e6:9.2f} {ours / theirs:7.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
