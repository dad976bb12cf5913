"""LLVM's side: target machines, object code and assembly from IR text.

The only file that calls llvmlite, loaded at the first call: a compilation whose kernels are all in
the cache makes none.  The IR is written in the form the instruction selector wants, so
no optimisation pass runs before it.  Called by `worker` processes and by `compile` inline.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Final

from tilewright.base.errors import InternalError, TargetError

if TYPE_CHECKING:
    import llvmlite.binding as llvm

_ABI_NAMES: Final = {"riscv64": "lp64d"}


@functools.cache
def _binding():
    """LLVM's binding with every target.  Imported here, see the module's first lines."""
    import llvmlite.binding as llvm  # noqa: PLC0415

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


@functools.cache
def target_machine(*, triple: str, cpu: str, features: str, opt: int) -> llvm.TargetMachine:
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
        module = llvm.parse_assembly(text, context)
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM rejects our code: {error}", dump=text) from error
    return module


def object_code(text: str, **settings: str | int) -> bytes:
    """The relocatable object of a module.

    Args:
        text: the module.
        settings: the arguments of `target_machine`.

    Raises: InternalError with the text in `dump`.
    """
    machine = target_machine(**settings)
    return bytes(machine.emit_object(_parse(text, machine)))


def timed_object_code(text: str, **settings: str | int) -> tuple[bytes, float]:
    """The object and the seconds it took."""
    started = time.perf_counter()
    code = object_code(text, **settings)
    return code, time.perf_counter() - started


def assembly(text: str, **settings: str | int) -> str:
    """The assembly of a module, for people."""
    machine = target_machine(**settings)
    return str(machine.emit_assembly(_parse(text, machine)))
