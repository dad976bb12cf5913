"""Tables that the functions of one module share: imports, types, text segments, globals.

`ModuleTables.finish` puts the functions and the tables together.  What the functions do is in
`initialize` and `main`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tilewright.base.record import record
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.program.ir import Program, Storage
from tilewright.formats.byte_view import Buffer
from tilewright.formats.bytecode.assembler import AssembledFunction
from tilewright.formats.bytecode.isa import IMPORT_BIT
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

# Every import an emitted module may have.
IMPORTS: Final = {
    "hal.allocator.allocate": "0rIiiI_r",
    "hal.allocator.import": "0riIiirII_r",
    "hal.buffer.load": "0rIi_i",
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
    "hal.device.query.i64": "0rrr_iI",
    "hal.device.queue.execute": "0rIrrrI_v",
    "hal.device.queue.read": "0rIrrrIrIII_v",
    "hal.devices.get": "0i_r",
    "hal.ex.file.from_memory": "0rIirIIi_r",
    "hal.executable.create": "0rIrrr_r",
    "hal.fence.await": "0iICrD_i",
    "hal.fence.create": "0rI_r",
    "io_parameters.load": "0rIrrrIiirrr_r",
    "tilewright.call": "0rCrIIDCrIIDCID_v",
    "tilewright.check_indices": "0rrIICID_v",
    "tilewright.host_call": "0rCrIIDCrIIDCID_v",
}
BUFFER_TYPE: Final = "!hal.buffer"
EXECUTABLE_TYPE: Final = "!hal.executable"
# The functions in order; bodies are there when programs differ in more than their kernels.
MAIN, INIT, LOAD_CONSTANT, IS_LACKING, FIRST_BODY = range(5)
EXECUTABLE_GLOBAL: Final = 0  # a reference
BODY_GLOBAL: Final = 0  # an i32: which body of `main` goes with the executable
_BODY_BYTES: Final = 4


@final
@record(eq=False, kw_only=True)
class VariantCode:
    """A model for one CPU.

    Attributes:
        program: its steps; the interface is that of the model's other programs.
        target: what errors call the CPU.
        features: what the kernels need beyond what every CPU of the architecture has.
        executable: the segment of the image.
        format: the image's format name.
        constants: the places of its constants among those of all codes, in the order of its storages.
    """

    program: Program
    target: str
    features: frozenset[str]
    executable: int
    format: str
    constants: tuple[int, ...]


@final
class ModuleTables:
    """Tables that the functions of one module share."""

    def __init__(
        self,
        codes: Sequence[VariantCode],
        rodata: list[Rodata],
        first_constant: int,
        weights: Sequence[str] = (),
    ) -> None:
        self.weights: Sequence[str] = weights
        # Without kernels there is nothing to choose.
        self.codes: tuple[VariantCode, ...] = tuple(
            codes if codes[0].program.kernels else codes[:1]
        )
        self.program: Program = codes[0].program
        self.rodata: list[Rodata] = rodata
        self.first_constant: int = first_constant
        self.bodies: tuple[int, ...] = tuple(range(len(codes)))
        self.imports: dict[str, int] = {}
        self.types: list[str] = ["!vm.buffer", BUFFER_TYPE, EXECUTABLE_TYPE]
        self._texts: dict[bytes, int] = {}

    @property
    def is_choosing(self) -> bool:
        """Whether the CPU decides which code is loaded."""
        return len(self.codes) > 1

    @property
    def has_switch(self) -> bool:
        """Whether `main` goes on in the body that goes with the executable."""
        return max(self.bodies) > 0

    def constants(self, code: VariantCode) -> dict[Storage, int]:
        """The global of each constant of a code; what several read has one for all of them."""
        constants = (s for s in code.program.storages if s.is_constant)
        return {s: 1 + place for s, place in zip(constants, code.constants, strict=True)}

    @property
    def constant_count(self) -> int:
        """Constants of all codes."""
        return 1 + max(
            (place for code in self.codes for place in code.constants), default=-1
        )

    def common_constants(self) -> frozenset[int]:
        """The globals that are filled whichever code is chosen."""
        return frozenset.intersection(
            *(frozenset(self.constants(code).values()) for code in self.codes)
        )

    def segment(self, constant: int) -> int:
        """The rodata segment that fills a constant's global."""
        return self.first_constant + constant - 1

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

    def data(self, data: bytes) -> int:
        """A rodata segment of its own."""
        self.rodata.append(Rodata(data=data))
        return len(self.rodata) - 1

    def type_(self, name: str) -> int:
        return self.types.index(name)

    def finish(self, functions: Sequence[AssembledFunction]) -> ModuleDef:
        code, descriptors = _lay_out(functions)
        requirements = 0
        for function in functions:
            requirements |= function.requirements
        main = Signature(
            calling_convention=functions[MAIN].calling_convention,
            attributes=_reflection(self.program),
        )
        others = (Signature(calling_convention=f.calling_convention) for f in functions[1:])
        return ModuleDef(
            name="module",
            requirements=requirements,
            types=tuple(self.types),
            dependencies=(
                Dependency(name="hal", minimum_version=HAL_VERSION, flags=REQUIRED),
                *(
                    Dependency(name="io_parameters", minimum_version=0, flags=REQUIRED)
                    for _ in self.weights[:1]
                ),
            ),
            imports=tuple(
                Import(
                    name=name,
                    signature=Signature(calling_convention=IMPORTS[name]),
                    flags=OPTIONAL if name.startswith("tilewright.") else REQUIRED,
                )
                for name in self.imports
            ),
            exports=(
                Export(name="main", function=MAIN),
                Export(name="__init", function=INIT),
            ),
            signatures=(main, *others),
            rodata=tuple(self.rodata),
            state=ModuleState(
                global_bytes=_BODY_BYTES if self.has_switch else 0,
                global_refs=1 + self.constant_count,
            ),
            functions=descriptors,
            bytecode=code,
        )


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
