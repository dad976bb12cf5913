"""The contents page of the compiler: one route from a model to machine code.

`compile_model` tells the whole story; every line is one step, and the comments between them say
what holds from there on.  No pass, schedule or encoding is implemented here.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, final

from tilewright.base.diagnostics import Diagnostics
from tilewright.base.errors import ModelError, UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.log import Log
from tilewright.base.outcome import Outcome, Verdict
from tilewright.base.rare_collections import rare_collections
from tilewright.base.record import field, record
from tilewright.base.symbolic import Dim
from tilewright.base.target import Target
from tilewright.base.text import format_duration
from tilewright.compiler.backends.backend import GraphForm
from tilewright.compiler.backends.kernel_cache import (
    KernelRecord,
    KernelRequest,
    keep,
    make_record,
    recall,
)
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.backends.tuned_requests import (
    schedule_as_decided,
    tuned_decisions,
    with_decisions,
)
from tilewright.compiler.compile_options import SILENT, CompileOptions, Progress
from tilewright.compiler.frontends import door
from tilewright.compiler.frontends.kit.coverage import CoverageReport, Judged
from tilewright.compiler.frontends.kit.model_graph import Calling, ModelGraph
from tilewright.compiler.graph.copy import copy_graph
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.graph.verifier import name_violations, violations
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.lowering.build_kernel import can_build
from tilewright.compiler.lowering.kernel_uses import (
    KEY_NAME,
    KernelUse,
    find_kernels,
    is_data,
    is_flow,
)
from tilewright.compiler.model_values import ModelValues
from tilewright.compiler.packaging.parts import Part
from tilewright.compiler.packaging.provenance import Origin
from tilewright.compiler.passes import GraphPass, run_passes
from tilewright.compiler.program import memory
from tilewright.compiler.program.build import Lowered, build_program
from tilewright.compiler.program.emit_plan import emit_plan
from tilewright.compiler.program.ir import HostCall, Program, operands_of
from tilewright.compiler.program.share_constants import share_constants
from tilewright.compiler.program.work import arithmetic_work, bytes_moved, host_verdict
from tilewright.compiler.schedule.user import UserTrace, check_patterns
from tilewright.compiler.transforms import (
    ClampIndices,
    DecomposeQuantization,
    EliminateCommon,
    EliminateDead,
    FoldConstants,
    FoldRows,
    FoldScales,
    GrowLate,
    GuardIndices,
    HoistInvariants,
    KeepWeights,
    PartitionGraph,
    PickRows,
    QuantizeContractions,
    RecognizeActivations,
    RecognizeAttention,
    RecognizeNorms,
    Simplify,
    SplitConcat,
    TabulateBytes,
    rounding_passes,
)
from tilewright.compiler.transforms.external_codegen import (
    Codegen,
    ExternalModule,
    run_codegen,
)
from tilewright.formats.byte_view import Buffer
from tilewright.formats.output_checks import Check

_LOG: Final = Log("compiler")


@final
@record(eq=False)
class Compiled:
    """What a compilation yields; `parts` and `kernels` have one entry per target.

    `files` are those that the model was read from; `origin` says what was compiled and how; `modules` are what
    code generators of the user made, `checks` what outputs of a call must be to each other, `calling` how it is called.
    """

    graph: Graph
    parts: tuple[Part, ...]
    kernels: tuple[tuple[KernelRecord, ...], ...]
    memory: memory.MemoryNeeds
    diagnostics: Diagnostics
    seconds: Mapping[str, float]
    files: tuple[Path, ...] = ()
    origin: Origin = field(default_factory=Origin)
    modules: tuple[ExternalModule, ...] = ()
    checks: tuple[Check, ...] = ()
    calling: Calling | None = None


@rare_collections()
def compile_model(
    source: door.Source | Graph, options: CompileOptions, progress: Progress = SILENT
) -> Compiled:
    """Compile a model (path, bytes, proto or `Graph`) of any format that a front end reads.

    Raises: ModelError listing everything in the model that is not supported.
    """
    clock = _Clock(progress)

    with clock("import"):
        graph, files, checks, calling = import_model(source, options)
        origin = Origin.of(source, files, options.decisive)
        values = ModelValues(graph)
    # From here no operator of a foreign format is left and every value has a type.

    with clock("optimize graph"):
        graphs = optimize(graph, options)
        modules = generate_modules(graph, options)
    # From here every top-level node is a constant, a view, one kernel, or a call out; like forms share it.

    with clock("build kernels"):
        found = {own: find_kernels(own) for own in dict.fromkeys(graphs)}
        groups = [found[own] for own in graphs]
    # From here each distinct kernel is a list of naive loop nests.

    with clock("generate code"):
        kernels = tuple(
            generate_code(
                target, schedule_kernels(own, target, options), len(own), options, progress
            )
            for own, target in zip(groups, options.targets, strict=True)
        )
        images = [
            link(target, records, options)
            for target, records in zip(options.targets, kernels, strict=True)
        ]
    # From here the loops are tiled, fused and bound to a grid, per target, and are machine code; what
    # remains is the host side.

    with clock("plan memory"):
        programs = [
            make_program(*each) for each in zip(graphs, groups, kernels, strict=True)
        ]
        share_constants(programs)
    # From here every tensor has a place and every step its grid; bytes that several programs read are there once.

    origin = origin.with_options(tuned=tuned_decisions(kernels))
    diagnostics = diagnose(options, groups, kernels, programs[0])
    parts = tuple(
        Part(target, program, values.written_in(program, emit_plan(program)), image)
        for target, program, image in zip(options.targets, programs, images, strict=True)
    )
    needs = memory.needs_of(programs[0])
    return Compiled(graph, parts, kernels, needs, diagnostics, clock.seconds, files, origin,
                    modules, checks, calling)  # fmt: skip


def import_model(source: door.Source | Graph, options: CompileOptions) -> ModelGraph:
    """The model as a graph of our ops, the files it lies in, and the checks it brings along.

    A graph of the caller's is copied, for passes edit in place.

    Raises: ModelError for what is no model or not supported; UserError for options that a graph has no
        use for.
    """
    if isinstance(source, Graph):
        for option in ("input_shapes", "input_values"):
            if getattr(options, option):
                raise UserError(
                    f"{option} is for files of models",
                    location=source.name,
                    hint="a graph says its sizes in the types of its inputs",
                )
        found = [*violations(source), *name_violations(source)]
        if found:
            raise ModelError(
                "graph is not valid:\n" + "\n".join(found), location=source.name
            )
        return ModelGraph(copy_graph(source))
    shaping = door.Shaping(
        input_shapes=options.input_shapes, input_values=options.input_values
    )
    return door.front_end_of(source).load(source, shaping)


def optimize(graph: Graph, options: CompileOptions) -> tuple[Graph, ...]:
    """Run every pass over the graph, in order and in place.

    Returns: the graph of each target.  Targets whose back ends want the same form share one; that of the first
        target is `graph` itself.
    """
    context = options.pass_context
    neutral = neutral_passes(options.codegens, options.precision)
    run_passes(graph, neutral, context)
    held = frozenset[str]().union(*(each.ensures for each in neutral))
    wanted = [form_for(target, options.targets, graph) for target in options.targets]
    forms = [form for i, form in enumerate(wanted) if form not in wanted[:i]]
    graphs = [graph, *(copy_graph(graph) for _ in forms[1:])]
    for own, form in zip(graphs, forms, strict=True):
        passes = formed_passes(form, check_indices=options.check_indices)
        run_passes(own, passes, context, held=held)
    return tuple(graphs[forms.index(form)] for form in wanted)


def form_for(target: Target, targets: Sequence[Target], graph: Graph) -> GraphForm:
    """What the back end of a target makes of the graph, for as many of its targets as can share it."""
    own = [each for each in targets if each.backend == target.backend]
    dtypes = frozenset(value.type.dtype for node in graph.walk() for value in node.results)
    return backend_of(target).graph_form(target, own, dtypes)


def neutral_passes(
    codegens: tuple[Codegen, ...] = (), precision: str = "f32"
) -> tuple[GraphPass, ...]:
    """What holds of a graph for whatever machine, in order.

    Each pass has the lowest level of optimization it belongs to: at 0 values are folded and what nobody
    asked for goes, 1 rewrites the graph for the kernels, 2 puts ops together in kernels.

    Args:
        codegens: code generators of the user.
        precision: what operands of f32 contractions are rounded to.
    """
    return (
        # What nobody asked for is not worth looking at.
        EliminateDead(),
        # What is computed twice is computed once: constants made of the same are one constant.
        EliminateCommon(),
        # Values that are known are known everywhere, but for weights that stand as bytes.
        FoldConstants(keep_bytes=True),
        # From here what is quantized is multiplied or kept as bytes, and the rest is arithmetic of floats.
        QuantizeContractions(),
        KeepWeights(),
        DecomposeQuantization(),
        EliminateCommon(),
        # From here no weights wait for anything, but for those in blocks, whose form is the machine's.
        FoldConstants(keep_blocks=True),
        # From here constants stand right and neutral operands are gone.
        Simplify(),
        EliminateCommon(),
        # From here long chains from one tensor of bytes to another are tables.
        TabulateBytes(),
        # From here normalizations and activations have one name each.
        RecognizeNorms(),
        RecognizeActivations(),
        # From here what goes to code generators of the user is out of reach of other passes.
        *([PartitionGraph(codegens=codegens)] if codegens else ()),
        # From here no matrix of scores is made only to be multiplied.
        RecognizeAttention(),
        # From here batch normalizations are part of the weights.
        FoldScales(),
        # From here images grow behind the products of their channels.
        GrowLate(),
        FoldConstants(keep_blocks=True),
        Simplify(),
        # From here operands are as exact as the user wants them.
        *rounding_passes(precision),
    )


def formed_passes(form: GraphForm, *, check_indices: bool = True) -> tuple[GraphPass, ...]:
    """From a graph for whatever machine to the kernels of one, in order.

    Args:
        form: the passes that are the back end's.
        check_indices: let calls check the indices in their data.
    """
    return (
        # From here tensors lie, and contractions are, as the back end's kernels want them.
        *form.layout,
        Simplify(),
        # From here no operation has more operands than a kernel can bind.
        SplitConcat(),
        # Weights that several products read are packed once.
        EliminateCommon(),
        # From here weights lie in memory as kernels read them.
        FoldConstants(),
        # And those of which data picks a layer, for all layers.
        FoldRows(),
        EliminateCommon(),
        EliminateDead(),
        # From here no loop packs, or multiplies, in each trip what is the same in all.
        HoistInvariants(),
        # From here an index that may be out of range is looked at.
        GuardIndices(run_time=check_indices),
        # From here no loop copies the weights of a layer to read them.
        PickRows(),
        # From here rows that are picked from alike share their indices, which are in range.
        ClampIndices(),
        # From here every top-level node is a constant, a view, one kernel, or runs on the host.
        *form.fusion,
    )


def generate_modules(graph: Graph, options: CompileOptions) -> tuple[ExternalModule, ...]:
    """Let the user's code generators make a module of each subgraph; equal ones are made once.

    Raises: what a generator raises, with a note; UserError for a module without the function.
    """
    made: dict[str, ExternalModule] = {}
    by_name = {chosen.codegen.name: chosen for chosen in options.byoc}
    for node in graph:
        symbol = node.attributes.get("symbol")
        is_call = Trait.CALL in node.schema.traits
        if not is_call or not isinstance(symbol, str) or symbol in made:
            continue
        chosen = by_name[str(node.attributes["codegen"])]
        made[symbol] = run_codegen(chosen, node.regions[0], symbol)
    return tuple(made.values())


@final
@record(eq=False)
class Scheduled:
    """A kernel that was scheduled now, and what asked for it."""

    request: KernelRequest
    kernel: Kernel

    @property
    def verdict(self) -> Verdict:
        """What scheduling came to."""
        assert self.kernel.verdict is not None, "rules leave a verdict"
        return self.kernel.verdict


def schedule_kernels(
    groups: Sequence[KernelUse], target: Target, options: CompileOptions
) -> Iterator[Scheduled | KernelRecord]:
    """One kernel per group, each when it is asked for: scheduled, or finished by an earlier compilation."""
    check_patterns(options.schedules, [group.naive.name for group in groups])
    for request in make_requests(groups, target, options):
        known = None if options.cache is None else recall(request, options.cache)
        yield known or Scheduled(*schedule_as_decided(request))


def make_requests(
    groups: Sequence[KernelUse], target: Target, options: CompileOptions
) -> tuple[KernelRequest, ...]:
    """What is wanted of each group: a schedule of the user's, tuned decisions, or the cost model's best."""
    requests: list[KernelRequest] = []
    for group in groups:
        naive, by_user = group.naive, _by_user(group.naive, options)
        requests.append(
            KernelRequest(naive, target, options.threads, by_user, naive_text=group.text)
        )
    return with_decisions(requests, options.store)


def _by_user(naive: Kernel, options: CompileOptions) -> UserTrace | None:
    """What the user's own schedules do with a kernel; few have any, so what carries them out is loaded here."""
    if not options.schedules:
        return None
    with LATE_IMPORTS:
        from tilewright.compiler.schedule.by_user import trace_for  # noqa: PLC0415

    return trace_for(options.schedules, naive.name, replace(naive, name=KEY_NAME))


