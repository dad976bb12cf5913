"""Records: classes of named fields that cost next to nothing to define.

`@record` reads and behaves like `@dataclass(frozen=True, slots=True)`, and `@record(frozen=False)` like
`@dataclass(slots=True)`, which write and compile Python source for every class: 0.5 to 1 ms each, half of the start of a process that only loads a
model and runs it.  Here the methods are closures over the fields: a class takes a twentieth of
that, an instance about half a microsecond more, until there are many: then `__init__` alone is written as
source, and compiled.  `dataclasses.replace`, `fields` and `asdict` take records, too.

A base class may have methods and class variables, but no fields; classes derived from a record have its fields and no
more.  Not here: order, and `super()` without arguments in methods, which no class remade for its slots has.  Called
wherever loading a model passes, and by the compiler.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Final, NoReturn, TypeVar, cast, dataclass_transform, final, overload

T = TypeVar("T")

_REQUIRED: Final = object()
_NAMES: Final = "__record_fields__"
"""Where a record has the names of its fields: `__slots__` of a class derived from it are others."""
_MANY: Final = 200
"""Instances whose making costs as much more as compiling an `__init__` for their class."""


@final
class _Made:
    """The default of a field that every instance gets its own value of."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], object]) -> None:
        self.make: Final = make


def field(*, default_factory: Callable[[], T]) -> T:
    """A field whose default is made anew for every instance."""
    return cast("T", _Made(default_factory))


@overload
def record(cls: type[T], /) -> type[T]: ...


@overload
def record(
    *, eq: bool = True, kw_only: bool = False, frozen: bool = True
) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(
    cls: type[T] | None = None,
    /,
    *,
    eq: bool = True,
    kw_only: bool = False,
    frozen: bool = True,
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class of annotated fields a record with slots.

    Methods that the class has stay as they are; `__post_init__` is called when the fields are set.

    Args:
        cls: the class.
        eq: compare and hash by the fields; by identity otherwise.
        kw_only: instances are made with keywords only.
        frozen: fields are set once; where they are not, instances that are compared have no hash.

    Raises: TypeError for a base class with fields, or a record that is frozen where this one is not or the other way
    round, and for a field without a default behind one that has it.
    """
    if cls is None:
        return lambda owner: _made(owner, eq=eq, kw_only=kw_only, frozen=frozen)
    return _made(cls, eq=eq, kw_only=kw_only, frozen=frozen)


def _made(cls: type[T], *, eq: bool, kw_only: bool, frozen: bool) -> type[T]:
    for base in cls.__mro__[1:]:
        if problem := _why_no_base(base, frozen=frozen):
            raise TypeError(
                f"record '{cls.__qualname__}': its base '{base.__qualname__}' {problem}"
            )
    names = tuple(
        name
        for name, annotation in cls.__annotations__.items()
        if not _is_class_variable(annotation)
    )
    given = vars(cls)
    defaults = {name: given.get(name, _REQUIRED) for name in names}
    if not kw_only:
        _check_order(cls, defaults)
    left_out = {"__dict__", "__weakref__", *names}
    members = {name: value for name, value in given.items() if name not in left_out}
    members["__slots__"] = members[_NAMES] = names
    members["__qualname__"] = cls.__qualname__
    members["__match_args__"] = () if kw_only else names
    fields = members["__dataclass_fields__"] = _Fields(defaults, kw_only=kw_only)
    methods: dict[str, object] = {**_METHODS, **(_FROZEN if frozen else {})}
    if eq:
        methods |= _comparison(names, has_hash=frozen)
        if "__eq__" in given and given.get("__hash__") is None:
            members.pop("__hash__", None)  # Python's, for a class that says what equals it
    members = methods | members
    # Slots belong to a class from its beginning: this is a new one.
    made: Any = type(cls)(cls.__name__, cls.__bases__, members)
    # Not by `__set_name__`: Ctrl-C in there is a RuntimeError up to Python 3.11.
    fields.record = made
    if "__init__" not in given:
        made.__init__ = _initializer(made, defaults, kw_only=kw_only)
    return cast("type[T]", made)


def _why_no_base(base: type, *, frozen: bool) -> str | None:
    """What errors say of a base class that no such record is derived from."""
    held = vars(base)
    slots: str | Sequence[str] = held.get("__slots__", ())
    named: set[str] = {slots} if isinstance(slots, str) else {*slots}
    if named - {"__dict__", "__weakref__"}:
        return "has fields"
    if "__dataclass_fields__" not in held:
        return None
    if _NAMES in held:
        is_frozen = held.get("__setattr__") is _refuse_setting
    elif dataclasses.fields(cast("Any", base)):
        return "has fields"
    else:
        is_frozen = held["__dataclass_params__"].frozen
    if is_frozen == frozen:
        return None
    return "is frozen" if is_frozen else "is not frozen"


def _is_class_variable(annotation: object) -> bool:
    """Whether it is `ClassVar`, as text or not, of whatever module and type."""
    return str(annotation).partition("[")[0].rpartition(".")[2] == "ClassVar"


def _check_order(cls: type, defaults: Mapping[str, object]) -> None:
    """Raises: TypeError for a field without a default behind one that has it."""
    has_default = False
    for name, default in defaults.items():
        if has_default and default is _REQUIRED:
            owner = cls.__qualname__
            raise TypeError(
                f"'{name}' of record '{owner}' has no default, but follows one that has"
            )
        has_default = default is not _REQUIRED


def _initializer(
    cls: type, defaults: Mapping[str, object], *, kw_only: bool
) -> Callable[..., None]:
    """`__init__` over the class's slots, with the complaints of a function with these parameters."""
    setters = tuple(vars(cls)[name].__set__ for name in defaults)
    rows = tuple(zip(defaults, setters, defaults.values(), strict=True))
    limit = 0 if kw_only else len(rows)
    owner = cls.__qualname__
    check: Callable[[object], None] | None = vars(cls).get("__post_init__")
    count = 0

    def __init__(self: object, /, *values: object, **named: object) -> None:  # noqa: N807
        nonlocal count
        count += 1
        if count == _MANY:
            cast("Any", cls).__init__ = _compiled_initializer(
                cls, rows, check, kw_only=kw_only
            )
        if len(values) > limit:
            raise TypeError(
                f"{owner}() takes {limit} positional arguments but {len(values)} were given"
            )
        for put, value in zip(setters, values):  # noqa: B905 - the shorter one ends it
            put(self, value)
        for name, put, default in rows[len(values) :]:
            value = named.pop(name, default)
            if value is _REQUIRED:
                raise TypeError(f"{owner}() misses the argument '{name}'")
            put(self, value.make() if type(value) is _Made else value)
        if named:
            raise TypeError(f"{owner}() got an unexpected argument '{next(iter(named))}'")
        if check is not None:
            check(self)

    return __init__


def _compiled_initializer(
    cls: type,
    rows: Sequence[tuple[str, Callable[[object, object], None], object]],
    check: Callable[[object], None] | None,
    *,
    kw_only: bool,
) -> Callable[..., None]:
    """The same `__init__` from source: one assignment after the other.  Its complaints are Python's own."""
    names: dict[str, object] = {"_check": check}
    parameters, lines = ["*"] if kw_only and rows else list[str](), list[str]()
    is_frozen = cls.__setattr__ is not object.__setattr__
    for at, (name, put, default) in enumerate(rows):
        names[f"_put_{at}"], names[f"_default_{at}"] = put, default
        is_made = type(default) is _Made
        if is_made:
            names[f"_make_{at}"] = default.make
            value = f"_make_{at}() if {name} is _default_{at} else {name}"
        else:
            value = name
        parameters.append(name if default is _REQUIRED else f"{name}=_default_{at}")
        put_it = f"_put_{at}(_self, {value})" if is_frozen else f"_self.{name} = {value}"
        lines.append(f"    {put_it}")
    if check is not None:
        lines.append("    _check(_self)")
    head = f"def __init__({', '.join(['_self', '/', *parameters])}):"
    exec("\n".join([head, *lines, "    return"]), names)
    made = cast("Callable[..., None]", names["__init__"])
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _comparison(names: tuple[str, ...], *, has_hash: bool) -> dict[str, object]:
    values: Callable[[object], object] = attrgetter(*names) if names else lambda _: ()

    def __eq__(self: object, other: object) -> bool:  # noqa: N807
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__ if has_hash else None}


