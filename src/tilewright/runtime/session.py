"""A session: an artifact ready to be called.

Picks the code for this CPU, maps the weights, makes the device, and turns whatever a user passes
(numpy, anything with DLPack or the buffer protocol, by position or by name) into a call of one of
two engines.  Not here: how a plan runs (`plan_executor`) and bytecode (`bytecode_machine`).

Ownership: a session keeps its artifact (and the mapped file) alive.
Thread-safety: calls from several threads are independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Final,
    Literal,
    NoReturn,
    Protocol,
    Self,
    Unpack,
    cast,
    final,
)

import numpy as np

from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.budget import Limits, budget_of
from tilewright.base.errors import UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.log import Log
from tilewright.base.options import paths_option
from tilewright.base.target import Target
from tilewright.base.text import plural
from tilewright.formats.artifact import (
    Artifact,
    OutsideWeights,
    Variant,
    extract,
    is_artifact,
)
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.plan import Plan, Step
from tilewright.formats.tensor_spec import TensorSpec, signature_html, signature_text
from tilewright.formats.variant_choice import choose_variant
from tilewright.formats.vmfb import ModuleDef, read_archive
from tilewright.runtime import native
from tilewright.runtime.drivers import DEFAULT_DEVICE
from tilewright.runtime.drivers.local_task.workers import create_pool
from tilewright.runtime.loaders.library_image import load_library
from tilewright.runtime.loaders.module_file import MAPPED, Care, read_module_file
from tilewright.runtime.packed.program_modules import ProgramModules
from tilewright.runtime.plan_executor import (
    Array,
    FindFunction,
    PlanExecutor,
    arrange,
    places_of,
)
from tilewright.runtime.session_options import (
    MAIN,
    BytecodeOptions,
    Engine,
    EngineOptions,
    LoadOptions,
    PlanOptions,
    choose_options,
)

if TYPE_CHECKING:
    from tilewright.runtime.bytecode_machine import BytecodeExecutor
    from tilewright.runtime.hal.device import Device
    from tilewright.runtime.hal.host_threads import HostThreads
    from tilewright.runtime.hal.pending_call import PendingCall
    from tilewright.runtime.loaders.trusted_keys import Key, TrustedKeys
    from tilewright.runtime.vm.module import Module

_LOG: Final = Log("runtime")


class Executor(Protocol):
    """What runs the model: the plan executor, or a function of a virtual machine."""

    @property
    def input_names(self) -> tuple[str, ...]: ...

    @property
    def output_names(self) -> tuple[str, ...]: ...

    def __call__(self, *arrays: Array) -> tuple[Array, ...]: ...

    def run_into(
        self, arrays: Sequence[Array], outputs: Sequence[Array | None]
    ) -> tuple[Array, ...]: ...

    def profile(self, arrays: Sequence[Array]) -> list[tuple[Step, native.Timing]]: ...

    def dimensions_of(self, arrays: Sequence[Array]) -> Mapping[str, int]: ...


@final
class _Closed:
    """Stands where the executor of a closed session was: whatever is asked of it is an error."""

    def __init__(self, location: str) -> None:
        self._location: str = location

    def __call__(self, *arrays: Array) -> NoReturn:
        del arrays
        raise closed(self._location)

    def __getattr__(self, name: str) -> NoReturn:
        raise closed(self._location)


def closed(location: str) -> UserError:
    """The error of whoever uses a session that was closed."""
    return UserError(
        "the session is closed", location=location, hint="load the model again"
    )


def trusted(keys: Sequence[Key] | None) -> TrustedKeys | None:
    """The keys that files must be signed with; None where none are asked for."""
    if keys is None:
        return None
    with LATE_IMPORTS:
        from tilewright.runtime.loaders.trusted_keys import TrustedKeys  # noqa: PLC0415

    return TrustedKeys(keys)


@final
class Session(BoundToProcess):
    """A loaded model: call it with arrays.  Made by `tilewright.load`.

    Args:
        artifact: what to run; None for a module of another compiler.
        options: of the engine that runs it: `PlanOptions` or `BytecodeOptions` (`runtime.session_options`).
        module: the module around the artifact; the virtual machine needs it.
        location: how errors call the artifact.

    Raises: TargetError if the artifact has no code for this CPU; UserError if the engine or the device
    does not fit the artifact.
    Ownership: keeps the artifact and its mapped file; refuses `copy` and `pickle`.
    Thread-safety: calls from several threads are independent.
    """

    _made_again = "tilewright.load(path)"

    _begun: HostThreads | None = None
    _is_closed: bool = False

    def __init__(
        self,
        artifact: Artifact | None,
        options: EngineOptions,
        *,
        module: ModuleDef | None = None,
        location: str = "artifact",
    ) -> None:
        self.artifact: Artifact | None = artifact
        self.location: str = location
        self.engine: Engine = options.engine
        host = options.host
        self._pool: native.Pool | None = None
        self._heap: native.Heap | None = None  # what calls take their memory from
        self._opened: Device | None = None
        self._machine: Target | None = host.machine
        self._owns_device: bool = isinstance(host.device, str)
        if self.engine == "plan" and host.device == DEFAULT_DEVICE:
            self._pool, self._heap = create_pool(host.threads or 0), native.Heap()
        else:
            self._open_device(host.device, host.threads, location)
        self.variant: Variant | None = self._choose_variant()
        self.executor: Executor = (
            self._open_plan(options)
            if isinstance(options, PlanOptions)
            else self._open_module(options, module)
        )
        self._tell(host.device if isinstance(host.device, str) else host.device.id)

    def _choose_variant(self) -> Variant | None:
        """The best code for the machine; None where there is no choice."""
        if self.artifact is None:
            return None
        told = None if self._opened is None else self._opened.machine
        host = told or self._machine or Target.host()
        return choose_variant(self.artifact.variants, host, self.location)

    def _tell(self, device: str) -> None:
        """Log what was chosen."""
        variant = self.variant
        code = "no code of its own" if variant is None else f"code for '{variant.target}'"
        threads = plural(self.threads, "thread")
        where = f"{self.location}: engine '{self.engine}'"
        _LOG.info("%s, %s, %s, device %s", where, code, threads, device)

    @property
    def threads(self) -> int:
        """Threads that run kernels, the caller's included."""
        pool = self._pool  # another thread may close the session meanwhile, here and below
        return 1 if pool is None else pool.thread_count

    @property
    def device(self) -> Device:
        """The device.  Replaying a plan on the host takes its workers only; the rest comes here."""
        self._check_open()
        opened = self._opened
        if opened is None:
            with LATE_IMPORTS:
                from tilewright.runtime.drivers.local_task.driver import (  # noqa: PLC0415
                    create_device,
                )
                from tilewright.runtime.hal.local.heap_allocator import (  # noqa: PLC0415
                    HeapAllocator,
                )

                opened = self._opened = self._opened or create_device(
                    self._pool,
                    allocator=HeapAllocator(heap=self._heap),
                    machine=self._machine,
                )
        return opened

    @property
    def memory(self) -> native.MemoryReport:
        """What calls have of the device's memory now, what is kept for the next, and the cap."""
        heap = self._heap
        return self.device.memory_report() if heap is None else native.MemoryReport.of(heap)

    def trim(self) -> None:
        """Give memory of the device that no call needs now back to the system."""
        if self._heap is None:
            self.device.trim()
        else:
            self._heap.trim()

    def close(self) -> None:
        """Let go of the weights, the code, the workers and the memory; `with session:` does it.

        Calls under way end as usual, and what they need goes with them; later ones are errors.  A
        device that was given goes on for others.  Closing twice does nothing.
        """
        self._is_closed = True
        self.executor = cast("Executor", _Closed(self.location))
        self.artifact = self.variant = self._pool = self._opened = self._begun = None
        if self._owns_device and self._heap is not None:
            self._heap.close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed(self.location)

    @property
    def _call_threads(self) -> HostThreads:
        """The threads of calls that end later."""
        begun = self._begun
        if begun is None:
            with LATE_IMPORTS:
                from tilewright.runtime.hal.host_threads import HostThreads  # noqa: PLC0415

                begun = self._begun = self._begun or HostThreads(
                    "tilewright-call", self.threads
                )
        return begun

    def _open_device(
        self, device: str | Device, threads: int | None, location: str
    ) -> None:
        # Imported here: a third of the start of a session that replays a plan needs none of it.
        with LATE_IMPORTS:
            from tilewright.runtime.drivers import registry  # noqa: PLC0415
            from tilewright.runtime.hal.local.local_device import (  # noqa: PLC0415
                LocalDevice,
            )

        if isinstance(device, str):
            device = registry.create_device(device, threads=threads, machine=self._machine)
        elif self._machine is not None:
            raise UserError(
                f"the device '{device.id}' is there already, no machine can be chosen for it",
                location=location,
                hint="make the device for that machine: 'local-task://?machine=v2'",
            )
        if self.engine == "plan" and not isinstance(device, LocalDevice):
            raise UserError(
                f"plans run on local devices, not on '{device.id}'",
                location=location,
                hint="use the device 'local-task', or the engine 'vm'",
            )
        self._opened = device
        if isinstance(device, LocalDevice):
            self._pool = device.pool
            self._heap = device.heap

    def _open_plan(self, options: PlanOptions) -> Executor:
        if self.artifact is None or self.variant is None:
            raise UserError(
                "no plan in this module",
                location=self.location,
                hint="use the engine 'vm'",
            )
        image = view_bytes(self.variant.image)
        executable = (
            load_library(
                self.variant.format, image, f"{self.location}: {self.variant.target}"
            )
            if image.nbytes
            else None
        )
        return PlanExecutor(
            self.variant.plan,
            executable,
            self.artifact.constants_of(self.variant),
            pool=self._pool,
            host_function=options.host.host_function,
            heap=self._heap,
            find_function=self._find_function(options),
        )

    def _find_function(self, options: EngineOptions) -> FindFunction:
        """What finds the packed functions that the program calls."""
        carried = () if self.artifact is None else self.artifact.modules
        host = options.host
        return host.find_function or ProgramModules(
            (), carried, self.location, host.find_loader
        )

    def _open_module(self, options: BytecodeOptions, module: ModuleDef | None) -> Executor:
        if module is None:
            raise UserError(
                "only the plan is at hand, not the module",
                location=self.location,
                hint="save the model and load the file with engine='vm'",
            )
        # Imported here: most sessions replay a plan, and start in half the time without it.
        with LATE_IMPORTS:
            from tilewright.runtime.bytecode_machine import (  # noqa: PLC0415
                BytecodeExecutor,
                BytecodeMachine,
            )
            from tilewright.runtime.modules.check import (  # noqa: PLC0415
                create_check_module,
            )
            from tilewright.runtime.modules.io_parameters import (  # noqa: PLC0415
                create_parameters_module,
                open_parameters,
            )

        keys = trusted(options.trusted_keys)
        loaded = [(read_module_file(p, trusted=keys), str(p)) for p in options.libraries]
        loaded.append((module, self.location))
        offered: list[Module] = []
        if options.parameters:
            scopes = open_parameters(options.parameters, keys and keys.check)
            offered.append(create_parameters_module(scopes))
        if any(i.name.startswith("check.") for m, _ in loaded for i in m.imports):
            offered.append(create_check_module())
        virtual = BytecodeMachine(
            self.device,
            host_function=options.host.host_function,
            find_function=self._find_function(options),
            modules=offered,
            mode=options.mode,
            untrusted=options.untrusted,
            limits=options.limits,
        )
        for definition, name in loaded:
            virtual.load_module(definition, name)
        plan, function = None, options.function
        if self.variant is not None and function in (None, MAIN):
            plan, function = self.variant.plan, MAIN
        return BytecodeExecutor(
            virtual,
            function,
            inputs=None if plan is None else signature(plan, "inputs"),
            outputs=None if plan is None else signature(plan, "outputs"),
        )

    @staticmethod
    def from_file(
        path: str | Path,
        *,
        copy: bool = False,
        verify: bool = False,
        **options: Unpack[LoadOptions],
    ) -> Session:
        """Load an archive; weights stay in the file, mapped read-only.

        Args:
            path: the file.
            copy: read all of it, and weights in a file beside it, into memory, and verify it, so that it may change
                afterwards. (The virtual machine maps that file all the same.)
            verify: compare all of it with its checksums, weights included, also those in a file beside it.
            **options: see `tilewright.load`.

        Raises: ArchiveError if the file cannot be read, is corrupt, or has not the signature that is
        asked for.
        """
        keys = trusted(options.get("trusted_keys"))
        return _load(
            lambda: read_module_file(path, copy=copy, verify=verify, trusted=keys),
            str(path),
            options,
            Care(copy=copy, verify=verify),
        )

    @staticmethod
    def from_bytes(
        data: Buffer,
        *,
        location: str = "artifact",
        is_checked: bool = False,
        **options: Unpack[LoadOptions],
    ) -> Session:
        """Load an archive from memory, which must stay unchanged.

        Args:
            data: the archive.
            location: how errors call it.
            is_checked: its signature was looked at already; what it loads is still held to the keys.
            **options: see `tilewright.load`.
        """
        keys = None if is_checked else trusted(options.get("trusted_keys"))

        def read() -> ModuleDef:
            if keys is not None:
                keys.check(data, None, location)
            return read_archive(data, location)

        return _load(read, location, options)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, element type and shape of each input, in order."""
        variant = self.variant
        if variant is None or self.engine == "vm":
            return cast("BytecodeExecutor", self.executor).inputs
        return signature(variant.plan, "inputs")

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, type and shape of each output, in order."""
        variant = self.variant
        if variant is None or self.engine == "vm":
            return cast("BytecodeExecutor", self.executor).outputs
        return signature(variant.plan, "outputs")

    def __repr__(self) -> str:
        if self._is_closed:
            return f"<closed session of '{self.location}'>"
        types = signature_text(self.inputs, self.outputs)
        return f"<session of '{self.location}' {types}, engine '{self.engine}'>"

    def _repr_html_(self) -> str:  # pyright: ignore[reportUnusedFunction] - notebooks call it
        caption = f"session of {self.location}, engine {self.engine}"
        return signature_html(caption, self.inputs, self.outputs)

    def __call__(self, /, *arguments: object, **named: object) -> Array | tuple[Array, ...]:
        """Run on arrays by position, by name, or on one mapping from name to array.

        An element type that does not fit is an error, not a conversion.  Dynamic dimensions may differ
        from call to call.
        Returns: the output, or a tuple when there are several (or none), as new numpy arrays.
        Raises: InputError naming the input that is missing or does not fit, or the index of the data
        that is out of range; DeviceError; LimitError.
        """
        arrays = self._arrange(arguments, named)
        results = self.executor(*arrays)
        return results[0] if len(results) == 1 else results

    def begin(
        self, /, *arguments: object, **named: object
    ) -> PendingCall[Array | tuple[Array, ...]]:
        """Begin a call and return at once.

        As many calls as the device has threads run at the same time, the others in their turn.
        The inputs must not change before the call has ended.

        Returns: the call, to wait for with `result()`, `await` or its `fence`.
        """
        self._check_open()
        # Imported here: most sessions only call and wait.
        with LATE_IMPORTS:
            from tilewright.runtime.hal.pending_call import PendingCall  # noqa: PLC0415

        return PendingCall(lambda: self(*arguments, **named), self._call_threads)

    async def async_call(
        self, /, *arguments: object, **named: object
    ) -> Array | tuple[Array, ...]:
        """Call without blocking the event loop: `y = await session.async_call(x)`."""
        return await self.begin(*arguments, **named)

    def run(
        self,
        inputs: Mapping[str, object],
        outputs: Mapping[str, Array] | None = None,
    ) -> dict[str, Array]:
        """Run on arrays by name; the outputs by name, in order.

        Args:
            inputs: by name.
            outputs: arrays that outputs are written to, by name: of their types and shapes, dense in row-major
                order, without a mask, apart from each other.  One may be an input: an output that updates it, as a
                cache of keys is updated, is then written in place.

        Raises: as a call by position; InputError for an output that is unknown or does not fit, on either engine.
        """
        executor = self.executor
        arrays = self._arrange((inputs,), {})
        if outputs is None:
            results = executor(*arrays)
        else:
            places = places_of(outputs, executor.output_names)
            results = executor.run_into(arrays, places)
        return dict(zip(executor.output_names, results, strict=True))

    def profile(
        self, /, *arguments: object, **named: object
    ) -> list[tuple[Step, native.Timing]]:
        """Run once: each step with its times in nanoseconds and the threads that ran it."""
        return self.executor.profile(self._arrange(arguments, named))

    def _arrange(
        self, arguments: Sequence[object], named: Mapping[str, object]
    ) -> Sequence[Array]:
        if not named and all(type(a) is np.ndarray for a in arguments):
            return cast("Sequence[Array]", arguments)
        if len(arguments) == 1 and isinstance(arguments[0], Mapping):
            named = {**cast("Mapping[str, object]", arguments[0]), **named}
            return arrange(self.executor.input_names, (), named)
        return arrange(self.executor.input_names, arguments, named or None)


