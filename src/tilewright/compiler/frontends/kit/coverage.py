"""What of a model is fast, what is slow, what runs on the host and what is unsupported.

Takes what an importer found, and asks the catalogue for
each op it emitted whether a kernel body exists for those types.  How kernels run is a fact that
only scheduling knows: who can schedule passes `judge`; without it a kernel is just a kernel.
Called by front ends, for `pipeline.coverage`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final, final

from tilewright.base.outcome import Outcome, Verdict
from tilewright.base.record import record
from tilewright.base.text import format_bytes, format_duration, plural, printable_line
from tilewright.compiler.frontends.kit.metadata import ModelMetadata
from tilewright.compiler.frontends.kit.problems import Problem
from tilewright.compiler.frontends.kit.record import Record
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.ops import catalogue

SHOWN_NODES: Final = 5
SHOWN_VALUES: Final = 8


@final
class Status(enum.Enum):
    """How an op will run."""

    FAST = "fast"  # its kernels run in lanes, or nothing of it is left to run
    CALL = "call"  # a code generator of the user takes it
    KERNEL = "kernel"  # becomes machine code; how that runs was not looked at
    SCALAR = "scalar"  # machine code without lanes that costs no time worth a word
    FALLBACK = "fallback"  # its numpy oracle runs on the host
    SLOW = "slow"  # without lanes, in a kernel or on the host, and that can be noticed
    UNSUPPORTED = "unsupported"  # the model does not compile because of it


@final
@record
class Judged:
    """One kernel or host call of the optimized model.

    Attributes:
        main: the model's node that its work comes from.
        nodes: every node of the model that it does something of, `main` included.
        op: the op that runs on the host, or the code generator that takes the nodes; empty for a kernel.
        verdict: how it runs.
    """

    main: str
    nodes: frozenset[str]
    op: str
    verdict: Verdict


Judge = Callable[[Graph], Sequence[Judged]]
"""Optimizes a graph, in place, and schedules its kernels."""


@final
@record
class Imported:
    """What a front end found in a model, supported or not.

    Attributes:
        file: where the model came from.
        graph: what is compiled of it.
        metadata: what it says about itself.
        records: what became of its nodes.
        problems: everything that is not supported.
        weight_bytes: size of its weights.
        host_nodes: those of which the host computes something, around what is compiled.
        border: inputs and outputs as text, where the host stands between them and the graph's; else None.
    """

    file: str
    graph: Graph
    metadata: ModelMetadata
    records: Sequence[Record]
    problems: Sequence[Problem]
    weight_bytes: int = 0
    host_nodes: frozenset[str] = frozenset()
    border: tuple[tuple[str, ...], tuple[str, ...]] | None = None


@final
@record
class Reason:
    """Why some nodes of one op are not fast."""

    status: Status
    text: str
    nodes: tuple[str, ...]


@final
@record
class OpCoverage:
    """All nodes of one op type.  `status` is that of the worst node.

    `outcomes` are the ways in which kernels run that do something of it.
    """

    op_type: str
    count: int
    status: Status
    reasons: tuple[Reason, ...]
    dtypes: tuple[str, ...]
    dynamic_dims: tuple[str, ...]
    outcomes: tuple[Outcome, ...] = ()


@final
@record
class CoverageReport:
    """The whole model: one row per op type, worst first, and what concerns the model itself.

    Attributes:
        file: where the model came from.
        metadata: what it says about itself.
        node_count: nodes, those of subgraphs included.
        weight_bytes: size of its weights.
        inputs, outputs: each as text, with type and shape.
        dynamic_dims: names of the dimensions that a call decides.
        rows: one per op type.
        problems: everything that is not supported; none if the model compiles.
        needs_host: it does not compile as a whole, for the host computes strings or maps of it, but
            `tilewright.onnx_backend` runs it.
    """

    file: str
    metadata: ModelMetadata
    node_count: int
    weight_bytes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dynamic_dims: tuple[str, ...]
    rows: tuple[OpCoverage, ...]
    problems: tuple[Problem, ...]
    needs_host: bool = False

    @property
    def supported(self) -> bool:
        """Whether the model runs: compiled, or by `tilewright.onnx_backend` where it needs the host."""
        return not self.problems

    @property
    def host_note(self) -> str:
        """What is to be said of a model that needs the host; empty for others."""
        if not self.needs_host:
            return ""
        return "strings or maps are computed on the host: tilewright.onnx_backend runs it, compile does not"

    def count(self, status: Status) -> int:
        """How many op types have this status."""
        return sum(r.status is status for r in self.rows)

    @property
    def hints(self) -> tuple[str, ...]:
        """What would help with what is not supported, each once; the first few."""
        found = dict.fromkeys((p.op_type, p.hint) for p in self.problems if p.hint)
        lines = [f"hint for {op}: {text}" if op else f"hint: {text}" for op, text in found]
        return tuple(lines[:SHOWN_VALUES])

    def __str__(self) -> str:
        meta = self.metadata
        head = [
            f"{self.file}: {plural(self.node_count, 'node')}{_opset(meta)}, "
            f"{format_bytes(self.weight_bytes)} of weights"
            + (f", by {meta.producer}" if meta.producer else ""),
            *_shortened("input ", self.inputs),
            *_shortened("output", self.outputs),
        ]
        if self.dynamic_dims:
            head.append(f"  dynamic dimensions: {' '.join(self.dynamic_dims)}")
        model = [f"  {p.reason}" for p in self.problems if not p.op_type]
        if self.host_note:
            model.append(f"  {self.host_note}")
        counts = [(self.count(s), s.value) for s in Status]
        totals = ", ".join(f"{count} {word}" for count, word in counts if count)
        rows = [*self._table(), *(f"  {hint}" for hint in self.hints)]
        lines = [*head, *model, *rows, f"op types: {totals}"]
        return "\n".join(map(printable_line, lines))

    def _table(self) -> list[str]:
        width = max((len(r.op_type) for r in self.rows), default=0)
        lines: list[str] = []
        for entry in self.rows:
            lines.append(
                f"  {entry.op_type:<{width}}  {entry.count:>5}  {entry.status.value:<11}  "
                f"{' '.join(entry.dtypes)}  {' '.join(entry.outcomes)}".rstrip()
            )
            lines += [f"      {_reason_text(reason)}" for reason in entry.reasons]
        return lines


def _opset(metadata: ModelMetadata) -> str:
    return f", opset {metadata.opset}" if metadata.opset else ""


def _shortened(word: str, texts: Sequence[str]) -> list[str]:
    shown = [f"  {word} {text}" for text in texts[:SHOWN_VALUES]]
    more = len(texts) - SHOWN_VALUES
    return [*shown, f"  {word} and {more} more"] if more > 0 else shown


def _reason_text(reason: Reason) -> str:
    names = ", ".join(f"'{n}'" for n in reason.nodes[:SHOWN_NODES])
    more = len(reason.nodes) - SHOWN_NODES
    return f"{reason.text} (at {names}{f' and {more} more' if more > 0 else ''})"


def _border(graph: Graph) -> tuple[tuple[str, ...], tuple[str, ...]]:
    named = zip(graph.output_names, graph.outputs, strict=True)
    return (
        tuple(f"{v.name}: {v.type}" for v in graph.inputs),
        tuple(f"{name}: {value.type}" for name, value in named),
    )


def make_report(imported: Imported, judge: Judge | None = None) -> CoverageReport:
    """Everything about an imported model that is unsupported or slow, in one go.

    `judge` is asked only about models that are supported; it rewrites the graph.
    """
    graph, records, problems = imported.graph, imported.records, imported.problems
    # The judge rewrites the graph: what is to be said of it as imported comes first.
    inputs, outputs = imported.border or _border(graph)
    # A model whose results the host makes of its inputs has no kernels.
    if judge is None or problems or not graph.outputs:
        findings = [_unjudged(r, not problems) for r in records]
    else:
        steps: dict[str, list[Judged]] = {}
        for step in judge(graph):
            for name in step.nodes:
                steps.setdefault(name, []).append(step)
        findings = [_judged(r, steps.get(r.node, ())) for r in records]
    return CoverageReport(
        file=imported.file,
        metadata=imported.metadata,
        node_count=len(records),
        weight_bytes=imported.weight_bytes,
        inputs=inputs,
        outputs=outputs,
        dynamic_dims=tuple(dict.fromkeys(d for r in records for d in r.dims)),
        rows=_rows(imported, findings),
        problems=tuple(problems),
        needs_host=imported.border is not None,
    )


@final
@record
class _Finding:
    """What is to be said of one node of the model."""

    status: Status
    reasons: tuple[tuple[Status, str], ...] = ()
    outcomes: frozenset[Outcome] = frozenset()


_WORST_FIRST: Final = tuple(reversed(Status))


def _on_host(record: Record, imported: Imported, finding: _Finding) -> _Finding:
    """What is to be said of a node, of which the host may compute something."""
    if imported.border is None or record.node not in imported.host_nodes:
        return finding
    status = min(finding.status, Status.FALLBACK, key=_WORST_FIRST.index)
    reason = (Status.FALLBACK, "the host computes its strings, maps or labels")
    return _Finding(status, (*finding.reasons, reason), finding.outcomes)


def _rows(imported: Imported, findings: Sequence[_Finding]) -> tuple[OpCoverage, ...]:
    groups: dict[str, list[tuple[Record, _Finding]]] = {}
    for entry, finding in zip(imported.records, findings, strict=True):
        found = _on_host(entry, imported, finding)
        groups.setdefault(entry.title, []).append((entry, found))
    rows = [_row(title, members) for title, members in groups.items()]
    order = _WORST_FIRST.index
    return tuple(sorted(rows, key=lambda r: (order(r.status), -r.count, r.op_type)))


def _row(title: str, members: Sequence[tuple[Record, _Finding]]) -> OpCoverage:
    nodes: dict[tuple[Status, str], list[str]] = {}
    for entry, finding in members:
        for reason in finding.reasons:
            nodes.setdefault(reason, []).append(entry.node)
    ran = {outcome for _, finding in members for outcome in finding.outcomes}
    return OpCoverage(
        op_type=title,
        count=len(members),
        status=min((f.status for _, f in members), key=_WORST_FIRST.index),
        # A body may be imported more than once.
        reasons=tuple(
            Reason(s, t, tuple(dict.fromkeys(names))) for (s, t), names in nodes.items()
        ),
        dtypes=tuple(sorted({d for r, _ in members for d in r.dtypes})),
        dynamic_dims=tuple(dict.fromkeys(d for r, _ in members for d in r.dims)),
        outcomes=tuple(outcome for outcome in Outcome if outcome in ran),
    )


def _unjudged(record: Record, is_complete: bool) -> _Finding:
    """What the importer alone knows of a node: of all of the model, or up to what stopped it."""
    reasons = [(Status.UNSUPPORTED, text) for text in dict.fromkeys(record.reasons)]
    slow = dict.fromkeys(text for node in record.emitted if (text := _fallback(node)))
    reasons += [(Status.FALLBACK, text) for text in slow]
    if reasons:
        return _Finding(reasons[0][0], tuple(reasons))
    runs = any(node.op != "constant" for node in record.emitted)
    runs = runs or not (record.emitted or is_complete)
    return _Finding(Status.KERNEL if runs else Status.FAST)


def _judged(record: Record, steps: Sequence[Judged]) -> _Finding:
    """What became of a node, by the steps that name it; without one none of its work is left."""
    found = [(_status(record, step), step) for step in steps]
    reasons = [
        (status, text) for status, step in found if (text := _reason_for(status, step))
    ]
    return _Finding(
        min((status for status, _ in found), key=_WORST_FIRST.index, default=Status.FAST),
        tuple(dict.fromkeys(reasons)),
        frozenset(step.verdict.outcome for step in steps),
    )


def _status(record: Record, step: Judged) -> Status:
    if step.verdict.is_slow and record.node == step.main:
        return Status.SLOW
    match step.verdict.outcome:
        case Outcome.HOST:
            return Status.FALLBACK
        case Outcome.GENERIC:
            return Status.SCALAR
        case Outcome.CALL:
            return Status.CALL
        case _:
            return Status.FAST


def _reason_for(status: Status, step: Judged) -> str:
    if status is Status.CALL:
        return f"code generator '{step.op}' takes it"
    text = (
        f"op '{step.op}' has no kernel" if step.op else "no rule found lanes for its kernel"
    )
    if status is Status.SLOW:
        verdict = step.verdict
        slow, fast = map(format_duration, (verdict.expected_ns, verdict.lanes_ns))
        return f"{text}: about {slow} on one core, in lanes {fast}"
    return text if status is Status.FALLBACK else ""


def _fallback(node: Node) -> str:
    """Why a graph op runs on the host; empty when it has a kernel."""
    declaration = catalogue.lookup(node.op)
    if node.regions or node.schema.traits & (Trait.CONSTANT | Trait.BINDS | Trait.AGREES):
        return ""
    types = node.operand_types
    if declaration.body is None:
        return f"op '{node.op}' has no kernel"
    if not declaration.supports(types, node.attributes):
        listed = ", ".join("_" if t is None else str(t) for t in types)
        return f"op '{node.op}' has no kernel for ({listed})"
    return ""
