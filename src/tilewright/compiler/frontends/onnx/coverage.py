"""What of a model is fast, what falls back to the host and what is unsupported, before any work.

Runs the importer (which copies no weights and computes nothing large) and asks the catalogue for
each op it emitted whether a kernel body exists for those types.  Never raises on a model that
parses.  Called by the CLI verb `coverage` and the API.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.text import format_bytes, plural
from tilewright.compiler.frontends.onnx.importer import Importer
from tilewright.compiler.frontends.onnx.load import import_model
from tilewright.compiler.frontends.onnx.model import (
    ModelMetadata,
    Source,
    metadata_of,
    open_model,
)
from tilewright.compiler.frontends.onnx.problems import Problem
from tilewright.compiler.frontends.onnx.scope import Record
from tilewright.compiler.frontends.onnx.signature import InputShapes, InputValues
from tilewright.compiler.graph.ir import Node
from tilewright.compiler.ops import catalogue

SHOWN_NODES: Final = 5
SHOWN_VALUES: Final = 8


@final
class Status(enum.Enum):
    """How an op will run."""

    FAST = "fast"  # compiled, or gone after import
    FALLBACK = "fallback"  # its numpy oracle runs on the host
    UNSUPPORTED = "unsupported"  # the model does not compile because of it


@final
@dataclass(frozen=True, slots=True)
class Reason:
    """Why some nodes of one op are not fast."""

    status: Status
    text: str
    nodes: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class OpCoverage:
    """All nodes of one op type.  `status` is that of the worst node."""

    op_type: str
    count: int
    status: Status
    reasons: tuple[Reason, ...]
    dtypes: tuple[str, ...]
    dynamic_dims: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class CoverageReport:
    """The whole model: one row per op type, worst first, and what concerns the model itself."""

    file: str
    metadata: ModelMetadata
    node_count: int
    weight_bytes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dynamic_dims: tuple[str, ...]
    rows: tuple[OpCoverage, ...]
    problems: tuple[Problem, ...]

    @property
    def supported(self) -> bool:
        """Whether `load` accepts the model."""
        return not self.problems

    def count(self, status: Status) -> int:
        """How many op types have this status."""
        return sum(r.status is status for r in self.rows)

    def __str__(self) -> str:
        meta = self.metadata
        head = [
            f"{self.file}: {plural(self.node_count, 'node')}, opset {meta.opset}, "
            f"{format_bytes(self.weight_bytes)} of weights"
            + (f", by {meta.producer}" if meta.producer else ""),
            *_shortened("input ", self.inputs),
            *_shortened("output", self.outputs),
        ]
        if self.dynamic_dims:
            head.append(f"  dynamic dimensions: {' '.join(self.dynamic_dims)}")
        model = [f"  {p.reason}" for p in self.problems if not p.op_type]
        totals = ", ".join(f"{self.count(s)} {s.value}" for s in Status)
        return "\n".join([*head, *model, *self._table(), f"op types: {totals}"])

    def _table(self) -> list[str]:
        width = max((len(r.op_type) for r in self.rows), default=0)
        lines: list[str] = []
        for entry in self.rows:
            lines.append(
                f"  {entry.op_type:<{width}}  {entry.count:>5}  {entry.status.value:<11}  "
                f"{' '.join(entry.dtypes)}"
            )
            lines += [f"      {_reason_text(reason)}" for reason in entry.reasons]
        return lines


def _shortened(word: str, texts: Sequence[str]) -> list[str]:
    shown = [f"  {word} {text}" for text in texts[:SHOWN_VALUES]]
    more = len(texts) - SHOWN_VALUES
    return [*shown, f"  {word} and {more} more"] if more > 0 else shown


def _reason_text(reason: Reason) -> str:
    names = ", ".join(f"'{n}'" for n in reason.nodes[:SHOWN_NODES])
    more = len(reason.nodes) - SHOWN_NODES
    return f"{reason.text} (at {names}{f' and {more} more' if more > 0 else ''})"


def coverage(
    source: Source,
    *,
    input_shapes: InputShapes | None = None,
    input_values: InputValues | None = None,
) -> CoverageReport:
    """Everything about a model that is unsupported or slow, in one go.

    Raises: ModelError only when the source is no ONNX model at all.
    """
    model = open_model(source)
    importer = import_model(model, input_shapes, input_values)
    return CoverageReport(
        file=model.file,
        metadata=metadata_of(model),
        node_count=len(importer.records),
        weight_bytes=importer.weight_bytes,
        inputs=tuple(f"{v.name}: {v.type}" for v in importer.graph.inputs),
        outputs=tuple(
            f"{name}: {value.type}"
            for name, value in zip(
                importer.graph.output_names, importer.graph.outputs, strict=True
            )
        ),
        dynamic_dims=tuple(dict.fromkeys(d for r in importer.records for d in r.dims)),
        rows=_rows(importer),
        problems=tuple(importer.problems),
    )


def _rows(importer: Importer) -> tuple[OpCoverage, ...]:
    groups: dict[str, list[Record]] = {}
    for record in importer.records:
        groups.setdefault(record.title, []).append(record)
    found = [_row(title, records) for title, records in groups.items()]
    order = [Status.UNSUPPORTED, Status.FALLBACK, Status.FAST]
    return tuple(sorted(found, key=lambda r: (order.index(r.status), -r.count, r.op_type)))


def _row(title: str, records: Sequence[Record]) -> OpCoverage:
    nodes: dict[tuple[Status, str], list[str]] = {}
    for record in records:
        for status, text in _reasons(record):
            nodes.setdefault((status, text), []).append(record.node)
    statuses = {status for status, _ in nodes}
    worst = next(
        (s for s in (Status.UNSUPPORTED, Status.FALLBACK) if s in statuses), Status.FAST
    )
    return OpCoverage(
        op_type=title,
        count=len(records),
        status=worst,
        reasons=tuple(Reason(s, t, tuple(names)) for (s, t), names in nodes.items()),
        dtypes=tuple(sorted({d for r in records for d in r.dtypes})),
        dynamic_dims=tuple(dict.fromkeys(d for r in records for d in r.dims)),
    )


def _reasons(record: Record) -> list[tuple[Status, str]]:
    found = [(Status.UNSUPPORTED, text) for text in dict.fromkeys(record.reasons)]
    slow = dict.fromkeys(text for node in record.emitted if (text := _fallback(node)))
    return found + [(Status.FALLBACK, text) for text in slow]


def _fallback(node: Node) -> str:
    """Why a graph op runs on the host; empty when it has a kernel."""
    declaration = catalogue.lookup(node.op)
    if node.op == "constant":
        return ""
    types = [None if v is None else v.type for v in node.operands]
    if declaration.body is None:
        return f"op '{node.op}' has no kernel"
    if not declaration.supports(types, node.attributes):
        listed = ", ".join("_" if t is None else str(t) for t in types)
        return f"op '{node.op}' has no kernel for ({listed})"
    return ""
