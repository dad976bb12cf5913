"""What torch asked of sizes while it traced a program or took it apart, and what it was answered.

A branch is decided by the example, so its condition has to hold in every call: a branch of the module, of a function of
torch that is written in others, of a decomposition.  A guard of torch is not enough to know: it names no operator, and a
question that an earlier guard answers leaves none.  Not what an operator asks that stays whole, or that runs only to tell
types: our rows infer shapes by themselves.  Called by `load`.

Source: `torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_expr`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Generator, Iterable
from types import FrameType
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
import tilewright.compiler.frontends.torch.layout_questions as layout_questions
import tilewright.compiler.frontends.torch.substitutes as substitutes
import tilewright.compiler.frontends.torch.table as table
from tilewright.compiler.frontends.torch.guards import (
    COMPOSITES,
    LAYOUTS,
    SHAPES,
    TRUTHS,
    is_on_the_way,
    is_within_torch,
)
from tilewright.compiler.frontends.torch.sizes import environment_of
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing
from tilewright.compiler.frontends.torch.view_choices import Choice, conditions_of

Condition = Any
"""Something that holds of sizes, as an expression of SymPy."""


@final
class Questions:
    """What this thread's traces asked, and the range that each size had before anything was asked.

    Attributes:
        are_of_operators: whether only operators ask: a program that is taken apart asks its own guards once more.
        choices: the choices between a view and a copy that matter, for the program writes in place.
    """

    def __init__(self) -> None:
        self.are_of_operators: bool = False
        self.choices: tuple[Choice, ...] = ()
        self._asked: list[tuple[Any, Condition, bool]] = []
        self._ranges: dict[tuple[Any, Any], Any] = {}

    def add(self, environment: Any, holds: Condition, *, chooses: bool) -> None:
        """Note an answer.

        Args:
            environment: of the trace.
            holds: what was answered.
            chooses: whether it decided what was traced, not only which results are views.
        """
        if chooses or not _is_of_few(holds):
            self._asked.append((environment, holds, chooses))

    def begin(self, environment: Any, symbol: Any) -> None:
        """Note the range of a new size."""
        bounds = environment.var_to_range.get(symbol)
        self._ranges.setdefault((environment, symbol), bounds)

    def branches(self, exported: Any) -> tuple[Condition, ...]:
        """What calls of a program must keep so that it is the same operators."""
        return self._of_sizes(exported, self._answers(exported, chooses=True))

    def copies(self, exported: Any) -> tuple[Condition, ...]:
        """What calls must keep so that views are views and copies are copies, where that matters."""
        if not self.choices:
            return ()
        answers = self._answers(exported, chooses=False)
        return self._of_sizes(exported, (*answers, *conditions_of(self.choices)))

    def _answers(self, exported: Any, *, chooses: bool) -> list[Condition]:
        environment = environment_of(exported.graph.nodes)
        return [
            environment.replace(holds)
            for asked_of, holds, chosen in self._asked
            if asked_of is environment and chosen == chooses
        ]

    def _of_sizes(
        self, exported: Any, conditions: Iterable[Condition]
    ) -> tuple[Condition, ...]:
        """Those about sizes that calls decide, each once."""
        environment = environment_of(exported.graph.nodes)
        if environment is None:
            return ()
        given = {
            symbol
            for value in _given(exported)
            for size in (*getattr(value, "shape", ()), value)
            if hasattr(size, "node")
            for symbol in environment.replace(size.node.expr).free_symbols
        }
        found: dict[Condition, None] = {}
        for holds in conditions:
            if holds.free_symbols and holds.free_symbols <= given:
                found[holds] = None
        return tuple(found)

    def ranges(self, exported: Any) -> dict[Any, Any]:
        """The ranges that calls of a program are held to, without what torch concluded from its own questions.

        Torch traces a size of an input that nothing limits as at least 2, and lets calls have 0 and 1.  Where it
        concluded that a size is one number, its core may have put that number into the program.
        """
        known, found = environment_of(exported.graph.nodes), dict[Any, Any]()
        for symbol, bounds in exported.range_constraints.items():
            if bounds.lower == bounds.upper:
                found[symbol] = bounds
                continue
            first = self._ranges.get((known, symbol)) or bounds
            low, high = min(bounds.lower, first.lower), max(bounds.upper, first.upper)
            is_traced = low == 2 and not str(symbol).startswith("u")
            found[symbol] = type(bounds)(0 if is_traced else low, high)
        return found


def _given(exported: Any) -> Generator[Any]:
    """What the user gives a program, as torch traced it."""
    kinds = {spec.arg.name: spec.kind.name for spec in exported.graph_signature.input_specs}
    for node in exported.graph.nodes:
        if node.op == "placeholder" and kinds.get(node.name) == "USER_INPUT":
            yield node.meta.get("val")


@final
class _Own(threading.local):
    """Of a thread.

    Attributes:
        noted: where its questions are noted.
    """

    noted: Questions | None = None


_OWN: Final = _Own()


@contextlib.contextmanager
def asked() -> Generator[Questions]:
    """While in this context, what this thread's traces ask of sizes is noted."""
    before, _OWN.noted = _OWN.noted, Questions()
    try:
        with _ANSWERS.used(), _SYMBOLS.used():
            yield _OWN.noted
    finally:
        _OWN.noted = before


