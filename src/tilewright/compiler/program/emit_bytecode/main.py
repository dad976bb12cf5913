"""`main`: check the inputs, record every step into a command buffer, run it, return the views."""

from __future__ import annotations

import json

from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim, bounds
from tilewright.base.symbolic import symbol as symbol_of
from tilewright.compiler.program import ir
from tilewright.compiler.program.emit_bytecode.arrange import arrange_transients
from tilewright.compiler.program.emit_bytecode.flow import (
    Binder,
    Binders,
    Flow,
    Groups,
    late_names,
    storage_groups,
)
from tilewright.compiler.program.emit_bytecode.function import (
    AFTER,
    ANY_QUEUE,
    BEFORE,
    CATEGORIES,
    ENCODING_DENSE,
    ONE_SHOT,
    HalFunction,
    Place,
)
from tilewright.compiler.program.emit_bytecode.index_checks import IndexChecks
from tilewright.compiler.program.emit_bytecode.module import (
    BODY_GLOBAL,
    BUFFER_TYPE,
    EXECUTABLE_GLOBAL,
    EXECUTABLE_TYPE,
    FIRST_BODY,
    ModuleTables,
    VariantCode,
)
from tilewright.formats.bytecode.assembler import AssembledFunction, FunctionBuilder
from tilewright.formats.bytecode.drafts import Register
from tilewright.formats.plan import encode_attribute
from tilewright.formats.plan.size_relations import BOUND_WORDS, Relation, relation_of


def emit_main(module: ModuleTables, code: VariantCode) -> AssembledFunction:
    """The function that a user calls: buffer views in, buffer views out."""
    return _Main(HalFunction(module, _convention(code.program)), code).emit()


def emit_switch(module: ModuleTables, count: int) -> AssembledFunction:
    """`main` where kernels for several CPUs want their own grids: goes on in one of the bodies.

    Args:
        module: to which the bodies are the last functions.
        count: how many bodies there are.
    """
    program = module.program
    build = HalFunction(module, _convention(program)).build
    chosen = build.emit("global.load.i32", BODY_GLOBAL)
    blocks = [build.block() for _ in range(count)]
    build.branch_table(chosen, blocks[0], blocks)
    for body, block in enumerate(blocks):
        build.place(block)
        results = ["ref"] * len(program.outputs)
        build.return_(*build.call(FIRST_BODY + body, build.arguments, results))
    return build.finish()


def _convention(program: ir.Program) -> str:
    inputs, outputs = "r" * len(program.inputs), "r" * len(program.outputs)
    return f"0{inputs or 'v'}_{outputs or 'v'}"


