"""Kernels to objects to one executable: the front of the LLVM backend.

    kernels → IR text → (cache) → objects → + library tables → one ELF image

Small work is done in this process, large work by worker processes while further kernels are
written.  Called by the pipeline.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, final

from tilewright.base.target import Target
from tilewright.compiler.codegen.cache import CompilationCache
from tilewright.compiler.codegen.llvm.function import TRIPLES, KernelModule, emit_kernel
from tilewright.compiler.codegen.llvm.machine import object_code, timed_object_code
from tilewright.compiler.codegen.llvm.options import Options
from tilewright.compiler.codegen.llvm.pool import Task, WorkerPool, shared_pool
from tilewright.compiler.codegen.llvm.version import llvm_identity
from tilewright.compiler.kernel.ir import Kernel
from tilewright.formats.elf import link_shared
from tilewright.formats.executable import (
    LOCAL_MEMORY_PAGE_BYTES,
    ExportDecl,
    library_tables_ir,
)

Progress = Callable[[int, int, str], None]
"""Called with kernels done, kernels in all, and the name of the last one."""

SECONDS_PER_LINE: Final = 3e-5
"""What LLVM takes for one line of our IR, roughly."""
INLINE_SECONDS: Final = 0.6
"""Less work than this is not worth starting processes."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """One kernel as object code.

    Attributes:
        object_bytes: a relocatable object that defines `export.function`.
        object_key: where the cache keeps it.
        llvm_ir: what it was made of.
        seconds: time LLVM took; 0 when the cache had it.
    """

    name: str
    object_bytes: bytes
    object_key: str
    llvm_ir: str
    export: ExportDecl
    seconds: float = 0.0


def export_of(module: KernelModule) -> ExportDecl:
    """The declaration of a kernel in the library's tables."""
    pages = -(-module.local_memory_bytes // LOCAL_MEMORY_PAGE_BYTES)
    return ExportDecl(
        name=module.name,
        symbol=module.symbol,
        constant_count=module.constant_count,
        binding_count=module.binding_count,
        local_memory_pages=pages,
    )


def settings_of(target: Target, options: Options) -> dict[str, str | int]:
    """What LLVM is told besides the text."""
    return {
        "triple": TRIPLES[target.arch],
        "cpu": target.cpu,
        "features": feature_string(target),
        "opt": options.opt,
    }


def feature_string(target: Target) -> str:
    """The target's features for LLVM; spelled out where its CPU rows say less than ours."""
    if target.arch != "riscv64":
        return target.llvm_features
    return ",".join(f"+{name}" for name in sorted(target.features))


@final
@dataclass(slots=True, eq=False)
class _Run:
    """One call of `compile_kernels`: which objects are wanted, and those that are there."""

    settings: dict[str, str | int]
    total: int
    jobs: int
    cache: CompilationCache | None
    progress: Progress | None
    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    waiting: list[KernelModule] = field(default_factory=list)
    users: dict[str, list[str]] = field(default_factory=dict)
    workers: WorkerPool | None = None
    results: queue.SimpleQueue[tuple[KernelModule, bytes | Exception, float]] = field(
        default_factory=queue.SimpleQueue
    )
    under_way: int = 0
    done: int = 0
    is_wanted: bool = True

    def want(self, module: KernelModule) -> None:
        """Ask for the object of a module."""
        symbol = module.symbol
        if symbol in self.objects:
            self._tell(module.name)
            return
        self.users.setdefault(symbol, []).append(module.name)
        if symbol in self.keys:
            return
        self.keys[symbol] = _object_key(module.text, self.settings)
        known = None if self.cache is None else self.cache.get(self.keys[symbol])
        if known is not None:
            self._keep(module, known, 0.0)
            return
        self.waiting.append(module)
        if self.workers is not None or self._is_large():
            self._hand_out()
        self._collect(block=False)

    def _is_large(self) -> bool:
        lines = sum(module.text.count("\n") for module in self.waiting)
        return self.jobs > 1 and lines * SECONDS_PER_LINE > INLINE_SECONDS

    def _hand_out(self) -> None:
        if self.workers is None:
            try:
                self.workers = shared_pool(self.jobs)
            except OSError:  # no thread to be had: `finish` does it alone
                self.jobs = 1
                return
        for module in self.waiting:
            self.workers.submit(self._task(module))
            self.under_way += 1
        self.waiting.clear()

    def _task(self, module: KernelModule) -> Task:
        results = self.results

        def done(result: bytes | Exception, seconds: float) -> None:
            results.put((module, result, seconds))

        return Task(module.name, self.settings, module.text, done, lambda: self.is_wanted)

    def _collect(self, *, block: bool) -> None:
        while self.under_way:
            try:
                module, result, seconds = self.results.get(block=block)
            except queue.Empty:
                return
            self.under_way -= 1
            if isinstance(result, Exception):
                raise result
            self._store(module, result, seconds)

    def _store(self, module: KernelModule, code: bytes, seconds: float) -> None:
        if self.cache is not None:
            self.cache.put(self.keys[module.symbol], code)
        self._keep(module, code, seconds)

    def _keep(self, module: KernelModule, code: bytes, seconds: float) -> None:
        self.objects[module.symbol] = (code, seconds)
        for name in self.users.pop(module.symbol, []):
            self._tell(name)

    def _tell(self, name: str) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total, name)

    def finish(self) -> None:
        """Wait until every object is there."""
        for module in self.waiting:
            code, seconds = timed_object_code(module.text, **self.settings)
            self._store(module, code, seconds)
        self.waiting.clear()
        self._collect(block=True)


