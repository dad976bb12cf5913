"""Programs written for the comparison with IREE, how each is compiled, and what is called.

What it is: tables for `test_programs`.  The programs stand in `programs/`, one file per subject.
What it is not: results; IREE's runtime says what is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

from conformance.interop.toolchain import LLVM_CPU

PROGRAMS = Path(__file__).with_name("programs")
Calls = Mapping[str, tuple[tuple[object, ...], ...]]
BASE = (*LLVM_CPU, "--iree-input-demote-f64-to-f32=false")

# How programs are compiled beside the plain way: each changes what the archive holds.
VARIANTS: Mapping[str, tuple[str, ...]] = {
    "plain": BASE,
    "opt-level-3": (*BASE, "--iree-opt-level=O3"),
    "opt-level-0": (*BASE, "--iree-opt-level=O0", "--iree-llvmcpu-mlir-opt-level=O0"),
    "async-external": (*BASE, "--iree-execution-model=async-external"),
    "microkernels": (
        *BASE,
        "--iree-opt-data-tiling",
        "--iree-llvmcpu-enable-ukernels=all",
    ),
    "no-memoization": (*BASE, "--iree-hal-memoization=false"),
    "debug-symbols": (
        *BASE,
        "--iree-llvmcpu-debug-symbols=true",
        "--iree-hal-executable-debug-level=3",
    ),
    "stripped": (
        *BASE,
        "--iree-llvmcpu-debug-symbols=false",
        "--iree-vm-bytecode-module-strip-source-map=true",
        "--iree-vm-bytecode-module-strip-debug-ops=true",
    ),
    "no-zip": (*BASE, "--iree-vm-emit-polyglot-zip=false"),
    "baseline-cpu": (*BASE, "--iree-llvmcpu-target-cpu=generic"),
}


def floats(*shape: int, dtype: type = np.float32, seed: int = 7) -> np.ndarray:
    """Numbers around zero."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def integers(*shape: int, dtype: type = np.int32, seed: int = 7) -> np.ndarray:
    """Numbers over the whole range of the type."""
    info = np.iinfo(dtype)
    generator = np.random.default_rng(seed)
    return generator.integers(info.min, info.max, shape, dtype, endpoint=True)


def _pair(dtype: type) -> tuple[tuple[object, ...], ...]:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e-30, 3.5, -2.25]
    with np.errstate(over="ignore"):
        first = np.array(special, np.float64).astype(dtype)
    return ((first, floats(9, dtype=dtype)), (floats(9, dtype=dtype, seed=1), first))


def _whole(dtype: type) -> tuple[tuple[object, ...], ...]:
    return ((integers(9, dtype=dtype), integers(9, dtype=dtype, seed=1)),)


def _complex(dtype: type) -> tuple[tuple[object, ...], ...]:
    parts = [floats(9, seed=s) + 1j * floats(9, seed=s + 1) for s in (1, 5)]
    return (tuple(part.astype(dtype) for part in parts),)


_BITS = np.array([1, 0, 1, 1, 0, 0, 1, 0, 1], np.bool_)
_EVERY_F8 = np.arange(9, dtype=np.uint8) * 27

CASES: Mapping[str, Calls] = {
    "control_flow": {
        "choose": tuple((flag, floats(5), floats(5, seed=2)) for flag in (0, 1)),
        "grow": (
            (np.array([0.001, -1, np.nan], np.float32), 100.0),
            (floats(3) + 1000, 0.5),
        ),
        "repeat": ((floats(7), 5), (floats(1), 0), (floats(0), 3)),
        "scalars": ((-(2**31), 3, 0.5, 2.0), (46341, 63, -1e-30, 1e300)),
        "jump": tuple((k, integers(4)) for k in (1, 7, 0, -1)),
        "nothing": ((),),
    },
    "state": {"thrice": ((floats(4),), (np.array([0, np.inf, -0.0, 1e38], np.float32),))},
    "dynamic": {
        "matmul": tuple(
            (floats(m, k), floats(k, n, seed=3))
            for m, k, n in ((1, 1, 1), (5, 7, 3), (17, 33, 65), (0, 4, 3), (3, 0, 2))
        ),
        "row_sums": tuple((floats(m, n),) for m, n in ((1, 1), (3, 129), (0, 5), (4, 0))),
        "join": tuple(
            (integers(m, 3, dtype=np.int64), integers(n, 3, dtype=np.int64, seed=1))
            for m, n in ((2, 5), (0, 1), (1, 0), (64, 63))
        ),
        "window": ((floats(9), 2, 5), (floats(9), 9, 0), (floats(1), 0, 1)),
        "element": ((floats(3, 4, dtype=np.float64), 2, 1),),
        "shape": ((floats(3, 0),), (floats(1, 999),)),
        "same": ((floats(5),), (floats(0),)),
    },
    "element_types": {
        "i1": ((_BITS, _BITS[::-1].copy()),),
        "i8": _whole(np.int8),
        "i16": _whole(np.int16),
        "i32": _whole(np.int32),
        "i64": _whole(np.int64),
        "f16": _pair(np.float16),
        "bf16": _pair(ml_dtypes.bfloat16),
        "f32": _pair(np.float32),
        "f64": _pair(np.float64),
        "f8E4M3FN": ((_EVERY_F8.view(ml_dtypes.float8_e4m3fn),),),
        "f8E5M2": ((_EVERY_F8.view(ml_dtypes.float8_e5m2),),),
        "to_f8E5M2": ((floats(9),),),
        "complex64": _complex(np.complex64),
        "complex128": _complex(np.complex128),
        "widen_i4": ((np.arange(-4, 4).astype(ml_dtypes.int4),),),
    },
    "stablehlo": {
        "loop": tuple((floats(4), np.array(n, np.int32)) for n in (0, 1, 50)),
        "select_branch": tuple(
            (np.array(n, np.int32), floats(3, 2)) for n in (0, 1, 2, 9, -1)
        ),
        "convolve": ((floats(1, 9, 9, 3), floats(3, 3, 3, 5, seed=2)),),
        "attention": (tuple(floats(2, 7, 8, seed=s) for s in (1, 2, 3)),),
        "sort": ((integers(11),),),
        "gather": ((floats(6, 3), np.array([[5], [0], [3], [3]], np.int32)),),
        "scatter": ((floats(6), np.array([[5], [0], [5]], np.int32), floats(3, seed=4)),),
        "spectrum": ((floats(2, 8),),),
        "random": ((np.array([1, 2], np.uint64),),),
        "pair": ((floats(3),),),
        "narrow_integers": (
            (integers(5, 3, dtype=np.int8), integers(3, 4, dtype=np.int8, seed=2)),
        ),
        "half_product": (
            (floats(5, 3, dtype=np.float16), floats(3, 4, dtype=np.float16, seed=2)),
        ),
    },
}