def generate_code(
    target: Target,
    kernels: Iterable[Scheduled | KernelRecord],
    count: int,
    options: CompileOptions,
    progress: Progress,
) -> tuple[KernelRecord, ...]:
    """Code of every kernel that has none yet; the back end works on the first while `kernels` makes more."""
    given: list[Scheduled | KernelRecord] = []
    fresh: list[Scheduled] = []
    compiled_so_far = 0

    def tell(done: int) -> None:
        nonlocal compiled_so_far
        compiled_so_far = done
        progress.advance(len(given) - len(fresh) + done, count)

    def without_code() -> Iterator[Kernel]:
        for kernel in kernels:
            given.append(kernel)
            if isinstance(kernel, Scheduled):
                fresh.append(kernel)
                yield kernel.kernel
            else:
                tell(compiled_so_far)

    compiled = backend_of(target).generate(
        without_code(),
        target,
        jobs=options.jobs,
        cache=options.cache,
        progress=lambda done, _: tell(done),
    )
    made = {
        item: make_record(item.request, item.kernel, code)
        for item, code in zip(fresh, compiled, strict=True)
    }
    progress.advance(count, count)
    if made and options.cache is not None:
        keep(tuple(made.values()), options.cache)
    records = tuple(made[k] if isinstance(k, Scheduled) else k for k in given)
    cached = sum(not record.compiled.seconds for record in records)
    _LOG.info("%s: %s of %s kernels are from the cache", target, cached, len(records))
    for each in records:
        _LOG.debug("kernel '%s': %s", each.name, each.verdict.outcome)
    return records


