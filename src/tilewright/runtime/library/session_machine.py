"""A virtual machine over sessions: what `VirtualMachine` runs the functions of an artifact with.

One device, with the memory that was asked for, and a session per function.  With an instrument the main
function goes step by step, so that every kernel's call is told; functions of other compilers' bytecode
are told as a whole.  Called by modules of kind `vm` and by what a build gives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from tilewright.formats.plan import Step
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.device import Device
from tilewright.runtime.packed.machine_module import (
    Instrument,
    MachineEngine,
    MachineModule,
    MemoryManager,
    call_told,
)
from tilewright.runtime.packed.tensors import given, tensor_of
from tilewright.runtime.plan_executor import Array, PlanExecutor, arrange
from tilewright.runtime.session import Session

OpenSession = Callable[[str, Device], Session]
"""Makes the session of a function on a device."""

_DEVICES: Final = {
    MemoryManager.POOLED: "local-task",
    MemoryManager.NAIVE: "local-task://?pool=0",
}


def machine_of_sessions(open_session: OpenSession, names: Sequence[str]) -> MachineModule:
    """The machine whose functions are run by sessions.

    Args:
        open_session: makes the session of a function, when it is first asked for.
        names: the functions.
    """
    return MachineModule(lambda manager: SessionEngine(open_session, names, manager), names)


@final
class SessionEngine(MachineEngine):
    """Functions by sessions that share a device.

    Thread-safety: calls from several threads are independent while no instrument is set.
    """

    def __init__(
        self, open_session: OpenSession, names: Sequence[str], manager: MemoryManager
    ) -> None:
        self._open_session: OpenSession = open_session
        self._names: tuple[str, ...] = tuple(names)
        self._sessions: dict[str, Session] = {}
        self._instrument: Instrument | None = None
        self.device: Final[Device] = registry.create_device(_DEVICES[manager])

    def session(self, function: str) -> Session:
        """The session of a function."""
        if function not in self._sessions:
            made = self._open_session(function, self.device)
            self._sessions.setdefault(function, made)
        return self._sessions[function]

    def function_names(self) -> Sequence[str]:
        return self._names

    def parameter_names(self, function: str) -> Sequence[str] | None:
        return self.session(function).executor.input_names

    def set_instrument(self, instrument: Instrument | None) -> None:
        self._instrument = instrument

    def call(self, function: str, arguments: Sequence[Any]) -> object:
        session = self.session(function)
        arguments = tuple(map(given, arguments))
        instrument = self._instrument

        def run() -> object:
            return tensors_of(session(*arguments))

        if instrument is None:
            return run()
        if isinstance(session.executor, PlanExecutor):
            arrays = arrange(session.executor.input_names, arguments, None)
            return tensors_of(_told_steps(session.executor, arrays, instrument))
        return call_told(instrument, None, function, arguments, run)


def tensors_of(results: Array | tuple[Array, ...]) -> object:
    """The results of a session as tensors that packed functions pass on."""
    if isinstance(results, tuple):
        return tuple(map(tensor_of, results))
    return tensor_of(results)


def _seen(array: Array) -> object:
    """Memory of a call as a tensor; of weights, which nobody may write to, a copy."""
    return tensor_of(array if array.flags.writeable else array.copy())


def _told_steps(
    executor: PlanExecutor, arrays: Sequence[Array], instrument: Instrument
) -> Array | tuple[Array, ...]:
    """One call of a plan, each step told with its tensors: operands, then results."""
    stepper = (executor.flow_stepper if executor.plan.has_flow else executor.stepper)(
        arrays
    )

    def tensors(step: Step) -> list[object]:
        # Made once for both words, so that a clock in the instrument sees the kernel alone.
        return [_seen(stepper.tensor(entry)) for entry in step.arguments]

    for index, call in stepper.calls():
        step = stepper.plan.steps[index]
        symbol = step.target or step.kind
        call_told(instrument, None, symbol, tensors(step), call)
    outputs = [stepper.tensor(entry).copy() for _, entry in stepper.plan.outputs]
    return outputs[0] if len(outputs) == 1 else tuple(outputs)
