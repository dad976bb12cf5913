"""What surrounds passes: who runs, with which options, and what watchers are told when."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

import pytest

from fakes import tiny_ops
from tilewright.base.errors import UserError
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.passes import (
    GraphPass,
    PassContext,
    PassInfo,
    PassInstrument,
    PassResult,
    config_keys,
    register_pass,
    run_passes,
)
from tilewright.compiler.readers.graph_text import parse_graph


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Base(GraphPass):
    """Does nothing."""

    def run(self, graph: Graph, context: PassContext) -> PassResult:
        return PassResult(modified=False)


@register_pass
@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PolishThings(GraphPass):
    """Runs from level 2 on."""

    level: ClassVar[int] = 2
    deep: bool = False
    ratio: float = 0.5
    limit: int = 3

    def run(self, graph: Graph, context: PassContext) -> PassResult:
        return PassResult(modified=False, counts={str(self): 1})


@register_pass
@final
@dataclass(frozen=True, slots=True, kw_only=True)
class KeepThings(GraphPass):
    """Cannot be left out."""

    level: ClassVar[int] = 1
    required_because: ClassVar[str] = "things would be lost"

    def run(self, graph: Graph, context: PassContext) -> PassResult:
        return PassResult(modified=False, counts={"kept": 1})


PASSES = (PolishThings(), KeepThings())


def graph() -> Graph:
    text = "graph @g(%x: f32[2]) { %a: f32[2] = neg(%x) return %a }"
    return parse_graph(text, tiny_ops.lookup)


def ran(**options: Any) -> set[str]:
    return set(run_passes(graph(), PASSES, PassContext(**options)).counts)


POLISHED = "polish-things"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {POLISHED, "kept"}),
        ({"opt_level": 1}, {"kept"}),
        ({"opt_level": 0}, {"kept"}),
        ({"opt_level": 0, "required_pass": ["PolishThings"]}, {POLISHED, "kept"}),
        ({"disabled_pass": ["polish_things"]}, {"kept"}),
        ({"config": {"polish-things.deep": "yes"}}, {"polish-things(deep=True)", "kept"}),
        ({"config": {"polish-things.ratio": 2}}, {"polish-things(ratio=2.0)", "kept"}),
    ],
)
def test_level_switches_and_options_decide_what_runs(
    options: dict[str, Any], expected: set[str]
) -> None:
    assert ran(**options) == expected


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"opt_level": 4}, "opt_level is 4, expected 0, 1, 2 or 3"),
        ({"disabled_pass": "polish-things"}, "expected a sequence of names of passes"),
        ({"disabled_pass": ["polish"]}, "disabled_pass: there is no pass 'polish'"),
        ({"required_pass": ["polish"]}, "required_pass: there is no pass 'polish'"),
        (
            {"disabled_pass": ["keep-things"]},
            "pass 'keep-things' cannot be disabled: things would be lost",
        ),
        (
            {"disabled_pass": ["polish-things"], "required_pass": ["PolishThings"]},
            "pass 'polish-things' is required and disabled",
        ),
        ({"config": {"polish-things.depp": 1}}, "there is no key 'polish-things.depp'"),
        ({"config": {"polish-things.deep": "perhaps"}}, "is 'perhaps', expected bool"),
        ({"config": {"polish-things.deep": 1}}, "is 1, expected bool"),
        ({"config": {"polish-things.limit": True}}, "is True, expected int"),
        ({"config": {"polish-things.limit": "x"}}, "is 'x', expected int"),
        ({"config": ["x"]}, "expected a mapping from keys to values"),
        ({"config": {1: 2}}, "a key of config is 1, expected a text 'pass.option'"),
        ({"opt_level": 2.0}, "opt_level is 2.0, expected 0, 1, 2 or 3"),
        ({"instruments": PassInstrument()}, "expected a sequence of watchers"),
        ({"instruments": None}, "instruments is None, expected a sequence of watchers"),
        ({"instruments": [PassInstrument]}, "expected an object of a class of PassInst"),
    ],
)
def test_what_there_is_not_is_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UserError) as caught:
        PassContext(**options)
    assert text in str(caught.value)


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(UserError) as caught:
        PassContext(disabled_pass=["polish-thing"])
    assert "did you mean 'polish-things'" in (caught.value.hint or "")
    assert "keep-things" in (caught.value.hint or "")
    with pytest.raises(UserError) as caught:
        PassContext(config={"nothing": 1})
    assert "polish-things.deep" in (caught.value.hint or "")
    assert config_keys()["polish-things.ratio"] == 0.5


def test_two_passes_of_one_name_are_refused() -> None:
    @final
    @dataclass(frozen=True, slots=True, kw_only=True)
    class PolishThings(GraphPass):
        """The same name."""

        def run(self, graph: Graph, context: PassContext) -> PassResult:
            return PassResult(modified=False)

    with pytest.raises(UserError, match="two passes are called 'polish-things'"):
        register_pass(PolishThings)


def test_the_innermost_context_is_the_current_one() -> None:
    outer, inner = PassContext(opt_level=1), PassContext(opt_level=0)
    with outer:
        assert PassContext.current() is outer
        with inner:
            assert PassContext.current() is inner
            with outer:
                assert PassContext.current() is outer
        assert PassContext.current() is outer
    assert PassContext.current().opt_level == 2


def test_passes_run_in_the_context_that_is_entered() -> None:
    with PassContext(disabled_pass=["polish-things"]):
        assert set(run_passes(graph(), PASSES).counts) == {"kept"}
    assert set(run_passes(graph(), PASSES).counts) == {POLISHED, "kept"}


def test_a_pass_runs_at_every_level_unless_it_says_otherwise() -> None:
    assert Base().info.opt_level == 0
    assert PolishThings().info.opt_level == 2


def test_threads_and_tasks_have_contexts_of_their_own() -> None:
    seen: list[int] = []
    with PassContext(opt_level=0):
        thread = threading.Thread(
            target=lambda: seen.append(PassContext.current().opt_level)
        )
        thread.start()
        thread.join()
    assert seen == [2]

    async def task(level: int, other: asyncio.Event, mine: asyncio.Event) -> int:
        with PassContext(opt_level=level):
            mine.set()
            await other.wait()
            return PassContext.current().opt_level

    async def both() -> list[int]:
        a, b = asyncio.Event(), asyncio.Event()
        return await asyncio.gather(task(0, a, b), task(1, b, a))

    assert asyncio.run(both()) == [0, 1]


def test_contexts_of_generators_may_be_left_in_any_order() -> None:
    def entered(level: int) -> Iterator[None]:
        with PassContext(opt_level=level):
            yield

    first, second = entered(0), entered(1)
    next(first)
    next(second)
    assert list(first) == []
    assert PassContext.current().opt_level == 1
    assert list(second) == []
    assert PassContext.current().opt_level == 2


class Watcher(PassInstrument):
    def __init__(
        self,
        log: list[str],
        skip: str = "",
        fails: bool = False,
        fails_at_exit: bool = False,
    ) -> None:
        self.log, self.skip, self.fails = log, skip, fails
        self.fails_at_exit = fails_at_exit

    def enter_pass_ctx(self) -> None:
        if self.fails:
            raise ValueError("not today")
        self.log.append("enter")

    def exit_pass_ctx(self) -> None:
        self.log.append("exit")
        if self.fails_at_exit:
            raise ValueError("not at the end")

    def should_run(self, graph: Graph, info: PassInfo) -> bool:
        self.log.append(f"ask {info.name}")
        return info.name != self.skip

    def run_before_pass(self, graph: Graph, info: PassInfo) -> None:
        self.log.append(f"before {info.name}")

    def run_after_pass(self, graph: Graph, info: PassInfo) -> None:
        assert info.duration_ns > 0
        self.log.append(f"after {info.name} {info.modified}")


def test_watchers_are_told_in_order() -> None:
    log: list[str] = []
    with PassContext(instruments=[Watcher(log)]):
        run_passes(graph(), PASSES)
    assert log == [
        "enter",
        "ask polish-things",
        "before polish-things",
        "after polish-things False",
        "before keep-things",
        "after keep-things False",
        "exit",
    ]


def test_a_watcher_can_leave_a_pass_out_but_not_what_is_required() -> None:
    log: list[str] = []
    for skip, expected in (
        ("polish-things", {"kept"}),
        ("keep-things", {POLISHED, "kept"}),
    ):
        context = PassContext(instruments=[Watcher(log, skip)])
        assert set(run_passes(graph(), PASSES, context).counts) == expected


def test_watchers_that_were_told_are_told_again_where_another_fails() -> None:
    log: list[str] = []
    context = PassContext(instruments=[Watcher(log), Watcher(log, fails=True)])
    with pytest.raises(ValueError, match="not today"), context:
        pass
    assert log == ["enter", "exit"]
    assert PassContext.current() is not context


def test_every_watcher_is_told_of_the_end_where_another_fails() -> None:
    log: list[str] = []
    context = PassContext(instruments=[Watcher(log, fails_at_exit=True), Watcher(log)])
    with pytest.raises(ValueError, match="not at the end"), context:
        pass
    assert log == ["enter", "enter", "exit", "exit"]
    assert PassContext.current() is not context


def test_every_watcher_is_asked_whatever_another_says() -> None:
    log: list[str] = []
    watchers = [Watcher(log, skip="polish-things"), Watcher(log)]
    run_passes(graph(), PASSES, PassContext(instruments=watchers))
    assert log.count("ask polish-things") == 2
    assert "before polish-things" not in log


def test_watchers_are_told_of_the_end_where_the_body_fails() -> None:
    log: list[str] = []
    with pytest.raises(RuntimeError), PassContext(instruments=[Watcher(log)]):
        raise RuntimeError
    assert log == ["enter", "exit"]
    assert PassContext.current().instruments == ()