def link(
    target: Target, records: Sequence[KernelRecord], options: CompileOptions
) -> Buffer:
    """The kernels as one image; empty if there are none."""
    compiled = [record.compiled for record in records]
    if not compiled:
        return b""
    chosen = backend_of(target)
    return chosen.link(compiled, "tilewright", target, cache=options.cache)


def make_program(
    graph: Graph, groups: Sequence[KernelUse], kernels: Sequence[KernelRecord]
) -> Program:
    """The host side of the graph for one target's kernels."""
    lowered = {
        node: Lowered(
            index, arithmetic_work(node), bytes_moved(node), group.numbers.get(node, ())
        )
        for index, group in enumerate(groups)
        for node in group.nodes
    }
    signatures = [kernel.signature for kernel in kernels]
    return memory.assign(build_program(graph, signatures, lowered))


def diagnose(
    options: CompileOptions,
    groups: Sequence[Sequence[KernelUse]],
    kernels: Sequence[Sequence[KernelRecord]],
    program: Program,
) -> Diagnostics:
    """What is slow in the model, for the groups and kernels of each target."""
    diagnostics = Diagnostics()
    warn_about_host_calls(program, diagnostics)
    # Without rewriting, slow kernels are what was asked for.
    if options.pass_context.opt_level > 0:
        for own, target, records in zip(groups, options.targets, kernels, strict=True):
            warn_about_slow_kernels(own, target, records, diagnostics)
    return diagnostics


