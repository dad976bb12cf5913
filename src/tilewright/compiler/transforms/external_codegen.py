"""Code generators of users, by name: the patterns that they take, and the function that makes a module.

Registered by users or offered by installed packages, chosen by name when a model is compiled.  Which nodes a
generator gets is worked out by `partition_graph`; what it makes is a module of the runtime, which the compiler
passes on without knowing it.

Source: TVM's BYOC, `python/tvm/relax/backend/pattern_registry.py` and `src/relax/transform/run_codegen.cc`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast, final

from tilewright.base.entry_points import (
    EntryPoint,
    EntryPointGroup,
    find_entry_point,
    list_entry_points,
)
from tilewright.base.errors import UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.options import methods_option, names_option, text_option, wrong
from tilewright.base.record import field, record
from tilewright.base.text import did_you_mean, identifier
from tilewright.compiler.graph.copy import copy_graph
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.transforms.graph_pattern import Match, Pattern


class ExternalModule(Protocol):
    """What a generator makes: a module of the runtime."""

    @property
    def kind(self) -> str:
        """Who loads its bytes."""
        ...

    def get_function(self, name: str, query_imports: bool = False) -> Any:
        """The packed function of a name, or None."""
        ...

    def is_compilation_exportable(self) -> bool:
        """Whether it goes to a linker."""
        ...

    def save_to_bytes(self) -> bytes:
        """What the loader of its kind makes the same module of."""
        ...


Check: TypeAlias = Callable[[Match], bool]
Generate: TypeAlias = Callable[[Graph, str, Mapping[str, object]], ExternalModule]
"""(subgraph, name, options) -> a module with the packed function `name`: inputs, then outputs."""


@final
@record(eq=False, kw_only=True)
class NamedPattern:
    """A pattern with its name, and what else must be true of a match."""

    name: str
    pattern: Pattern
    check: Check | None = None


@final
@record(eq=False, kw_only=True)
class Codegen:
    """A code generator of a user.

    Attributes:
        patterns: tried in order.
        bind_constants: constants lie in the subgraph; else they are passed like other operands.
        merge: matches that meet become one subgraph.
    """

    name: str
    patterns: tuple[NamedPattern, ...]
    generate: Generate
    bind_constants: bool = True
    merge: bool = True


@final
@record(eq=False, kw_only=True)
class ChosenCodegen:
    """A generator that takes part in a compilation, with the options for it."""

    codegen: Codegen
    options: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def described(self) -> dict[str, str]:
        """Its options as texts, for the provenance of what is made with it."""
        return {key: str(value) for key, value in sorted(self.options.items())}


_CODEGENS: Final[dict[str, Codegen]] = {}


def register_codegen(codegen: Codegen, *, override: bool = False) -> None:
    """Make a generator known by its name.  Raises: UserError for a name that is taken or is none."""
    name = text_option("the name of a code generator", codegen.name, "an identifier")
    if identifier(name) != name:
        raise UserError(
            f"'{name}' is no name for a code generator",
            hint=f"for example '{identifier(name)}'",
        )
    if name in _CODEGENS and not override:
        raise UserError(
            f"there is a code generator '{name}' already", hint="replace it: override=True"
        )
    _CODEGENS[name] = codegen


def remove_codegen(name: str) -> None:
    """Forget a generator.  Raises: UserError for a name that nobody registered."""
    if _CODEGENS.pop(name, None) is None:
        raise UserError(
            f"there is no code generator '{name}' that is registered",
            hint=did_you_mean(name, _CODEGENS),
        )


def known_codegens() -> tuple[str, ...]:
    """The names of all generators: those that are registered, and those that installed packages offer."""
    return tuple(sorted({*_CODEGENS, *(row.name for row in installed_codegens())}))


def installed_codegens() -> tuple[EntryPoint, ...]:
    """The generators that installed packages offer; imports none of them."""
    return list_entry_points(EntryPointGroup.CODE_GENERATORS)


def choose_codegens(
    given: Sequence[str] | Mapping[str, Mapping[str, object]] | None,
) -> tuple[ChosenCodegen, ...]:
    """The generators of some names, in order; a mapping gives options with the names.

    One that is not registered is looked for among those of installed packages, and imported.

    Raises: UserError for a name that nobody registered or offers; for options that are no mapping;
    for a package that fails.
    """
    if given is None:
        return ()
    names = names_option("byoc", given, "names of code generators")
    options = given if isinstance(given, Mapping) else {}
    return tuple(
        ChosenCodegen(codegen=_lookup(name), options=_options(name, options.get(name)))
        for name in dict.fromkeys(names)
    )


def _options(name: str, given: object) -> dict[str, object]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise wrong(f"byoc['{name}']", given, "a mapping of options")
    return dict(cast("Mapping[str, object]", given))


def _lookup(name: str) -> Codegen:
    found = _CODEGENS.get(name)
    if found is not None:
        return found
    with LATE_IMPORTS:
        return _CODEGENS.get(name) or _load_installed(name)


def _load_installed(name: str) -> Codegen:
    """The generator that a package offers: its module registers it, or a function in there does."""
    row = find_entry_point(EntryPointGroup.CODE_GENERATORS, name)
    if row is None:
        raise _unknown(name)
    made = row.load()
    if name not in _CODEGENS and callable(made):
        try:
            made()
        except Exception as error:  # code of the package
            raise row.failure(error) from error
    if name not in _CODEGENS:
        raise UserError(
            f"does not register the code generator '{name}'",
            location=row,
            hint="the module, or the function that is named, calls byoc.register_codegen",
        )
    return _CODEGENS[name]


def _unknown(name: str) -> UserError:
    known = known_codegens()
    return UserError(
        f"there is no code generator '{name}'",
        hint=did_you_mean(name, known)
        or f"import the module that registers it (of commands: --byoc-module); there are: {', '.join(known) or 'none'}",
    )


def run_codegen(chosen: ChosenCodegen, subgraph: Graph, symbol: str) -> ExternalModule:
    """The module that a generator makes of a subgraph.

    Raises: what the generator raises, with a note that says of what; UserError for what is no module,
    and for a module that lacks the function.
    """
    where = f"code generator '{chosen.codegen.name}', subgraph '{symbol}'"
    try:
        module = chosen.codegen.generate(copy_graph(subgraph), symbol, chosen.options)
        methods_option("what it returned", module, ("get_function", "save_to_bytes"))
        is_there = (
            module.is_compilation_exportable()
            or module.get_function(symbol, query_imports=True) is not None
        )
    except Exception as error:
        error.add_note(f"in {where}")
        raise
    if not is_there:
        raise UserError(
            f"the module of kind '{module.kind}' has no function '{symbol}'", location=where
        )
    return module
