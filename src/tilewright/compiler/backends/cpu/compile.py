"""Kernels to objects to one executable: the front of the LLVM backend.

    kernels → IR text → (cache) → objects → + library tables → one ELF image

LLVM works in worker processes, one for small work and several for large, while further kernels are
scheduled; what it cannot go on with ends a worker, never this process.  Small work is written as IR here, for
what writes it takes as long to load as some kernels; the rest of large work is handed over as kernels (`handover`).
Called by the pipeline.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Literal, final

from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.record import field, record
from tilewright.base.target import Target
from tilewright.compiler.backends.backend import CompiledKernel, Progress, export_of
from tilewright.compiler.backends.cpu import handover
from tilewright.compiler.backends.cpu.llvm_binding import (
    ARGUMENTS,
    MODULE_SEPARATOR,
    Settings,
)
from tilewright.compiler.backends.cpu.options import Options
from tilewright.compiler.backends.cpu.pool import Task, generate_here, shared_pool
from tilewright.compiler.backends.cpu.version import object_key
from tilewright.compiler.backends.cpu.worker import Product
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.linker import link_shared
from tilewright.compiler.printers.llvm_text.module import (
    FUNCTION_ATTRIBUTES,
    SYSTEM_TRIPLES,
    TRIPLES,
    KernelModule,
)
from tilewright.formats.executable import LOCAL_MEMORY_PAGE_BYTES, library_tables_ir

SECONDS_PER_LINE: Final = 3e-5
"""What LLVM takes for one line of our IR, roughly."""
ONE_WORKER_SECONDS: Final = 0.6
"""Less work than this is not worth starting a second process."""

_Writer = Callable[[Kernel], KernelModule]
_Taker = Callable[[bytes, float], None]
"""Puts away an answer and the seconds it took."""


def settings_of(target: Target, options: Options) -> Settings:
    """What LLVM is told besides the text."""
    return {
        "triple": TRIPLES[target.arch],
        "cpu": target.llvm_cpu,
        "features": feature_string(target),
        "opt": options.opt,
        "arguments": " ".join(ARGUMENTS),
    }


def feature_string(target: Target) -> str:
    """The target's features for LLVM; spelled out where its CPU rows say less than ours."""
    if target.arch != "riscv64":
        return target.llvm_features
    return ",".join(f"+{name}" for name in sorted(target.features))


