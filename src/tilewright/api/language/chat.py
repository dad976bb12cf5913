"""Conversations as text: the template that a model's file brings along, rendered in a sandbox.

Templates are programs of strangers: they see messages and nothing else, cannot change what they are given, and
run in a process of their own whose time and memory are limited (`template_worker`).  Called by `language_model`.

Source: Hugging Face, `apply_chat_template`, for what templates may use.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NotRequired, TypedDict, cast

from tilewright.base.errors import ModelError, UserError
from tilewright.base.host_thread import room_hint
from tilewright.base.options import wrong

_EXTRA: Final = "pip install 'tilewright[chat]'"
_EXAMPLE: Final = "messages=[{'role': 'user', 'content': 'Hello'}]"
_MODULE: Final = "tilewright.api.language.template_worker"
_SECONDS: Final = 10
_PATIENCE_SECONDS: Final = 60
"""That a template may take: of the processor, and by the clock."""


class Message(TypedDict):
    """One turn of a conversation: `role` is `system`, `user`, `assistant`, or `tool` for what a tool gave.

    `tool_calls` are those of an assistant, with their arguments as values; `tool_call_id` and `name` say whose result a
    tool's turn is.
    """

    role: str
    content: str
    tool_calls: NotRequired[list[Mapping[str, object]]]
    tool_call_id: NotRequired[str]
    name: NotRequired[str]


def render(
    template: str,
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, object]] = (),
    options: Mapping[str, object] | None = None,
    tokens: Mapping[str, str],
    location: str,
) -> str:
    """The text of a conversation, up to where the assistant's turn begins.

    Args:
        template: of the model's file.
        messages: the turns so far.
        tools: what the assistant may call; templates see None where there are none.
        options: further names of the template, such as `enable_thinking`; none of those that are here.
        tokens: texts of `bos_token` and `eos_token`.
        location: how errors call the file.

    Raises: UserError where jinja2 is not installed, or the template refuses the messages or takes too much time or
        memory; ModelError for a template that is none.
    """
    _check_turns(messages)
    if importlib.util.find_spec("jinja2") is None:
        raise UserError("chat templates need the package jinja2", hint=_EXTRA)
    values = {
        **(options or {}),
        "messages": messages,
        "tools": tools or None,
        "add_generation_prompt": True,
        **tokens,
    }
    try:
        asked = json.dumps(
            {"template": template, "values": values, "seconds": _SECONDS}
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"the messages are no data: {error}") from error
    outcome, text = _answer(asked, location)
    if outcome == "broken":
        raise ModelError(f"the chat template is broken: {text}", location=location)
    if outcome != "text":
        raise UserError(f"the chat template refuses this: {text}", location=location)
    return text


def _check_turns(messages: object) -> None:
    """Refuse what is no list of turns: a template would make a text of whatever it is."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise wrong("messages", messages, "a list of turns", _EXAMPLE)
    for at, turn in enumerate(cast("Sequence[object]", messages)):
        fields = cast("Mapping[object, object]", turn) if isinstance(turn, Mapping) else {}
        role, content, calls = (fields.get(n) for n in ("role", "content", "tool_calls"))
        # Parts of a text are for the template to join.
        is_content = isinstance(content, (str, list)) or (content is None and bool(calls))
        if not (isinstance(role, str) and is_content):
            raise wrong(f"messages[{at}]", turn, "a role and a content", _EXAMPLE)


def _answer(asked: bytes, location: str) -> tuple[str, str]:
    """What the worker says to a request, or what became of it."""
    roots = [entry for entry in sys.path if entry]
    roots.insert(0, str(Path(__file__).resolve().parents[3]))
    code = f"import sys; sys.path[:] = {roots!r}; from {_MODULE} import main; main()"
    try:
        found = subprocess.run(
            # -P: a file of the current folder that is called as a module of Python's is none.
            [sys.executable, "-P", "-c", code],
            input=asked, capture_output=True, timeout=_PATIENCE_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "refused", f"it takes more than {_PATIENCE_SECONDS} seconds"
    except OSError as error:
        raise UserError(
            f"no process for the chat template can be started: {error}",
            location=location,
            hint=room_hint(error),
        ) from error
    if found.returncode < 0:
        return "refused", "it takes too much time or memory"
    if found.returncode:
        lines = found.stderr.decode(errors="replace").strip().splitlines()
        return "refused", lines[-1][:1000] if lines else "its process failed"
    outcome, text = json.loads(found.stdout)
    return outcome, text
