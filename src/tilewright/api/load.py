"""Load an artifact: no compiler is imported unless an op has no kernel and runs its reference.

Called by users (`tilewright.load`), the CLI and `api.model`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.base.budget import Limits
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.runtime.plan_executor import Array
from tilewright.runtime.session import Session
from tilewright.runtime.session_options import Engine

if TYPE_CHECKING:
    from tilewright.runtime.hal.device import Device
    from tilewright.runtime.loaders.trusted_keys import Key
    from tilewright.runtime.packed.module_kinds import LoadFromBytes
    from tilewright.runtime.vm.bytecode_module import BytecodeMode


def load(  # noqa: PLR0913 - keyword-only options
    path: str | Path,
    *,
    threads: int | None = None,
    device: str | Device = "local-task",
    engine: Engine | None = None,
    bytecode: BytecodeMode | None = None,
    libraries: Sequence[str | Path] = (),
    function: str | None = None,
    parameters: Sequence[str] = (),
    untrusted: bool = False,
    limits: Limits | None = None,
    copy: bool = False,
    verify: bool = False,
    trusted_keys: Sequence[Key] | None = None,
) -> Session:
    """Load a `.vmfb` that `Model.save`, `tilewright compile` or a compiler of IREE wrote.

    Args:
        path: the file; its weights stay there, mapped read-only, unless `copy` is asked for.
        threads: threads that a call may use; default: the cores this process may use.
        device: a device or its URI: `local-task`, `local-sync`.
        engine: `plan` replays the artifact's plan natively, `vm` runs its bytecode; default: the plan where there is one.
        bytecode: how bytecode runs: `translate` (the default) makes Python functions of it,
            `interpret` goes instruction by instruction.
        libraries: archives that are loaded before, in this order; each may import functions of
            those before.
        function: which function of the module, or `library.function`; default: the only one.
        parameters: files of weights that a module keeps outside: `path` or `scope=path` of .irpa,
            .safetensors, .gguf or .params (TVM).
        untrusted: run no machine code of the file, only kernels in bytecode (VMVX), and hold it to
            `limits`: for files of strangers (see SECURITY.md).
        limits: the steps, bytes and seconds that loading and each call may take; default: those of
            `Limits()` for files that are not trusted, none for others.
        copy: read the file into memory and verify it, instead of mapping it: it may be cut, replaced or
            written over while the session is in use.
        verify: compare the whole file with its checksum; by default everything but the weights.
        trusted_keys: public keys (PEM files, or their content), of which one must have signed the file,
            every library and every file of weights; checked before anything of them is used.

    Raises: ArchiveError for a file that is corrupt, no artifact, or not signed as asked; TargetError if it has no code
    for this CPU; LimitError for one that takes more than its limits allow.
    """
    return Session.from_file(
        path,
        threads=threads,
        host_function=run_reference,
        find_loader=_find_loader,
        device=device,
        engine=engine,
        bytecode=bytecode,
        libraries=libraries,
        function=function,
        parameters=parameters,
        untrusted=untrusted,
        limits=limits,
        copy=copy,
        verify=verify,
        trusted_keys=trusted_keys,
    )


def _find_loader(kind: str) -> LoadFromBytes | None:
    """The loader of a kind of modules: built in, or registered."""
    # Imported here: few artifacts have modules beside the program, and linkers and tvm-ffi come with it.
    with LATE_IMPORTS:
        from tilewright.runtime.library.kinds import find_loader  # noqa: PLC0415

    return find_loader(kind)


def run_reference(
    op: str, attributes: Mapping[str, object], operands: Sequence[Array | None]
) -> Sequence[Array]:
    """Run the numpy oracle of an op: what a program's host steps call."""
    # Imported here because most artifacts have no such step and must load without the compiler.
    with LATE_IMPORTS:
        from tilewright.compiler.ops import catalogue  # noqa: PLC0415

    return catalogue.lookup(op).schema.evaluate(operands, attributes)