def _noting_answers(original: Callable[..., Any], tracing: Tracing) -> Callable[..., Any]:
    @functools.wraps(original)
    def answer(
        self: Any, node: Any, size_oblivious: bool = False, fallback_value: Any = None
    ) -> Any:
        found = original(self, node, size_oblivious, fallback_value)
        noted = _OWN.noted if tracing.depth else None
        # Code that says what holds where nobody knows is right for all sizes there.
        is_safe = fallback_value is not None and bool(found) == fallback_value
        if noted is None or is_safe or not node.expr.free_symbols:
            return found
        holds = _what_holds(node.expr, found)
        chooses = _chooses(holds, _caller(), noted.are_of_operators)
        noted.add(self, holds, chooses=chooses)
        return found

    return answer


def _what_holds(expression: Any, answer: Any) -> Condition:
    """What an answer says: that a condition holds or does not, or what a number is."""
    sympy: Any = border.load("sympy")
    if not isinstance(expression, sympy.logic.boolalg.Boolean):
        return sympy.Eq(expression, answer)
    return expression if answer else sympy.to_nnf(sympy.Not(expression), simplify=False)


def _caller() -> FrameType | None:
    """The frame that asks, behind that of the substitute."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame


def _noting_ranges(original: Callable[..., Any], tracing: Tracing) -> Callable[..., Any]:
    @functools.wraps(original)
    def create(self: Any, *args: Any, **kwargs: Any) -> Any:
        symbol = original(self, *args, **kwargs)
        if tracing.depth and _OWN.noted is not None:
            _OWN.noted.begin(self, symbol)
        return symbol

    return create


def _kind() -> Any:
    return border.load("torch.fx.experimental.symbolic_shapes").ShapeEnv


_ANSWERS: Final = Substitute(_kind, "evaluate_sym_node", _noting_answers)
_SYMBOLS: Final = Substitute(_kind, "create_symbol", _noting_ranges)


def _chooses(asked: Condition, frame: FrameType | None, are_of_operators: bool) -> bool:
    """Whether what is asked decides which operators are traced.

    Args:
        asked: what holds.
        frame: who asks.
        are_of_operators: only what operators ask does.
    """
    asker, operator, is_python, is_put = "", "", False, False
    while frame is not None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if _tells_types(file, name):
            return False
        if not asker:
            is_python = is_python or _is_python(file, name)
            is_put = is_put or file == layout_questions.__file__
            is_passed = _is_passed(file, name, is_put=is_put)
            asker = "" if is_passed else file
        if not operator and is_within_torch(file, _CALLS):
            held = frame.f_locals.get("self")
            operator = str(held) if border.is_instance(held, "_ops.OpOverload") else ""
        frame = frame.f_back
    if not is_python and _is_of_layout(asked):
        return False
    if operator:
        return operator not in table.names() and not is_within_torch(asker, *LAYOUTS)
    return not are_of_operators and not is_within_torch(asker, *LAYOUTS, *COMPOSITES)


def _tells_types(file: str, name: str) -> bool:
    """Whether what runs in a frame only finds out which types results have, whoever runs it."""
    is_dispatched = name == "dispatch" and is_within_torch(file, _ABSTRACT)
    return is_dispatched or is_within_torch(file, _TYPES)


def _is_passed(file: str, name: str, *, is_put: bool) -> bool:
    """Whether a frame hands on what another asks; behind a function of ours, modes of torch do."""
    if is_put and (file in _OURS or name == "__torch_function__"):
        return True
    return is_on_the_way(file)


def _is_python(file: str, name: str) -> bool:
    """Whether code in Python asks: operators written in C++ ask without its truth values."""
    is_helper = name.startswith("guard_") and is_within_torch(file, SHAPES)
    return is_helper or is_within_torch(file, TRUTHS)


def _is_of_layout(asked: Condition) -> bool:
    """Whether it says that a size is not 0 or 1, which C++ asks to know how elements lie."""
    return type(asked).__name__ == "Unequality" and not {0, 1}.isdisjoint(asked.args)


def _is_of_few(asked: Condition) -> bool:
    """Whether it only says of a size that it is neither 0 nor 1: of no element views are like copies, of one there are checks."""
    sympy: Any = border.load("sympy")
    if not isinstance(asked, sympy.Rel):
        return False
    if isinstance(asked, sympy.Eq):
        larger = border.load("torch.utils._sympy.functions").Max
        first, second = asked.args
        return any(large == larger(1, n) for large, n in ((first, second), (second, first)))
    is_least = isinstance(asked, sympy.Ge | sympy.Gt) and asked.rhs in (0, 1, 2)
    return _is_of_layout(asked) or (
        is_least and asked.rhs + isinstance(asked, sympy.Gt) <= 2
    )


_OURS: Final = (layout_questions.__file__, substitutes.__file__)
_ABSTRACT: Final = ("_subclasses", "fake_tensor.py")
_TYPES: Final = ("_meta_registrations.py",)
_CALLS: Final = ("_ops.py",)