def compile_kernels(
    kernels: Sequence[Kernel],
    target: Target,
    *,
    jobs: int = 1,
    cache: CompilationCache | None = None,
    progress: Progress | None = None,
    options: Options | None = None,
) -> tuple[CompiledKernel, ...]:
    """Object code for every kernel, equal ones compiled once.

    Args:
        kernels: machine-lowered kernels (`lowering.machine.lower`).
        target: the CPU.
        jobs: processes that may work at a time; 1 = this one only.
        cache: objects made before; new ones are put there, trimming it is the caller's.
        progress: told after every kernel, from this thread.
        options: how LLVM is asked.

    Raises:
        InternalError: LLVM rejects the code of a kernel (`dump` has the text), or a worker died.
    """
    settings = settings_of(target, options or Options())
    run = _Run(settings, len(kernels), jobs, cache, progress)
    modules: list[KernelModule] = []
    try:
        for kernel in kernels:
            module = emit_kernel(kernel, target)
            modules.append(module)
            run.want(module)
        run.finish()
    finally:
        run.is_wanted = False  # after an error; others may be using the workers
    return tuple(
        _compiled(module, settings, *run.objects[module.symbol]) for module in modules
    )


def compile_module(
    module: KernelModule, target: Target, options: Options | None = None
) -> CompiledKernel:
    """Object code of one module, made here and now."""
    settings = settings_of(target, options or Options())
    return _compiled(module, settings, *timed_object_code(module.text, **settings))


def _compiled(
    module: KernelModule, settings: dict[str, str | int], code: bytes, seconds: float
) -> CompiledKernel:
    return CompiledKernel(
        name=module.name,
        object_bytes=code,
        object_key=_object_key(module.text, settings),
        llvm_ir=module.text,
        export=export_of(module),
        seconds=seconds,
    )


def _object_key(text: str, settings: dict[str, str | int]) -> str:
    return CompilationCache.key(text, llvm_identity(), *map(str, settings.values()))


def link_executable(
    compiled: Sequence[CompiledKernel],
    name: str,
    target: Target,
    *,
    cache: CompilationCache | None = None,
) -> bytes:
    """One embedded ELF image that exports `compiled` by ordinal, in their order."""
    exports = [kernel.export for kernel in compiled]
    settings = settings_of(target, Options(opt=0))
    head = f'target triple = "{settings["triple"]}"\n'
    tables = _cached_object(head + library_tables_ir(name, exports), settings, cache)
    objects = {kernel.export.function: kernel.object_bytes for kernel in compiled}
    return link_shared(
        [*objects.values(), tables],
        names=[*(f"kernel '{symbol}'" for symbol in objects), "library tables"],
        machine=target.arch,
    )


def _cached_object(
    text: str, settings: dict[str, str | int], cache: CompilationCache | None
) -> bytes:
    if cache is None:
        return object_code(text, **settings)
    key = _object_key(text, settings)
    known = cache.get(key)
    if known is None:
        known = object_code(text, **settings)
        cache.put(key, known)
    return known
