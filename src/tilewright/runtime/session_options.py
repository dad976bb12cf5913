"""The options of a session, and which of them go together.

Not here: what they do (`session`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypedDict, get_args

from tilewright.base.budget import Budget, Limits
from tilewright.base.errors import UserError
from tilewright.base.options import choice_option, text_option, wrong
from tilewright.base.target import Target
from tilewright.formats.vmfb import ModuleDef
from tilewright.runtime.plan_executor import HostFunction

if TYPE_CHECKING:
    from tilewright.runtime.hal.device import Device
    from tilewright.runtime.loaders.trusted_keys import Key
    from tilewright.runtime.vm.bytecode_module import BytecodeMode

MAIN: Final = "main"  # the function of every artifact
Engine = Literal["plan", "vm"]


class LoadOptions(TypedDict, total=False):
    """How an archive is loaded: those arguments of `Session` that do not come from the archive."""

    threads: int | None
    host_function: HostFunction | None
    machine: Target | None
    device: str | Device
    engine: Engine | None
    bytecode: BytecodeMode | None
    libraries: Sequence[str | Path]
    function: str | None
    parameters: Sequence[str]
    untrusted: bool
    limits: Limits | None
    trusted_keys: Sequence[Key] | None


def check_words(device: object, engine: object, bytecode: object, function: object) -> None:
    """Raise for options that are of another kind than they can be."""
    if engine is not None:
        choice_option("engine", engine, get_args(Engine))
    if bytecode is not None:
        choice_option("bytecode", bytecode, ("translate", "interpret"))
    if function is not None:
        text_option("function", function, "the name of a function")
    if not isinstance(device, str) and not hasattr(device, "allocator"):
        raise wrong("device", device, "the URI of a device, or a Device")


def check_plan_options(
    location: str,
    parameters: Sequence[str],
    libraries: Sequence[str | Path],
    bytecode: BytecodeMode | None,
    untrusted: bool,
) -> None:
    """Raise for what only the virtual machine can do."""
    if parameters:
        raise UserError(
            "the weights are in the artifact, parameters would not be read",
            location=location,
        )
    if untrusted:
        raise UserError(
            "the artifact has machine code only, which is not trusted",
            location=location,
            hint="load it without untrusted (--untrusted) if you trust where it comes from; kernels "
            "in bytecode come from iree-compile --iree-hal-target-backends=vmvx",
        )
    if libraries or bytecode:
        raise UserError(
            "a plan runs no bytecode, its own or that of libraries",
            location=location,
            hint="use the engine 'vm'",
        )


def check_plan_limits(location: str, limits: Limits | Budget | None) -> None:
    """Raise for limits that nothing would watch."""
    if limits is not None:
        raise UserError(
            "a plan is machine code, which no limits hold",
            location=location,
            hint="limits are for modules with kernels in bytecode (VMVX)",
        )


def check_plan_function(
    location: str, function: str | None, module: ModuleDef | None
) -> None:
    """Raise for a function that an artifact does not have."""
    full = MAIN if module is None else f"{module.name}.{MAIN}"
    if function not in (None, MAIN, full):
        raise UserError(
            f"no function '{function}'", location=location, hint=f"functions: {full}"
        )
