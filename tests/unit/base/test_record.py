"""Records: what they share with dataclasses, and what they refuse."""

from __future__ import annotations

import abc
import copy
import dataclasses
import inspect
import itertools
import pickle
import sys
import typing
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, ClassVar, Generic, TypeVar, cast

import pytest

from tilewright.base import record as record_module
from tilewright.base.record import field, record

T = TypeVar("T")


@record
class Point:
    """A point."""

    x: int
    y: int = 2
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Of both."""
        return self.x + self.y


@record(kw_only=True)
class Named:
    """Values with names only."""

    width: int = 1
    height: int  # kept in order: keywords need no defaults at the end


@record(eq=False)
class Unique:
    """Compared by identity."""

    name: str

    def __repr__(self) -> str:
        return f"<{self.name}>"


@record
class Box(Generic[T]):
    """Holds one value."""

    value: T


@record
class Even:
    """Refuses odd numbers."""

    value: int = 0

    def __post_init__(self) -> None:
        if self.value % 2:
            raise ValueError(f"{self.value} is odd")


@dataclass(frozen=True, slots=True)
class Twin:
    """What `Point` is as a dataclass."""

    x: int
    y: int = 2
    notes: Mapping[str, str] = dataclasses.field(default_factory=dict)


def test_values_are_taken_by_position_and_by_name_and_defaults_fill_in() -> None:
    assert (Point(1).x, Point(1).y, Point(1).notes) == (1, 2, {})
    assert (Point(1, 5).y, Point(y=7, x=3).y, Point(3, y=9).y) == (5, 7, 9)
    assert (Named(height=4).width, Named(height=4, width=2).width) == (1, 2)


def test_a_default_that_is_made_is_every_instances_own() -> None:
    assert Point(1).notes is not Point(1).notes


@pytest.mark.parametrize(
    ("given", "named", "message"),
    [
        ((), {}, "misses the argument 'x'"),
        ((1, 2, {}, 4), {}, "takes 3 positional arguments but 4 were given"),
        ((1,), {"z": 3}, "unexpected argument 'z'"),
        ((1,), {"x": 3}, "unexpected argument 'x'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    given: tuple[object, ...], named: dict[str, object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        cast("Any", Point)(*given, **named)
    with pytest.raises(TypeError):
        cast("Any", Twin)(*given, **named)


def test_keywords_are_needed_where_the_record_says_so() -> None:
    with pytest.raises(TypeError, match="takes 0 positional arguments but 1 were given"):
        cast("Any", Named)(1, height=2)


def test_fields_can_be_neither_set_nor_deleted_nor_added() -> None:
    point = cast("Any", Point(1))
    for name in ("x", "other"):
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(point, name, 5)
    with pytest.raises(dataclasses.FrozenInstanceError, match="x"):
        del point.x
    assert point.x == 1
    assert not hasattr(point, "__dict__")


def test_equality_and_hash_go_by_the_fields_of_the_same_class() -> None:
    one, same, other = Named(height=4), Named(width=1, height=4), Named(height=5)
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert Point(1) != Twin(1)
    assert Box(1) == Box(1)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point(1))  # as the dictionary in it is


def test_identity_counts_where_the_record_says_so() -> None:
    assert Unique("a") != Unique("a")
    assert len({Unique("a"), Unique("a")}) == 2


def test_it_prints_as_a_dataclass_unless_it_prints_itself() -> None:
    assert repr(Point(1)) == repr(Twin(1)).replace("Twin", "Point")
    assert repr(Unique("a")) == "<a>"
    assert Point.__doc__ == "A point."


@pytest.mark.parametrize("value", [Point(1, 3, {"a": "b"}), Named(height=3), Box((1, "x"))])
def test_copies_and_pickles_are_equal(value: object) -> None:
    assert copy.copy(value) == value
    assert copy.deepcopy(value) == value
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value


def test_functions_for_dataclasses_take_records() -> None:
    point = Point(1, 5)
    assert dataclasses.replace(point, y=6) == Point(1, 6)
    assert dataclasses.replace(Named(height=3), width=9) == Named(height=3, width=9)
    assert dataclasses.is_dataclass(Point)
    assert dataclasses.asdict(point) == dataclasses.asdict(Twin(1, 5))
    for ours, theirs in zip(
        dataclasses.fields(Point), dataclasses.fields(Twin), strict=True
    ):
        assert (ours.name, ours.type, ours.default) == (
            theirs.name,
            theirs.type,
            theirs.default,
        )
    assert Named.__dataclass_fields__ is Named.__dataclass_fields__  # made once
    with pytest.raises(TypeError, match="unexpected argument 'z'"):
        dataclasses.replace(point, **cast("Any", {"z": 1}))


def test_no_signature_is_taken_apart_to_say_what_fields_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is read as Python source, which a process that compiles or loads does for nothing else."""
    monkeypatch.setattr(inspect, "signature", lambda *_, **__: pytest.fail("asked"))
    record_module._a_field.cache_clear()

    @record
    class Fresh:
        """A record of which no fields were asked yet."""

        size: int

    assert [f.name for f in dataclasses.fields(Fresh)] == ["size"]


