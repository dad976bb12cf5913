"""Tables that the functions of one module share: imports, types, text segments, globals.

`ModuleTables.finish` puts the functions and the tables together.  What the functions do is in
`initialize` and `main`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

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
BUFFER_TYPE: Final = "!hal.buffer"
EXECUTABLE_TYPE: Final = "!hal.executable"
MAIN, INIT, LOAD_CONSTANT = range(3)
EXECUTABLE_GLOBAL: Final = 0


@final
class ModuleTables:
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
        self.types: list[str] = ["!vm.buffer", BUFFER_TYPE, EXECUTABLE_TYPE]
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
            ),
            imports=tuple(
                Import(
                    name=name,
                    signature=Signature(calling_convention=IMPORTS[name]),
                    flags=_import_flags(name),
                )
                for name in self.imports
            ),
            exports=(
                Export(name="main", function=MAIN),
                Export(name="__init", function=INIT),
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
