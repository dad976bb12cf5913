"""The limits of this machine, measured: FMA peak and reading from every level of memory.

Called by `bench`, `profile` and reports, so that every figure has its limit from the same run and the
same code generator.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.symbolic import Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.kernel.ir import (
    AccessMode,
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
from tilewright.runtime import native
from tilewright.runtime.loaders.library_image import load_library
from tilewright.runtime.recorder import Recorder

_CHAINS: Final = 12  # independent accumulators: latency 4 x 2 units, with room
_STEPS: Final = 1 << 16
_STREAM_BYTES: Final = 128 << 20  # past every cache
_CACHE_FLOATS: Final = 1 << 20  # read from a cache in one run, over and over
_SUMS: Final = 8  # vectors that are summed side by side


MEMORY: Final = "memory"


@final
@dataclass(frozen=True, slots=True)
class Roofline:
    """Units: FLOP/s and byte/s of `threads` threads together.

    Attributes:
        read_bytes: streaming from memory.
        caches: the same from each cache, nearest last: (`L3`, …), (`L2`, …), (`L1`, …).
    """

    threads: int
    flops: float
    read_bytes: float
    caches: tuple[tuple[str, float], ...] = ()

    def level_of(self, bytes_rate: float) -> tuple[str, float]:
        """The farthest level that delivers this fast, and how close to it that is (1 = as fast)."""
        name, rate = MEMORY, self.read_bytes
        for level, faster in self.caches:
            if bytes_rate <= rate:
                break
            name, rate = level, max(rate, faster)
        return name, bytes_rate / rate


def measure(threads: int, *, seconds: float = 0.3) -> Roofline:
    """Run the kernels for about `seconds` each, the caches for half of that, and take the best runs."""
    target = Target.host()
    lanes = target.vector_lanes(dtypes.f32)
    levels = {
        name: _floats(size // 2, lanes) for name, size in _cache_shares(target, threads)
    }
    kernels = (
        _fma_kernel(lanes, threads),
        _read_kernel(
            "stream_read", lanes, threads, _floats(_STREAM_BYTES // threads, lanes), 1
        ),
        *(
            _read_kernel(name, lanes, threads, floats, _CACHE_FLOATS // floats or 1)
            for name, floats in levels.items()
        ),
    )
    backend = backend_of(target)
    compiled = backend.generate(kernels, target)
    image = backend.link(compiled, "roofline", target)
    library = load_library(backend.image_format(target), image, "roofline")
    pool = native.Pool(threads)
    sink = native.Memory(4 * lanes * _CHAINS * threads)
    data = native.Memory(_STREAM_BYTES)
    np.frombuffer(memoryview(data), np.float32)[:] = 0.0

    def run(name: str, buffers: list[native.Memory], seconds: float = seconds) -> float:
        recorder = Recorder()
        slots = [recorder.slot(b.size_bytes, writable=True) for b in buffers]
        bindings = [(s, 0, b.size_bytes) for s, b in zip(slots, buffers, strict=True)]
        recorder.kernel(library, library.exports[name], bindings, (threads, 1, 1))
        commands = recorder.build()
        best, stop = float("inf"), time.perf_counter() + seconds
        while time.perf_counter() < stop:
            start = time.perf_counter()
            commands.run(pool, buffers)
            best = min(best, time.perf_counter() - start)
        return best

    flops = 2 * lanes * _CHAINS * _STEPS * threads / run("fma_peak", [sink])
    share = _floats(_STREAM_BYTES // threads, lanes)
    read_bytes = 4 * share * threads / run("stream_read", [data, sink])
    caches: list[tuple[str, float]] = []
    for name, floats in levels.items():
        total = 4 * floats * (_CACHE_FLOATS // floats or 1) * threads
        caches.append((name, total / run(name, [data, sink], seconds / 2)))
    pool.close()
    return Roofline(threads, flops, read_bytes, tuple(caches))


def _cache_shares(target: Target, threads: int) -> Iterator[tuple[str, int]]:
    """What of each cache one of `threads` threads has to itself, farthest first."""
    caches = target.caches
    for name, size in (
        ("L3", caches.l3_bytes // threads),
        ("L2", caches.l2_bytes),
        ("L1", caches.l1d_bytes),
    ):
        if size and size * threads <= _STREAM_BYTES:
            yield name, size


def _floats(size_bytes: int, lanes: int) -> int:
    """Floats of so many bytes, in whole steps of the reading loop."""
    return size_bytes // 4 // (_SUMS * lanes) * (_SUMS * lanes)


def _loop(name: str, extent: int, body: Body, kind: LoopKind = LoopKind.SERIAL) -> For:
    return For(Symbol(name, 0, extent - 1), extent, body, kind)


def _fma_kernel(lanes: int, threads: int) -> Kernel:
    """Each workgroup: `_CHAINS` accumulators, `_STEPS` fused multiply-adds on each."""
    sink = Buffer("sink", dtypes.f32, (threads * _CHAINS * lanes,))
    chains = Buffer("chains", dtypes.f32, (_CHAINS * lanes,), Space.REGISTER)
    c, v, w = symbol("c"), symbol("v"), symbol("w")
    place = (c * lanes + v,)

    def all_chains(statement: Statement) -> Statement:
        lane_loop = _loop("v", lanes, (statement,), LoopKind.VECTOR)
        return _loop("c", _CHAINS, (lane_loop,), LoopKind.UNROLL)

    half: Expression = Const(0.5, dtypes.f32)
    step = Fma(Load(chains, place), half, half, dtypes.f32)
    body = (
        all_chains(Store(chains, place, half)),
        _loop("t", _STEPS, (all_chains(Store(chains, place, step)),)),
        all_chains(
            Store(sink, (w * (_CHAINS * lanes) + c * lanes + v,), Load(chains, place)),
        ),
    )
    grid = _loop("w", threads, body, LoopKind.GRID_X)
    return Kernel("fma_peak", (Parameter(sink, AccessMode.WRITE),), (), (chains,), (grid,))


def _read_kernel(name: str, lanes: int, threads: int, share: int, repeats: int) -> Kernel:
    """Each workgroup sums its `share` floats `repeats` times in `_SUMS` vector accumulators."""
    data = Buffer("data", dtypes.f32, (_STREAM_BYTES // 4,))
    sink = Buffer("sink", dtypes.f32, (threads * _CHAINS * lanes,))
    sums = Buffer("sums", dtypes.f32, (_SUMS * lanes,), Space.REGISTER)
    c, v, w, t = symbol("c"), symbol("v"), symbol("w"), symbol("t")
    place = (c * lanes + v,)

    def all_sums(statement: Statement) -> Statement:
        lane_loop = _loop("v", lanes, (statement,), LoopKind.VECTOR)
        return _loop("c", _SUMS, (lane_loop,), LoopKind.UNROLL)

    item = Load(data, (w * share + t * (_SUMS * lanes) + c * lanes + v,))
    add = Binary("add", Load(sums, place), item, dtypes.f32)
    once = _loop("t", share // (_SUMS * lanes), (all_sums(Store(sums, place, add)),))
    body = (
        all_sums(Store(sums, place, Const(0.0, dtypes.f32))),
        once if repeats == 1 else _loop("r", repeats, (once,)),
        all_sums(Store(sink, (w * (_CHAINS * lanes) + c * lanes + v,), Load(sums, place))),
    )
    parameters = (Parameter(data, AccessMode.READ), Parameter(sink, AccessMode.WRITE))
    grid = _loop("w", threads, body, LoopKind.GRID_X)
    return Kernel(name, parameters, (), (sums,), (grid,))
