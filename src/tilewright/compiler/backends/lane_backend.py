"""What back ends for machines with lanes answer alike; the questions are those of `Backend`."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.dtypes import DType
from tilewright.base.target import Target
from tilewright.compiler.backends.backend import GraphForm
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule import rules
from tilewright.compiler.schedule.machine_model import MachineModel


class LaneBackend:
    """The machine model of a CPU, and the form of graphs and the schedules that follow from it."""

    __slots__ = ()

    def machine_model(self, target: Target) -> MachineModel:
        return MachineModel.of(target)

    def graph_form(
        self, target: Target, targets: Sequence[Target], dtypes: frozenset[DType]
    ) -> GraphForm:
        # What becomes of graphs decides nothing about a kernel: passes stay out of the keys of kernels.
        from tilewright.compiler.backends import panel_form  # noqa: PLC0415

        return panel_form.shared_form(target, targets, dtypes, self.machine_model)

    def schedule(
        self,
        naive: Kernel,
        target: Target,
        *,
        threads: int,
        decisions: rules.Decisions | None = None,
    ) -> Kernel:
        machine = self.machine_model(target)
        return rules.schedule(naive, machine, threads=threads, decisions=decisions)