def test_patterns_match_by_position_and_by_name() -> None:
    match Point(1, 5):
        case Point(1, y):
            assert y == 5
        case _:
            pytest.fail("no match by position")
    match Named(height=3):
        case Named(height=3):
            pass
        case _:
            pytest.fail("no match by name")


def test_methods_of_the_class_stay() -> None:
    assert Point(1, 5).total == 6


def test_values_are_checked_once_all_are_there() -> None:
    assert Even(4).value == 4
    for make in (lambda: Even(3), lambda: dataclasses.replace(Even(2), value=5)):
        with pytest.raises(ValueError, match="is odd"):
            make()


class Rule(abc.ABC):
    """What classes with fields are derived from: it has none."""

    __slots__ = ()
    level: ClassVar[int] = 0

    @abc.abstractmethod
    def shown(self) -> str:
        """Itself as text."""

    def __str__(self) -> str:
        return f"{self.level}: {self.shown()}"


@record(kw_only=True)
class Wide(Rule):
    """A rule with a field, and a class variable that is none."""

    level: ClassVar[int] = 2
    width: int = 4

    def shown(self) -> str:
        return f"{self.width} wide"


@record(kw_only=True)
class Plain(Rule):
    """A rule without fields."""

    def shown(self) -> str:
        return "plain"


def test_class_variables_are_no_fields_and_a_base_without_fields_hands_on_what_it_has() -> (
    None
):
    assert [f.name for f in dataclasses.fields(Wide)] == ["width"]
    assert (Wide.level, Plain.level) == (2, 0)
    assert (str(Wide(width=8)), str(Plain())) == ("2: 8 wide", "0: plain")
    assert isinstance(Wide(), Rule)
    assert not hasattr(Wide(), "__dict__")
    with pytest.raises(dataclasses.FrozenInstanceError, match="level"):
        cast("Any", Wide()).level = 3
    with pytest.raises(TypeError, match="unexpected argument 'level'"):
        cast("Any", Wide)(level=3)


def test_records_without_fields_are_equal() -> None:
    assert Plain() == Plain()
    assert hash(Plain()) == hash(Plain())
    assert cast("object", Plain()) != Wide()
    assert repr(Plain()) == "Plain()"
    assert copy.copy(Plain()) == pickle.loads(pickle.dumps(Plain())) == Plain()


def test_what_is_abstract_is_not_made() -> None:
    @record
    class Open(Rule):
        width: int = 1

    with pytest.raises(TypeError, match="abstract"):
        cast("Any", Open)()


def test_a_base_with_fields_is_refused() -> None:
    class Wider(Wide):
        height: int = 1

    with pytest.raises(TypeError, match=r"record '.*Wider': its base 'Wide' has fields"):
        record(Wider)


class Marked:
    """May be held weakly."""

    __slots__ = ("__weakref__",)


def test_a_base_may_let_records_be_held_weakly() -> None:
    @record
    class Held(Marked):
        size: int

    held = Held(3)
    assert weakref.ref(held)() is held


def test_a_dataclass_with_fields_is_no_base() -> None:
    class Tall(Twin):
        height: int = 1

    with pytest.raises(TypeError, match="its base 'Twin' has fields"):
        record(Tall)


@pytest.mark.parametrize(
    ("frozen", "is_so"), [(True, "is frozen"), (False, "is not frozen")]
)
def test_a_record_is_frozen_as_its_base_is(frozen: bool, is_so: str) -> None:
    @record(frozen=frozen)
    class Base:
        kind: ClassVar[str] = "any"

    class Other(Base):
        size: int = 1

    with pytest.raises(TypeError, match=f"'.*Base' {is_so}"):
        record(frozen=not frozen)(Other)
    assert repr(record(frozen=frozen)(Other)()).endswith("Other(size=1)")


class Derived(Point):
    """A record with a class variable more, derived the way users may."""

    scale: ClassVar[int] = 3


class Closed(Point):
    """The same without room for attributes."""

    __slots__ = ()


@pytest.mark.parametrize("kind", [Derived, Closed])
def test_classes_derived_from_a_record_keep_its_fields(kind: type[Point]) -> None:
    made = kind(1, 5)
    assert [f.name for f in dataclasses.fields(kind)] == ["x", "y", "notes"]
    assert dataclasses.replace(made, x=4) == kind(4, 5)
    assert repr(made) == f"{kind.__name__}(x=1, y=5, notes={{}})"
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == made


