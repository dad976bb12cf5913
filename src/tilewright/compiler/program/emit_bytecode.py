"""Emit a program as a VM module: `main` takes and returns buffer views, `__init` loads constants.

The module imports `hal` alone (and `tilewright`, optionally, for ops that run on the host), so
IREE's runtime can run it.  One command buffer per call, recorded with barriers; static programs use
the planned arena, dynamic ones share transients of provably equal size.  Nothing is optimised for
the interpreter here: sessions replay the plan instead.

Source: signatures of the `hal` module, version 6; rules in `docs/formats/vmfb.md`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.arena import ALIGNMENT_BYTES, align
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim, Expr, Operation, Symbol
from tilewright.base.symbolic import symbol as symbol_of
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.program.ir import (
    Copy,
    Dispatch,
    Entry,
    HostCall,
    Program,
    Step,
    Storage,
    operands_of,
)
from tilewright.formats.byte_view import Buffer
from tilewright.formats.bytecode.assembler import (
    Argument,
    AssembledFunction,
    FunctionBuilder,
)
from tilewright.formats.bytecode.drafts import Register
from tilewright.formats.bytecode.isa import IMPORT_BIT
from tilewright.formats.plan import encode_attribute
from tilewright.formats.vmfb import (
    OPTIONAL,
    REQUIRED,
    Dependency,
    Export,
    FunctionDescriptor,
    Import,
    ModuleDef,
    ModuleState,
    Rodata,
    Signature,
)

HAL_VERSION: Final = 6
_ANY_QUEUE: Final = -1
_MEMORY_DEVICE_LOCAL: Final = 48  # device visible and local
_USAGE: Final = 0xC03  # transfer source and target, storage read and write
_IMMUTABLE: Final = 1 << 19
_CATEGORIES: Final = 3  # transfer and dispatch
_ONE_SHOT: Final = 1
_ENCODING_DENSE: Final = 1
_AFTER: Final = 4 | 8 | 16  # dispatch, transfer, retire
_BEFORE: Final = 1 | 4 | 8  # issue, dispatch, transfer
_READ: Final = 1

# Every import an emitted module may have.
_IMPORTS: Final = {
    "hal.allocator.allocate": "0rIiiI_r",
    "hal.allocator.import": "0riIiirII_r",
    "hal.buffer_view.assert": "0rriiCID_v",
    "hal.buffer_view.buffer": "0r_r",
    "hal.buffer_view.create": "0rIIiiCID_r",
    "hal.buffer_view.dim": "0ri_I",
    "hal.command_buffer.copy_buffer": "0riirIrIII_v",
    "hal.command_buffer.create": "0riiIi_r",
    "hal.command_buffer.dispatch": "0rrIiiiICiDCiirIID_v",
    "hal.command_buffer.execution_barrier": "0riiI_v",
    "hal.command_buffer.finalize": "0r_v",
    "hal.device.allocator": "0r_r",
    "hal.device.queue.execute": "0rIrrrI_v",
    "hal.device.queue.read": "0rIrrrIrIII_v",
    "hal.devices.get": "0i_r",
    "hal.ex.file.from_memory": "0rIirIIi_r",
    "hal.executable.create": "0rIrrr_r",
    "hal.fence.await": "0iICrD_i",
    "hal.fence.create": "0rI_r",
    "tilewright.host_call": "0rCrIIDCrIIDCID_v",
}
_BUFFER: Final = "!hal.buffer"
_EXECUTABLE: Final = "!hal.executable"
_MAIN, _INIT, _LOAD_CONSTANT = range(3)
_EXECUTABLE_GLOBAL: Final = 0


def emit_module(
    program: Program,
    rodata: Sequence[Rodata],
    *,
    executable: int,
    executable_format: str,
    first_constant: int,
) -> ModuleDef:
    """The VM module of a program whose memory is assigned.

    Args:
        program: what to emit.
        rodata: segments that already have numbers: images and constants.
        executable: the segment of the image that the virtual machine loads.
        executable_format: its format name.
        first_constant: the segment of the first constant storage; the others follow in order.
    """
    module = _Module(program, list(rodata), executable, executable_format, first_constant)
    functions = (_emit_main(module), _emit_init(module), _emit_load_constant(module))
    return module.finish(functions)


class _Module:
    """Tables that the functions of one module share."""

    def __init__(
        self,
        program: Program,
        rodata: list[Rodata],
        executable: int,
        executable_format: str,
        first_constant: int,
    ) -> None:
        self.program: Program = program
        self.rodata: list[Rodata] = rodata
        self.executable: int = executable
        self.executable_format: str = executable_format
        self.constants: dict[Storage, int] = {
            storage: first_constant + index
            for index, storage in enumerate(
                s for s in program.storages if s.kind == "constant"
            )
        }
        self.globals: dict[Storage, int] = {
            storage: 1 + index for index, storage in enumerate(self.constants)
        }
        self.imports: dict[str, int] = {}
        self.types: list[str] = ["!vm.buffer", _BUFFER, _EXECUTABLE]
        self._texts: dict[bytes, int] = {}

    def import_(self, name: str) -> int:
        """The call ordinal of an import."""
        return self.imports.setdefault(name, len(self.imports)) | IMPORT_BIT

    def text(self, text: str) -> int:
        """The rodata segment that holds `text`."""
        data = text.encode()
        if data not in self._texts:
            self._texts[data] = len(self.rodata)
            self.rodata.append(Rodata(data=data))
        return self._texts[data]

    def type_(self, name: str) -> int:
        return self.types.index(name)

    def finish(self, functions: Sequence[AssembledFunction]) -> ModuleDef:
        code, descriptors = _lay_out(functions)
        requirements = 0
        for function in functions:
            requirements |= function.requirements
        main = Signature(
            calling_convention=functions[_MAIN].calling_convention,
            attributes=_reflection(self.program),
        )
        others = (
            Signature(calling_convention=f.calling_convention) for f in functions[1:]
        )
        return ModuleDef(
            name="module",
            requirements=requirements,
            types=tuple(self.types),
            dependencies=(Dependency(name="hal", minimum_version=HAL_VERSION, flags=REQUIRED),),
            imports=tuple(
                Import(
                    name=name,
                    signature=Signature(calling_convention=_IMPORTS[name]),
                    flags=_import_flags(name),
                )
                for name in self.imports
            ),
            exports=(
                Export(name="main", function=_MAIN),
                Export(name="__init", function=_INIT),
            ),
            signatures=(main, *others),
            rodata=tuple(self.rodata),
            state=ModuleState(global_refs=1 + len(self.globals)),
            functions=descriptors,
            bytecode=code,
        )


def _import_flags(name: str) -> int:
    return REQUIRED if name.startswith("hal.") else OPTIONAL


def _lay_out(
    functions: Sequence[AssembledFunction],
) -> tuple[Buffer, tuple[FunctionDescriptor, ...]]:
    code = bytearray()
    descriptors: list[FunctionDescriptor] = []
    for function in functions:
        code.extend(bytes(-len(code) % 8))
        descriptors.append(
            FunctionDescriptor(
                offset=len(code),
                length=len(function.code),
                block_count=function.block_count,
                word_registers=function.word_registers,
                ref_registers=function.ref_registers,
                requirements=function.requirements,
            )
        )
        code.extend(function.code)
    return bytes(code), tuple(descriptors)


def _reflection(program: Program) -> dict[str, str]:
    def tensor(type_: TensorType) -> str:
        dims = "".join(f"{d if isinstance(d, int) else '?'}x" for d in type_.shape)
        return f"tensor<{dims}{type_.dtype}>"

    inputs = ", ".join(f"%{name}: {tensor(e.type)}" for name, e in program.inputs)
    outputs = ", ".join(f"%{name}: {tensor(e.type)}" for name, e in program.outputs)
    return {"iree.abi.declaration": f"sync func @main({inputs}) -> ({outputs})"}


class _Function:
    """A builder with the vocabulary of the `hal` module."""

    def __init__(self, module: _Module, calling_convention: str) -> None:
        self.module: _Module = module
        self.build: FunctionBuilder = FunctionBuilder(calling_convention)
        self.dims: dict[Dim, Register] = {}

    def i32(self, value: int) -> Register:
        return self.build.constant("i32", value)

    def i64(self, value: int) -> Register:
        return self.build.constant("i64", value)

    def null(self) -> Register:
        return self.build.emit("const.ref.zero")

    def rodata(self, segment: int) -> Register:
        return self.build.emit("const.ref.rodata", segment)

    def text(self, text: str) -> Register:
        return self.rodata(self.module.text(text))

    def call(self, name: str, arguments: Sequence[Argument], *results: str) -> Register:
        """Call an import; returns its only result, or a meaningless register."""
        ordinal = self.module.import_(name)
        if all(isinstance(a, Register) for a in arguments):
            plain = [a for a in arguments if isinstance(a, Register)]
            written = self.build.call(ordinal, plain, results)
        else:
            written = self.build.call_variadic(ordinal, arguments, results)
        return written[0] if written else Register(-1, "")

    def device(self) -> Register:
        return self.call("hal.devices.get", [self.i32(0)], "ref")

    def allocate(self, allocator: Register, size: Register) -> Register:
        """A device-local buffer."""
        arguments = [
            allocator,
            self.i64(_ANY_QUEUE),
            self.i32(_MEMORY_DEVICE_LOCAL),
            self.i32(_USAGE),
            size,
        ]
        return self.call("hal.allocator.allocate", arguments, "ref")

    def wait(self, fence: Register, what: str) -> None:
        """Block until `fence` is reached; fail with its status."""
        arguments: list[Argument] = [self.i32(-1), self.i64(0), [fence]]
        status = self.call("hal.fence.await", arguments, "i32")
        failed, reached = self.build.block("i32"), self.build.block()
        self.build.branch_if(status, failed, reached, [status])
        (code,) = self.build.place(failed)
        self.build.fail(code, f"{what} failed")
        self.build.place(reached)

    # --- sizes ---------------------------------------------------------------------------------

    def size(self, dim: Dim) -> Register:
        """An i64 with the value of a dimension expression."""
        if isinstance(dim, int):
            return self.i64(dim)
        if dim not in self.dims:
            self.dims[dim] = self._sum(dim)
        return self.dims[dim]

    def _sum(self, value: Expr) -> Register:
        total: Register | None = self.i64(value.constant) if value.constant else None
        for monomial, factor in value.terms:
            term: Register | None = self.i64(factor) if factor != 1 else None
            for atom in monomial:
                part = (
                    self._operation(atom)
                    if isinstance(atom, Operation)
                    else self._atom(atom)
                )
                term = part if term is None else self.build.emit("mul.i64", term, part)
            assert term is not None
            total = term if total is None else self.build.emit("add.i64", total, term)
        assert total is not None
        return total

    def _atom(self, atom: object) -> Register:
        assert isinstance(atom, Symbol), "programs have no data-dependent sizes"
        return self.dims[symbol_of(atom.name)]

    def _operation(self, atom: Operation) -> Register:
        opcode = {
            "floordiv": "div.i64.s",
            "mod": "rem.i64.s",
            "min": "min.i64.s",
            "max": "max.i64.s",
        }[atom.op]
        return self.build.emit(opcode, self.size(atom.left), self.size(atom.right))

    def narrow(self, dim: Dim) -> Register:
        """The same as an i32."""
        if isinstance(dim, int):
            return self.i32(dim)
        return self.build.emit("trunc.i64.i32", self.size(dim))


def _emit_load_constant(module: _Module) -> AssembledFunction:
    """(rodata, length) -> device buffer: imported in place, or read into a new buffer."""
    function = _Function(module, "0rI_r")
    build = function.build
    data, length = build.arguments
    device = function.device()
    allocator = function.call("hal.device.allocator", [device], "ref")
    kind = [function.i32(_MEMORY_DEVICE_LOCAL), function.i32(_USAGE | _IMMUTABLE)]
    arguments = [
        allocator,
        function.i32(1),
        function.i64(_ANY_QUEUE),
        *kind,
        data,
        function.i64(0),
        length,
    ]
    mapped = function.call("hal.allocator.import", arguments, "ref")
    in_place, copied = build.block("ref"), build.block()
    build.branch_if(build.emit("cmp.nz.ref", mapped), in_place, copied, [mapped])
    build.place(copied)
    buffer = function.allocate(allocator, length)
    fence = function.call("hal.fence.create", [device, function.i64(0)], "ref")
    file = function.call(
        "hal.ex.file.from_memory",
        [
            device,
            function.i64(_ANY_QUEUE),
            function.i32(_READ),
            data,
            function.i64(0),
            length,
            function.i32(0),
        ],
        "ref",
    )
    zero = function.i64(0)
    queue = [device, function.i64(_ANY_QUEUE), function.null(), fence]
    function.call("hal.device.queue.read", [*queue, file, zero, buffer, zero, length, zero])
    function.wait(fence, "loading a constant")
    build.return_(buffer)
    (result,) = build.place(in_place)
    build.return_(result)
    return build.finish()


def _emit_init(module: _Module) -> AssembledFunction:
    """Load the executable and every constant into globals."""
    function = _Function(module, "0v_v")
    build = function.build
    if module.program.kernels:
        executable = function.call(
            "hal.executable.create",
            [
                function.device(),
                function.i64(_ANY_QUEUE),
                function.text(module.executable_format),
                function.rodata(module.executable),
                function.null(),
            ],
            "ref",
        )
        type_ = module.type_(_EXECUTABLE)
        build.emit("global.store.ref", _EXECUTABLE_GLOBAL, type_, executable)
    for storage, segment in module.constants.items():
        assert isinstance(storage.size_bytes, int)
        arguments = [function.rodata(segment), function.i64(storage.size_bytes)]
        (buffer,) = build.call(_LOAD_CONSTANT, arguments, ["ref"])
        type_ = module.type_(_BUFFER)
        build.emit("global.store.ref", module.globals[storage], type_, buffer)
    build.return_()
    return build.finish()


def _emit_main(module: _Module) -> AssembledFunction:
    program = module.program
    inputs, outputs = "r" * len(program.inputs), "r" * len(program.outputs)
    function = _Function(module, f"0{inputs or 'v'}_{outputs or 'v'}")
    return _Main(function, program).emit()


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """A storage at run time: a buffer and where the storage begins in it."""

    buffer: Register
    offset: Dim


class _Main:
    """The body of `main`."""

    def __init__(self, function: _Function, program: Program) -> None:
        self.function: _Function = function
        self.build: FunctionBuilder = function.build
        self.program: Program = program
        self.places: dict[Storage, _Place] = {}
        self.commands: Register | None = None

    def emit(self) -> AssembledFunction:
        self._read_dims()
        self._check_inputs()
        self.device: Register = self.function.device()
        self.allocator: Register = self.function.call(
            "hal.device.allocator", [self.device], "ref"
        )
        self._place_storages()
        for step in self.program.steps:
            self._step(step)
        self._submit()
        self.build.return_(*(self._view(entry) for _, entry in self.program.outputs))
        return self.build.finish()

    def _read_dims(self) -> None:
        for name, index, axis in self.program.dims:
            view = self.build.arguments[index]
            arguments = [view, self.function.i32(axis)]
            self.function.dims[symbol_of(name)] = self.function.call(
                "hal.buffer_view.dim", arguments, "i64"
            )

    def _check_inputs(self) -> None:
        for view, (name, entry) in zip(
            self.build.arguments, self.program.inputs, strict=True
        ):
            function = self.function
            function.call(
                "hal.buffer_view.assert",
                [
                    view,
                    function.text(f"input '{name}'"),
                    function.i32(_signless(entry.type.dtype)),
                    function.i32(_ENCODING_DENSE),
                    [function.size(d) for d in entry.type.shape],
                ],
            )

    def _place_storages(self) -> None:
        for view, (_, entry) in zip(self.build.arguments, self.program.inputs, strict=True):
            buffer = self.function.call("hal.buffer_view.buffer", [view], "ref")
            self.places[entry.storage] = _Place(buffer, 0)
        for storage, index in self.function.module.globals.items():
            type_ = self.function.module.type_(_BUFFER)
            buffer = self.build.emit("global.load.ref", index, type_)
            self.places[storage] = _Place(buffer, 0)
        for _, entry in self.program.outputs:
            size = self.function.size(entry.storage.size_bytes)
            buffer = self.function.allocate(self.allocator, size)
            self.places[entry.storage] = _Place(buffer, 0)
        offsets, total = _arrange_transients(self.program)
        if offsets:
            arena = self.function.allocate(self.allocator, self.function.size(total))
            for storage, offset in offsets.items():
                self.places[storage] = _Place(arena, offset)

    def _step(self, step: Step) -> None:
        if isinstance(step, HostCall):
            self._submit()
            self._host_call(step)
            return
        if self.commands is None:
            self._begin()
        else:
            self._barrier()
        if isinstance(step, Dispatch):
            self._dispatch(step)
        else:
            self._copy(step)

    def _begin(self) -> None:
        function = self.function
        self.commands = function.call(
            "hal.command_buffer.create",
            [
                self.device,
                function.i32(_ONE_SHOT),
                function.i32(_CATEGORIES),
                function.i64(_ANY_QUEUE),
                function.i32(0),
            ],
            "ref",
        )

    def _barrier(self) -> None:
        assert self.commands is not None
        function = self.function
        arguments = [
            self.commands,
            function.i32(_AFTER),
            function.i32(_BEFORE),
            function.i64(0),
        ]
        function.call("hal.command_buffer.execution_barrier", arguments)

    def _span(self, entry: Entry) -> tuple[Register, Register, Register]:
        place = self.places[entry.storage]
        offset = self.function.size(place.offset + entry.offset_bytes)
        return place.buffer, offset, self.function.size(entry.type.size_bytes)

    def _dispatch(self, step: Dispatch) -> None:
        assert self.commands is not None
        function = self.function
        type_ = function.module.type_(_EXECUTABLE)
        executable = self.build.emit("global.load.ref", _EXECUTABLE_GLOBAL, type_)
        zero = function.i32(0)
        bindings = [(zero, zero, *self._span(entry)) for entry in step.arguments]
        function.call(
            "hal.command_buffer.dispatch",
            [
                self.commands,
                executable,
                function.i64(step.kernel),
                *(function.narrow(d) for d in step.grid),
                function.i64(0),
                [function.narrow(d) for d in step.dims],
                bindings,
            ],
        )

    def _copy(self, step: Copy) -> None:
        assert self.commands is not None
        zero = self.function.i32(0)
        source, source_offset, length = self._span(step.source)
        target, target_offset, _ = self._span(step.target)
        self.function.call(
            "hal.command_buffer.copy_buffer",
            [
                self.commands,
                zero,
                zero,
                source,
                source_offset,
                target,
                target_offset,
                length,
                self.function.i64(0),
            ],
        )

    def _submit(self) -> None:
        """Run what is recorded and wait for it."""
        if self.commands is None:
            return
        function = self.function
        function.call("hal.command_buffer.finalize", [self.commands])
        fence = function.call("hal.fence.create", [self.device, function.i64(0)], "ref")
        function.call(
            "hal.device.queue.execute",
            [
                self.device,
                function.i64(_ANY_QUEUE),
                function.null(),
                fence,
                self.commands,
                function.i64(0),
            ],
        )
        self.commands = None
        function.wait(fence, "execution")

    def _host_call(self, step: HostCall) -> None:
        """Pass everything about the call as text; shapes that vary follow as numbers."""
        present = operands_of(step)
        described = {
            "op": step.op,
            "attributes": {k: encode_attribute(v) for k, v in step.attributes.items()},
            "present": [i for i, e in enumerate(step.operands) if e is not None],
            "operand_count": len(step.operands),
            "dims": [name for name, _, _ in self.program.dims],
            "types": [
                [e.type.dtype.name, [str(d) for d in e.type.shape]]
                for e in (*present, *step.results)
            ],
        }
        text = json.dumps(described, separators=(",", ":"), sort_keys=True)
        self.function.call(
            "tilewright.host_call",
            [
                self.function.text(text),
                [self._span(e) for e in present],
                [self._span(e) for e in step.results],
                [self.function.dims[symbol_of(name)] for name, _, _ in self.program.dims],
            ],
        )

    def _view(self, entry: Entry) -> Register:
        buffer, offset, length = self._span(entry)
        function = self.function
        arguments: list[Argument] = [
            buffer,
            offset,
            length,
            function.i32(_signless(entry.type.dtype)),
            function.i32(_ENCODING_DENSE),
            [function.size(d) for d in entry.type.shape],
        ]
        return function.call("hal.buffer_view.create", arguments, "ref")


def _signless(dtype: DType) -> int:
    """IREE's element type as its compilers write it: integers without a sign."""
    return 0x10000000 | dtype.bits if dtype.is_integer and dtype.is_signed else dtype.iree


