"""Load an artifact: no compiler is imported unless an op has no kernel and runs its reference.

Called by users (`tilewright.load`), the CLI and `api.model`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tilewright.runtime.graph_executor import Array
from tilewright.runtime.session import Session


def load(path: str | Path, *, threads: int | None = None) -> Session:
    """Load an artifact (`.vmfb`) that `Model.save` or `tilewright compile` wrote.

    Args:
        path: the file; its weights stay there, mapped read-only.
        threads: threads that a call may use; default: the cores this process may use.

    Raises: ArchiveError for a file that is corrupt or no artifact; TargetError if it has no code
    for this CPU.
    """
    return Session.from_file(path, threads=threads, host_function=run_reference)


def run_reference(
    op: str, attributes: Mapping[str, object], operands: Sequence[Array | None]
) -> Sequence[Array]:
    """Run the numpy oracle of an op: what a program's host steps call."""
    # Imported here because most artifacts have no such step and must load without the compiler.
    from tilewright.compiler.ops import catalogue  # noqa: PLC0415

    return catalogue.lookup(op).schema.evaluate(operands, attributes)
