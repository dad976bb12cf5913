"""Kernels of earlier compilations: found by their naive loops, with all that a program needs.

The key is everything that decides the result: the loops, the bounds of their dimensions, the target,
the threads, this compiler's sources and what its back end rests on.  An entry holds the signature, the
export, the printed levels and the key of the object code, if there is any: an entry of its own, found by its
source too.  So neither schedule, lowering nor code generation runs again.  What is not in the entry (the IRs themselves) is
made again from the naive kernel when somebody looks: `KernelRecord`.  Called by the pipeline.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast, final

from tilewright.base import dtypes
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import TilewrightError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.lazy import lazy
from tilewright.base.outcome import Outcome, Verdict
from tilewright.base.symbolic import Dim, Symbol, parse, substitute, symbol, symbols
from tilewright.base.target import Target
from tilewright.compiler.backends import backend
from tilewright.compiler.backends.backend import CompiledKernel
from tilewright.compiler.backends.fingerprint import SOURCES_DIGEST
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.lowering.promote_scratch import promote_scratch
from tilewright.compiler.program.ir import KernelSignature
from tilewright.compiler.program.signature import signature_of
from tilewright.compiler.schedule.rules import Decisions
from tilewright.compiler.schedule.user import UserTrace
from tilewright.formats.executable import ExportDecl

_ANY_NAME: Final = "kernel"
_EFFORT: Final = (
    1  # of compression: an entry is read far more often than it is short of room
)


_OF_NO_ENTRY: Final = (
    zlib.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError,
    TilewrightError,
)  # fmt: skip
"""What the reading of an entry raises that is whole, and not one of these."""


@final
@dataclass(frozen=True, eq=False)
class KernelRequest:
    """A kernel that is wanted: its naive loops, for a target and a number of threads.

    `by_user` are the steps of a schedule of the user's; None leaves it to the rules, which take `decisions`, or what
    the cost model likes best.  `naive_text` is what the naive kernel prints, under any name, where somebody knows it.
    """

    naive: Kernel
    target: Target
    threads: int
    by_user: UserTrace | None = None
    decisions: Decisions | None = None
    naive_text: str = ""

    def schedule(self) -> Kernel:
        """The kernel with its loops tiled, fused and bound to a grid."""
        # Notes may name the kernel; the cache gives one answer to kernels of any name.
        naive = replace(self.naive, name=_ANY_NAME)
        chosen = backend_of(self.target)
        if self.by_user is None:
            kernel = chosen.schedule(
                naive, self.target, threads=self.threads, decisions=self.decisions
            )
        else:
            with LATE_IMPORTS:  # few have schedules of their own
                from tilewright.compiler.schedule.by_user import (  # noqa: PLC0415
                    schedule_by_user,
                )

            machine_model = chosen.machine_model(self.target)
            kernel = schedule_by_user(naive, self.by_user, machine_model)
        # From here no buffer of the kernel lives in memory that nobody gave it.
        return replace(promote_scratch(kernel), name=self.naive.name)

    @lazy
    def key(self) -> str:
        """Where the cache keeps the answer; kernels that differ in their name alone share it."""
        naive, target = self.naive, self.target
        _, _, text = (self.naive_text or kernel_text(naive)).partition("(")
        found = {s.name: s for s in naive.dims}
        for parameter in naive.parameters:
            for dim in parameter.buffer.shape:
                found |= {s.name: s for s in sorted(symbols(dim))}
        return CompilationCache.key(
            "kernel",
            text,
            " ".join(f"{s.name}:{s.lower}:{s.upper}" for s in found.values()),
            f"{target.backend} {target.arch} {target.os} {target.cpu} {sorted(target.features)}",
            repr(target.caches),
            str(self.threads),
            "" if self.by_user is None else self.by_user.text,
            "" if self.decisions is None else self.decisions.to_text(),
            SOURCES_DIGEST,
            backend_of(target).identity(target),
        )


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class KernelRecord:
    """Everything known about one kernel: each level can be looked at and printed.

    Attributes:
        kernel_ir: the scheduled kernel, printed.
        scheduled, lowered: made again from the naive kernel at the first look.
    """

    request: KernelRequest
    signature: KernelSignature
    kernel_ir: str
    compiled: CompiledKernel

    @property
    def name(self) -> str:
        """The name of the export."""
        return self.signature.name

    @property
    def naive(self) -> Kernel:
        """The loops as the op declarations state them."""
        return self.request.naive

    @property
    def is_tuned(self) -> bool:
        """Whether its schedule was decided by a search, not by the cost model."""
        return self.request.decisions is not None

    @property
    def verdict(self) -> Verdict:
        """What scheduling came to, and its cost."""
        return self.signature.verdict

    @lazy
    def scheduled(self) -> Kernel:
        """The kernel after scheduling."""
        return self.request.schedule()

    @lazy
    def lowered(self) -> Kernel:
        """The kernel that the last stage of the back end wrote as text."""
        target = self.request.target
        return backend.lower(backend_of(target), self.scheduled, target)


def make_record(
    request: KernelRequest, scheduled: Kernel, compiled: CompiledKernel
) -> KernelRecord:
    """The record of a kernel that was made now."""
    return KernelRecord(
        request=request,
        signature=signature_of(scheduled),
        kernel_ir=kernel_text(scheduled),
        compiled=compiled,
    )


# --- the cache ---------------------------------------------------------------------------------


def keep(records: Sequence[KernelRecord], cache: CompilationCache) -> None:
    """Put records that were made now, whose objects are there, into the cache."""
    for record in records:
        payload = _encode(record)
        if payload is not None:
            cache.put(record.request.key, payload)
    cache.trim()


def recall(request: KernelRequest, cache: CompilationCache) -> KernelRecord | None:
    """The record of an earlier compilation, or None where something of it is missing."""
    payload = cache.get(request.key)
    if payload is None:
        return None
    try:
        members = cast("dict[str, Any]", json.loads(zlib.decompress(payload)))
        code = cache.get(members["object"]) if members["object"] else b""
        return None if code is None else _decode(members, request, code)
    except _OF_NO_ENTRY:
        return None


def _encode(record: KernelRecord) -> bytes | None:
    """The bytes of an entry; None for a kernel that would not read back the same."""
    compiled, head = record.compiled, f"kernel {record.name}"
    members = {
        "signature": _signature_members(record.signature),
        "export": [
            compiled.export.symbol,
            compiled.export.constant_count,
            compiled.export.binding_count,
            compiled.export.local_memory_pages,
        ],
        "object": compiled.object_key,
        "kernel": record.kernel_ir.removeprefix(head),
        "source": compiled.source,
    }
    text = json.dumps(members, separators=(",", ":"))
    again = _decode(json.loads(text), record.request, compiled.object_bytes)
    same = (
        again.signature == record.signature
        and again.kernel_ir == record.kernel_ir
        and again.compiled.export == compiled.export
    )
    return zlib.compress(text.encode(), _EFFORT) if same else None


def _decode(
    members: Mapping[str, Any], request: KernelRequest, code: bytes
) -> KernelRecord:
    name = request.naive.name
    symbol_name, constants, bindings, pages = members["export"]
    export = ExportDecl(
        name=name,
        symbol=symbol_name,
        constant_count=constants,
        binding_count=bindings,
        local_memory_pages=pages,
    )
    compiled = CompiledKernel(
        name=name,
        object_bytes=code,
        object_key=members["object"],
        source=members["source"],
        export=export,
    )
    return KernelRecord(
        request=request,
        signature=_read_signature(members["signature"], name),
        kernel_ir=f"kernel {name}{members['kernel']}",
        compiled=compiled,
    )


def _signature_members(signature: KernelSignature) -> dict[str, Any]:
    verdict = signature.verdict
    return {
        "parameters": [
            [name, type_.dtype.name, list(map(str, type_.shape))]
            for name, type_ in signature.parameters
        ],
        "dims": [[s.name, s.lower, s.upper] for s in signature.dims],
        "grid": list(map(str, signature.grid)),
        "overwrites": sorted(signature.overwrites),
        "verdict": [verdict.outcome.value, verdict.expected_ns, verdict.lanes_ns],
    }


def _read_signature(members: Mapping[str, Any], name: str) -> KernelSignature:
    dims = tuple(Symbol(*row) for row in members["dims"])
    bounded = {s.name: symbol(s.name, s.lower, s.upper) for s in dims}

    def read(text: str) -> Dim:
        return int(text) if text.isdigit() else substitute(parse(text), bounded)

    x, y, z = map(read, members["grid"])
    outcome, expected_ns, lanes_ns = members["verdict"]
    return KernelSignature(
        name=name,
        parameters=tuple(
            (label, TensorType(dtypes.parse(dtype), tuple(map(read, shape))))
            for label, dtype, shape in members["parameters"]
        ),
        dims=dims,
        grid=(x, y, z),
        overwrites=frozenset((i, j) for i, j in members["overwrites"]),
        verdict=Verdict(Outcome(outcome), expected_ns, lanes_ns),
    )