@final
@record(eq=False, frozen=False)
class _Run:
    """One compilation: which objects are wanted, and those that are there; `modules` are those of the kernels, by their places."""

    target: Target
    settings: Settings
    jobs: int
    cache: CompilationCache | None
    progress: Progress | None
    modules: dict[int, KernelModule] = field(default_factory=dict)
    objects: dict[str, tuple[bytes, float]] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    users: dict[str, list[str]] = field(default_factory=dict)
    lines: int = 0
    answers: queue.SimpleQueue[tuple[_Taker, bytes | Exception, float]] = field(
        default_factory=queue.SimpleQueue
    )
    under_way: int = 0
    done: int = 0
    is_wanted: bool = True

    @property
    def is_large(self) -> bool:
        """Whether there is more work than is worth keeping to one worker."""
        return self.lines * SECONDS_PER_LINE > ONE_WORKER_SECONDS

    def want_kernel(self, place: int, kernel: Kernel, write: _Writer) -> None:
        """Ask for the module of a kernel, and its object."""
        is_given = self.is_large and self.jobs > 1
        data = handover.packed(kernel, self.target, self.cache) if is_given else None
        if data is None:
            self.want(place, write(kernel))
        else:
            taker = partial(self._take, place, partial(write, kernel))
            self._submit(kernel.name, "kernel", data, taker)
        # Not where work is submitted: what is put away may submit more, each inside of the one before.
        self._collect(block=False)

    def want(self, place: int, module: KernelModule) -> None:
        """Ask for the object of a module."""
        self.modules[place] = module
        symbol = module.symbol
        if symbol in self.objects:
            self._tell(module.name)
            return
        self.users.setdefault(symbol, []).append(module.name)
        if symbol in self.keys:
            return
        self.keys[symbol] = object_key(module.text, self.settings)
        known = None if self.cache is None else self.cache.get(self.keys[symbol])
        if known is not None:
            self._keep(module, known, 0.0)
            return
        self.lines += module.text.count("\n")
        self._submit(module.name, "object", module.text, partial(self._store, module))

    def _submit(
        self, name: str, product: Product, content: str | bytes, taker: _Taker
    ) -> None:
        answers = self.answers
        task = Task(
            f"kernel '{name}'",
            str(self.target),
            self.settings,
            content,
            lambda result, seconds: answers.put((taker, result, seconds)),
            lambda: self.is_wanted,
            product,
        )
        self.under_way += 1
        _submit(task, self.jobs if self.is_large else 1)

    def _collect(self, *, block: bool) -> None:
        while self.under_way:
            try:
                taker, result, seconds = self.answers.get(block=block)
            except queue.Empty:
                return
            self.under_way -= 1
            if isinstance(result, Exception):
                raise result
            taker(result, seconds)

    def _take(
        self, place: int, write: Callable[[], KernelModule], payload: bytes, _: float
    ) -> None:
        """Put away what a worker made of a whole kernel; what it could not write is written, or fails, here."""
        made = handover.unpacked(payload)
        if made is None:
            self.want(place, write())
            return
        module = self.modules[place] = made.module
        self.keys[module.symbol] = object_key(module.text, self.settings)
        self.users.setdefault(module.symbol, []).append(module.name)
        if made.seconds:
            self._store(module, made.code, made.seconds)
        else:
            self._keep(module, made.code, 0.0)

    def _store(self, module: KernelModule, code: bytes, seconds: float) -> None:
        if self.cache is not None:
            self.cache.put(self.keys[module.symbol], code)
        self._keep(module, code, seconds)

    def _keep(self, module: KernelModule, code: bytes, seconds: float) -> None:
        self.objects.setdefault(module.symbol, (code, seconds))
        for name in self.users.pop(module.symbol, []):
            self._tell(name)

    def _tell(self, name: str) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, name)

    def finish(self, wanted: Iterable[Callable[[], None]]) -> tuple[CompiledKernel, ...]:
        """Ask for all that is wanted, place by place, and wait until every object is there."""
        try:
            for ask in wanted:
                ask()
            self._collect(block=True)
        finally:
            self.is_wanted = False  # after an error; others may be using the workers
        return tuple(self._compiled(self.modules[i]) for i in range(len(self.modules)))

    def _compiled(self, module: KernelModule) -> CompiledKernel:
        code, seconds = self.objects[module.symbol]
        return CompiledKernel(
            name=module.name,
            object_bytes=code,
            object_key=self.keys[module.symbol],
            source=module.text,
            export=export_of(module),
            seconds=seconds,
        )


def _submit(task: Task, count: int) -> None:
    """Have a request answered by one of at least `count` workers."""
    try:
        workers = shared_pool(count)
    except OSError:  # no thread to be had
        task.done(*generate_here(task))
        return
    workers.submit(task)


def _answer(
    name: str, target: Target, settings: Settings, text: str, product: Product
) -> tuple[bytes, float]:
    """What LLVM makes of a module, and the seconds it took; waits.  Raises: as `compile_kernels`."""
    answers: queue.SimpleQueue[tuple[bytes | Exception, float]] = queue.SimpleQueue()
    is_wanted = [True]
    task = Task(
        name,
        str(target),
        settings,
        text,
        lambda result, seconds: answers.put((result, seconds)),
        lambda: bool(is_wanted),
        product,
    )
    try:
        _submit(task, 1)
        result, seconds = answers.get()
    finally:
        is_wanted.clear()
    if isinstance(result, Exception):
        raise result
    return result, seconds


def compile_kernels(
    kernels: Iterable[Kernel],
    write: _Writer,
    target: Target,
    *,
    jobs: int = 1,
    cache: CompilationCache | None = None,
    progress: Progress | None = None,
    options: Options | None = None,
) -> tuple[CompiledKernel, ...]:
    """Object code for every scheduled kernel; those whose IR is equal have one object.

    Such IR is compiled once, unless workers that write it have it at the same time, or there is no cache to tell them.

    Args:
        kernels: scheduled; workers have the first while further ones are made.
        write: makes LLVM IR of a kernel, as a worker would.
        target: the CPU.
        jobs: processes that may work at a time.
        cache: objects made before; new ones are put there, trimming it is the caller's.
        progress: told after every kernel, from this thread.
        options: how LLVM is asked.

    Raises:
        InternalError: LLVM rejects the code of a kernel (with the text), or a worker died of it.
        TargetError: LLVM has no such target.
    """
    settings = settings_of(target, options or Options())
    run = _Run(target, settings, jobs, cache, progress)
    return run.finish(
        partial(run.want_kernel, place, kernel, write)
        for place, kernel in enumerate(kernels)
    )


