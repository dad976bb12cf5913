"""One kernel of a compiled model at every level of its compilation, as text.

Made by `api.model`, for people.
"""

from __future__ import annotations

from html import escape
from typing import final

from tilewright.base.outcome import Outcome
from tilewright.base.target import Target
from tilewright.compiler.backends import backend
from tilewright.compiler.backends.kernel_cache import KernelRecord
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.kernel.text import kernel_text


@final
class KernelView:
    """One kernel of a model at every level; each attribute is text."""

    def __init__(self, record: KernelRecord, target: Target) -> None:
        self._record: KernelRecord = record
        self._target: Target = target

    @property
    def name(self) -> str:
        """The name of the export."""
        return self._record.name

    @property
    def outcome(self) -> Outcome:
        """How its loops run: `tiled`, `rows`, `columns`, `pointwise` or `generic` (no lanes)."""
        return self._record.verdict.outcome

    @property
    def is_tuned(self) -> bool:
        """Whether its schedule is one that `tune` found."""
        return self._record.is_tuned

    @property
    def naive_ir(self) -> str:
        """The loops as the op declarations state them."""
        return kernel_text(self._record.naive)

    @property
    def kernel_ir(self) -> str:
        """The loops after scheduling."""
        return self._record.kernel_ir

    @property
    def lowered_ir(self) -> str:
        """Flattened, vectorized and unrolled: what is written as `source`."""
        return kernel_text(self._record.lowered)

    @property
    def language(self) -> str:
        """What `source` is written in: `llvm` or `c`."""
        return backend_of(self._target).language

    @property
    def source(self) -> str:
        """LLVM IR as handed to LLVM, or C as handed to its compiler."""
        return self._record.compiled.source

    @property
    def assembly(self) -> str:
        """Machine code as text."""
        name = f"kernel '{self.name}'"
        return backend_of(self._target).assembly(self.source, self._target, name=name)

    @property
    def stages(self) -> tuple[str, ...]:
        """The steps from the loops after scheduling to `source`, in order."""
        return tuple(stage.name for stage in backend_of(self._target).stages(self._target))

    def after(self, stage: str) -> str:
        """What a stage made of it, as text.  Raises: UserError for a stage that there is not."""
        chosen = backend_of(self._target)
        return backend.show(chosen, self._record.scheduled, self._target, stage)

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the schedule looks as it does."""
        return self._record.scheduled.notes

    def __repr__(self) -> str:
        return f"<kernel '{self.name}' {self.outcome}>"

    def _repr_html_(self) -> str:  # pyright: ignore[reportUnusedFunction] - notebooks call it
        levels = (("kernel IR", self.kernel_ir), ("naive loops", self.naive_ir))
        return f"<b>{escape(repr(self))}</b>" + "".join(
            f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>"
            for title, text in levels
        )