class _Main:
    """The body of `main`."""

    def __init__(self, function: HalFunction, code: VariantCode) -> None:
        self.function: HalFunction = function
        self.build: FunctionBuilder = function.build
        self.code: VariantCode = code
        self.program: ir.Program = code.program
        self.places: dict[ir.Storage, Place] = {}
        self.commands: Register | None = None
        self.binders: Binders = Binders(self.program)
        self.flow: Flow = Flow(function, self._span, self.binders.changing)
        self.groups: Groups = storage_groups(self.program, self.binders)
        self.may_be_negative: list[Dim] = _perhaps_negative(self.program)
        self.narrow: list[Dim] = _sizes_of_kernels(self.program)
        self.kept: dict[Binder | ir.Storage, Register] = {}  # what several steps allocate
        self.checks: IndexChecks = IndexChecks(function, self.program, self.places)

    def emit(self) -> AssembledFunction:
        empty = self.build.block()
        zeros = self._read_dims()
        self._check_inputs()
        self.device: Register = self.function.device()
        self.allocator: Register = self.function.call("hal.device.allocator", self.device)
        for size in zeros:
            some = self.build.block()
            is_some = self.build.emit("cmp.ne.i64", size, self.function.i64(0))
            self.build.branch_if(is_some, some, empty)
            self.build.place(some)
        known = dict(self.function.dims)  # what comes before both ways
        self._place_storages()
        for step in self.program.steps:
            self._step(step)
        self._submit()
        if not self.program.has_flow:
            self.checks.look_at_all()
        self._return_outputs()
        if zeros:
            self.build.place(empty)
            self.function.dims = known
            self._place_outputs()
            self._return_outputs()
        return self.build.finish()

    def _return_outputs(self) -> None:
        self.build.return_(*(self._view(entry) for _, entry in self.program.outputs))

    def _read_dims(self) -> list[Register]:
        """Bind the dimensions; those that leave nothing to compute where they are 0."""
        function = self.function
        outputs = [entry.type.shape for _, entry in self.program.outputs]
        zeros: list[Register] = []
        for dim in self.program.dims:
            view = self.build.arguments[dim.input]
            size = function.call("hal.buffer_view.dim", view, dim.axis)
            function.bind(dim.name, size)
            told = f"dimension '{dim.name}' must be"
            if dim.leaves_nothing(outputs):
                # Where data sizes an output, the steps run, over no element, to say how large it is.
                zeros += [] if self._has_late_outputs else [size]
            elif dim.minimum:
                function.refuse_less(size, dim.minimum, f"{told} at least {dim.minimum}")
            if dim.maximum is not None:
                function.refuse_less(dim.maximum, size, f"{told} at most {dim.maximum}")
        self._check_sizes(None)
        return zeros

    @property
    def _has_late_outputs(self) -> bool:
        return any(self.groups[entry.storage] for _, entry in self.program.outputs)

    def _check_sizes(self, group: Binder | None) -> None:
        """Refuse sizes of which the last has just been bound."""
        last = self.binders.last
        for left, right in self.program.equalities:
            if last((left, right)) is group:
                self._refuse_other(left, right)
        for size in self.may_be_negative:
            if last((size,)) is group:
                message = f"{size} must be at least 0: sizes are too small for this model"
                self.function.refuse_less(size, 0, message)

    def _refuse_other(self, left: Dim, right: Dim, where: str = "") -> None:
        found = relation_of((left, right))
        relation, size, other = found
        if relation is Relation.NOT_NEGATIVE:
            wanted = "at least 0: a size is below zero"
        else:
            wanted = f"{BOUND_WORDS.get(relation, '')} {other}".lstrip()
        message = f"{where}{found.size_text} must be {wanted}"
        match relation:
            case Relation.NOT_NEGATIVE | Relation.AT_LEAST:
                self.function.refuse_less(size, other, message)
            case Relation.AT_MOST:
                self.function.refuse_less(other, size, message)
            case Relation.EQUAL | Relation.MULTIPLE:
                sides = self.function.size(left), self.function.size(right)
                self.function.refuse(self.build.emit("cmp.ne.i64", *sides), message)

    def _check_inputs(self) -> None:
        for view, (name, entry) in zip(
            self.build.arguments, self.program.inputs, strict=True
        ):
            kind = (_signless(entry.type.dtype), ENCODING_DENSE, entry.type.shape)
            self.function.call("hal.buffer_view.assert", view, f"input '{name}'", *kind)

    def _place_storages(self) -> None:
        for view, (_, entry) in zip(self.build.arguments, self.program.inputs, strict=True):
            buffer = self.function.call("hal.buffer_view.buffer", view)
            self.places[entry.storage] = Place(buffer, 0)
        for storage, index in self.function.module.constants(self.code).items():
            type_ = self.function.module.type_(BUFFER_TYPE)
            buffer = self.build.emit("global.load.ref", index, type_)
            self.places[storage] = Place(buffer, 0)
        self._place_group(None)

    def _place_group(self, group: Binder | None) -> None:
        """Memory of what is sized now; what kernels are told of it fits their 32 bits."""
        for dim in self.narrow:
            if self.binders.last((dim,)) is group:
                self.function.refuse_above(0xFFFFFFFF, dim)
        self._place_outputs(group)
        mine = [s for s, own in self.groups.items() if own is group]
        offsets, total = arrange_transients(self.program, mine)
        if offsets:
            arena = self.function.allocate(self.allocator, total)
            arena = self._keep(group, arena)
            for storage, offset in offsets.items():
                self.places[storage] = Place(arena, offset)

    def _allocate(self, step: ir.Allocate) -> None:
        """Memory of its own for a storage."""
        storage = step.target.storage
        buffer = self.function.allocate(self.allocator, storage.size_bytes)
        self.places[storage] = Place(buffer, 0)

    def _rebind(self, step: ir.Rebind) -> None:
        """Whoever takes memory over has one register for it, whoever gives it."""
        moves: list[tuple[Register, Register]] = []
        for source, target in step.moves:
            place = self.places.get(target.storage)
            if place is None:
                place = Place(self.build.register("ref"), 0)
                self.places[target.storage] = place
            moves.append((self.places[source.storage].buffer, place.buffer))
        self.flow.rebind(step, moves)
        self._complete(step)

    def _complete(self, step: Binder) -> None:
        """Look at, and place, what has its last size now."""
        for group in self.binders.completed(step):
            self._check_sizes(group)
            self._place_group(group)

    def _place_outputs(self, group: Binder | None = None) -> None:
        for _, entry in self.program.outputs:
            if self.groups[entry.storage] is not group:
                continue
            buffer = self.function.allocate(self.allocator, entry.storage.size_bytes)
            buffer = self._keep(group, buffer, entry.storage)
            self.places[entry.storage] = Place(buffer, 0)

    def _keep(
        self, group: Binder | None, buffer: Register, output: ir.Storage | None = None
    ) -> Register:
        """The register of memory that other steps may place again: of an output, or the arena of a group."""
        if not isinstance(group, ir.Rebind):
            return buffer
        owner = group if output is None else output
        kept = self.kept.get(owner)
        if kept is None:
            kept = self.kept[owner] = self.build.register("ref")
        self.function.assign([(buffer, kept)])
        return kept

    def _step(self, step: ir.Step) -> None:
        if isinstance(step, ir.HostCall | ir.ModuleCall | ir.PickRow | ir.FlowStep):
            self._submit()
        match step:
            case ir.HostCall() | ir.ModuleCall():
                self._call_out(step)
            case ir.PickRow():
                table = self.places[step.table.storage]
                start = table.offset + step.table.offset_bytes + self.flow.row_offset(step)
                self.places[step.row.storage] = Place(table.buffer, start)
            case ir.ExpectSizes():
                for left, right in step.pairs:
                    self._refuse_other(left, right, f"{ir.place_of(step)}: ")
            case ir.Allocate():
                self._allocate(step)
            case ir.Rebind():
                self._rebind(step)
            case ir.ReadSizes():
                self.flow.emit(step)
                self._complete(step)
            case ir.Label() | ir.Branch() | ir.Jump():
                self.flow.emit(step)
            case ir.Dispatch():
                self._record(barrier=step.barrier)
                self._dispatch(step)
            case ir.Copy():
                self._record(barrier=True)
                self._copy(step)

    def _record(self, *, barrier: bool) -> None:
        """Let there be a command buffer, and what is in it done where a `barrier` is wanted."""
        if self.commands is None:
            kind = (ONE_SHOT, CATEGORIES, ANY_QUEUE, 0)
            name = "hal.command_buffer.create"
            self.commands = self.function.call(name, self.device, *kind)
        elif barrier:
            stages = (AFTER, BEFORE, 0)
            name = "hal.command_buffer.execution_barrier"
            self.function.call(name, self.commands, *stages)

    @property
    def _recording(self) -> Register:
        """The command buffer that steps are recorded into; a call would take none for a null reference."""
        assert self.commands is not None, "recorded before a command buffer begins"
        return self.commands

    def _span(self, entry: ir.Entry) -> tuple[Register, Register, Register]:
        place = self.places[entry.storage]
        offset = self.function.size(place.offset + entry.offset_bytes)
        return place.buffer, offset, self.function.size(entry.type.size_bytes)

    def _dispatch(self, step: ir.Dispatch) -> None:
        type_ = self.function.module.type_(EXECUTABLE_TYPE)
        executable = self.build.emit("global.load.ref", EXECUTABLE_GLOBAL, type_)
        self.checks.note(step)
        bindings = [(0, 0, *self._span(entry)) for entry in step.arguments]
        work = (executable, step.kernel, *step.grid, 0, step.dims, bindings)
        self.function.call("hal.command_buffer.dispatch", self._recording, *work)

    def _copy(self, step: ir.Copy) -> None:
        *source, length = self._span(step.source)
        *target, _ = self._span(step.target)
        name = "hal.command_buffer.copy_buffer"
        self.function.call(name, self._recording, 0, 0, *source, *target, length, 0)

    def _submit(self) -> None:
        """Run what is recorded and wait for it."""
        if self.commands is None:
            return
        function = self.function
        function.call("hal.command_buffer.finalize", self.commands)
        fence = function.call("hal.fence.create", self.device, 0)
        run = (ANY_QUEUE, None, fence, self.commands, 0)
        function.call("hal.device.queue.execute", self.device, *run)
        self.commands = None
        function.wait(fence, "execution")
        if self.program.has_flow:
            self.checks.look_at_written()

    def _call_out(self, step: ir.HostCall | ir.ModuleCall) -> None:
        """Pass everything about the call as text; shapes that vary follow as numbers."""
        present = ir.operands_of(step)
        names = [dim.name for dim in self.program.dims]
        names += sorted(late_names(step) - set(names))
        described = {
            **(
                _described_op(step)
                if isinstance(step, ir.HostCall)
                else {"symbol": step.symbol}
            ),
            "location": ir.place_of(step),
            "dims": names,
            "types": [
                [e.type.dtype.name, [str(d) for d in e.type.shape]]
                for e in ir.entries_of(step)
            ],
        }
        text = json.dumps(described, separators=(",", ":"), sort_keys=True)
        self.function.call(
            "tilewright.host_call" if isinstance(step, ir.HostCall) else "tilewright.call",
            self.function.text(text),
            [self._span(e) for e in present],
            [self._span(e) for e in step.results],
            [self.function.dims[symbol_of(name)] for name in names],
        )

    def _view(self, entry: ir.Entry) -> Register:
        kind = (_signless(entry.type.dtype), ENCODING_DENSE, entry.type.shape)
        return self.function.call("hal.buffer_view.create", *self._span(entry), *kind)


def _described_op(step: ir.HostCall) -> dict[str, object]:
    return {
        "op": step.op,
        "attributes": {k: encode_attribute(v) for k, v in step.attributes.items()},
        "present": [i for i, e in enumerate(step.operands) if e is not None],
        "operand_count": len(step.operands),
    }


def _signless(dtype: DType) -> int:
    """IREE's element type as its compilers write it: integers without a sign."""
    return 0x10000000 | dtype.bits if dtype.is_integer and dtype.is_signed else dtype.iree


def _sizes_of_kernels(program: ir.Program) -> list[Dim]:
    """What a call decides of the numbers that kernels and grids are given."""
    steps = [step for step in program.steps if isinstance(step, ir.Dispatch)]
    sizes = dict.fromkeys(d for step in steps for d in (*step.dims, *step.grid))
    return [d for d in sizes if not isinstance(d, int)]


def _perhaps_negative(program: ir.Program) -> list[Dim]:
    """Sizes that an image smaller than the windows over it makes negative."""
    sizes = dict.fromkeys(d for e in program.entries for d in e.type.shape)
    return [d for d in sizes if (lowest := bounds(d)[0]) is None or lowest < 0]
