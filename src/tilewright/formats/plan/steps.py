"""What a plan consists of: storages, entries in them, steps over entries.

Frozen data without behaviour.  Sizes, offsets, grids and push constants are symbolic in the
dimensions of a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, final

from tilewright.base.dtypes import DType
from tilewright.base.errors import UserError
from tilewright.base.outcome import Outcome
from tilewright.base.record import field, record
from tilewright.base.symbolic import Dim, substitute

STORAGE_KINDS: Final = ("input", "output", "constant", "transient", "row", "block")
FLOW_KINDS: Final = ("label", "branch", "jump", "read", "allocate", "rebind")
STEP_KINDS: Final = ("dispatch", "copy", "row", "host", "call", "expect", *FLOW_KINDS)
# MIRROR FINDINGS
CHECK_BYTES: Final = 64  # a record is an i64 at the start of a cache line
CHECK_PASSED: Final = -(1 << 63)


@final
@record
class Storage:
    """Bytes that entries live in.

    `input`/`output` storages are numbered by position in the signature; `constant` ones start at
    `offset_bytes` of the weights; `transient` ones live from step `first` through `last` and, in
    a static plan, at `offset_bytes` of the arena.  An offset of -1 is unknown.  `row` ones are a part of
    another storage, which a `row` step says: they have no memory of their own, and nothing writes them.
    `block` ones have memory of their own from an `allocate` step on, until another takes it over (`rebind`).
    """

    kind: str
    size_bytes: Dim
    first: int = 0
    last: int = 0
    offset_bytes: int = -1
    name: str = ""


@final
@record
class Entry:
    """A tensor: a dense row-major view of a storage, starting at byte `offset_bytes`."""

    storage: int
    dtype: DType
    shape: tuple[Dim, ...]
    offset_bytes: Dim = 0

    @property
    def size_bytes(self) -> Dim:
        """The bytes of all elements, sub-byte types one byte each."""
        count: Dim = self.dtype.itemsize
        for dim in self.shape:
            count = count * dim
        return count


@final
@record
class Dimension:
    """A dynamic dimension: its value in a call is the size of axis `axis` of input `input`.

    Code relies on it being at least `minimum` and at most `maximum` (None: any size).  Where a size
    of 0 leaves no element of any output (`leaves_nothing`), no code runs, and 0 passes for 1.
    """

    name: str
    input: int
    axis: int
    minimum: int = 0
    maximum: int | None = None

    def leaves_nothing(self, outputs: Iterable[Sequence[Dim]]) -> bool:
        """Whether no output of these shapes has an element where this dimension is 0."""
        if self.minimum > 1:
            return False
        try:
            return all(
                any(substitute(dim, {self.name: 0}) == 0 for dim in shape)
                for shape in outputs
            )
        except UserError:  # a division by it
            return False


@final
@record
class SizeRange:
    """A size that a `read` or `rebind` step binds, `minimum .. maximum` (None: any)."""

    name: str
    minimum: int = 0
    maximum: int | None = None


@final
@record
class HostCall:
    """What a `host` step passes besides its tensors.

    The op has `operand_count` operands, of which `present` (in order) are the step's; `attributes`
    may hold symbolic dimensions.  `location` is the node in the model's terms, for errors.
    """

    operand_count: int
    present: tuple[int, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)
    location: str = ""


@final
@record
class Step:
    """One step.  `arguments` index entries, operands before results.

    dispatch: `target` names the executable's export; `grid` is the workgroup count and `dims` the
    u32 push constants.  copy: one operand, one result, `target` is empty.  host: `target` names an
    op whose reference implementation runs in Python, as `host` says.  call: `target` is the symbol
    of a packed function, looked up in the modules that come with the program; it takes the
    arguments as tensors, fills the results and returns nothing.

    row: from here on the one result, all of a `row` storage, is the row of the second argument, a table of whole
    rows, at the place that the first says, an i64: from the end where it is negative, the nearest where there is
    none.

    label: where others go to.  branch: on with the next step where its one argument, a bool, is true, else at
    step `goto`.  jump: on at step `goto`.  read: the elements of its one argument, i64, are the values of `sizes`
    from here on; `target` is the node in the model's terms, for errors.

    allocate: its one result, a `block` storage, has memory from here on, as large as it is now.  rebind: `sizes` are
    `dims` from here on, evaluated before any of them changes; the storage of each result takes over the memory of
    the storage of an operand, in order, all at once.

    expect: fails unless its `dims` are equal in pairs, the first and the second, and so on; `target` is the node in the
    model's terms.

    `outcome` says how the step runs: None for copies, and where nobody knows (plans before 1.1).
    `nodes` are those of the model that it computes, `bytes_moved` what it reads and writes at least
    (plans before 1.2 say neither).
    """

    kind: str
    name: str
    target: str
    arguments: tuple[int, ...]
    result_count: int
    grid: tuple[Dim, Dim, Dim] = (1, 1, 1)
    dims: tuple[Dim, ...] = ()
    host: HostCall | None = None
    barrier: bool = True
    flops: Dim = 0
    outcome: Outcome | None = None
    bytes_moved: Dim | None = None
    nodes: tuple[str, ...] = ()
    goto: int = -1
    sizes: tuple[SizeRange, ...] = ()

    @property
    def pairs(self) -> tuple[tuple[Dim, Dim], ...]:
        """What an `expect` step compares."""
        return tuple(zip(self.dims[::2], self.dims[1::2], strict=True))


def operands_of(step: Step) -> tuple[int, ...]:
    """The entries a step reads."""
    return step.arguments[: len(step.arguments) - step.result_count]


def results_of(step: Step) -> tuple[int, ...]:
    """The entries a step writes."""
    return step.arguments[len(step.arguments) - step.result_count :]


@final
@record
class IndexCheck:
    """What one index of a call must obey: `low .. high`, on an axis of `size` elements.

    A kernel writes the largest index outside, or `CHECK_PASSED`, to the record of the check in
    the storage of all checks; `location` names the node that indexes.
    """

    location: str
    axis: int
    size: Dim
    low: Dim
    high: Dim


@final
@record
class ModelValue:
    """Result `result` of step `step` is the value `name` of the imported model, element for element.

    Its shape may be another one; where it has `axes`, the value is the tensor with its axes in this order, as
    `transpose` takes them.
    """

    name: str
    step: int
    result: int
    axes: tuple[int, ...] = ()


@final
@record
class Plan:
    """A whole program.  `inputs` and `outputs` are (name, entry) in order.

    `equalities` are pairs of sizes that must agree in a call, though no input's type says so.
    `checks` have one record of `CHECK_BYTES` each, in order, in storage `check_storage`, which
    lives to the end.

    `values` says, in the order of the model, which tensors are values of it: those whose names are there once.
    """

    name: str
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]
    dims: tuple[Dimension, ...]
    storages: tuple[Storage, ...]
    entries: tuple[Entry, ...]
    steps: tuple[Step, ...]
    arena_bytes: int = -1
    equalities: tuple[tuple[Dim, Dim], ...] = ()
    checks: tuple[IndexCheck, ...] = ()
    check_storage: int = -1
    values: tuple[ModelValue, ...] = ()

    @property
    def outcomes(self) -> dict[str, Outcome]:
        """How each kernel, and each op on the host, runs: by the target of its steps."""
        return {s.target: s.outcome for s in self.steps if s.outcome is not None}

    @property
    def is_static(self) -> bool:
        """Whether no size depends on a call or refuses one, and no memory depends on what runs before."""
        is_known = not self.dims and not self.has_reads and not self.has_blocks
        return is_known and not self.has_expectations

    @property
    def has_flow(self) -> bool:
        """Whether some step decides at run time what comes next, or how large it is."""
        return any(step.kind in FLOW_KINDS for step in self.steps)

    @property
    def has_reads(self) -> bool:
        """Whether some sizes are known only when other steps have run."""
        return any(step.sizes for step in self.steps)

    @property
    def has_rows(self) -> bool:
        """Whether some step picks where a storage is."""
        return any(step.kind == "row" for step in self.steps)

    @property
    def has_blocks(self) -> bool:
        """Whether some sizes change from trip to trip, or differ between branches."""
        return any(step.kind in ("allocate", "rebind") for step in self.steps)

    @property
    def has_expectations(self) -> bool:
        """Whether some sizes are compared where they are needed, such as in a branch."""
        return any(step.kind == "expect" for step in self.steps)
