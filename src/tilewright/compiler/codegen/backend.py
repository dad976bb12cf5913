"""The contract of a code generator: named stages from a kernel to bytes.

Not a registry and not a driver: the pipeline picks the backend and runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, final

from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Kernel


@final
@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a backend.

    Attributes:
        name: what `--output=` calls its product.
        summary: one line for people.
        run: product of the stage before -> product; the first stage takes a `Kernel`.
        show: the product as text for people.
    """

    name: str
    summary: str
    run: Callable[[object], object]
    show: Callable[[object], str]


class Backend(Protocol):
    """What every folder of this room offers."""

    @property
    def name(self) -> str:
        """How the command line calls the backend."""
        ...

    def stages(self, target: Target) -> tuple[Stage, ...]:
        """The route from a scheduled kernel to bytes for one target."""
        ...

    def show(self, kernel: Kernel, target: Target, stage: str) -> str:
        """The product of a stage as text.  Raises: UserError for an unknown stage."""
        ...
