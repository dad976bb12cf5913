"""The options of a session: what each engine takes, and which of a user's words go together.

`LoadOptions` are the words, as `tilewright.load`, the command line and others hear them;
`choose_options` checks them all at once and gives the options of one engine.  Not here: what they do
(`session`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypedDict, cast, final, get_args

from tilewright.base.budget import Budget, Limits
from tilewright.base.errors import UserError
from tilewright.base.options import (
    choice_option,
    count_option,
    flag_option,
    paths_option,
    text_option,
    wrong,
)
from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.base.text import did_you_mean
from tilewright.formats.vmfb import ModuleDef
from tilewright.runtime.drivers import DEFAULT_DEVICE
from tilewright.runtime.packed.program_modules import FindLoader
from tilewright.runtime.plan_executor import FindFunction, HostFunction

if TYPE_CHECKING:
    from tilewright.runtime.hal.device import Device
    from tilewright.runtime.loaders.trusted_keys import Key
    from tilewright.runtime.vm.bytecode_module import BytecodeMode

MAIN: Final = "main"  # the function of every artifact
Engine = Literal["plan", "vm"]


@final
@record(kw_only=True)
class HostOptions:
    """What both engines take.

    Attributes:
        threads: that a call may use, the caller's included; None: the cores this process may use.
        device: a device or its URI: `local-task` (default), `local-sync`, ...
        machine: choose code for this machine instead of the host (it must run here); a device
            that was made already says itself for which one.
        host_function: runs ops that have no kernel (see `tilewright.load`).
        find_function: gives the packed function of a symbol, or None; by default those of the modules
            in the artifact.
        find_loader: gives the loader of a kind of modules in the artifact, or None; by default of those
            that were registered.
    """

    threads: int | None = None
    device: str | Device = DEFAULT_DEVICE
    machine: Target | None = None
    host_function: HostFunction | None = None
    find_function: FindFunction | None = None
    find_loader: FindLoader | None = None


@final
@record(kw_only=True)
class PlanOptions:
    """Replay the plan of an artifact natively."""

    host: HostOptions = HostOptions()

    @property
    def engine(self) -> Engine:
        """The word for it."""
        return "plan"


@final
@record(kw_only=True)
class BytecodeOptions:
    """Run the bytecode of a module by the virtual machine.

    Attributes:
        mode: `translate` (the default) makes Python functions of it, `interpret` goes instruction by
            instruction.
        libraries: files of modules that are loaded before it, in this order; each may import
            functions of those before.
        function: one of the module's, or `library.function`; None: the only one.
        parameters: files of weights that a module keeps outside (`path` or `scope=path`; .irpa,
            .safetensors, .gguf, .params).
        untrusted: run no machine code of the file, only kernels in bytecode (VMVX), and hold it to
            `limits`: for files of strangers.
        limits: what loading and each call of a module may take (or the budget that loading began
            with); None: those of `Limits()` for files that are not trusted, none for others.
        trusted_keys: public keys, of which one must have signed each library and file of weights (and
            the archive itself, where it is read: `Session.from_file`, `from_bytes`).
    """

    host: HostOptions = HostOptions()
    mode: BytecodeMode | None = None
    libraries: tuple[str | Path, ...] = ()
    function: str | None = None
    parameters: tuple[str, ...] = ()
    untrusted: bool = False
    limits: Limits | Budget | None = None
    trusted_keys: Sequence[Key] | None = None

    @property
    def engine(self) -> Engine:
        """The word for it."""
        return "vm"


EngineOptions = PlanOptions | BytecodeOptions


class LoadOptions(TypedDict, total=False):
    """The words of a user; those that are left out are as in the options of the engines.

    `engine` is `plan` or `vm`; None takes the plan where there is one, unless `bytecode` or `libraries` ask
    for the virtual machine.
    """

    threads: int | None
    host_function: HostFunction | None
    find_loader: FindLoader | None
    machine: Target | None
    device: str | Device
    engine: Engine | None
    bytecode: BytecodeMode | None
    libraries: Sequence[str | Path]
    function: str | None
    parameters: Sequence[str]
    untrusted: bool
    limits: Limits | Budget | None
    trusted_keys: Sequence[Key] | None


def check_words(words: Mapping[str, object], location: str) -> None:
    """Raise UserError for words that nobody would look at, and for values of another kind."""
    known = (*LoadOptions.__optional_keys__,)
    for word in words:
        if word not in known:
            raise UserError(
                f"there is no option '{word}'",
                location=location,
                hint=did_you_mean(word, known) or f"options: {', '.join(sorted(known))}",
            )
    said = cast("LoadOptions", words)
    if said.get("engine") is not None:
        choice_option("engine", said.get("engine"), get_args(Engine))
    _bytecode_options(said)


def choose_options(
    words: LoadOptions, *, has_plan: bool, module: ModuleDef | None, location: str
) -> EngineOptions:
    """The options of the engine that a user's words ask for.

    Args:
        words: what was said.
        has_plan: whether there is a plan to replay.
        module: what there is to run.
        location: how errors call it.

    Raises: UserError for a word that is of another kind than it can be, or that the engine cannot
        follow.
    """
    engine = words.get("engine")
    if engine is not None:
        choice_option("engine", engine, get_args(Engine))
    wanted = _bytecode_options(words)
    needs_vm = not has_plan or wanted.mode is not None or bool(wanted.libraries)
    if (engine or ("vm" if needs_vm else "plan")) == "vm":
        return wanted
    _check_plan(wanted, module, location)
    return PlanOptions(host=wanted.host)


def _host_options(words: LoadOptions) -> HostOptions:
    threads, device = words.get("threads"), words.get("device", DEFAULT_DEVICE)
    if threads is not None:
        threads = count_option("threads", threads, least=0)
    if not isinstance(device, str) and not hasattr(device, "allocator"):
        raise wrong("device", device, "the URI of a device, or a Device")
    return HostOptions(
        threads=threads,
        device=device,
        machine=words.get("machine"),
        host_function=words.get("host_function"),
        find_loader=words.get("find_loader"),
    )


def _bytecode_options(words: LoadOptions) -> BytecodeOptions:
    mode, function = words.get("bytecode"), words.get("function")
    if mode is not None:
        choice_option("bytecode", mode, ("translate", "interpret"))
    if function is not None:
        text_option("function", function, "the name of a function")
    return BytecodeOptions(
        host=_host_options(words),
        mode=mode,
        libraries=paths_option("libraries", words.get("libraries", ())),
        function=function,
        parameters=paths_option("parameters", words.get("parameters", ())),
        untrusted=flag_option("untrusted", words.get("untrusted", False)),
        limits=words.get("limits"),
        trusted_keys=words.get("trusted_keys"),
    )


def _check_plan(said: BytecodeOptions, module: ModuleDef | None, location: str) -> None:
    """Raise for what only the virtual machine can do."""
    if said.parameters:
        raise UserError(
            "the weights are in the artifact, parameters would not be read",
            location=location,
        )
    if said.untrusted:
        raise UserError(
            "the artifact has machine code only, which is not trusted",
            location=location,
            hint="load it without untrusted (--untrusted) if you trust where it comes from; kernels "
            "in bytecode come from iree-compile --iree-hal-target-backends=vmvx",
        )
    if said.libraries or said.mode:
        raise UserError(
            "a plan runs no bytecode, its own or that of libraries",
            location=location,
            hint="use the engine 'vm'",
        )
    if said.limits is not None:
        raise UserError(
            "a plan is machine code, which no limits hold",
            location=location,
            hint="limits are for modules with kernels in bytecode (VMVX)",
        )
    full = MAIN if module is None else f"{module.name}.{MAIN}"
    if said.function not in (None, MAIN, full):
        raise UserError(
            f"no function '{said.function}'", location=location, hint=f"functions: {full}"
        )