def warn_about_host_calls(program: Program, diagnostics: Diagnostics) -> None:
    """Say which ops are slow and what they cost."""
    for step in program.steps:
        if isinstance(step, HostCall):
            size: Dim = 0
            for entry in (*operands_of(step), *step.results):
                size = size + entry.type.size_bytes
            diagnostics.warn(
                f"op '{step.op}' has no kernel and runs its reference implementation",
                location=step.location,
                cost=f"moves {size} bytes through numpy on each run",
            )


def warn_about_slow_kernels(
    groups: Sequence[KernelUse],
    target: Target,
    records: Sequence[KernelRecord],
    diagnostics: Diagnostics,
) -> None:
    """Say which kernels no rule found lanes for, where that costs a time that can be noticed."""
    for group, made in zip(groups, records, strict=True):
        if made.verdict.is_slow:
            diagnostics.warn(
                f"kernel '{made.name}' runs one element after the other on {target.cpu}: "
                "no rule found lanes for it",
                location=group.nodes[0].location,
                cost=_slow_cost(made.verdict, len(group.nodes)),
                hint=_where_notes_are(group.nodes[0].location.file, made.name),
            )


def _where_notes_are(file: str, kernel: str) -> str:
    """What shows why a kernel runs as it does."""
    if file.startswith("<"):  # a model that is no file
        return f"the notes of the kernel say why: Model.kernels, the one called '{kernel}', its kernel_ir"
    return f"the notes of the kernel say why: tilewright inspect {file} --output=kernel --kernel={kernel}"