class ClassVariants:
    """Named like a class variable, and none."""


@record
class Chosen:
    """With a field of such a type, and all ways to write a class variable."""

    several: ClassVar = 1
    named: typing.ClassVar[int] = 2
    variants: ClassVariants | None = None
    listed: list[ClassVariants] = field(default_factory=list[ClassVariants])


def test_only_class_variables_are_taken_for_such() -> None:
    assert [f.name for f in dataclasses.fields(Chosen)] == ["variants", "listed"]


@record
class Loose:  # noqa: PLW1641 - what it is to show
    """Says itself what equals it."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loose) and self.name.lower() == other.name.lower()


def test_a_record_that_says_what_equals_it_has_a_hash_as_a_dataclass_has() -> None:
    assert Loose("A") == Loose("a")
    assert hash(Loose("a")) == hash("a")


@record(frozen=False, eq=False)
class Link:
    """May lead back to itself."""

    name: str
    following: Link | None = None


def test_a_circle_is_printed_to_where_it_closes() -> None:
    link = Link("a")
    link.following = Link("b", link)
    assert repr(link) == "Link(name='a', following=Link(name='b', following=...))"


@record(frozen=False)
class Counter:
    """Changes."""

    name: str
    count: int = 0
    seen: list[str] = field(default_factory=list[str])


@record(frozen=False, eq=False)
class Cell:
    """Changes, and is itself whatever it holds."""

    value: int


def test_fields_of_a_record_that_is_not_frozen_can_be_set() -> None:
    made = [Counter("a") for _ in range(300)]  # the first ones and those made from source
    for counter in (made[0], made[-1]):
        counter.count += 2
        counter.seen.append("x")
        assert counter == Counter("a", 2, ["x"])
        del counter.count
        assert not hasattr(counter, "count")
        with pytest.raises(AttributeError, match="other"):
            cast("Any", counter).other = 1
    assert made[1] == Counter("a", seen=[])
    assert dataclasses.replace(made[1], count=5).count == 5


def test_what_changes_has_a_hash_only_where_it_is_compared_by_identity() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Counter("a"))
    cell = Cell(1)
    assert {cell: 1}[cell] == 1
    assert cell != Cell(1)


@record
class Pair:
    """With a value that is needed, one that is not, and one that is made."""

    first: int
    second: str = "2"
    rest: list[int] = field(default_factory=list[int])

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError(f"{self.first} is negative")


def test_records_of_which_there_are_many_are_made_from_source_with_the_same_values() -> (
    None
):
    slow = Pair.__init__
    few = [Pair(1), Pair(first=1), Pair(2, "b", [3]), Pair(2, rest=[3], second="b")]
    for _ in range(300):
        Pair(0)
        Named(height=1)
    assert Pair.__init__ is not slow
    assert few == [Pair(1), Pair(first=1), Pair(2, "b", [3]), Pair(2, rest=[3], second="b")]
    assert Pair(1).rest is not Pair(1).rest
    assert (Named(height=4).width, Named(height=4, width=2).width) == (1, 2)
    assert dataclasses.replace(Pair(1), second="c") == Pair(1, "c")
    with pytest.raises(ValueError, match="is negative"):
        Pair(-1)
    for given in ((), (1, "2", [], 4)):
        with pytest.raises(TypeError, match=r"Pair\.__init__"):
            cast("Any", Pair)(*given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        cast("Any", Pair)(1, z=3)
    with pytest.raises(TypeError):
        cast("Any", Named)(1, height=2)


def test_a_value_that_is_needed_stands_before_those_that_are_not() -> None:
    class Late:
        first: int = 1
        second: str

    with pytest.raises(
        TypeError,
        match=r"'second' of record '.*Late' has no default, but follows one that has",
    ):
        record(Late)
    assert record(kw_only=True)(Late)(second="b").first == 1


def test_an_interrupt_while_a_record_is_made_stays_one() -> None:
    """Python up to 3.11 makes a RuntimeError of what is raised in some hooks of a class."""
    ends: list[type[BaseException] | None] = []
    before = sys.gettrace()
    while not ends or ends[-1] is not None:
        calls = itertools.count(-len(ends))

        def interrupt(
            frame: FrameType, event: str, argument: object, calls: Iterator[int] = calls
        ) -> None:
            del event, argument
            if frame.f_code.co_filename == record_module.__file__ and next(calls) == 0:
                raise KeyboardInterrupt

        sys.settrace(interrupt)
        try:
            record(type("Pair", (), {"__annotations__": {"x": "int", "y": "int"}}))
        except BaseException as error:
            ends.append(type(error))
        else:
            ends.append(None)
        finally:
            sys.settrace(before)
    assert len(ends) > 5
    assert set(ends[:-1]) == {KeyboardInterrupt}
