"""The plan executor: replays a plan natively, without a virtual machine.

A plan is bound once per set of dynamic dimensions (`binding`): grids, push constants and the arena
are computed, every command is recorded in the C core, and a call (`executor`) only patches
pointers.  Not here: reading artifacts (`session`), control flow (`bytecode_machine`).
"""

from tilewright.runtime.plan_executor.executor import PlanExecutor
from tilewright.runtime.plan_executor.host_arrays import arrange, as_array
from tilewright.runtime.plan_executor.host_call import HostFunction
from tilewright.runtime.plan_executor.record_steps import FindFunction
from tilewright.runtime.plan_executor.results import places_of
from tilewright.runtime.plan_executor.tensors import Array

__all__ = [
    "Array",
    "FindFunction",
    "HostFunction",
    "PlanExecutor",
    "arrange",
    "as_array",
    "places_of",
]
