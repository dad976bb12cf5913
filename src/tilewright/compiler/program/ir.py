"""The program IR: what the host does to run a model.

Tensors are entries: dense row-major views (`Entry`) of storages (`Storage`, identity matters).
Steps run in order; `Dispatch` runs a kernel over its grid, `HostCall` a reference implementation
in Python, `ModuleCall` a packed function of a module, `Copy` moves bytes.  Control flow is `Label`, `Branch` and
`Jump`; `ReadSizes` gives symbols values that the data of a call decides, `Rebind` those that follow from others.  Storages have a kind and, once `memory.assign` ran, a place.
Sizes, offsets, grids and push constants are symbolic in the model's dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Self, final

from tilewright.base.outcome import Verdict
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.graph.ir import Location
from tilewright.compiler.graph.schema import Array, TensorType
from tilewright.formats.plan import Dimension, IndexCheck

_CONSTANT: Final = "constant"


@final
class Storage:
    """Bytes of one kind: `input`, `output`, `constant`, `transient`, or one of two that control flow needs.

    A `row` is a part of another storage, which data picks; a `block` has memory of its own, which another may take over.

    `first`/`last` are the steps between which a transient lives (inclusive); `offset_bytes` is
    its place in the arena (static programs) or in the weights (constants), -1 until assigned.
    """

    __slots__ = ("array", "first", "kind", "last", "name", "offset_bytes", "size_bytes")

    def __init__(
        self, kind: str, size_bytes: Dim, name: str, array: Array | None = None
    ) -> None:
        self.kind: str = kind
        self.size_bytes: Dim = size_bytes
        self.name: str = name
        self.array: Array | None = array
        self.first: int = -1
        self.last: int = -1
        self.offset_bytes: int = -1

    @classmethod
    def of_array(cls, array: Array, name: str) -> Self:
        """The bytes of a constant."""
        return cls(_CONSTANT, array.nbytes, name, array)

    @property
    def is_constant(self) -> bool:
        """Whether the bytes are known before any call."""
        return self.kind == _CONSTANT

    def __repr__(self) -> str:
        return f"<{self.kind} '{self.name}' {self.size_bytes} bytes>"


@final
@record(eq=False)
class Entry:
    """A tensor in a storage; `names` are those of the values that it is, and that views show all of."""

    storage: Storage
    type: TensorType
    offset_bytes: Dim = 0
    names: tuple[str, ...] = ()

    @staticmethod
    def alone(kind: str, type_: TensorType, name: str) -> Entry:
        """A tensor that has a storage to itself."""
        return Entry(Storage(kind, type_.size_bytes, name), type_)


@final
@record(kw_only=True)
class KernelSignature:
    """What the host must know of a kernel to place its arguments and launch it.

    Attributes:
        parameters: name and type of each binding: operands, results, scratch.
        dims: the push constants, in order.
        grid: workgroups along x, y and z.
        overwrites: (operand, result) positions where the result may take the operand's place.
        verdict: what scheduling the kernel came to.
    """

    name: str
    parameters: tuple[tuple[str, TensorType], ...]
    dims: tuple[Symbol, ...]
    grid: tuple[Dim, Dim, Dim]
    overwrites: frozenset[tuple[int, int]]
    verdict: Verdict


@final
@record(eq=False)
class Dispatch:
    """Run `kernels[kernel]`; `arguments` follow the kernel's parameters, operands first.

    Without `barrier` it may run at the same time as the steps before, back to the last barrier.

    Attributes:
        nodes: those of the model that it computes.
        flops, bytes_moved: what it stands for, for reports.
    """

    name: str
    kernel: int
    arguments: tuple[Entry, ...]
    result_count: int
    grid: tuple[Dim, Dim, Dim]
    dims: tuple[Dim, ...]
    location: object = ""
    flops: Dim = 0
    barrier: bool = True
    bytes_moved: Dim | None = None
    nodes: tuple[str, ...] = ()


@final
@record(eq=False)
class Copy:
    """Copy the bytes of `source` to `target`."""

    source: Entry
    target: Entry


@final
@record(eq=False)
class PickRow:
    """From here on the storage of `row` is the part of `table` at `place`, an i64, counted in such parts.

    A place counts from the end where it is negative; one outside is moved to the nearest.
    """

    place: Entry
    table: Entry
    row: Entry


@final
@record(eq=False)
class HostCall:
    """Run the reference implementation of op `op` on the host."""

    name: str
    op: str
    attributes: Mapping[str, object]
    operands: tuple[Entry | None, ...]
    results: tuple[Entry, ...]
    location: object = ""
    nodes: tuple[str, ...] = ()


@final
@record(eq=False)
class ModuleCall:
    """Call the packed function `symbol` of a module that comes with the program."""

    name: str
    symbol: str
    operands: tuple[Entry, ...]
    results: tuple[Entry, ...]
    location: object = ""
    nodes: tuple[str, ...] = ()


@final
@record(eq=False)
class Label:
    """A place that other steps go to."""

    name: str


@final
@record(eq=False)
class Branch:
    """Go on with the next step where the one element of `condition` is true, else at `otherwise`."""

    condition: Entry
    otherwise: Label


@final
@record(eq=False)
class Jump:
    """Go on at `target`."""

    target: Label


@final
@record(eq=False)
class ReadSizes:
    """Read the elements of `source`, i64, on the host: the values of `sizes` from here on."""

    source: Entry
    sizes: tuple[Symbol, ...]
    location: object = ""


@final
@record(eq=False)
class Allocate:
    """Give a storage of kind `block` memory of its own, as large as it is now; its contents are undefined."""

    target: Entry


@final
@record(eq=False)
class Rebind:
    """Let `sizes` have new values, and storages take over the memory of others: all at once, nothing is copied.

    Attributes:
        sizes: the symbols.
        values: what they are from here on, in terms of what all symbols were.
        moves: storages of kind `block`: who loses its memory, and who has it now.
    """

    sizes: tuple[Symbol, ...]
    values: tuple[Dim, ...]
    moves: tuple[tuple[Entry, Entry], ...] = ()
    location: object = ""


@final
@record(eq=False)
class ExpectSizes:
    """Fail unless the sizes of each pair are equal; where it stands in a branch, only when that runs."""

    pairs: tuple[tuple[Dim, Dim], ...]
    location: object = ""


FlowStep = Label | Branch | Jump | ReadSizes | Allocate | Rebind
Step = Dispatch | Copy | PickRow | HostCall | ModuleCall | ExpectSizes | FlowStep


def place_of(step: HostCall | ModuleCall | ReadSizes | Rebind | ExpectSizes) -> str:
    """Where a step comes from, as artifacts keep it: without the model's file."""
    location = step.location
    return location.place if isinstance(location, Location) else str(location)


