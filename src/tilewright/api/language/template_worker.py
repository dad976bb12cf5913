"""A process that renders one template of a stranger and ends: a template is a program, and may run for ever.

    input: JSON {template, values, seconds}
    output: JSON [outcome, text]; outcome: "text", "broken" (no template), "refused" (it does not take the values)

Nothing but jinja2's sandbox stands between a template and this process, which therefore has nothing: its memory and time
are limited by the system (on Windows the time alone, by who started it), and it talks to nobody.  Started by `chat`.

Source: Hugging Face, `apply_chat_template`, for what templates may use.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import json
import sys
from collections.abc import Mapping
from typing import Any, Final

_MOST_BYTES: Final = 1 << 30
_MOST_CHARACTERS: Final = 64 << 20
_RAISED: Final = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError,
)  # fmt: skip
"""What expressions of a template may raise."""


def main() -> None:
    """Render what the input says."""
    given = json.load(sys.stdin.buffer)
    _limit(given["seconds"])
    outcome = render(given["template"], given["values"])
    sys.stdout.write(json.dumps(outcome))


def _limit(seconds: int) -> None:
    try:
        resource: Any = importlib.import_module("resource")
    except ImportError:  # of systems without; who started this ends it by the clock
        return
    for limit, most in (
        (resource.RLIMIT_AS, _MOST_BYTES),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):  # of limits that are lower already
            resource.setrlimit(limit, (most, most))


def render(template: str, values: Mapping[str, object]) -> tuple[str, str]:
    """The outcome of a template, and its text or what is wrong with it."""
    sandbox: Any = importlib.import_module("jinja2.sandbox")
    problems: Any = importlib.import_module("jinja2.exceptions")
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _said()],
    )
    environment.filters["tojson"] = _json
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _now
    try:
        text = str(environment.from_string(template).render(**values))
    except problems.TemplateSyntaxError as error:
        return "broken", str(error)
    except MemoryError:
        return "refused", "it takes too much memory"
    except (problems.TemplateError, *_RAISED) as error:
        return "refused", str(error)[:1000]
    if len(text) > _MOST_CHARACTERS:
        return "refused", f"it makes a text of {len(text)} characters"
    return "text", text


def _said() -> type:
    """The blocks `generation`, in which training finds what the assistant said: what is inside."""
    extensions: Any = importlib.import_module("jinja2.ext")

    def parse(_: object, parser: Any) -> object:
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)

    return type("Said", (extensions.Extension,), {"tags": {"generation"}, "parse": parse})


def _json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers have it: text is not escaped for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _refuse(text: str) -> None:
    raise ValueError(text)


def _now(form: str) -> str:
    """Today, as a template writes it."""
    return datetime.datetime.now().astimezone().strftime(form)


if __name__ == "__main__":
    main()
