"""What surrounds a run of passes: the level, what must and must not run, options, and who watches.

A `PassContext` is entered with `with`; the innermost one that a thread or an asynchronous task has
entered is `PassContext.current()`.  Names of passes and keys of options are checked where a context is
made, against the passes that are registered (`graph_pass.register_pass`).
Not here: what a pass is (`graph_pass`), ready-made watchers (`instruments`).

Source: names and hooks are those of TVM, `python/tvm/ir/{transform,instrument}.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Self, cast, final

from tilewright.base.errors import UserError
from tilewright.base.options import count_option, names_option, text_option, wrong
from tilewright.base.record import record
from tilewright.base.text import did_you_mean
from tilewright.compiler.graph.ir import Graph

OPT_LEVELS: Final = (0, 1, 2, 3)
"""3 is what users of TVM and of C compilers ask for; no pass waits for it, so it is 2."""
DEFAULT_OPT_LEVEL: Final = 2
_BOOLS: Final = {
    **dict.fromkeys(("true", "1", "yes"), True),
    **dict.fromkeys(("false", "0", "no"), False),
}
_READERS: Final[Mapping[type, Callable[[str], object]]] = {
    bool: lambda text: _BOOLS[text.lower()],
    int: int,
    float: float,
}
TEXT_TYPES: Final = (*_READERS, str)
"""Of options that can be given as text, and are shown; others are decisions of a back end."""


@final
@record(kw_only=True)
class PassInfo:
    """What a watcher is told about a pass.

    Attributes:
        name: in kebab-case.
        opt_level: the lowest level at which it runs by default.
        required_because: why it cannot be left out; empty if it can.
        text: the name with the options that are not as usual.
        modified: whether it changed the graph; known after it ran.
        duration_ns: how long it ran; known after it ran.
    """

    name: str
    opt_level: int = 0
    required_because: str = ""
    text: str = ""
    modified: bool = False
    duration_ns: int = 0


class PassInstrument:
    """Watches the passes of a context.  Each hook may raise; none may change the graph.

    The base class watches nothing; a watcher overrides the hooks it needs.
    """

    def enter_pass_ctx(self) -> None:
        """The context is entered."""

    def exit_pass_ctx(self) -> None:
        """The context is left."""

    def should_run(self, graph: Graph, info: PassInfo) -> bool:
        """Whether the pass is to run; not asked for what is required."""
        del graph, info
        return True

    def run_before_pass(self, graph: Graph, info: PassInfo) -> None:
        """The pass is about to run."""

    def run_after_pass(self, graph: Graph, info: PassInfo) -> None:
        """The pass returned."""


@final
@record(kw_only=True)
class PassRow:
    """A registered pass: its name, level, why it cannot be left out, options with their defaults."""

    name: str
    owner: str
    opt_level: int
    required_because: str
    options: Mapping[str, object]


_PASSES: Final[dict[str, PassRow]] = {}


def enter_row(row: PassRow) -> None:
    """Make a pass known by name.  Raises: UserError for a name that another class has."""
    known = _PASSES.setdefault(row.name, row)
    if known.owner != row.owner:
        raise UserError(
            f"two passes are called '{row.name}': '{known.owner}' and '{row.owner}'"
        )


def known_passes() -> Mapping[str, PassRow]:
    """The registered passes by name."""
    return _PASSES


def config_keys() -> dict[str, object]:
    """Every key of `config`, `pass.option`, with its default, in order."""
    return {
        f"{row.name}.{option}": default
        for row in sorted(_PASSES.values(), key=lambda row: row.name)
        for option, default in row.options.items()
        if isinstance(default, TEXT_TYPES)
    }


def pass_name(text: str) -> str:
    """The name of a pass in kebab-case, however it is spelled: `FoldConstants`, `fold_constants`."""
    dashed = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text)
    return dashed.replace("_", "-").lower()


# The contexts that were entered, innermost last: per thread and per asynchronous task.
_ENTERED: Final[ContextVar[tuple[PassContext, ...]]] = ContextVar("passes", default=())


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class PassContext:
    """Which passes run, with which options, and who watches.

    `with PassContext(opt_level=1, disabled_pass=["fold-scales"]): ...` holds for everything that is
    compiled inside, in this thread or asynchronous task.

    Args:
        opt_level: passes of a higher level are left out; 3, TVM's highest, is the same as 2.
        required_pass: names of passes that run whatever the level.
        disabled_pass: names of passes that do not run.
        config: options of passes, by `pass.option`; texts are read as the type of the option.
        instruments: watch every pass, in order.

    Raises: UserError for a level, a pass, a key or a value that there is not; for a pass that is both required
    and disabled; for a disabled pass without which the program would be wrong; for what is no watcher.
    Thread-safety: may be entered by several threads and tasks at once.
    """

    opt_level: int = field(default=DEFAULT_OPT_LEVEL, kw_only=False)
    required_pass: Sequence[str] = ()
    disabled_pass: Sequence[str] = ()
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    instruments: Sequence[PassInstrument] = ()

    def __post_init__(self) -> None:
        check_opt_level(self.opt_level)
        required = known_names("required_pass", self.required_pass)
        disabled = known_names("disabled_pass", self.disabled_pass)
        for name in disabled:
            if name in required:
                raise UserError(f"pass '{name}' is required and disabled")
            reason = _PASSES[name].required_because
            if reason:
                raise UserError(f"pass '{name}' cannot be disabled: {reason}")
        if not isinstance(self.config, Mapping):
            raise wrong("config", self.config, "a mapping from keys to values")
        config = {key: _config_value(key, value) for key, value in self.config.items()}
        for name, value in (
            ("required_pass", required),
            ("disabled_pass", disabled),
            ("config", config),
            ("instruments", _watchers(self.instruments)),
        ):
            object.__setattr__(self, name, value)

    @staticmethod
    def current() -> PassContext:
        """The context that this thread or task entered last; one with defaults if there is none."""
        entered = _ENTERED.get()
        return entered[-1] if entered else PassContext()

    def __enter__(self) -> Self:
        """Enter; a watcher that cannot be told keeps the others from being left half entered."""
        with ExitStack() as undo:
            for instrument in self.instruments:
                instrument.enter_pass_ctx()
                undo.callback(instrument.exit_pass_ctx)
            undo.pop_all()
        _ENTERED.set((*_ENTERED.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        """Leave; every watcher is told, in order, even where one before it fails."""
        _ENTERED.set(_without_last(_ENTERED.get(), self))
        with ExitStack() as stack:
            for instrument in reversed(self.instruments):
                stack.callback(instrument.exit_pass_ctx)

    def runs(self, info: PassInfo, graph: Graph) -> bool:
        """Whether a pass takes part."""
        if info.required_because or info.name in self.required_pass:
            return True
        if info.opt_level > self.opt_level or info.name in self.disabled_pass:
            return False
        # Every watcher is asked, for some of them count.
        answers = [one.should_run(graph, info) for one in self.instruments]
        return all(answers)

    def options_of(self, name: str) -> dict[str, object]:
        """The options of one pass that `config` has."""
        prefix = f"{name}."
        return {
            key.removeprefix(prefix): value
            for key, value in self.config.items()
            if key.startswith(prefix)
        }


def check_opt_level(level: object) -> None:
    """Raise UserError for what is no level of optimization."""
    try:
        count_option("opt_level", level, least=0, most=OPT_LEVELS[-1])
    except UserError as error:
        raise wrong("opt_level", level, "0, 1, 2 or 3") from error


def _without_last(
    entered: tuple[PassContext, ...], left: PassContext
) -> tuple[PassContext, ...]:
    """All but the last place of `left`: generators may leave in another order than they entered."""
    for place in reversed(range(len(entered))):
        if entered[place] is left:
            return (*entered[:place], *entered[place + 1 :])
    return entered


def _watchers(given: object) -> tuple[PassInstrument, ...]:
    """The watchers.  Raises: UserError for what is none."""
    if not isinstance(given, Iterable):
        raise wrong(
            "instruments", given, "a sequence of watchers", f"instruments=[{given!r}]"
        )
    found = tuple(cast("Iterable[object]", given))
    for one in found:
        if not isinstance(one, PassInstrument):
            raise wrong("one of instruments", one, "an object of a class of PassInstrument")
    return cast("tuple[PassInstrument, ...]", found)


def known_names(option: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names as the passes have them, each once.  Raises: UserError for one that there is not."""
    given = names_option(option, names, "names of passes")
    found = tuple(dict.fromkeys(pass_name(name) for name in given))
    for name in found:
        if name not in _PASSES:
            raise _unknown(f"{option}: there is no pass '{name}'", name, _PASSES, "passes")
    return found