def _load(
    read: Callable[[], ModuleDef], location: str, options: LoadOptions, care: Care = MAPPED
) -> Session:
    """A session of what `read` gives; one budget pays for reading it and for all that follows."""
    limits = options.get("limits")
    if limits is None and options.get("untrusted"):
        limits = Limits()
    budget = budget_of(limits)
    with nullcontext() if budget is None else budget.call():
        module = read()
        artifact = extract(module, location) if is_artifact(module) else None
        words: LoadOptions = {**options, "limits": budget}
        if artifact is not None and artifact.weights is not None:
            weights, words = _find_weights(artifact.weights, words, location, care)
            artifact = replace(artifact, constants=weights)
        chosen = choose_options(
            words,
            has_plan=artifact is not None,
            module=module,
            location=location,
        )
        return Session(artifact, chosen, module=module, location=location)


def _find_weights(
    weights: OutsideWeights, words: LoadOptions, location: str, care: Care
) -> tuple[tuple[Buffer, ...], LoadOptions]:
    """The weights in another file, or none and the words that give them to the virtual machine."""
    # Imported here: most artifacts have their weights inside.
    with LATE_IMPORTS:
        from tilewright.runtime.loaders import outside_weights as outside  # noqa: PLC0415

    given = paths_option("parameters", words.get("parameters") or ())
    files = given or (outside.weights_beside(weights, location),)
    names = ("bytecode", "libraries")
    needs_vm = words.get("engine") == "vm" or any(words.get(name) for name in names)
    keys = trusted(words.get("trusted_keys"))
    check = keys and keys.check
    if not needs_vm:
        mapped = outside.map_weights(weights, files, check, care)
        return mapped, {**words, "parameters": ()}
    if care != MAPPED:  # the machine maps them by itself
        outside.compare_weights(weights, files, check, optional=not care.verify)
    return (), {**words, "parameters": files}


def signature(plan: Plan, side: Literal["inputs", "outputs"]) -> tuple[TensorSpec, ...]:
    """Name, type and shape of each input or output of a plan."""
    rows = plan.inputs if side == "inputs" else plan.outputs
    return tuple(
        TensorSpec(n, plan.entries[e].dtype, plan.entries[e].shape) for n, e in rows
    )