@final
@record(eq=False, frozen=False)
class Program:
    """A whole model; `dims` says where a call finds the value of each symbol.

    `equalities` are pairs of sizes that the kernels take to be equal without proof.  What the
    kernels of `checks` find lies in `check_storage`, one record each, for the host to read.
    """

    name: str
    inputs: tuple[tuple[str, Entry], ...]
    outputs: tuple[tuple[str, Entry], ...]
    dims: tuple[Dimension, ...]
    kernels: tuple[KernelSignature, ...]
    steps: tuple[Step, ...]
    arena_bytes: int = -1
    weights_bytes: int = 0
    storages: tuple[Storage, ...] = ()
    equalities: tuple[tuple[Dim, Dim], ...] = ()
    checks: tuple[IndexCheck, ...] = ()
    check_storage: Storage | None = None

    @property
    def has_flow(self) -> bool:
        """Whether some step decides at run time what comes next, or how large it is."""
        return any(isinstance(step, FlowStep) for step in self.steps)

    @property
    def entries(self) -> list[Entry]:
        """Those of the interface, then those of the steps, in order."""
        outside = [entry for _, entry in (*self.inputs, *self.outputs)]
        return [*outside, *(entry for step in self.steps for entry in entries_of(step))]


def entries_of(step: Step) -> tuple[Entry, ...]:
    """What a step reads, then what it writes."""
    return (*operands_of(step), *results_of(step))


def operands_of(step: Step) -> tuple[Entry, ...]:
    """The entries a step reads."""
    match step:
        case Dispatch():
            return step.arguments[: len(step.arguments) - step.result_count]
        case Copy() | ReadSizes():
            return (step.source,)
        case PickRow():
            return (step.place, step.table)
        case HostCall():
            return tuple(e for e in step.operands if e is not None)
        case ModuleCall():
            return step.operands
        case Branch():
            return (step.condition,)
        case Rebind():
            return tuple(source for source, _ in step.moves)
        case Label() | Jump() | Allocate() | ExpectSizes():
            return ()


def results_of(step: Step) -> tuple[Entry, ...]:
    """The entries a step writes."""
    match step:
        case Dispatch():
            return step.arguments[len(step.arguments) - step.result_count :]
        case Copy():
            return (step.target,)
        case PickRow():
            return (step.row,)
        case HostCall() | ModuleCall():
            return step.results
        case Allocate():
            return (step.target,)
        case Rebind():
            return tuple(target for _, target in step.moves)
        case Label() | Branch() | Jump() | ReadSizes() | ExpectSizes():
            return ()
