"""Native modules: functions in Python, declared as rows of (name, signatures, function).

A row may list several signatures: what old compilers pass less is filled by defaults or by an
adapter.  References are checked against the row's classes before the function sees them, so
functions trust their arguments.  Called by `runtime.modules` and by users who bring their own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, final

from tilewright.base.budget import CURRENT, NATIVE_CALL_STEPS
from tilewright.base.errors import InternalError
from tilewright.base.status import StatusCode, failure
from tilewright.formats.calling_convention import parse_calling_convention
from tilewright.runtime.vm.module import Callee, Module, ModuleFunction, ModuleState
from tilewright.runtime.vm.stack import add_frame

_Function = TypeVar("_Function", bound=Callable[..., object])


@final
@dataclass(frozen=True, slots=True)
class NativeFunction:
    """One row.

    Attributes:
        name: without the module's.
        signatures: calling conventions that it takes, the newest first.
        function: gets the state first if the module has one.
        refs: per reference argument a type name, `?` behind it where null is allowed, `any` for
            all; those of a list's entries count once, in place.
        waits: for functions that may block: of the same arguments, returns what the call would have
            to wait for (something with `wait` and `__await__`) or None.
    """

    name: str
    signatures: tuple[str, ...]
    function: Callable[..., object]
    refs: str = ""
    waits: Callable[..., object] | None = None


def metered(row: NativeFunction) -> NativeFunction:
    """A row whose calls are charged to the call that they are made in, and look at its clock."""
    function = row.function

    def call(*arguments: Any) -> object:
        account = CURRENT.account
        if account is not None:
            lists = sum(len(a) for a in arguments if a.__class__ is list)
            account.spend(NATIVE_CALL_STEPS + lists)
            account.check_clock()
        return function(*arguments)

    return replace(row, function=call)


@final
class FunctionTable:
    """Collects rows by decoration, for modules that are written as Python functions.

    ```python
    host = FunctionTable("host", version=1)


    @host.function("0ii_i")
    def clamp(value: int, limit: int) -> int:
        return min(value, limit)


    machine = BytecodeMachine(modules=[host.module()])
    ```
    """

    def __init__(
        self, name: str, *, version: int = 0, types: Mapping[str, type] | None = None
    ) -> None:
        self.name: str = name
        self.version: int = version
        self.types: Mapping[str, type] = types or {}
        self.rows: list[NativeFunction] = []

    def function(
        self, *signatures: str, name: str | None = None, refs: str = ""
    ) -> Callable[[_Function], _Function]:
        """Enter a function.

        Args:
            signatures: calling conventions that it takes, the newest first.
            name: in the module; default: the function's own.
            refs: the types of its references (see `NativeFunction`).
        """

        def enter(function: _Function) -> _Function:
            label = name or getattr(function, "__name__", "")
            self.rows.append(NativeFunction(label, signatures, function, refs))
            return function

        return enter

    def module(self, create_state: Callable[[], object] | None = None) -> NativeModule:
        """The module of all functions so far; with a state, they get it as first argument."""
        return NativeModule(
            self.name,
            self.rows,
            version=self.version,
            types=self.types,
            create_state=create_state,
        )


@final
class NativeModule(Module):
    """A module made of rows.

    Args:
        name: of the module.
        version: of the module.
        functions: the rows.
        types: what the names in `refs` mean.
        create_state: makes what each context has; functions get it as first argument.
    """

    def __init__(
        self,
        name: str,
        functions: Sequence[NativeFunction],
        *,
        version: int = 0,
        types: Mapping[str, type] | None = None,
        create_state: Callable[[], object] | None = None,
    ) -> None:
        self._name: str = name
        self._version: int = version
        self._create_state: Callable[[], object] | None = create_state
        self._rows: dict[tuple[str, str], tuple[NativeFunction, _Checks]] = {}
        self._first: dict[str, str] = {}
        for row in functions:
            self._enter(row, types or {})

    def _enter(self, row: NativeFunction, types: Mapping[str, type]) -> None:
        for signature in row.signatures:
            key = row.name, signature
            if key in self._rows:
                raise InternalError(f"{self._name}.{row.name} {signature} stands twice")
            self._rows[key] = (
                row,
                _checks(f"{self._name}.{row.name}", signature, row, types),
            )
            self._first.setdefault(row.name, signature)

    @property
    def name(self) -> str:
        return self._name

    @property
    def version(self) -> int:
        return self._version

    @property
    def functions(self) -> Sequence[ModuleFunction]:
        return tuple(
            ModuleFunction(
                name=name,
                calling_convention=signature,
                convention=parse_calling_convention(signature),
            )
            for name, signature in self._rows
        )

    def create_state(self) -> ModuleState:
        return _NativeState(self, self._create_state() if self._create_state else None)

    def bind(self, state: object, name: str, signature: str | None) -> Callee | None:
        """The function for one context."""
        found = self._rows.get((name, signature or self._first.get(name, "")))
        if found is None:
            return None
        row, checks = found
        return _bound(
            f"{self._name}.{name}", row, signature or self._first[name], state, checks
        )

    def bind_waits(self, state: object, name: str, signature: str | None) -> Callee | None:
        """What tells whether a function would have to wait, for one context."""
        found = self._rows.get((name, signature or self._first.get(name, "")))
        if found is None or found[0].waits is None:
            return None
        return found[0].waits if state is None else functools.partial(found[0].waits, state)

    def signatures(self, name: str) -> tuple[str, ...]:
        """The calling conventions of a function; empty when there is no such function."""
        return tuple(signature for known, signature in self._rows if known == name)


@final
class _NativeState(ModuleState):
    def __init__(self, module: NativeModule, state: object) -> None:
        self._module: NativeModule = module
        self._state: object = state

    def lookup(self, name: str, calling_convention: str | None) -> Callee | None:
        return self._module.bind(self._state, name, calling_convention)

    def waits(self, name: str, calling_convention: str | None) -> Callee | None:
        return self._module.bind_waits(self._state, name, calling_convention)


# --- checks of references ------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class _Check:
    """What a reference must be; `member` is -1 for plain arguments and lists of single values."""

    argument: int
    member: int
    in_list: bool
    type: type
    optional: bool


_Checks = tuple[_Check, ...]


def _reference_places(signature: str) -> Iterator[tuple[int, int, bool]]:
    for index, item in enumerate(parse_calling_convention(signature).arguments):
        if item == "ref":
            yield index, -1, False
        elif isinstance(item, tuple):
            for member, bank in enumerate(item):
                if bank == "ref":
                    yield index, member if len(item) > 1 else -1, True


def _checks(
    where: str, signature: str, row: NativeFunction, types: Mapping[str, type]
) -> _Checks:
    names = row.refs.split()
    places = tuple(_reference_places(signature))
    if len(names) != len(places):
        raise InternalError(f"{where} {signature}: {len(names)} types for its references")
    return tuple(
        _Check(argument, member, in_list, types[name.rstrip("?")], name.endswith("?"))
        for (argument, member, in_list), name in zip(places, names, strict=True)
        if name.rstrip("?") != "any"
    )


def _bound(
    where: str,
    row: NativeFunction,
    signature: str,
    state: object,
    checks: _Checks,
) -> Callee:
    """The function with its checks in front: one Python function without loops over them.

    A class is asked once whether it is of the type; from then on it is looked up in a set.
    """
    maker, sets = _maker(len(parse_calling_convention(signature).arguments), checks)

    def refuse(index: int, value: object, check: int) -> None:
        wanted = checks[check]
        if isinstance(value, wanted.type):
            sets[check].add(value.__class__)
            return
        _refuse(where, index, value, wanted.type, optional=wanted.optional)

    def failed(error: BaseException) -> BaseException:
        add_frame(error, f"  in {where}")
        return error

    lead = () if state is None else (state,)
    return maker(row.function, lead, sets, refuse, failed)


def _maker(arity: int, checks: _Checks) -> tuple[Callable[..., Callee], list[set[type]]]:
    sets: list[set[type]] = [
        {check.type, type(None)} if check.optional else {check.type} for check in checks
    ]
    shape = tuple((c.argument, c.member, c.in_list) for c in checks)
    return _compile_maker(arity, shape), sets


@functools.cache
def _compile_maker(
    arity: int, shape: tuple[tuple[int, int, bool], ...]
) -> Callable[..., Callee]:
    """Makes functions of so many arguments, some of which are checked."""
    names = [f"a{i}" for i in range(arity)]
    body: list[str] = []
    for number, (argument, member, in_list) in enumerate(shape):
        value = f"a{argument}"
        if in_list:
            body.append(f"        for entry in {value}:")
            value = "entry" if member < 0 else f"entry[{member}]"
        indent = "            " if in_list else "        "
        body.append(f"{indent}if {value}.__class__ not in s{number}:")
        body.append(f"{indent}    refuse({argument}, {value}, {number})")
    source = "\n".join(
        [
            "def maker(function, lead, sets, refuse, failed):",
            f"    ({''.join(f's{i}, ' for i in range(len(shape)))}) = sets",
            "    if lead:",
            "        (state,) = lead",
            *_wrapper(names, body, ["state", *names], depth=2),
            *_wrapper(names, body, names, depth=1),
        ]
    )
    found: dict[str, Any] = {}
    exec(source, found)  # of our own making, from numbers alone
    return found["maker"]


def _wrapper(
    names: Sequence[str], body: Sequence[str], passed: Sequence[str], *, depth: int
) -> list[str]:
    inner = [
        f"def call({', '.join(names)}):",
        *(line[4:] for line in body),
        "    try:",
        f"        return function({', '.join(passed)})",
        "    except Exception as error:",
        "        raise failed(error)",
        "return call",
    ]
    return ["    " * depth + line for line in inner]


def _refuse(where: str, index: int, value: object, type_: type, *, optional: bool) -> None:
    if value is None and optional:
        return
    got = "null" if value is None else type(value).__name__
    raise failure(
        StatusCode.INVALID_ARGUMENT,
        f"argument {index} is {got}, expected {type_.__name__}",
        location=where,
    )
