"""What clients ask a server of language models for, checked field by field.

Called by `server`.

Source: OpenAI API reference, Completions and Chat; `top_k`, `min_p`, `repetition_penalty` and `chat_template_kwargs` as
other servers have them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, cast, final

from tilewright.api.language.chat import Message
from tilewright.api.language.json_schemas import ANY_OBJECT, Schema
from tilewright.api.language.sampling import Sampling
from tilewright.base.errors import UserError
from tilewright.base.json_text import read_json

_ROLES: Final = ("system", "user", "assistant", "developer", "tool")
_DEFAULT_TOKENS: Final = 512
_MOST_TOKENS: Final = 1 << 20
_MOST_CHOICES: Final = 128
_MOST_BIASES: Final = 1024
_MOST_LIKELY: Final = 20
_ALL: Final = -1
"""As clients of other servers say `top_k` of all tokens."""
_NEUTRAL: Final[Mapping[str, tuple[Any, ...]]] = {
    "echo": (None, False), "suffix": (None, ""), "functions": (None, []), "function_call": (None, "none", "auto"),
    "modalities": (None, ["text"]),
    "tool_choice": (None, "none", "auto"), "audio": (None,), "web_search_options": (None,), "store": (None, False),
}  # fmt: skip
"""Fields that ask for what there is not, with the values that ask for nothing."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: prompts, or the turns of a conversation.

    Attributes:
        is_chat: whether it is a conversation.
        prompts: texts or tokens to go on with.
        messages: the turns.
        tools: that the assistant may call, as clients describe them.
        takes_tools: whether there are any.
        takes_one_call: of all that an answer calls the first one is meant.
        options: that the chat template may look at.
        count: texts that are wanted for each prompt.
        tokens: of each text, at most.
        likely: most likely tokens that are wanted with each token; None: not even its own probability.
        schema: of JSON, that texts have the form of; None: any text.
    """

    is_chat: bool
    prompts: tuple[str | Sequence[int], ...]
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, object]]
    takes_tools: bool
    takes_one_call: bool
    options: Mapping[str, object]
    count: int
    tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    likely: int | None
    schema: Schema | None
    stream: bool
    wants_usage: bool

    def without_input(self) -> Request:
        """What its answers depend on: not what is read before, which may be large."""
        return replace(self, prompts=(), messages=(), tools=(), options={})


def read_request(body: bytes | bytearray, *, is_chat: bool) -> Request:
    """A request as clients send it.  Raises: UserError naming the field that is wrong."""
    try:
        found = read_json(body)
    except (ValueError, RecursionError) as error:
        raise UserError(f"the request is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UserError("the request is no JSON object")
    fields = cast("Mapping[str, object]", found)
    for name, neutral in _NEUTRAL.items():
        if not _is_one_of(fields.get(name), neutral):
            raise UserError(f"'{name}' is not supported")
    _text(fields, "model")  # there is one, by whatever name
    wanted = _object(fields, "stream_options")
    prompts = () if is_chat else _prompts(fields.get("prompt"))
    tools = _tools(fields, is_chat)
    return Request(
        is_chat=is_chat,
        prompts=prompts,
        messages=_messages(fields.get("messages")) if is_chat else (),
        tools=tools,
        takes_tools=bool(tools),
        takes_one_call=not _flag(fields, "parallel_tool_calls", default=True),
        options=_options(fields),
        count=_count(fields, len(prompts) or 1),
        tokens=_tokens(fields),
        sampling=_sampling(fields),
        stop=_stop(fields.get("stop")),
        likely=_likely(fields, is_chat),
        schema=_schema(fields, has_tools=bool(tools)),
        stream=_flag(fields, "stream"),
        wants_usage=_flag(wanted, "include_usage"),
    )


def _is_one_of(value: object, others: Sequence[object]) -> bool:
    """Whether a value is one of some: of their type, too, for 0 is not `false`."""
    return any(type(value) is type(each) and value == each for each in others)


def _object(fields: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UserError(f"'{name}' is no object")
    return cast("Mapping[str, object]", value)


def _text(fields: Mapping[str, object], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise UserError(f"'{name}' is no text")
    return value


def _options(fields: Mapping[str, object]) -> Mapping[str, object]:
    """What the chat template may look at; templates of models that reason call how long by the name of the field."""
    effort = _text(fields, "reasoning_effort")
    own = {} if effort is None else {"reasoning_effort": effort}
    return {**own, **_object(fields, "chat_template_kwargs")}


def _whole(
    fields: Mapping[str, object], name: str, default: int, least: int, most: int
) -> int:
    value = fields.get(name)
    if value is None:
        return default
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"'{name}' is no whole number from {least} to {most}")
    return value


def _count(fields: Mapping[str, object], prompts: int) -> int:
    count = _whole(fields, "n", 1, 1, _MOST_CHOICES)
    if not _is_one_of(fields.get("best_of"), (None, 1, count)):
        raise UserError("'best_of' is not supported")
    if count * prompts > _MOST_CHOICES:
        raise UserError(f"{count * prompts} texts are asked for, at most {_MOST_CHOICES}")
    return count


def _likely(fields: Mapping[str, object], is_chat: bool) -> int | None:
    """How many likely tokens are wanted: a chat says so in two fields, a completion in one."""
    if is_chat:
        wanted = _flag(fields, "logprobs")
        count = _whole(fields, "top_logprobs", 0, 0, _MOST_LIKELY)
        if count and not wanted:
            raise UserError("'top_logprobs' is for requests with 'logprobs': true")
        return count if wanted else None
    value = fields.get("logprobs")
    if value is None or value is False:
        return None
    return _whole(fields, "logprobs", 0, 0, _MOST_LIKELY)


def _schema(fields: Mapping[str, object], *, has_tools: bool) -> Schema | None:
    """The form of texts, as `response_format` says it."""
    own = _object(fields, "response_format")
    kind = own.get("type", "text")
    if kind == "text":
        return None
    if has_tools:
        raise UserError("'response_format' is not supported beside 'tools'")
    if kind == "json_object":
        return ANY_OBJECT
    if kind != "json_schema":
        words = "text json_object json_schema"
        raise UserError(f"'response_format.type' is {kind!r:.80}, expected {words}")
    told = _object(own, "json_schema")
    schema = told.get("schema")
    if not isinstance(schema, dict):
        raise UserError("'response_format.json_schema.schema' is no object")
    return cast("Schema", schema)


def _tools(fields: Mapping[str, object], is_chat: bool) -> Sequence[Mapping[str, object]]:
    value = fields.get("tools")
    if value is None:
        return ()
    if not isinstance(value, list):
        raise UserError("'tools' is no list")
    if not value or fields.get("tool_choice") == "none":
        return ()
    if not is_chat:
        raise UserError("'tools' is not supported here: only by chats")
    return [_tool(tool, at) for at, tool in enumerate(cast("list[object]", value))]


def _tool(value: object, at: int) -> Mapping[str, object]:
    tool = cast("Mapping[str, object]", value) if isinstance(value, dict) else {}
    function = tool.get("function")
    own = cast("Mapping[str, object]", function) if isinstance(function, dict) else {}
    if tool.get("type") != "function" or not isinstance(own.get("name"), str):
        raise UserError(f"'tools[{at}]' is no function with a name")
    return tool


def _prompts(value: object) -> tuple[str | Sequence[int], ...]:
    found = cast("list[object]", value) if isinstance(value, list) else []
    if not found or type(found[0]) is int:
        return (_prompt(value),)
    return tuple(_prompt(each) for each in found)


def _prompt(value: object) -> str | Sequence[int]:
    if isinstance(value, str):
        return value
    found = cast("list[object]", value) if isinstance(value, list) else []
    if found and all(type(token) is int for token in found):
        return cast("list[int]", found)
    raise UserError("'prompt' is no text and no list of tokens, nor a list of those")


def _messages(value: object) -> Sequence[Message]:
    if not isinstance(value, list) or not value:
        raise UserError("'messages' is no list of turns")
    return [_message(turn, at) for at, turn in enumerate(cast("list[object]", value))]


def _message(turn: object, at: int) -> Message:
    fields = cast("Mapping[str, object]", turn) if isinstance(turn, dict) else {}
    role, content, calls = (fields.get(n) for n in ("role", "content", "tool_calls"))
    if role not in _ROLES:
        raise UserError(
            f"'messages[{at}].role' is {role!r:.80}, expected one of {' '.join(_ROLES)}"
        )
    called = _calls(calls, f"messages[{at}].tool_calls")
    text = "" if content is None and called else _content(content, at)
    found: Message = {"role": cast("str", role), "content": text}
    if called:
        found["tool_calls"] = called
    for name in ("name", "tool_call_id"):
        value = fields.get(name)
        if value is not None and not isinstance(value, str):
            raise UserError(f"'messages[{at}].{name}' is no text")
        if isinstance(value, str):
            found[name] = value
    return found


def _calls(value: object, name: str) -> list[Mapping[str, object]]:
    """What an assistant called; templates want arguments as values, clients send them as JSON."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise UserError(f"'{name}' is no list")
    found: list[Mapping[str, object]] = []
    for each in cast("list[object]", value):
        call = cast("Mapping[str, object]", each) if isinstance(each, dict) else {}
        function = call.get("function")
        own = cast("Mapping[str, object]", function) if isinstance(function, dict) else {}
        arguments = own.get("arguments", "{}")
        try:
            values = json.loads(arguments) if isinstance(arguments, str) else arguments
        except (ValueError, RecursionError) as error:
            raise UserError(f"'{name}' has arguments that are no JSON") from error
        if not isinstance(own.get("name"), str):
            raise UserError(f"'{name}' has one that is no function with a name")
        found.append({**call, "function": {**own, "arguments": values}})
    return found


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
    for name in ("presence_penalty", "frequency_penalty"):
        if not -2 <= _number(fields, name, 0.0) <= 2:
            raise UserError(f"'{name}' is {fields[name]}, expected -2 to 2")
    return Sampling(
        temperature=_number(fields, "temperature", 1.0),
        top_p=_number(fields, "top_p", 1.0),
        top_k=0 if top_k == _ALL else cast("int", top_k or 0),
        min_p=_number(fields, "min_p", 0.0),
        # Every whole number is a seed for clients; those below 0 are those of a word of 64 bits.
        seed=None if seed is None else cast("int", seed) % (1 << 64),
        repetition_penalty=_number(fields, "repetition_penalty", 1.0),
        presence_penalty=_number(fields, "presence_penalty", 0.0),
        frequency_penalty=_number(fields, "frequency_penalty", 0.0),
        logit_bias=_biases(fields.get("logit_bias")),
    )


