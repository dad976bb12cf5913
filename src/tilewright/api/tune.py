"""`tune`: find faster decisions for the kernels of a model by running them, and keep them for compilations.

Joins the roofs: compiles points of the spaces that schedules offer (`tuning`), runs them, and holds the end against the whole
model before compilations may use it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, final

from tilewright.api.model import Model, resolve_targets, watcher_of
from tilewright.api.model_inputs import random_inputs
from tilewright.base import knobs
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import TargetError, UserError
from tilewright.base.host import usable_cores
from tilewright.base.interrupts import answered
from tilewright.base.options import count_option, path_option, text_option, wrong
from tilewright.base.symbolic import symbols
from tilewright.base.target import Target
from tilewright.base.text import did_you_mean
from tilewright.compiler import pipeline
from tilewright.compiler.analysis.sizes import estimate, likely_sizes
from tilewright.compiler.backends.kernel_cache import KernelRequest
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.backends.tuning_store import TuningStore
from tilewright.compiler.frontends import onnx
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.lowering.kernel_uses import KernelUse, find_kernels
from tilewright.compiler.schedule.rules import Decisions, space_of
from tilewright.runtime import native
from tilewright.tuning import Comparison, Tuned, Tuner, compare, keep_what_helps
from tilewright.tuning.tuner import make_tuned, mark_checked
from tilewright.tuning.workload import Workload

__all__ = ["KernelTuning", "Tuning", "tune"]

_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "min": 60.0}
_MOST_BYTES: Final = 2 << 30
"""Of the tensors of a kernel: larger ones are not tuned."""
_CHECK_ROUNDS: Final = 31
_CHECK_SECONDS: Final = 4.0


@final
@dataclass(frozen=True, slots=True)
class KernelTuning:
    """What was found for a kernel.  Units: nanoseconds of one run, side by side."""

    name: str
    uses: int
    tried: int
    before_ns: float
    after_ns: float
    decisions: str

    @property
    def ratio(self) -> float:
        """Time after over time before; 1 where nothing better was found."""
        return self.after_ns / self.before_ns if self.before_ns else 1.0


@final
@dataclass(frozen=True, slots=True)
class Tuning:
    """What a run of `tune` came to.

    Units: nanoseconds of a call of the whole model, with and without what was found, side by side.

    Attributes:
        kernels: all that were looked at, those that save most first.
        dropped: how many kernels' decisions made the whole model slower, and were forgotten.
        tried: points that this run tried.
        is_done: nothing is left to try.
        is_interrupted: Ctrl-C ended it early.
        is_checked: the whole model was measured, so compilations use what was found.
    """

    store: Path
    kernels: tuple[KernelTuning, ...]
    before_ns: float
    after_ns: float
    dropped: int
    tried: int
    is_done: bool
    is_interrupted: bool
    is_checked: bool


def parse_budget(text: str | float) -> float:
    """Seconds of `60s`, `5m`, `1h`, `90`.  Raises: UserError."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|)\s*", str(text))
    if match is None or isinstance(text, bool):
        raise wrong("budget", text, "a time such as 60s, 5m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def tune(  # noqa: PLR0913 - options by name
    model: onnx.Source | Graph,
    *,
    budget: str | float = "60s",
    target: str | Target | None = None,
    threads: int | None = None,
    kernels: str = "*",
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    store: str | PathLike[str] | None = None,
    progress: pipeline.Progress | bool | None = None,
) -> Tuning:
    """Search faster decisions for the kernels of a model; later compilations use what is found.

    Kernels run alone, with random tensors of their shapes; what is found is then measured in the whole model, and dropped
    where that becomes slower.  A search that ended early goes on where it stopped.  Results of models stay as they are.

    Args:
        model: as for `compile`.
        budget: how long to search: `"60s"`, `"5m"`, or seconds; the check takes some seconds more.
        target: as for `compile`; one that this machine runs.
        threads: as for `compile`; what is found is used by compilations with the same.
        input_shapes: as for `compile`.
        kernels: a pattern of the names of those to tune (`"matmul_*"`).
        dims: values of dynamic dimensions, for kernels and the check; others are guessed.
        store: the file that keeps what is found; default: beside the cache of kernels.
        progress: as for `compile`.

    Returns: what was found; after Ctrl-C, what was found until then.
    Raises: as `compile`; UserError for a store that cannot be written; TargetError for code that does not run here.
    """
    seconds = parse_budget(budget)
    count = None if threads is None else count_option("threads", threads)
    (chosen,) = resolve_targets(target, None)
    cache = CompilationCache.default()
    options = pipeline.CompileOptions(
        targets=(_runnable(chosen),),
        threads=count or knobs.THREADS.get() or usable_cores(),
        jobs=knobs.JOBS.get() or usable_cores(),
        cache=cache,
        input_shapes=input_shapes,
    )
    kept_in = _store(store, cache)
    run = _Run(
        model, options, kept_in, dict(dims or {}), text_option("kernels", kernels, "kernel")
    )
    with watcher_of(progress) as watching:
        return run.finish(seconds, watching)