# --- methods that all records share ----------------------------------------------------------


def _names(self: object) -> tuple[str, ...]:
    return getattr(self, _NAMES)


@recursive_repr()
def _repr(self: object) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _names(self))
    return f"{self.__class__.__qualname__}({fields})"


def _refuse_setting(self: object, name: str, value: object) -> NoReturn:
    del self, value
    raise dataclasses.FrozenInstanceError(f"cannot assign to field '{name}'")


def _refuse_deleting(self: object, name: str) -> NoReturn:
    del self
    raise dataclasses.FrozenInstanceError(f"cannot delete field '{name}'")


def _state(self: object) -> list[object]:
    return [getattr(self, name) for name in _names(self)]


def _restore(self: object, state: list[object]) -> None:
    for name, value in zip(_names(self), state, strict=True):
        object.__setattr__(self, name, value)


_METHODS: Final[Mapping[str, Callable[..., object]]] = {
    "__repr__": _repr,
    "__getstate__": _state,
    "__setstate__": _restore,
}
_FROZEN: Final[Mapping[str, Callable[..., object]]] = {
    "__setattr__": _refuse_setting,
    "__delattr__": _refuse_deleting,
}


@functools.cache
def _a_field() -> dataclasses.Field[Any]:
    """What the entries of records are copies of: to make a dataclass for each record would take as long as one."""
    # With a docstring: `dataclasses` writes one of the signature otherwise, which takes 4 ms to find out.
    shadow = type(
        "_OfOneField", (), {"__annotations__": {"only": "int"}, "__doc__": "One field."}
    )
    dataclasses.dataclass(init=False, repr=False, eq=False)(shadow)
    (only,) = dataclasses.fields(cast("Any", shadow))
    return only


@final
class _Fields:
    """`__dataclass_fields__` of a record, made when `dataclasses` asks for it."""

    __slots__ = ("defaults", "kw_only", "record")
    record: type

    def __init__(self, defaults: Mapping[str, object], *, kw_only: bool) -> None:
        self.defaults: Final = defaults
        self.kw_only: Final = kw_only

    def __get__(self, owner: object, kind: type) -> dict[str, dataclasses.Field[Any]]:
        fields: dict[str, dataclasses.Field[Any]] = {}
        for name, default in self.defaults.items():
            entry = copy(_a_field())
            entry.name, entry.type = name, self.record.__annotations__[name]
            entry.kw_only = self.kw_only
            if type(default) is _Made:
                entry.default_factory = default.make
            elif default is not _REQUIRED:
                entry.default = default
            fields[name] = entry
        # Instead of this: asked once per class, whichever class derived from it was asked.
        cast("Any", self.record).__dataclass_fields__ = fields
        return fields