def _biases(value: object) -> Mapping[int, float]:
    """What is added to the scores of tokens, which JSON names by texts."""
    if value is None:
        return {}
    fields = cast("Mapping[str, object]", value) if isinstance(value, dict) else {"": None}
    if len(fields) > _MOST_BIASES:
        raise UserError(f"'logit_bias' names more than {_MOST_BIASES} tokens")
    found: dict[int, float] = {}
    for name in fields:
        bias = _number(fields, name, math.nan)
        if not (
            name.isascii() and name.isdigit() and len(name) < 10 and -100 <= bias <= 100
        ):
            raise UserError("'logit_bias' gives no tokens numbers from -100 to 100")
        found[int(name)] = bias
    return found


def _number(fields: Mapping[str, object], name: str, default: float) -> float:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"'{name}' is no number")
    try:
        return float(value)
    except OverflowError as error:
        raise UserError(f"'{name}' is no number that a machine has") from error


def _stop(value: object) -> tuple[str, ...]:
    found = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(found, list):
        raise UserError("'stop' is no text and no list of texts")
    texts = cast("list[object]", found)
    if len(texts) > 16 or not all(isinstance(text, str) for text in texts):
        raise UserError("'stop' is no text and no list of up to 16 texts")
    return tuple(cast("list[str]", texts))


def _flag(fields: Mapping[str, object], name: str, *, default: bool = False) -> bool:
    value = fields.get(name)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise UserError(f"'{name}' is neither true nor false")
    return value