def _store(path: str | PathLike[str] | None, cache: CompilationCache | None) -> TuningStore:
    if path is not None:
        return TuningStore(Path(path_option("store", path)))
    if cache is None:
        raise UserError(
            "there is no cache, so nothing keeps what is found",
            hint="name a file: tilewright tune MODEL --store FILE",
        )
    return TuningStore.beside(cache)


def _runnable(target: Target) -> Target:
    host = Target.host()
    if target.arch != host.arch or not target.features <= host.features:
        raise TargetError(
            f"code for '{target}' does not run on this machine, '{host.cpu}'",
            hint="tune where the model shall run",
        )
    return target


@final
class _Chosen:
    """Decisions of a trial, as compilations ask for them."""

    def __init__(self, found: Mapping[str, Decisions]) -> None:
        self._found: Mapping[str, Decisions] = found

    def decisions(self, keys: Iterable[str]) -> Mapping[str, Decisions]:
        """Those of the keys."""
        return {key: self._found[key] for key in keys if key in self._found}


@final
class _Run:
    """One call of `tune`."""

    def __init__(
        self,
        model: onnx.Source | Graph,
        options: pipeline.CompileOptions,
        store: TuningStore,
        dims: dict[str, int],
        pattern: str,
    ) -> None:
        self._model: Final = model
        self._options: Final = options
        self._store: Final = store
        self._dims: dict[str, int] = dims
        self._pattern: Final = pattern
        self._sessions: dict[str, Model] = {}

    def finish(self, seconds: float, progress: pipeline.Progress) -> Tuning:
        """Search, check, and say what was found."""
        progress.phase("read the model")
        with _pool(self._options.threads) as pool:
            found = self._kernels(pool)
            tuner = Tuner(found, self._store, watch=partial(_show, progress))
            interrupted = _until_interrupt(partial(tuner.run, seconds))
        wanted = {
            kernel.request.key: kernel.search.best
            for kernel in sorted(found, key=lambda k: -k.gain_ns)
            if kernel.finding is not None
        }
        progress.phase("check the whole model")
        kept: dict[str, Decisions] = {}
        compared: list[Comparison] = []

        def check() -> None:
            kept.update(keep_what_helps(wanted, self._slowdown))
            # Where a session's memory lies favours one side: the last word has sessions of its own, elsewhere.
            before, self._sessions = self._sessions, {}
            compared.append(self._slowdown({}, kept))
            before.clear()
            if kept and compared[-1].ratio > 1.0:
                kept.clear()
            mark_checked(found, kept, self._store)

        if _until_interrupt(check):
            interrupted = True
        whole = compared[-1] if compared else Comparison(1.0, 0.0, 0.0)
        return Tuning(
            store=self._store.path,
            kernels=_rows(found),
            before_ns=whole.first_ns,
            after_ns=whole.first_ns * (whole.ratio if kept else 1.0),
            dropped=len(wanted) - len(kept) if compared else 0,
            tried=tuner.tried_now,
            is_done=all(kernel.is_done for kernel in found),
            is_interrupted=interrupted,
            is_checked=bool(compared),
        )

    def _kernels(self, pool: native.Pool | None) -> list[Tuned]:
        """The kernels that shall be tuned.  Raises: UserError where the pattern names none."""
        graph = pipeline.import_model(self._model, self._options).graph
        self._dims = _likely_dims(graph) | self._dims
        (graph,) = pipeline.optimize(graph, self._options)
        groups = find_kernels(graph)
        target = self._options.targets[0]
        requests = pipeline.make_requests(groups, target, self._options)
        found = [
            self._tuned(group, request, pool)
            for group, request in zip(groups, requests, strict=True)
            if fnmatchcase(request.naive.name, self._pattern)
            and Workload.size_bytes(request.naive, self._dims) <= _MOST_BYTES
        ]
        names = [request.naive.name for request in requests]
        if not found and names:
            hint = did_you_mean(self._pattern, names) or f"kernels: {' '.join(names)}"
            raise UserError(f"no kernel is called '{self._pattern}'", hint=hint)
        return found

    def _tuned(
        self, group: KernelUse, request: KernelRequest, pool: native.Pool | None
    ) -> Tuned:
        target = self._options.targets[0]
        machine = backend_of(target).machine_model(target)
        space = space_of(
            replace(request.naive, name="kernel"), machine, threads=self._options.threads
        )
        operands = [value for value in group.nodes[0].operands if value is not None]
        constants = [
            position
            for position, value in enumerate(operands)
            if value.node is not None and Trait.CONSTANT in value.node.schema.traits
        ]
        open_work = partial(
            Workload,
            request,
            constants,
            dims=self._dims,
            pool=pool,
            cache=self._options.cache,
            jobs=self._options.jobs,
        )
        return make_tuned(request, len(group.nodes), space, open_work, self._store)

    def _slowdown(
        self, first: Mapping[str, Decisions], second: Mapping[str, Decisions]
    ) -> Comparison:
        """The whole model with the second decisions beside the first ones."""
        before, after = self._compiled(first), self._compiled(second)
        inputs = self._inputs(before)
        begin = time.perf_counter()
        before.session(*inputs)
        took = max(1e-6, time.perf_counter() - begin)
        rounds = max(5, min(_CHECK_ROUNDS, int(_CHECK_SECONDS / (2 * took))))
        calls = max(1, int(2e-3 / took))
        return compare(
            partial(_call, before, inputs, calls),
            partial(_call, after, inputs, calls),
            rounds=rounds,
        ).per_call(calls)

    def _inputs(self, model: Model) -> list[Any]:
        wanted = {s for spec in model.inputs for s in _dims_of(spec)}
        return random_inputs(
            model.inputs, {n: v for n, v in self._dims.items() if n in wanted}
        )

    def _compiled(self, chosen: Mapping[str, Decisions]) -> Model:
        key = " ".join(sorted(chosen))
        if key not in self._sessions:
            if len(self._sessions) >= 3:
                self._sessions.pop(next(iter(self._sessions)))
            options = replace(self._options, store=_Chosen(chosen))
            compiled = pipeline.compile_model(self._model, options)
            self._sessions[key] = Model(compiled, threads=self._options.threads)
        return self._sessions[key]


