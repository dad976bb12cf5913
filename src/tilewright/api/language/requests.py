"""What clients ask a server of language models for, checked field by field.

Called by `server`.

Source: OpenAI API reference, Completions and Chat; `top_k` and `min_p` as other servers have them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast, final

from tilewright.api.language.chat import Message
from tilewright.api.language.sampling import Sampling
from tilewright.base.errors import UserError

_ROLES: Final = ("system", "user", "assistant", "developer", "tool")
_DEFAULT_TOKENS: Final = 512
_MOST_TOKENS: Final = 1 << 20
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (None, 1), "best_of": (None, 1), "echo": (None, False), "logprobs": (None, False, 0),
    "suffix": (None, ""), "tools": (None, []), "functions": (None, []), "logit_bias": (None, {}),
    "presence_penalty": (None, 0), "frequency_penalty": (None, 0), "top_logprobs": (None, 0),
    "response_format": (None, {"type": "text"}), "modalities": (None, ["text"]),
    "tool_choice": (None, "none", "auto"),
}  # fmt: skip
"""Fields that ask for what there is not, with the values that ask for nothing."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: a prompt, or the turns of a conversation."""

    is_chat: bool
    prompt: str | Sequence[int]
    messages: Sequence[Message]
    tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    stream: bool
    wants_usage: bool


def read_request(body: bytes, *, is_chat: bool) -> Request:
    """A request as clients send it.  Raises: UserError naming the field that is wrong."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the request is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UserError("the request is no JSON object")
    fields = cast("Mapping[str, object]", found)
    for name, neutral in _NEUTRAL.items():
        if fields.get(name) not in neutral:
            raise UserError(f"'{name}' is not supported")
    options = fields.get("stream_options")
    wanted = cast("Mapping[str, object]", options) if isinstance(options, dict) else {}
    return Request(
        is_chat=is_chat,
        prompt="" if is_chat else _prompt(fields.get("prompt")),
        messages=_messages(fields.get("messages")) if is_chat else (),
        tokens=_tokens(fields),
        sampling=_sampling(fields),
        stop=_stop(fields.get("stop")),
        stream=_flag(fields, "stream"),
        wants_usage=_flag(wanted, "include_usage"),
    )


def _prompt(value: object) -> str | Sequence[int]:
    if isinstance(value, str):
        return value
    found = cast("list[object]", value) if isinstance(value, list) else []
    if len(found) == 1 and isinstance(found[0], str):
        return found[0]
    if found and all(type(token) is int for token in found):
        return cast("list[int]", found)
    raise UserError("'prompt' is no text and no list of tokens")


def _messages(value: object) -> Sequence[Message]:
    if not isinstance(value, list) or not value:
        raise UserError("'messages' is no list of turns")
    return [_message(turn, at) for at, turn in enumerate(cast("list[object]", value))]


def _message(turn: object, at: int) -> Message:
    fields = cast("Mapping[str, object]", turn) if isinstance(turn, dict) else {}
    role, content = fields.get("role"), fields.get("content")
    if role not in _ROLES:
        raise UserError(
            f"'messages[{at}].role' is {role!r}, expected one of {' '.join(_ROLES)}"
        )
    return {"role": cast("str", role), "content": _content(content, at)}


def _content(value: object, at: int) -> str:
    """A text, or parts of one."""
    if isinstance(value, str):
        return value
    parts: list[str] = []
    for part in cast("list[object]", value) if isinstance(value, list) else [None]:
        fields = cast("Mapping[str, object]", part) if isinstance(part, dict) else {}
        text = fields.get("text")
        if fields.get("type") != "text" or not isinstance(text, str):
            raise UserError(f"'messages[{at}].content' is no text")
        parts.append(text)
    return "".join(parts)


def _tokens(fields: Mapping[str, object]) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        value = fields.get(name)
        if value is not None:
            if type(value) is not int or not 0 <= value <= _MOST_TOKENS:
                raise UserError(f"'{name}' is no number of tokens")
            return value
    return _DEFAULT_TOKENS


def _sampling(fields: Mapping[str, object]) -> Sampling:
    seed, top_k = fields.get("seed"), fields.get("top_k")
    for name, value in (("seed", seed), ("top_k", top_k)):
        if value is not None and type(value) is not int:
            raise UserError(f"'{name}' is no whole number")
    return Sampling(
        temperature=_number(fields, "temperature", 1.0),
        top_p=_number(fields, "top_p", 1.0),
        top_k=cast("int", top_k or 0),
        min_p=_number(fields, "min_p", 0.0),
        seed=cast("int | None", seed),
    )


def _number(fields: Mapping[str, object], name: str, default: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"'{name}' is no number")
    return float(value)


def _stop(value: object) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else value or []
    if not isinstance(found, list):
        raise UserError("'stop' is no text and no list of texts")
    texts = cast("list[object]", found)
    if len(texts) > 16 or not all(isinstance(text, str) for text in texts):
        raise UserError("'stop' is no text and no list of up to 16 texts")
    return tuple(cast("list[str]", texts))


def _flag(fields: Mapping[str, object], name: str) -> bool:
    value = fields.get(name)
    if value not in (None, True, False):
        raise UserError(f"'{name}' is neither true nor false")
    return bool(value)
