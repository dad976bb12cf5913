"""What a heap holds, by use, and what is said when it has no more; for the C core and its Python twin.

Not here: the heap (`core.Heap`).  Called by devices and sessions; the C core calls `raise_refusal`.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from tilewright.base.record import record
from tilewright.base.status import StatusCode, failure
from tilewright.base.text import format_bytes

if TYPE_CHECKING:
    from tilewright.runtime.native.core import Heap

MORE: Final = "give the device more with ?memory="
_LISTED: Final = 4  # sizes that an error names


@final
class MemoryUse(enum.IntEnum):
    """MIRROR MEMORY USES.  What memory of a heap is for."""

    ARENA = 0
    TRANSIENT = 1
    SCRATCH = 2


_FOR: Final = {
    MemoryUse.ARENA: " for intermediate tensors",
    MemoryUse.TRANSIENT: "",
    MemoryUse.SCRATCH: " of workgroup memory",
}


@final
@record
class MemoryReport:
    """The memory of a device at one moment.

    Units: bytes, and numbers of blocks.

    Attributes:
        arenas_bytes: intermediate tensors of the calls in flight.
        transients_bytes: buffers of the virtual machine that somebody holds; copies of inputs of
            the calls in flight and, where there is a cap, their outputs.
        scratch_bytes: workgroup memory of the threads of the calls in flight.
        kept_bytes: what no call needs, kept for the next; `trim` gives it back.
        peak_bytes: the most that was in use at the same time.
        capacity_bytes: what may be in use and kept together; None: no bound.
        lease_count: how often memory was taken.
        reuse_count: how often of these from what was kept.
        leased_bytes: what was taken so far, all in all.
        live_count: how many blocks are in use.
    """

    arenas_bytes: int
    transients_bytes: int
    scratch_bytes: int
    kept_bytes: int
    peak_bytes: int
    lease_count: int
    reuse_count: int
    leased_bytes: int
    live_count: int
    capacity_bytes: int | None

    @staticmethod
    def of(heap: Heap) -> MemoryReport:
        """What a heap holds now."""
        return MemoryReport(*heap.report(), heap.capacity_bytes)

    @property
    def in_use_bytes(self) -> int:
        """What calls and buffers have now."""
        return self.arenas_bytes + self.transients_bytes + self.scratch_bytes

    @property
    def total_bytes(self) -> int:
        """What is in use and kept together."""
        return self.in_use_bytes + self.kept_bytes

    def __repr__(self) -> str:
        parts = (
            ("arenas", self.arenas_bytes),
            ("transients", self.transients_bytes),
            ("scratch", self.scratch_bytes),
            ("kept for reuse", self.kept_bytes),
            ("peak", self.peak_bytes),
        )
        cap = self.capacity_bytes
        words = [f"{name} {format_bytes(size)}" for name, size in parts]
        words.append("no cap" if cap is None else f"cap {format_bytes(cap)}")
        return f"<memory: {', '.join(words)}>"


def raise_refusal(
    size_bytes: int,
    in_use_bytes: int,
    capacity_bytes: int,
    use: int,
    sizes: Sequence[int],
) -> None:
    """Say that there is no memory.  Raises: DeviceError (RESOURCE_EXHAUSTED), always.

    Args:
        size_bytes: what was wanted.
        in_use_bytes: what others had then.
        capacity_bytes: of the heap; 0: the system refused.
        use: what for, a `MemoryUse`.
        sizes: what others have, block by block.
    """
    subject = f"{size_bytes} bytes{_FOR[MemoryUse(use)]}"
    if capacity_bytes == 0:
        raise failure(
            StatusCode.RESOURCE_EXHAUSTED,
            f"no memory for {subject}: the system gives no more",
            hint="hold fewer arrays, or raise the limit of memory of this process",
        )
    raise failure(
        StatusCode.RESOURCE_EXHAUSTED,
        f"no room for {subject}: {in_use_bytes} of {capacity_bytes} are in use, "
        f"{_describe(sizes)}",
        hint=f"{MORE}, run fewer calls at the same time, or hold fewer buffers",
    )


def _describe(sizes: Sequence[int]) -> str:
    """`3 x 4096 bytes, 1 x 64 bytes`, what holds most first."""
    held = sorted(Counter(sizes).items(), key=lambda row: -row[0] * row[1])
    rows = [f"{n} x {size} bytes" for size, n in held[:_LISTED]]
    rest = sum(n for _, n in held[_LISTED:])
    return ", ".join([*rows, f"{rest} smaller"] if rest else rows) or "nothing held"