def _likely_dims(graph: Graph) -> dict[str, int]:
    """A size of every dynamic dimension of the inputs: kernels and the whole model are run with the same."""
    found = {s.name: s for v in graph.inputs for dim in v.type.shape for s in symbols(dim)}
    return {name: estimate(size) for name, size in likely_sizes(found.values()).items()}


def _dims_of(spec: Any) -> list[str]:
    _, _, shape = spec
    return [s.name for dim in shape for s in symbols(dim)]


def _call(model: Model, inputs: Sequence[Any], times: int) -> None:
    for _ in range(times):
        model.session(*inputs)


def _show(progress: pipeline.Progress, text: str, part: float) -> None:
    progress.phase(f"tune {text}")
    progress.advance(int(100 * part), 100)


def _rows(found: Sequence[Tuned]) -> tuple[KernelTuning, ...]:
    return tuple(
        KernelTuning(
            kernel.name,
            kernel.uses,
            len(kernel.search.tried),
            kernel.ns if kernel.finding is None else kernel.finding.before_ns,
            kernel.ns if kernel.finding is None else kernel.finding.after_ns,
            str(kernel.search.start)
            if kernel.finding is None
            else kernel.finding.decisions,
        )
        for kernel in sorted(found, key=lambda k: (-k.gain_ns, -k.ns * k.uses))
    )


def _until_interrupt(action: Any) -> bool:
    """Run it; whether Ctrl-C ended it."""
    try:
        action()
    except KeyboardInterrupt:
        answered()
        return True
    return False


@contextmanager
def _pool(threads: int) -> Generator[native.Pool | None]:
    if threads == 1:
        yield None
        return
    with native.Pool(threads) as pool:
        yield pool
