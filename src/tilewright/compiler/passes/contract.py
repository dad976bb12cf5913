"""What a graph pass is: a frozen record of options with a `run` method and a stated contract.

The class name in kebab-case is the name of the pass.  `requires`, `ensures` and `invalidates` are
names of properties of the whole graph; the runner checks them.  A pass edits the graph in place
through an `Editor` and tells whether it changed anything.  `PassContext` is what surrounds a run:
level, switches, option overrides, instruments.  Not here: order (the pipeline), timing, dumping
and verification (instruments).
"""

from __future__ import annotations

import abc
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol, final

from tilewright.base.diagnostics import Diagnostics
from tilewright.base.errors import UserError
from tilewright.base.text import did_you_mean
from tilewright.compiler.graph.ir import Graph

_BOOLS: Final = {
    "true": True,
    "1": True,
    "yes": True,
    "false": False,
    "0": False,
    "no": False,
}


@final
@dataclass(frozen=True, slots=True)
class PassResult:
    """Whether the graph changed, and how often what happened (`{"folded": 12}`)."""

    modified: bool
    counts: Mapping[str, int] = field(default_factory=dict[str, int])

    def __or__(self, other: PassResult) -> PassResult:
        counts = dict(self.counts)
        for what, count in other.counts.items():
            counts[what] = counts.get(what, 0) + count
        return PassResult(self.modified or other.modified, counts)


class Instrument(Protocol):
    """Called around every pass that runs; may raise, never changes the graph."""

    def before(self, graph_pass: GraphPass, graph: Graph) -> None:
        """The pass is about to run."""
        ...

    def after(
        self, graph_pass: GraphPass, graph: Graph, result: PassResult, duration_ns: int
    ) -> None:
        """The pass returned."""
        ...


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """Which passes run and who watches.

    Args:
        opt_level: passes of a higher level are left out.
        required: names of passes that run whatever the level.
        disabled: names of passes that never run (`required` wins).
        config: option overrides by pass name, values typed or as text.
        instruments: called around every pass, in order.
        diagnostics: where passes put warnings and remarks.
    """

    opt_level: int = 2
    required: frozenset[str] = frozenset()
    disabled: frozenset[str] = frozenset()
    config: Mapping[str, Mapping[str, object]] = field(
        default_factory=dict[str, Mapping[str, object]]
    )
    instruments: tuple[Instrument, ...] = ()
    diagnostics: Diagnostics = field(default_factory=Diagnostics)

    def runs(self, name: str, level: int) -> bool:
        """Whether a pass of that name and level takes part."""
        if name in self.required:
            return True
        return level <= self.opt_level and name not in self.disabled


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPass(abc.ABC):
    """Base of all graph passes; subclasses are frozen dataclasses whose fields are options.

    `level` is the lowest optimisation level at which the pass runs by default; 0 always.
    """

    requires: ClassVar[frozenset[str]] = frozenset()
    ensures: ClassVar[frozenset[str]] = frozenset()
    invalidates: ClassVar[frozenset[str]] = frozenset()
    level: ClassVar[int] = 0

    @property
    def name(self) -> str:
        """The class name in kebab-case: `FoldConstants` is `fold-constants`."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(self).__name__).lower()

    @abc.abstractmethod
    def run(self, graph: Graph, context: PassContext) -> PassResult:
        """Transform one graph in place; regions of control flow get their own call."""

    def configured(self, options: Mapping[str, object]) -> GraphPass:
        """A copy with some options replaced; text is parsed to the type of the field.

        Raises: UserError for an option that the pass does not have or cannot read.
        """
        if not options:
            return self
        known = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values: dict[str, object] = {}
        for key, value in options.items():
            if key not in known:
                raise UserError(
                    f"pass '{self.name}' has no option '{key}'",
                    hint=did_you_mean(key, known) or f"known: {' '.join(sorted(known))}",
                )
            values[key] = _parse(self.name, key, value, known[key])
        return dataclasses.replace(self, **values)

    def __str__(self) -> str:
        shown = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        ]
        return f"{self.name}({', '.join(shown)})" if shown else self.name


def _parse(name: str, key: str, value: object, current: object) -> object:
    if not isinstance(value, str) or isinstance(current, str):
        return value
    try:
        if isinstance(current, bool):
            return _BOOLS[value.lower()]
        if isinstance(current, int | float):
            return type(current)(value)
    except (KeyError, ValueError) as error:
        raise UserError(
            f"option '{key}' of pass '{name}' is '{value}', "
            f"expected {type(current).__name__}"
        ) from error
    raise UserError(f"option '{key}' of pass '{name}' cannot be given as text")