def _slow_cost(verdict: Verdict, count: int) -> str:
    each = f"about {format_duration(verdict.expected_ns)}"
    times = f", {count} times" if count > 1 else ""
    return f"{each} on one core{times}; in lanes {format_duration(verdict.lanes_ns)}"


def coverage(
    source: door.Source, options: CompileOptions, *, quick: bool = False
) -> CoverageReport:
    """How the first target will run each operator of a model; nothing is compiled.

    `quick` stops after the import: what becomes a kernel is not scheduled, so how it runs stays
    open.
    """
    shaping = door.Shaping(
        input_shapes=options.input_shapes, input_values=options.input_values
    )
    judging = None if quick else partial(judge, options=options)
    return door.front_end_of(source).coverage(source, shaping, judging)


@rare_collections()
def judge(graph: Graph, options: CompileOptions) -> tuple[Judged, ...]:
    """How each step of a model will run; the graph is optimized in place."""
    optimize(graph, options)
    groups, target = find_kernels(graph), options.targets[0]
    kernels = schedule_kernels(groups, target, options)
    judged = [
        Judged(node.location.name, sources_of(node), "", kernel.verdict)
        for group, kernel in zip(groups, kernels, strict=True)
        for node in group.nodes
    ]
    judged += [
        _judge_call(node, target)
        for node in graph.walk()
        if not is_data(node) and not can_build(node) and not is_flow(node)
    ]
    return tuple(judged)


def _judge_call(node: Node, target: Target) -> Judged:
    """What runs outside of kernels: in a module of the user's code generator, or on the host."""
    if Trait.CALL in node.schema.traits:
        op, verdict = str(node.attributes["codegen"]), Verdict(Outcome.CALL)
    else:
        op, verdict = node.op, host_verdict(node, target)
    return Judged(node.location.name, sources_of(node), op, verdict)


def sources_of(node: Node) -> frozenset[str]:
    """The names of the model's nodes that a node does something of."""
    inner = (sources_of(x) for region in node.regions for x in region)
    return frozenset({node.location.name}).union(*inner)


class _Clock:
    """Names the phases to the progress display and keeps their durations."""

    def __init__(self, progress: Progress) -> None:
        self.progress: Progress = progress
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Generator[None]:
        self.progress.phase(phase)
        start = time.perf_counter()
        yield
        self.seconds[phase] = time.perf_counter() - start
        _LOG.info("%s: %.3f s", phase, self.seconds[phase])
