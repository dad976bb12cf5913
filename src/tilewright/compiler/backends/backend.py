"""The contract of a back end: everything between a kernel's naive loops and the bytes that a runtime loads.

One object per back end, found by the word in a target (`registry`).  The pipeline, the cache of kernels,
packaging, the API and the command line know nothing else of it.

Each product on the way can be looked at as text, replaced and tested alone: a back end is an ordered tuple of
named stages, the only route from a scheduled kernel to source text.  What makes code of that text works
on many kernels at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, final

from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.dtypes import DType
from tilewright.base.errors import UserError
from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.base.text import did_you_mean
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.passes import GraphPass
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import Decisions
from tilewright.formats.byte_view import Buffer
from tilewright.formats.executable import LOCAL_MEMORY_PAGE_BYTES, ExportDecl

Progress = Callable[[int, str], None]
"""Called with how many kernels are done, and the name of the last one."""


@final
@record
class Stage:
    """One step of a back end.

    Attributes:
        name: what people call its product.
        summary: what holds after it, one line for people.
        run: the product of the stage before (a scheduled `Kernel` for the first) to its own.
        show: its product as text.
    """

    name: str
    summary: str
    run: Callable[[Any], Any]
    show: Callable[[Any], str]


def lowering_stage(name: str, summary: str, run: Callable[[Kernel], Kernel]) -> Stage:
    """A stage from kernel to kernel."""
    return Stage(name, summary, run, kernel_text)


@final
@record(kw_only=True)
class GraphForm:
    """What a back end makes of a graph before its kernels are written: passes of its own.

    Targets whose back ends want equal forms share one graph.

    Attributes:
        layout: in what order tensors lie, which contractions there are, how weights are packed.
        fusion: what becomes one kernel.
    """

    layout: tuple[GraphPass, ...]
    fusion: tuple[GraphPass, ...]


class SourceCode(Protocol):
    """What the last stage makes of a kernel: a function of a language with the kernel ABI.

    Units: `local_memory_bytes` of each workgroup.
    """

    @property
    def name(self) -> str:
        """The kernel's."""
        ...

    @property
    def symbol(self) -> str:
        """The function's name, made of its content: equal kernels are one."""
        ...

    @property
    def constant_count(self) -> int: ...

    @property
    def binding_count(self) -> int: ...

    @property
    def local_memory_bytes(self) -> int: ...


def export_of(code: SourceCode) -> ExportDecl:
    """The declaration of a kernel in a library's tables."""
    return ExportDecl(
        name=code.name,
        symbol=code.symbol,
        constant_count=code.constant_count,
        binding_count=code.binding_count,
        local_memory_pages=-(-code.local_memory_bytes // LOCAL_MEMORY_PAGE_BYTES),
    )


@final
@record(kw_only=True)
class CompiledKernel:
    """One kernel as code.

    Attributes:
        source: what it was made of: a text of the back end's language that stands alone.
        export: its declaration; `export.function` is the symbol that the text defines.
        object_bytes: a relocatable object that defines the symbol; empty where none is made before it is linked.
        object_key: where the cache keeps that object.
        seconds: time that making the object took; 0 when the cache had it.
    """

    name: str
    source: str
    export: ExportDecl
    object_bytes: bytes = b""
    object_key: str = ""
    seconds: float = 0.0


class Backend(Protocol):
    """One way to code for a kind of machine.  Stateless: what it does is said by the target."""

    @property
    def name(self) -> str:
        """The word that picks it in a target's text."""
        ...

    @property
    def language(self) -> str:
        """What its last stage writes, as people and archives call it: `llvm`, `c`."""
        ...

    @property
    def text_forms(self) -> tuple[str, ...]:
        """What `joined_text` can write, by the suffix of a file: `ll` LLVM IR, `s` assembly."""
        ...

    def identity(self, target: Target) -> str:
        """Changes with whatever outside of our sources decides the code: belongs into keys of caches."""
        ...

    def machine_model(self, target: Target) -> MachineModel:
        """What schedules and costs know of the machine."""
        ...

    def graph_form(
        self, target: Target, targets: Sequence[Target], dtypes: frozenset[DType]
    ) -> GraphForm:
        """The form of a graph with tensors of `dtypes` for a target: that of all `targets` of the back end, unless it costs."""
        ...

    def schedule(
        self,
        naive: Kernel,
        target: Target,
        *,
        threads: int,
        decisions: Decisions | None = None,
    ) -> Kernel:
        """The kernel with its loops tiled, fused and bound to a grid; without decisions by the best ones known."""
        ...

    def stages(self, target: Target) -> tuple[Stage, ...]:
        """The route from a scheduled kernel to source text, in order; all but the last give kernels."""
        ...

    def generate(
        self,
        kernels: Iterable[Kernel],
        target: Target,
        *,
        jobs: int = 1,
        cache: CompilationCache | None = None,
        progress: Progress | None = None,
    ) -> tuple[CompiledKernel, ...]:
        """Code for every scheduled kernel; equal ones share it.

        Args:
            kernels: each is asked for when the one before has gone through its stages, or to another process
                that has it go through them.
            target: the machine.
            jobs: processes that may work at a time.
            cache: code made before; new code is put there, trimming it is the caller's.
            progress: told after every kernel, from this thread.

        Raises: InternalError for code that cannot be compiled; TargetError for a machine there is no code for.
        """
        ...

    def image_format(self, target: Target) -> str:
        """The format of `link`, as loaders know it: `embedded-elf-x86_64`."""
        ...

    def link(
        self,
        compiled: Sequence[CompiledKernel],
        name: str,
        target: Target,
        *,
        cache: CompilationCache | None = None,
    ) -> Buffer:
        """One executable library that exports `compiled` by ordinal, in their order."""
        ...

    def objects(
        self,
        compiled: Sequence[CompiledKernel],
        target: Target,
        *,
        cache: CompilationCache | None = None,
    ) -> tuple[CompiledKernel, ...]:
        """The kernels with objects for the linkers of the target's system.

        Without objects where a compiler is to make them of the source.
        """
        ...

    def assembly(self, source: str, target: Target, *, name: str = "module") -> str:
        """The assembly of a kernel's source; `name` is what errors call it."""
        ...

    def joined_text(
        self, kernels: Sequence[tuple[CompiledKernel, Target]], form: str
    ) -> str:
        """All kernels, for several targets of the back end, too, as one text; those that share a symbol are one."""
        ...


def route(stages: Sequence[Stage], kernel: Kernel) -> Any:
    """What the last of the stages makes of a scheduled kernel."""
    product: Any = kernel
    for stage in stages:
        product = stage.run(product)
    return product


def lower(backend: Backend, kernel: Kernel, target: Target) -> Kernel:
    """The kernel that the last stage writes as text."""
    return route(backend.stages(target)[:-1], kernel)


def show(backend: Backend, kernel: Kernel, target: Target, name: str) -> str:
    """The product of one stage as text.

    Raises: UserError for a name that no stage has.
    """
    stages = backend.stages(target)
    names = [stage.name for stage in stages]
    if name not in names:
        raise UserError(
            f"back end '{backend.name}' has no stage '{name}'",
            hint=did_you_mean(name, names) or f"stages: {' '.join(names)}",
        )
    count = names.index(name) + 1
    return stages[count - 1].show(route(stages[:count], kernel))
