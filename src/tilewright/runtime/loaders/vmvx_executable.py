"""Kernels in bytecode, run by the virtual machine: one context per worker.

A kernel is a function of local memory, push constants, a list of bindings and three triples:
the workgroup's id, its size and the size of the grid.  Made by `vmvx_loader`, called by command
buffers and by the `hal_loader` module.

Source: IREE `hal/local/loaders/vmvx_module_loader.c`.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Final, final

from tilewright.base.budget import Account
from tilewright.base.errors import ArchiveError, DeviceError
from tilewright.base.host_thread import start_thread
from tilewright.base.status import StatusCode, failure
from tilewright.base.text import whole_number
from tilewright.formats.vmfb import read_archive
from tilewright.runtime import native
from tilewright.runtime.hal.executable import ExecutableParams, FunctionInfo
from tilewright.runtime.hal.local.host_executable import Grid, HostExecutable
from tilewright.runtime.modules.vmvx import create_vmvx_module
from tilewright.runtime.vm.buffer import VmBuffer, held_zeros
from tilewright.runtime.vm.bytecode_module import BytecodeModule
from tilewright.runtime.vm.context import Context
from tilewright.runtime.vm.list import VmList
from tilewright.runtime.vm.module import Module, ModuleFunction
from tilewright.runtime.vm.ref import Instance

_LOCATION: Final = "executable"
ENTRY_SIGNATURE: Final = "0rrriiiiiiiii_v"
_SET_CONSTANTS: Final = "__set_constants"
_NO_KERNELS: Final = frozenset({"__init", "__deinit", "__notify", _SET_CONSTANTS})
_LOCAL_MEMORY_LIMIT_BYTES: Final = 1 << 28
_ONE: Final = (1, 1, 1)


def load_module(params: ExecutableParams, modules: Sequence[Module]) -> VmvxExecutable:
    """Verify a module and set its constants: see `VmvxLoader.load`."""
    definition = read_archive(params.data, _LOCATION)
    if not definition.exports:
        raise ArchiveError("the module exports no kernels", location=_LOCATION)
    budget = params.budget
    module = BytecodeModule(definition, Instance(), location=_LOCATION, limits=budget)
    common = _VMVX if budget is None else _METERED_VMVX
    return VmvxExecutable(module, (common, *modules), params.constants)


_VMVX: Final = create_vmvx_module()
_METERED_VMVX: Final = create_vmvx_module(is_metered=True)


@final
class VmvxExecutable(HostExecutable):
    """Kernels of one module.

    Ownership: keeps the module and the contexts it ran in.
    Thread-safety: every thread that runs workgroups has a context of its own.

    Args:
        module: verified.
        common: what it may import from, before it in every context.
        constants: values of its specialisation constants, u32.

    Raises: ArchiveError, DeviceError: see `VmvxLoader.load`.
    """

    __slots__ = (
        "_common",
        "_constants",
        "_functions",
        "_idle",
        "_local_memory_bytes",
        "_module",
        "_names",
        "_releases_lock",
    )

    def __init__(
        self, module: BytecodeModule, common: Sequence[Module], constants: Sequence[int]
    ) -> None:
        self._module: BytecodeModule = module
        self._common: tuple[Module, ...] = tuple(common)
        self._constants: bytes = _pack(constants)
        kernels = [f for f in module.functions if f.name not in _NO_KERNELS]
        for kernel in kernels:
            _check_signature(kernel)
        self._names: tuple[str, ...] = tuple(f"{module.name}.{k.name}" for k in kernels)
        self._functions: tuple[FunctionInfo, ...] = tuple(_info(k) for k in kernels)
        self._local_memory_bytes: tuple[int, ...] = tuple(_local_memory(k) for k in kernels)
        # Kernels that call whole-row functions leave the interpreter's lock while numpy works.
        self._releases_lock: bool = bool(module.imports) or not _has_global_lock()
        # Taken and given back whole: neither needs a lock.
        self._idle: deque[Context] = deque([self._create_context()])

    @property
    def functions(self) -> tuple[FunctionInfo, ...]:
        return self._functions

    def run(
        self,
        function: int,
        workgroup_count: Grid,
        constants: Sequence[int],
        bindings: Sequence[memoryview],
        thread_count: int,
        *,
        is_inline: bool = False,
    ) -> None:
        """Run the workgroups, x fastest; on several threads where that can be faster."""
        packed = VmBuffer(_pack(constants))
        buffers: list[object] = [VmBuffer(view) for view in bindings]
        x, y, z = workgroup_count
        groups = _grid(x, y, z)

        budget = self._module.budget

        def work(context: Context, mine: Iterable[Grid]) -> None:
            kernel = context.unchecked(self._names[function])
            size = self._local_memory_bytes[function]
            local = VmBuffer(
                bytearray(size) if budget is None else held_zeros(budget, size)
            )
            views = VmList("!vm.buffer", list(buffers))
            with nullcontext() if is_inline else native.denormals_flushed():
                for id_z, id_y, id_x in mine:
                    kernel(local, packed, views, id_x, id_y, id_z, *_ONE, *workgroup_count)

        if budget is not None:
            # On this thread, whose call pays.  A grid may have 2**96 workgroups: each costs a step.
            with budget.call() as account, self._context() as context:
                work(context, _metered(groups, account))
            return
        is_parallel = self._releases_lock and thread_count > 1
        if is_parallel and x * y * z > 1:
            self._run_on_threads(work, groups, min(thread_count, x * y * z))
            return
        with self._context() as context:
            work(context, groups)

    # --- contexts -------------------------------------------------------------------------------

    def _create_context(self) -> Context:
        context = Context((*self._common, self._module))
        self._set_constants(context)
        return context

    def _set_constants(self, context: Context) -> None:
        wants = self._module.function(_SET_CONSTANTS) is not None
        if wants == bool(self._constants):
            if wants:
                context.lookup(f"{self._module.name}.{_SET_CONSTANTS}")(
                    VmBuffer(self._constants)
                )
            return
        raise failure(
            StatusCode.INVALID_ARGUMENT,
            f"got {len(self._constants) // 4} specialisation constants, expected "
            + ("some" if wants else "none"),
            location=_LOCATION,
        )

    @contextmanager
    def _context(self) -> Generator[Context]:
        """One that nobody else uses meanwhile."""
        try:
            context = self._idle.pop()
        except IndexError:
            context = self._create_context()
        try:
            yield context
        finally:
            self._idle.append(context)

    def _run_on_threads(
        self,
        work: Callable[[Context, Iterable[Grid]], None],
        groups: Iterator[Grid],
        thread_count: int,
    ) -> None:
        """Each thread takes the next workgroup; the first failure ends all."""
        lock = threading.Lock()
        failures: list[BaseException] = []

        def take() -> Iterator[Grid]:
            while not failures:
                with lock:
                    group = next(groups, None)
                if group is None:
                    return
                yield group

        def run() -> None:
            try:
                with self._context() as context:
                    work(context, take())
            except BaseException as error:  # raised below, on the caller's thread
                failures.append(error)

        threads = tuple(_started(run, thread_count - 1))
        run()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]


def _started(work: Callable[[], None], count: int) -> Iterator[threading.Thread]:
    """So many threads, or those that there are: they do what others would have done."""
    with suppress(DeviceError):
        for _ in range(count):
            yield start_thread(work)


def _grid(x: int, y: int, z: int) -> Iterator[Grid]:
    """(z, y, x), x fastest; made one by one, because there may be very many."""
    for id_z in range(z):
        for id_y in range(y):
            for id_x in range(x):
                yield id_z, id_y, id_x


def _metered(groups: Iterable[Grid], account: Account) -> Iterator[Grid]:
    for group in groups:
        account.spend(1)
        yield group


def _has_global_lock() -> bool:
    enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return enabled()


def _pack(constants: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(constants)}I", *(value & 0xFFFF_FFFF for value in constants))


def _check_signature(kernel: ModuleFunction) -> None:
    if kernel.calling_convention != ENTRY_SIGNATURE:
        raise ArchiveError(
            f"kernel '{kernel.name}' has the signature '{kernel.calling_convention}', "
            f"expected '{ENTRY_SIGNATURE}'",
            location=_LOCATION,
        )


def _info(kernel: ModuleFunction) -> FunctionInfo:
    return FunctionInfo(
        name=kernel.name,
        constant_count=_attribute(kernel, "constant_count", 0),
        binding_count=_attribute(kernel, "binding_count", -1),
        workgroup_size=_ONE,
    )


def _local_memory(kernel: ModuleFunction) -> int:
    size = _attribute(kernel, "local_memory", 0)
    if size > _LOCAL_MEMORY_LIMIT_BYTES:
        raise ArchiveError(
            f"kernel '{kernel.name}' wants {size} bytes of local memory, at most "
            f"{_LOCAL_MEMORY_LIMIT_BYTES}",
            location=_LOCATION,
        )
    return size


def _attribute(kernel: ModuleFunction, name: str, default: int) -> int:
    text = kernel.attributes.get(name, "")
    if not text:
        return default
    number = whole_number(text)
    if number is None:
        raise ArchiveError(
            f"kernel '{kernel.name}': {name} is '{text[:40]}', expected a number",
            location=_LOCATION,
        )
    return number