def for_system(
    compiled: Sequence[CompiledKernel],
    target: Target,
    *,
    cache: CompilationCache | None = None,
) -> tuple[CompiledKernel, ...]:
    """The kernels with objects for the linkers of the target's system.

    On Linux they have those already; elsewhere others are made of the same LLVM IR, with the object
    format and the calls of that system.

    Raises: as `compile_kernels`.
    """
    if target.os not in SYSTEM_TRIPLES:
        return tuple(compiled)
    triple = SYSTEM_TRIPLES[target.os].format(arch=target.arch)
    settings = {**settings_of(target, Options()), "triple": triple}
    run = _Run(target, settings, 1, cache, None)
    return run.finish(
        partial(run.want, place, _for_triple(kernel, triple))
        for place, kernel in enumerate(compiled)
    )


def _for_triple(kernel: CompiledKernel, triple: str) -> KernelModule:
    head, _, body = kernel.source.partition("\n")
    assert head.startswith("target triple"), "written by emit_kernel"
    return KernelModule(
        name=kernel.name,
        symbol=kernel.export.function,
        text=f'target triple = "{triple}"\n{body}',
        constant_count=kernel.export.constant_count,
        binding_count=kernel.export.binding_count,
        local_memory_bytes=kernel.export.local_memory_pages * LOCAL_MEMORY_PAGE_BYTES,
    )


def joined_text(
    kernels: Sequence[tuple[CompiledKernel, Target]], product: Literal["module", "assembly"]
) -> str:
    """All kernels, of several targets, too, as one LLVM module or its assembly.

    Every function says which CPU it is for.  Kernels that share a symbol are one.
    """
    target = kernels[0][1]
    texts = {k.export.function: _with_cpu(k.source, t) for k, t in kernels}
    triple = SYSTEM_TRIPLES.get(target.os, TRIPLES[target.arch]).format(arch=target.arch)
    settings = {**settings_of(target, Options()), "triple": triple}
    text = MODULE_SEPARATOR.join(texts.values())
    return _answer("all kernels", target, settings, text, product)[0].decode()


def _with_cpu(llvm_ir: str, target: Target) -> str:
    cpu = f'"target-cpu"="{target.llvm_cpu}" "target-features"="{feature_string(target)}"'
    return llvm_ir.replace(FUNCTION_ATTRIBUTES, f"{FUNCTION_ATTRIBUTES} {cpu}", 1)


def assembly_text(
    llvm_ir: str, target: Target, options: Options | None = None, *, name: str = "module"
) -> str:
    """The assembly of a module; `name` is what errors call it."""
    settings = settings_of(target, options or Options())
    return _answer(name, target, settings, llvm_ir, "assembly")[0].decode()


def link_executable(
    compiled: Sequence[CompiledKernel],
    name: str,
    target: Target,
    *,
    cache: CompilationCache | None = None,
) -> bytes:
    """One embedded ELF image that exports `compiled` by ordinal, in their order."""
    exports = [kernel.export for kernel in compiled]
    head = f'target triple = "{TRIPLES[target.arch]}"\n'
    tables = _library_tables(head + library_tables_ir(name, exports), target, cache)
    objects = {kernel.export.function: kernel.object_bytes for kernel in compiled}
    return link_shared(
        [*objects.values(), tables],
        names=[*(f"kernel '{symbol}'" for symbol in objects), "library tables"],
        machine=target.arch,
    )


def _library_tables(text: str, target: Target, cache: CompilationCache | None) -> bytes:
    settings = settings_of(target, Options(opt=0))
    key = object_key(text, settings)
    known = None if cache is None else cache.get(key)
    if known is None:
        known, _ = _answer("library tables", target, settings, text, "object")
        if cache is not None:
            cache.put(key, known)
    return known