def _unknown(message: str, name: str, known: Iterable[str], plural: str) -> UserError:
    """The error for a name that is none of those that there are, which it lists."""
    names = sorted(known)
    near, listed = did_you_mean(name, names), f"{plural}: {', '.join(names)}"
    return UserError(message, hint=f"{near}; {listed}" if near else listed)


def _config_value(key: str, value: object) -> object:
    """The value of a key, of the type that the option has."""
    text_option("a key of config", key, "a text 'pass.option'")
    keys = config_keys()
    if key not in keys:
        raise _unknown(f"config: there is no key '{key}'", key, keys, "keys")
    return parse_option(f"config: '{key}'", value, keys[key])


def parse_option(subject: str, value: object, default: object) -> object:
    """`value` as the type of `default`; text is read.

    Raises: UserError for a value of another type, or text that cannot be read.
    """
    expected = type(default)
    reader = _READERS.get(expected)
    try:
        if isinstance(value, str) and reader is not None:
            return reader(value)
    except (KeyError, ValueError) as error:
        raise UserError(f"{subject} is '{value}', expected {expected.__name__}") from error
    if expected is float and type(value) is int:
        return float(value)
    if expected in TEXT_TYPES and type(value) is not expected:
        raise UserError(f"{subject} is {value!r}, expected {expected.__name__}")
    if isinstance(value, str) and expected not in TEXT_TYPES:
        raise UserError(f"{subject} cannot be given as text")
    return value