def _arrange_transients(program: Program) -> tuple[dict[Storage, Dim], Dim]:
    """Offsets in one buffer; the planned ones, or slots shared by equal symbolic sizes."""
    transients = [s for s in program.storages if s.kind == "transient"]
    if program.arena_bytes >= 0:
        return {s: s.offset_bytes for s in transients}, program.arena_bytes
    slots: list[tuple[Dim, int, Dim]] = []  # size, step it is free after, offset
    offsets: dict[Storage, Dim] = {}
    total: Dim = 0
    for storage in sorted(transients, key=lambda s: s.first):
        size = _round_up(storage.size_bytes)
        index = next(_free_slots(slots, size, storage.first), None)
        if index is None:
            slots.append((size, storage.last, total))
            offsets[storage] = total
            total = total + size
        else:
            offset = slots[index][2]
            slots[index] = (size, storage.last, offset)
            offsets[storage] = offset
    return offsets, total


def _free_slots(
    slots: Sequence[tuple[Dim, int, Dim]], size: Dim, step: int
) -> Iterator[int]:
    return (i for i, (s, last, _) in enumerate(slots) if s == size and last < step)


def _round_up(size: Dim) -> Dim:
    if isinstance(size, int):
        return align(size)
    return (size + (ALIGNMENT_BYTES - 1)) // ALIGNMENT_BYTES * ALIGNMENT_BYTES
