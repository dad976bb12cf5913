"""Conversations as text: the template that a model's file brings along, rendered in a sandbox.

Templates are programs of strangers: they see messages and nothing else, cannot change what they are given, and
loops over made-up ranges are bounded.  Called by `language_model`.

Source: Hugging Face, `apply_chat_template`, for what templates may use.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict, cast

from tilewright.base.errors import ModelError, UserError

_RAISED: Final = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""What expressions of a template may raise."""
_EXTRA: Final = "pip install 'tilewright[chat]'"


class Message(TypedDict):
    """One turn of a conversation: `role` is `system`, `user` or `assistant`."""

    role: str
    content: str


def render(
    template: str,
    messages: Sequence[Message],
    *,
    tokens: Mapping[str, str],
    location: str,
) -> str:
    """The text of a conversation, up to where the assistant's turn begins.

    Args:
        template: of the model's file.
        messages: the turns so far.
        tokens: texts of `bos_token` and `eos_token`.
        location: how errors call the file.

    Raises: UserError where jinja2 is not installed, or the template refuses the messages; ModelError for a template that
        is none.
    """
    try:
        sandbox = importlib.import_module("jinja2.sandbox")
        problems = importlib.import_module("jinja2.exceptions")
    except ImportError as error:
        raise UserError("chat templates need the package jinja2", hint=_EXTRA) from error
    environment = cast("Any", sandbox).ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = json.dumps
    environment.globals["raise_exception"] = _refuse
    try:
        made = environment.from_string(template)
        return str(
            made.render(messages=list(messages), add_generation_prompt=True, **tokens)
        )
    except problems.TemplateSyntaxError as error:
        raise ModelError(
            f"the chat template is broken: {error}", location=location
        ) from error
    except (problems.TemplateError, *_RAISED) as error:
        raise UserError(
            f"the chat template refuses this: {error}", location=location
        ) from error


def _refuse(text: str) -> None:
    raise ValueError(text)
