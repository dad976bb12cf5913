"""The contract of a code generator: named stages from a scheduled kernel to bytes.

Each stage's product can be looked at as text, replaced and tested alone.  Not a registry and not a
driver: the pipeline picks the backend and runs whole models through its fast path; the stages are
for people and tools that look at one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, final

from tilewright.base.errors import UserError
from tilewright.base.target import Target
from tilewright.base.text import did_you_mean
from tilewright.compiler.kernel.ir import Kernel


@final
@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a backend.

    Attributes:
        name: what `--output=` calls its product.
        summary: one line for people.
        run: the product of the stage before (a scheduled `Kernel` for the first) to its own.
        show: its product as text.
    """

    name: str
    summary: str
    run: Callable[[Any], Any]
    show: Callable[[Any], str]


class Backend(Protocol):
    """What every folder of this room offers."""

    @property
    def name(self) -> str:
        """How people call the backend."""
        ...

    def stages(self, target: Target) -> tuple[Stage, ...]:
        """The route from a scheduled kernel to bytes, in order."""
        ...


def show(backend: Backend, kernel: Kernel, target: Target, name: str) -> str:
    """The product of one stage as text.

    Raises: UserError for a name that no stage has.
    """
    stages = backend.stages(target)
    names = [stage.name for stage in stages]
    if name not in names:
        raise UserError(
            f"backend '{backend.name}' has no stage '{name}'",
            hint=did_you_mean(name, names),
        )
    product: Any = kernel
    for stage in stages[: names.index(name) + 1]:
        product = stage.run(product)
    return stages[names.index(name)].show(product)
