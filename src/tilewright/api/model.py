"""Compile a model: the artifact, loaded and callable, with every level of its compilation at hand.

Joins the two roofs.  Loading an artifact without the compiler is `api.load`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

from tilewright.api.kernel_view import KernelView
from tilewright.api.load import load, run_reference
from tilewright.api.profiling import CALLS
from tilewright.base import knobs
from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.diagnostics import Diagnostics
from tilewright.base.errors import UserError
from tilewright.base.file_kinds import is_artifact_name
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.host import usable_cores
from tilewright.base.options import (
    count_option,
    flag_option,
    names_option,
    path_option,
    progress_option,
    text_option,
    wrong,
)
from tilewright.base.target import Target
from tilewright.base.text import format_bytes, plural
from tilewright.compiler import pipeline
from tilewright.compiler.backends.tuning_store import TuningStore
from tilewright.compiler.frontends.door import is_torch
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.text import to_text
from tilewright.compiler.packaging.parts import make_artifact, named_weights
from tilewright.compiler.program.memory import MemoryNeeds
from tilewright.compiler.transforms.external_codegen import choose_codegens
from tilewright.formats.plan import Step
from tilewright.formats.tensor_spec import TensorSpec, signature_html, signature_text
from tilewright.runtime.native import Timing
from tilewright.runtime.packed.program_modules import ProgramModules
from tilewright.runtime.plan_executor import Array
from tilewright.runtime.session import Session, signature
from tilewright.runtime.session_options import HostOptions, PlanOptions

if TYPE_CHECKING:
    from tilewright.api.factory import Factory
    from tilewright.api.model_inputs import Inputs
    from tilewright.api.profiling.explanation import Explanation
    from tilewright.api.report import Report
    from tilewright.compiler.frontends import onnx
    from tilewright.compiler.frontends.kit.coverage import CoverageReport
    from tilewright.compiler.schedule.by_user import ScheduleSpec
    from tilewright.runtime.hal.pending_call import PendingCall
    from tilewright.runtime.packed.module import Module

__all__ = ["KernelView", "Model", "compile", "coverage", "report"]


def store_option(
    tuned: bool | str | PathLike[str], cache: CompilationCache | None
) -> TuningStore | None:
    """The store that an option means: at a path, or the one beside the cache.

    Raises: UserError for a path where there is none, or one that cannot be read, and for what is none of all that.
    """
    if isinstance(tuned, bool):
        return TuningStore.beside(cache) if tuned and cache is not None else None
    return TuningStore.named(Path(path_option("tuned", tuned)))


def compile(  # noqa: A001, PLR0913 - the verb users expect, with the options they have
    model: onnx.Source | Graph | object,
    args: Sequence[object] | None = None,
    *,
    kwargs: Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
    target: str | Target | None = None,
    levels: Sequence[str] | None = None,
    opt_level: int | None = None,
    threads: int | None = None,
    jobs: int | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    input_values: Mapping[str, Array] | None = None,
    precision: str = "f32",
    check_indices: bool | None = None,
    schedules: Mapping[str, ScheduleSpec] | None = None,
    byoc: Sequence[str] | Mapping[str, Mapping[str, object]] | None = None,
    cache: bool = True,
    tuned: bool | str | PathLike[str] = True,
    progress: pipeline.Progress | bool | None = None,
) -> Model:
    """Compile a model to machine code and load it.

    Args:
        model: path of an ONNX file, a StableHLO text (`.mlir`) or artifact (`.mlirbc`), a language model (`.gguf`), its bytes,
            an `onnx.ModelProto`, what `jax.export` gave, a `Graph`, a `torch.export.ExportedProgram`, or a `torch.nn.Module` with `args`.
        args: what a module of torch is exported with; so are `kwargs`, `dynamic_shapes` (see `torch.export.export`).
        kwargs: named arguments of the module.
        dynamic_shapes: which of their dimensions a call decides.
        target: `"x86_64 -mcpu=znver4"`, or a `Target`; default: `TILEWRIGHT_TARGET`, else the host.
        levels: make code for several x86-64 levels (`("v2", "v4")`) instead, also for CPUs that have more than
            their level (`("v3", "cascadelake")`); load picks the best.
        opt_level: 0 = the model's ops as they are, each its own kernel; 1 = the graph rewritten for
            the kernels (layouts, packed weights, one op for several); 2 = and ops fused into kernels;
            3, the highest of TVM, is the same. Default: that of the `transform.PassContext` that is entered, else 2.
        threads: threads a call may use; default: `TILEWRIGHT_THREADS`, else the cores of this process.
        jobs: processes that generate code; default: `TILEWRIGHT_JOBS`, else those cores.
        input_shapes: shapes by input name; strings name dynamic dimensions.
        input_values: inputs that become constants, such as a shape that a model takes as data, or an initializer of ONNX that is an
            input, too, which another value replaces. A number fills an input of one element.
        precision: `"bf16"` or `"f16"` rounds operands of matrix products and convolutions (`docs/numerics.md`), sums stay f32;
            `"i8"` rounds rows that meet weights of 4 or 8 bits in blocks.
        check_indices: let calls fail (InputError) for indices out of range, else clamp; default: `TILEWRIGHT_CHECK_INDICES`, else yes.
        schedules: your own for kernels by name or pattern (`"matmul_*"`): a function that gets a kernel
            whose methods are the primitives, or a trace. Slow at worst, never wrong.
        byoc: your code generators by name (see `byoc`), with options where it is a mapping.
        cache: reuse kernels of earlier compilations (`TILEWRIGHT_CACHE_DIR`).
        tuned: use what `tune` found, in the store beside that cache or in the one at this path.
        progress: True shows a line, gone at the end; or an object whose `phase(name)` and `advance(done, total)` are called.

    Returns: a callable `Model`.
    Raises: ModelError listing everything that is not supported; TargetError; UserError for an option that makes no sense.
    """
    threads, jobs = _count("threads", threads), _count("jobs", jobs)
    kept = CompilationCache.default() if flag_option("cache", cache) else None
    options = pipeline.CompileOptions(
        targets=resolve_targets(target, levels),
        opt_level=opt_level,
        threads=threads or knobs.THREADS.get() or usable_cores(),
        jobs=jobs or knobs.JOBS.get() or usable_cores(),
        cache=kept,
        store=store_option(tuned, kept),
        input_shapes=input_shapes,
        input_values=input_values,
        precision=precision,
        check_indices=_flag("check_indices", check_indices, knobs.CHECK_INDICES),
        schedules={} if schedules is None else schedules,
        byoc=choose_codegens(byoc),
    )
    with watcher_of(progress) as watching:
        source = with_arguments(model, args, kwargs, dynamic_shapes)
        compiled = pipeline.compile_model(source, options, watching)
    compiled.diagnostics.show()
    return Model(compiled, threads=threads)


def with_arguments(
    model: object,
    args: Sequence[object] | None,
    kwargs: Mapping[str, object] | None,
    dynamic_shapes: object,
) -> Any:
    """A model of torch with what it is exported with; any other as it is.

    Raises: UserError for arguments of a model that has no use for them.
    """
    if args is None and kwargs is None and dynamic_shapes is None:
        return model
    if not is_torch(model):
        raise UserError("args, kwargs and dynamic_shapes are for modules of torch")
    with LATE_IMPORTS:
        from tilewright.compiler.frontends import torch  # noqa: PLC0415 - for its first model
    return torch.Captured(model, args, kwargs, dynamic_shapes)


def _count(name: str, value: int | None) -> int | None:
    return None if value is None else count_option(name, value, least=0)


def _flag(name: str, value: bool | None, knob: knobs.Knob[bool]) -> bool:
    return knob.get() if value is None else flag_option(name, value)


def watcher_of(
    progress: pipeline.Progress | bool | None,
) -> AbstractContextManager[pipeline.Progress]:
    """Who watches while a block runs.  Raises: UserError for what cannot."""
    if progress is None or progress is False:
        return nullcontext(pipeline.SILENT)
    if progress is not True:
        return nullcontext(progress_option(progress))
    # Imported here: rich takes longer than loading all the rest that a silent call needs.
    with LATE_IMPORTS:
        from tilewright.api.progress import phase_bar  # noqa: PLC0415

    return phase_bar()


def resolve_targets(
    target: str | Target | None, levels: Sequence[str] | None
) -> tuple[Target, ...]:
    """The targets to make code for.  Raises: TargetError, UserError for contradictions."""
    if isinstance(target, Target):
        base = target
    else:
        expected = "a text such as 'x86_64 -mcpu=znver4', or a Target"
        text = (
            knobs.TARGET.get()
            if target is None
            else text_option("target", target, expected)
        )
        base = Target.parse(text)
    if not levels:
        return (base,)
    if isinstance(levels, str) or not isinstance(levels, Sequence):
        raise wrong("levels", levels, "a sequence of levels", "levels=('v2', 'v3', 'v4')")
    if base.arch != "x86_64":
        raise UserError(f"levels are for x86_64, the target is '{base.arch}'")
    levels = names_option("levels", levels, "levels")
    return tuple(Target.level(level, os=base.os) for level in levels)


def coverage(  # noqa: PLR0913 - the options of a verb
    model: onnx.Source | object,
    args: Sequence[object] | None = None,
    *,
    kwargs: Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
    target: str | Target | None = None,
    input_shapes: Mapping[str, Sequence[int | str]] | None = None,
    input_values: Mapping[str, Array] | None = None,
    quick: bool = False,
    byoc: Sequence[str] | Mapping[str, Mapping[str, object]] | None = None,
) -> CoverageReport:
    """How each operator of a model will run: in lanes, slowly, on the host, or not at all.

    Schedules the kernels without making code of them, so that `fast` and `slow` are facts.

    Args:
        model: as for `compile`; so are `target`, `input_shapes` and `input_values`.
        args: what a module of torch is exported with; so are `kwargs`, `dynamic_shapes`.
        kwargs: named arguments of the module.
        dynamic_shapes: which of their dimensions a call decides.
        target: the machine that it shall run on.
        input_shapes: shapes by input name.
        input_values: inputs that become constants.
        quick: only import the model; what becomes machine code is then a `kernel`, no more.
        byoc: your code generators by name, as for `compile`; what they take is a `call`.

    Returns: a report that prints as a table; one row per operator, worst first.
    Raises: ModelError if it is no ONNX model at all; TargetError for an unknown target.
    """
    options = pipeline.CompileOptions(
        targets=resolve_targets(target, None),
        cache=CompilationCache.default(),
        input_shapes=input_shapes,
        input_values=input_values,
        byoc=choose_codegens(byoc),
    )
    source = with_arguments(model, args, kwargs, dynamic_shapes)
    return pipeline.coverage(source, options, quick=flag_option("quick", quick))


def open_model(
    model: onnx.Source | Graph | Model | Session,
    threads: int | None,
    progress: pipeline.Progress | bool | None,
) -> Model | Session:
    """What is there already, loaded from a `.vmfb`, or compiled.  Raises: errors of compiling and loading."""
    if threads is not None:
        threads = count_option("threads", threads, least=0)
    if isinstance(model, (Model, Session)):
        return model
    if isinstance(model, (str, PathLike)) and is_artifact_name(Path(model)):
        return load(cast("str", model), threads=threads)
    return compile(cast("onnx.Source", model), threads=threads, progress=progress)


def report(
    model: onnx.Source | Graph | Model | Session,
    inputs: Inputs = None,
    *,
    dims: Mapping[str, int] | None = None,
    calls: int = CALLS,
    limits: bool = True,
    threads: int | None = None,
    progress: pipeline.Progress | bool | None = None,
) -> Report:
    """One page about a model: its graph with times, the roofline, memory, and kernels with their code.

    The page needs nothing else: no network, no other file.  A notebook shows it in a frame.

    Args:
        model: what `compile` takes, the path of a `.vmfb`, a `Model` or a `Session`.
        inputs: what it is called with: arrays by position or by name; default: random values.
        dims: sizes of dynamic dimensions for random values; others are 1.
        calls: calls that are timed, one command at a time; the page has their medians.
        limits: measure the limits of this machine, which takes about a second.
        threads: threads a call may use, where the model is not loaded yet.
        progress: as for `compile`.

    Returns: the page: `.save("model.html")`, or `str`.
    Raises: InputError for inputs that do not fit; errors of compiling and loading.
    """
    opened = open_model(model, threads, progress)
    if isinstance(opened, Model):
        return opened.report(
            inputs, dims=dims, calls=calls, limits=limits, progress=progress
        )
    session = opened
    with LATE_IMPORTS:
        from tilewright.api.report import Subject, make_report  # noqa: PLC0415

    return make_report(
        session,
        inputs,
        dims=dims,
        subject=Subject.of_file(session.location),
        sources=sources_of(session),
        calls=calls,
        limits=limits,
        watcher=watcher_of(progress),
    )


def sources_of(model: Model | Session) -> Callable[[], Mapping[str, str]]:
    """What gives the printed levels of its kernels: all that can be printed, or what is stored."""
    if isinstance(model, Model):
        return partial(model.sources, assembly=True)
    artifact = model.artifact
    return lambda: {} if artifact is None else artifact.sources


@final
class Model(BoundToProcess):
    """A compiled model: call it, look into it, save it.

    Thread-safety: calls from several threads are independent.
    """

    _made_again = "tilewright.load(path) of what save(path) wrote"

    def __init__(self, compiled: pipeline.Compiled, *, threads: int | None = None) -> None:
        self.compiled: pipeline.Compiled = compiled
        self._threads: int | None = threads
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """The model, loaded on this machine.  Raises: TargetError if it is for another one."""
        if self._session is None:
            with LATE_IMPORTS:  # loading imports: taken before any other lock
                self._session = self._session or self._load()
        return self._session

    def _load(self) -> Session:
        name = self.compiled.graph.name
        modules = cast("Sequence[Module]", self.compiled.modules)
        host = HostOptions(
            threads=self._threads,
            host_function=run_reference,
            find_function=ProgramModules(modules, (), name) if modules else None,
        )
        return Session(
            make_artifact(self.compiled.parts, checks=self.compiled.checks),
            PlanOptions(host=host),
            location=name,
        )

    def __repr__(self) -> str:
        types = signature_text(self.inputs, self.outputs)
        return f"<model '{self.compiled.graph.name}' {types}, {self._size}>"

    def _repr_html_(self) -> str:  # pyright: ignore[reportUnusedFunction] - notebooks call it
        caption = f"model {self.compiled.graph.name}: {self._size}"
        return signature_html(caption, self.inputs, self.outputs)

    @property
    def _size(self) -> str:
        kernels = plural(len(self.compiled.kernels[0]), "kernel")
        targets = " | ".join(str(part.target) for part in self.compiled.parts)
        return f"{kernels}, {format_bytes(self.memory.weights_bytes)} of weights, {targets}"

    def __call__(self, /, *arguments: object, **named: object) -> Any:
        """Run on arrays by position, by name, or on one mapping from name to array (see `Session`).

        A model of torch is called as its module is: with tensors (or arrays) in the structure that it was
        exported with; tensors come back where tensors were given.

        Returns: the output, or a tuple when there are several (or none), as new numpy arrays.
        Raises: InputError naming the input that is missing or does not fit; TargetError if the code is
        for another machine.
        """
        calling = self.compiled.calling
        if calling is not None:
            return calling(self._run, arguments, named)
        return self.session(*arguments, **named)

    def _run(self, arrays: Sequence[Array]) -> Sequence[Array]:
        return self.session.executor(*arrays)

    def run(
        self,
        inputs: Mapping[str, object],
        outputs: Mapping[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Run on arrays by name.

        Args:
            inputs: by name.
            outputs: arrays that outputs are written to, by name; one may be the input that it updates
                (see `Session.run`).

        Returns: the outputs by name, in order.
        Raises: as a call by position does; InputError for an output that is unknown or does not fit.
        """
        return self.session.run(inputs, outputs)

    def begin(
        self, /, *arguments: object, **named: object
    ) -> PendingCall[Array | tuple[Array, ...]]:
        """Begin a call and return at once a future of its result (see `Session.begin`)."""
        return self.session.begin(*arguments, **named)

    async def async_call(
        self, /, *arguments: object, **named: object
    ) -> Array | tuple[Array, ...]:
        """Call without blocking the event loop: `y = await model.async_call(x)`."""
        return await self.begin(*arguments, **named)

    def profile(self, /, *arguments: object, **named: object) -> list[tuple[Step, Timing]]:
        """Run once, step after step, and measure every step.

        Returns: each step of the plan with its times in nanoseconds, and the threads that ran it.
        Raises: as a call does.
        """
        return self.session.profile(*arguments, **named)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, type and shape of each input, in order."""
        return signature(self.compiled.parts[0].plan, "inputs")

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, type and shape of each output, in order."""
        return signature(self.compiled.parts[0].plan, "outputs")

    @property
    def kernels(self) -> tuple[KernelView, ...]:
        """Every distinct kernel, for the first target."""
        target = self.compiled.parts[0].target
        return tuple(KernelView(record, target) for record in self.compiled.kernels[0])

    @property
    def graph_ir(self) -> str:
        """The graph after every pass, as text."""
        return to_text(self.compiled.graph)

    @property
    def memory(self) -> MemoryNeeds:
        """What a call needs, in bytes: weights, arena, every tensor."""
        return self.compiled.memory

    @property
    def diagnostics(self) -> Diagnostics:
        """Warnings and remarks of the compilation."""
        return self.compiled.diagnostics

    def sources(self, *, assembly: bool = False) -> dict[str, str]:
        """Every printed level by name: `graph`, `kernel/<name>`, `naive/<name>`, `llvm/<name>` (of target `c`: `c/<name>`).

        Args:
            assembly: also `asm/<name>`, which takes some time.
        """
        texts = {"graph": self.graph_ir}
        for kernel in self.kernels:
            texts[f"naive/{kernel.name}"] = kernel.naive_ir
            texts[f"kernel/{kernel.name}"] = kernel.kernel_ir
            texts[f"{kernel.language}/{kernel.name}"] = kernel.source
            if assembly:
                texts[f"asm/{kernel.name}"] = kernel.assembly
        return texts

    def report(
        self,
        inputs: Inputs = None,
        *,
        dims: Mapping[str, int] | None = None,
        calls: int = CALLS,
        limits: bool = True,
        progress: pipeline.Progress | bool | None = None,
    ) -> Report:
        """Call it a few times and make a page of what was seen (see `tilewright.report`)."""
        # Imported here: who compiles mostly wants no page.
        with LATE_IMPORTS:
            from tilewright.api.report import Subject, make_report  # noqa: PLC0415

        return make_report(
            self.session,
            inputs,
            dims=dims,
            subject=Subject(title=self.compiled.graph.name, origin=self._origin),
            sources=sources_of(self),
            calls=calls,
            limits=limits,
            watcher=watcher_of(progress),
        )

    def explain(
        self,
        inputs: Inputs = None,
        *,
        dims: Mapping[str, int] | None = None,
        calls: int = CALLS,
        progress: pipeline.Progress | bool | None = None,
    ) -> Explanation:
        """Call it a few times and say why it takes as long as it does (see `tilewright.explain`)."""
        # Imported here: the limits of the machine are measured by code that is generated.
        with LATE_IMPORTS:
            from tilewright.api.profiling.explanation import explain_session  # noqa: PLC0415

        return explain_session(
            self.session,
            inputs,
            dims=dims,
            name=self._origin,
            calls=calls,
            watcher=watcher_of(progress),
        )

    @property
    def _origin(self) -> str:
        """Its file, as commands that are proposed name it; a model of none is called by its name."""
        files = self.compiled.files
        return str(files[0]) if files else self.compiled.graph.name

    def build(self) -> Factory:
        """Plan, kernels and weights, apart and as a factory of executors (see `tilewright.build`)."""
        # Imported here: modules and packed functions take longer to load than a model does.
        with LATE_IMPORTS:
            from tilewright.api.factory import Factory, compiled_module  # noqa: PLC0415

        return Factory(compiled_module(self.compiled, self._save_archive))

    def export_library(self, path: str | Path, **options: Any) -> Any:
        """Write it as a library, an archive of objects, sources or a program; the suffix says which.

        Args:
            path: the file (see `tilewright.runtime.Module.export_library`).
            options: those of that function.

        Raises: as that function.
        """
        return self.build().export_library(path, **options)

    def _save_archive(self, path: Path, weights: Path | None) -> int:
        return self.save(path, weights=weights)

    def save(
        self,
        path: str | Path,
        *,
        sources: bool = True,
        weights: str | Path | None = None,
    ) -> int:
        """Write the artifact; returns its size in bytes.

        Args:
            path: the file, `.vmfb`; it appears only when it is complete.  Links are followed, what
                is no regular file is written to, `-` is standard output.
            sources: also store the printed levels, compressed, for `tilewright inspect`.
            weights: a file for the weights (.irpa, .safetensors or .params), which several artifacts may
                share: what it has stays.  Loading looks for it beside the archive.

        Raises: UserError for another suffix, for a file of the model itself, and when the system
            refuses; what was there stays as it was.
        """
        # Imported here: what only runs has no bytecode.
        with LATE_IMPORTS:
            from tilewright.compiler.packaging import (  # noqa: PLC0415
                archive,
                weights_file,
            )

        path = path_option("path", path)
        archive.check_artifact_path(path, inputs=self.compiled.files)
        texts = self.sources() if flag_option("sources", sources) else {}
        parts = self.compiled.parts
        compiled, stored = self.compiled, None
        with ExitStack() as written:  # the weights, too, only where the archive is
            if weights is not None:
                place = Path(path_option("weights", weights))
                arrays = named_weights(parts)
                stored = written.enter_context(
                    weights_file.storing_weights(place, arrays, inputs=compiled.files)
                )
            artifact = make_artifact(
                parts, texts, stored, compiled.modules, compiled.checks
            )
            return archive.save_archive(parts, artifact, path, compiled.origin)
