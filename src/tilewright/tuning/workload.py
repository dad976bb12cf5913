"""A kernel with tensors to run on: points of its space as machine code, the same bytes for all.

Weights are there several times and read by turns, for in a model the others have driven them out of the caches
before their next use; what other kernels made just before is warm.  Integers that may be indices are 0, which is an index of
everything.  Not here: which points (`search`) and how they are compared (`comparison`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError
from tilewright.base.random_numbers import random_generator
from tilewright.base.symbolic import Dim, evaluate, symbols
from tilewright.compiler.analysis.sizes import estimate, likely_sizes
from tilewright.compiler.backends.backend import CompiledKernel
from tilewright.compiler.backends.kernel_cache import KernelRequest
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.ir import AccessMode, Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.program.signature import signature_of
from tilewright.runtime import native
from tilewright.runtime.loaders.library_image import load_library
from tilewright.runtime.recorder import Grid, Recorder

_DRAWN: Final = 1 << 16
_STREAM_BYTES: Final = 64 << 20
"""Weights that are read by turns: more than caches hold."""
_SAMPLE_NS: Final = 400_000
_MOST_REPEATS: Final = 256
_TOLERANCE: Final = 1e-3
"""Of the largest element: what rounding in another order may come to; what is wrong is further off."""

Array = np.ndarray[Any, Any]


@final
@dataclass(frozen=True, eq=False)
class Runnable:
    """A point as code on its tensors.

    Attributes:
        decisions: the point, as text.
        code: the function's symbol, made of its content: equal points have one.
        commands: all runs of one call.
    """

    decisions: str
    code: str
    commands: native.CommandList
    buffers: tuple[native.Memory, ...]
    pool: native.Pool | None

    def __call__(self) -> None:
        """Run it as often as the workload says."""
        self.commands.run(self.pool, self.buffers)


@final
class Workload:
    """The tensors of one kernel.

    Args:
        request: the kernel, without decisions.
        constants: which of its parameters are weights.
        dims: values of sizes that are known only in calls; others are guessed.
        pool: the threads.
        cache: keeps what is compiled.
    """

    def __init__(
        self,
        request: KernelRequest,
        constants: Sequence[int],
        *,
        dims: Mapping[str, int],
        pool: native.Pool | None,
        cache: CompilationCache | None = None,
        jobs: int = 1,
    ) -> None:
        naive = request.naive
        self.request: Final = request
        self.repeats: int = 1
        self._pool: Final = pool
        self._cache: Final = cache
        self._jobs: Final = jobs
        self._dims: Final = _sizes(naive, dims)
        self._types: Final = [
            TensorType(p.buffer.dtype, p.buffer.shape) for p in naive.parameters
        ]
        self._written: Final = [p.access.writes for p in naive.parameters]
        sizes = [self._bytes(type_) for type_ in self._types]
        weights = sum(sizes[i] for i in constants)
        copies = min(_MOST_REPEATS, max(1, _STREAM_BYTES // max(1, weights)))
        self._copies: Final = dict.fromkeys(constants, copies)
        chance = random_generator(0)
        self._tensors: Final = [
            _filled(
                native.Memory(max(1, size) * self._copies.get(i, 1)),
                type_.dtype,
                max(1, size),
                chance,
                is_plain=naive.parameters[i].access is AccessMode.FIXED,
            )
            for i, (type_, size) in enumerate(zip(self._types, sizes, strict=True))
        ]
        self._sizes: Final = sizes
        self._expected: list[Array] | None = None

    @staticmethod
    def size_bytes(naive: Kernel, dims: Mapping[str, int]) -> int:
        """What the tensors of a kernel take, each once."""
        env = _sizes(naive, dims)
        return sum(
            _number(TensorType(p.buffer.dtype, p.buffer.shape).size_bytes, env)
            for p in naive.parameters
        )

    def build(self, points: Sequence[Any]) -> list[Runnable]:
        """Points of the kernel's space as code, the first of all made what the others are held against.

        Raises: InternalError with kernel and decisions where a point computes something else.
        """
        kernels: list[Kernel] = []
        for number, point in enumerate(points):
            scheduled = replace(self.request, decisions=point).schedule()
            kernels.append(replace(scheduled, name=f"point_{number}"))
        target = self.request.target
        backend = backend_of(target)
        compiled = backend.generate(kernels, target, jobs=self._jobs, cache=self._cache)
        image = backend.link(compiled, "tuning", target, cache=None)
        library = load_library(backend.image_format(target), image, "tuning")
        made = [
            self._recorded(str(point), kernel, code, library)
            for point, kernel, code in zip(points, kernels, compiled, strict=True)
        ]
        for runnable in made:
            self._check(runnable)
        return made

    def settle(
        self, runnable: Runnable, clock: Callable[[], int] = time.perf_counter_ns
    ) -> float:
        """Say how often points run in one call, from how long one takes.  Returns: its nanoseconds."""
        times: list[int] = []
        for _ in range(3):
            begin = clock()
            runnable()
            times.append(clock() - begin)
        took = max(1, min(times)) / self.repeats
        self.repeats = max(1, min(_MOST_REPEATS, int(_SAMPLE_NS / took)))
        return took

    def _recorded(
        self, decisions: str, kernel: Kernel, code: CompiledKernel, library: Any
    ) -> Runnable:
        signature = signature_of(kernel)
        recorder = Recorder()
        tensors = list(self._tensors)
        for _, type_ in signature.parameters[len(tensors) :]:
            tensors.append(native.Memory(max(1, self._bytes(type_))))
        slots = [recorder.slot(each.size_bytes, writable=True) for each in tensors]
        grid = cast("Grid", tuple(_number(d, self._dims) for d in signature.grid))
        constants = [self._dims[s.name] for s in signature.dims]
        for turn in range(self.repeats):
            places: list[tuple[int, int, int]] = []
            for i, (slot, (_, type_)) in enumerate(
                zip(slots, signature.parameters, strict=True)
            ):
                size = self._bytes(type_)
                places.append((slot, turn % self._copies.get(i, 1) * max(1, size), size))
            recorder.kernel(
                library, library.exports[signature.name], places, grid, constants
            )
        return Runnable(
            decisions, code.export.function, recorder.build(), tuple(tensors), self._pool
        )

    def _check(self, runnable: Runnable) -> None:
        """Hold the results against those of the first point.  Raises: InternalError."""
        results = [i for i, is_written in enumerate(self._written) if is_written]
        for i in results:
            np.frombuffer(memoryview(self._tensors[i]), np.uint8)[:] = 0
        runnable()
        found = [self._values(i) for i in results]
        if self._expected is None:
            self._expected = [each.copy() for each in found]
            return
        for got, want in zip(found, self._expected, strict=True):
            if not _is_same(got, want):
                raise InternalError(
                    f"decisions give another result: {runnable.decisions}\n"
                    f"{kernel_text(self.request.naive)}",
                    location=f"kernel '{self.request.naive.name}'",
                )

    def _values(self, parameter: int) -> Array:
        data = memoryview(self._tensors[parameter])[: self._sizes[parameter]]
        return np.frombuffer(data, self._types[parameter].dtype.numpy)

    def _bytes(self, type_: TensorType) -> int:
        return _number(type_.size_bytes, self._dims)


def _sizes(naive: Kernel, dims: Mapping[str, int]) -> dict[str, int]:
    """A value of every size that is known only in calls."""
    found = {s.name: s for s in naive.dims}
    for parameter in naive.parameters:
        for dim in parameter.buffer.shape:
            found |= {s.name: s for s in symbols(dim)}
    guessed = likely_sizes(found.values())
    return {name: dims.get(name, estimate(guessed[name])) for name in found}


def _number(dim: Dim, env: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else evaluate(dim, env)


def _filled(
    memory: native.Memory,
    dtype: DType,
    size: int,
    chance: np.random.Generator,
    *,
    is_plain: bool = False,
) -> native.Memory:
    """Memory of tensors beside each other, filled with the same plausible values.

    Plain numbers are what kernels count on where a model fixes them.
    """
    data = np.frombuffer(memoryview(memory), np.uint8)
    if dtype.is_float and is_plain:
        drawn = chance.uniform(0.01, 0.9, _DRAWN).astype(dtype.numpy).view(np.uint8)
    elif dtype.is_float:
        drawn = chance.standard_normal(_DRAWN).astype(dtype.numpy).view(np.uint8)
    elif dtype.is_bool:
        drawn = (chance.random(_DRAWN) < 0.5).view(np.uint8)
    elif dtype.itemsize == 1:
        drawn = chance.integers(0, 128, _DRAWN).astype(np.uint8)
    else:
        drawn = np.zeros(1, np.uint8)
    one = np.resize(drawn, size)
    for start in range(0, data.size, size):
        data[start : start + size] = one
    return memory


def _is_same(got: Array, want: Array) -> bool:
    if got.tobytes() == want.tobytes():
        return True
    if got.dtype.kind in "iub":
        return False
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    largest = float(np.max(np.abs(b[finite]), initial=0.0))
    limit = _TOLERANCE * largest + math.ulp(1.0)
    return bool(np.allclose(a, b, rtol=_TOLERANCE, atol=limit, equal_nan=True))
