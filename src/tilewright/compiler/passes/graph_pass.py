"""What a graph pass is: a frozen record of options with a `run` method and stated conditions.

The class name in kebab-case is the name of the pass.  `requires`, `ensures` and `invalidates` are
names of properties of the whole graph; the runner checks them.  A pass edits the graph in place
through an `Editor` and tells whether it changed anything.  Not here: order (the pipeline), what surrounds
a run (`context`), timing, dumping and verification (`instruments`).
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar, final

from tilewright.base.errors import UserError
from tilewright.base.record import field, record
from tilewright.base.text import did_you_mean
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.passes.context import (
    TEXT_TYPES,
    PassContext,
    PassInfo,
    PassRow,
    enter_row,
    parse_option,
    pass_name,
)


@final
@record
class PassResult:
    """Whether the graph changed, and how often what happened (`{"folded": 12}`)."""

    modified: bool
    counts: Mapping[str, int] = field(default_factory=dict[str, int])

    def __or__(self, other: PassResult) -> PassResult:
        counts = dict(self.counts)
        for subject, count in other.counts.items():
            counts[subject] = counts.get(subject, 0) + count
        return PassResult(self.modified or other.modified, counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPass(abc.ABC):
    """Base of all graph passes; subclasses are frozen dataclasses whose fields are options.

    `level` is the lowest optimisation level at which the pass runs by default; 0 always.
    `required_because` says why it cannot be left out, where a program without it would be wrong.
    """

    requires: ClassVar[frozenset[str]] = frozenset()
    ensures: ClassVar[frozenset[str]] = frozenset()
    invalidates: ClassVar[frozenset[str]] = frozenset()
    level: ClassVar[int] = 0
    required_because: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """The class name in kebab-case: `FoldConstants` is `fold-constants`."""
        return pass_name(type(self).__name__)

    @property
    def info(self) -> PassInfo:
        """What watchers are told."""
        return PassInfo(
            name=self.name,
            opt_level=self.level,
            required_because=self.required_because,
            text=str(self),
        )

    @abc.abstractmethod
    def run(self, graph: Graph, context: PassContext, /) -> PassResult:
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
            subject = f"option '{key}' of pass '{self.name}'"
            values[key] = parse_option(subject, value, known[key])
        return dataclasses.replace(self, **values)

    def __str__(self) -> str:
        values = {
            f.name: (getattr(self, f.name), f.default) for f in dataclasses.fields(self)
        }
        shown = [
            f"{name}={value!r}"
            for name, (value, default) in values.items()
            if value != default and isinstance(value, TEXT_TYPES)
        ]
        return f"{self.name}({', '.join(shown)})" if shown else self.name


Registered = TypeVar("Registered", bound=type[GraphPass])


def register_pass(cls: Registered) -> Registered:
    """Make a class of passes known by name, so that a `PassContext` may name it; a decorator, too.

    Raises: UserError for a name that another class has.
    """
    fields = dataclasses.fields(cls)
    enter_row(
        PassRow(
            name=pass_name(cls.__name__),
            owner=f"{cls.__module__}.{cls.__qualname__}",
            opt_level=cls.level,
            required_because=cls.required_because,
            options={
                f.name: f.default for f in fields if f.default is not dataclasses.MISSING
            },
        )
    )
    return cls
