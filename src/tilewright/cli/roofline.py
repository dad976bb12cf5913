"""The limits of this machine, measured: FMA peak and streaming read, through our own kernels.

Called by `bench`, so that every figure has its limit from the same run and the same code generator.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.symbolic import Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.codegen.llvm import compile_kernels, link_executable
from tilewright.compiler.kernel.ir import (
    Access,
    Binary,
    Body,
    Buffer,
    Const,
    Expression,
    Fma,
    For,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Space,
    Statement,
    Store,
)
from tilewright.compiler.lowering import machine
from tilewright.runtime import native
from tilewright.runtime.loaders.embedded_elf import load_embedded_elf

_CHAINS: Final = 12  # independent accumulators: latency 4 x 2 units, with room
_STEPS: Final = 1 << 16
_STREAM_FLOATS: Final = 1 << 25  # 128 MiB: past every cache


@final
@dataclass(frozen=True, slots=True)
class Roofline:
    """Units: FLOP/s and byte/s of `threads` threads together."""

    threads: int
    flops: float
    read_bytes: float


def measure(threads: int, *, seconds: float = 0.3) -> Roofline:
    """Run both kernels for about `seconds` each and take the best run."""
    target = Target.host()
    lanes = target.vector_lanes(dtypes.f32)
    kernels = (_fma_kernel(lanes, threads), _read_kernel(lanes, threads))
    compiled = compile_kernels([machine.lower(k, target) for k in kernels], target)
    library = load_embedded_elf(link_executable(compiled, "roofline", target))
    pool = native.Pool(threads)
    sink = native.Memory(4 * lanes * _CHAINS * threads)
    data = native.Memory(4 * _STREAM_FLOATS)
    np.frombuffer(memoryview(data), np.float32)[:] = 0.0

    def run(name: str, buffers: list[native.Memory]) -> float:
        export = library.exports[name]
        builder = native.PlanBuilder()
        slots = [builder.slot(b.size_bytes, writable=True) for b in buffers]
        bindings = [(s, 0, b.size_bytes) for s, b in zip(slots, buffers, strict=True)]
        builder.dispatch(export.function, bindings, (threads, 1, 1))
        plan = builder.build()
        best, stop = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < stop:
            start = time.perf_counter()
            plan.run(pool, buffers)
            best = min(best, time.perf_counter() - start)
        return best

    flops = 2 * lanes * _CHAINS * _STEPS * threads / run("fma_peak", [sink])
    read_bytes = 4 * _STREAM_FLOATS / run("stream_read", [data, sink])
    pool.close()
    return Roofline(threads, flops, read_bytes)


def _loop(name: str, extent: int, body: Body, kind: LoopKind = LoopKind.SERIAL) -> For:
    return For(Symbol(name, 0, extent - 1), extent, body, kind)


def _fma_kernel(lanes: int, threads: int) -> Kernel:
    """Each workgroup: `_CHAINS` accumulators, `_STEPS` fused multiply-adds on each."""
    sink = Buffer("sink", dtypes.f32, (threads * _CHAINS * lanes,))
    chains = Buffer("chains", dtypes.f32, (_CHAINS * lanes,), Space.REGISTER)
    c, v, w = symbol("c"), symbol("v"), symbol("w")
    place = (c * lanes + v,)

    def all_chains(prefix: str, statement: Statement) -> Statement:
        lane_loop = _loop("v", lanes, (statement,), LoopKind.VECTOR)
        del prefix
        return _loop("c", _CHAINS, (lane_loop,), LoopKind.UNROLL)

    half: Expression = Const(0.5, dtypes.f32)
    step = Fma(Load(chains, place), half, half, dtypes.f32)
    body = (
        all_chains("init", Store(chains, place, half)),
        _loop("t", _STEPS, (all_chains("step", Store(chains, place, step)),)),
        all_chains(
            "done",
            Store(sink, (w * (_CHAINS * lanes) + c * lanes + v,), Load(chains, place)),
        ),
    )
    grid = _loop("w", threads, body, LoopKind.GRID_X)
    return Kernel("fma_peak", (Parameter(sink, Access.WRITE),), (), (chains,), (grid,))


def _read_kernel(lanes: int, threads: int) -> Kernel:
    """Each workgroup sums its share of the data in `_CHAINS` vector accumulators."""
    share = _STREAM_FLOATS // threads // (8 * lanes) * (8 * lanes)
    data = Buffer("data", dtypes.f32, (_STREAM_FLOATS,))
    sink = Buffer("sink", dtypes.f32, (threads * _CHAINS * lanes,))
    sums = Buffer("sums", dtypes.f32, (8 * lanes,), Space.REGISTER)
    c, v, w, t = symbol("c"), symbol("v"), symbol("w"), symbol("t")
    place = (c * lanes + v,)

    def all_sums(statement: Statement) -> Statement:
        return _loop(
            "c", 8, (_loop("v", lanes, (statement,), LoopKind.VECTOR),), LoopKind.UNROLL
        )

    item = Load(data, (w * share + t * (8 * lanes) + c * lanes + v,))
    add = Binary("add", Load(sums, place), item, dtypes.f32)
    body = (
        all_sums(Store(sums, place, Const(0.0, dtypes.f32))),
        _loop("t", share // (8 * lanes), (all_sums(Store(sums, place, add)),)),
        all_sums(Store(sink, (w * (_CHAINS * lanes) + c * lanes + v,), Load(sums, place))),
    )
    parameters = (Parameter(data, Access.READ), Parameter(sink, Access.WRITE))
    grid = _loop("w", threads, body, LoopKind.GRID_X)
    return Kernel("stream_read", parameters, (), (sums,), (grid,))
