"""LLVM's side: target machines, object code and assembly from IR text.

The only file that calls llvmlite, in `worker` processes: what LLVM cannot go on with ends the process
it is in.  The IR is written in the form the instruction selector wants, so no optimisation pass runs
before it.  Called by `worker`, and by `pool` where the system grants no process.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal

from tilewright.base.errors import InternalError, TargetError

if TYPE_CHECKING:
    import llvmlite.binding as llvm

Settings = Mapping[str, str | int]
Product = Literal["object", "assembly", "module"]
MODULE_SEPARATOR: Final = "\f\n"
"""Between the texts of modules that are joined into one."""
ARGUMENTS: Final = ("-x86-machine-combiner=0",)
"""What LLVM is told for the whole of a process.

The machine combiner turns chains of integer additions into trees, to wait less.  Sums of a register tile wait for nothing,
and the partial sums of its trees have no registers.
"""

_ABI_NAMES: Final = {"riscv64": "lp64d"}


@functools.cache
def _binding():
    """LLVM's binding with every target.  Imported here: the process of a user needs none."""
    import llvmlite.binding as llvm  # noqa: PLC0415

    for argument in ARGUMENTS:
        llvm.set_option("", argument)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


@functools.cache
def _target_machine(triple: str, cpu: str, features: str, opt: int) -> llvm.TargetMachine:
    """The machine that code is made for.  Raises: TargetError when LLVM lacks it."""
    try:
        target = _binding().Target.from_triple(triple)
        return target.create_target_machine(
            cpu=cpu,
            features=features,
            opt=opt,
            reloc="pic",
            codemodel="medium" if triple.startswith("riscv") else "small",
            abiname=_ABI_NAMES.get(triple.partition("-")[0], ""),
        )
    except RuntimeError as error:
        raise TargetError(
            f"LLVM has no target '{triple}' with CPU '{cpu}': {error}"
        ) from error


def _parse(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    llvm = _binding()
    context = llvm.create_context()
    try:
        first, *others = text.split(MODULE_SEPARATOR)
        module = llvm.parse_assembly(first, context)
        module.data_layout = str(machine.target_data)
        for other in others:
            further = llvm.parse_assembly(other, context)
            further.data_layout = str(machine.target_data)
            module.link_in(further)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM rejects our code: {error}", dump=text) from error
    return module


def generate(product: Product, text: str, settings: Settings) -> bytes:
    """The relocatable object of a module, its assembly, or the module itself as LLVM prints it.

    Args:
        product: which of them.
        text: the module; several become one.
        settings: triple, cpu, features, and opt, the effort.

    Raises: InternalError with the text in `dump`; TargetError.
    """
    triple, cpu, features = (str(settings[key]) for key in ("triple", "cpu", "features"))
    machine = _target_machine(triple, cpu, features, int(settings["opt"]))
    module = _parse(text, machine)
    if product == "module":
        return str(module).encode()
    if product == "assembly":
        return str(machine.emit_assembly(module)).encode()
    return bytes(machine.emit_object(module))
