"""Constants that programs of one model have in common, where each has a graph of its own.

Graphs of other forms pack most of their weights alike.  Not here: constants of one graph, of which passes make one
where they are equal.  Called by the pipeline.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tilewright.compiler.graph.schema import Array
from tilewright.compiler.program.ir import Program


def share_constants(programs: Sequence[Program]) -> None:
    """Let storages of equal bytes have one array; nothing to do for programs that share a graph, which are not read."""
    held = {frozenset(id(s.array) for s in program.storages) for program in programs}
    if len(held) == 1:
        return
    storages = [s for program in programs for s in program.storages]
    by_identity = {id(s.array): s.array for s in storages if s.array is not None}
    kept: dict[tuple[int, bytes], Array] = {}
    chosen: dict[int, Array] = {}
    for identity, array in _doubtful(by_identity).items():
        key = array.nbytes, hashlib.sha256(dense_bytes(array)).digest()
        chosen[identity] = kept.setdefault(key, array)
    for storage in storages:
        if storage.array is not None:
            storage.array = chosen.get(id(storage.array), storage.array)


def _doubtful(arrays: dict[int, Array]) -> dict[int, Array]:
    """Those of which another one has as many bytes: only they are read."""
    counts = Counter(array.nbytes for array in arrays.values())
    return {i: array for i, array in arrays.items() if counts[array.nbytes] > 1}


def dense_bytes(array: Array) -> memoryview:
    """The bytes of an array in row-major order; a view where they stand so."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
