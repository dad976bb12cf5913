"""What answers of a server of language models look like, whole and in parts.

Called by `server`.

Source: OpenAI API reference, Completions and Chat.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, final

from tilewright.api.language.language_model import Text
from tilewright.api.language.requests import Request
from tilewright.api.language.token_scores import TokenScore
from tilewright.api.language.tokenizer import Tokenizer
from tilewright.api.language.tool_calls import ToolCall

Answer = dict[str, Any]

_TOOL_CALLS: Final = "tool_calls"


def usage(texts: Sequence[Text], prompts: int) -> Answer:
    """The counts of tokens that answers state.

    Args:
        texts: all that were made, those of one prompt one after the other.
        prompts: how many there were.
    """
    first = texts[:: len(texts) // prompts]
    read = sum(text.timing.prompt_tokens for text in first)
    made = sum(text.timing.new_tokens for text in texts)
    return {
        "prompt_tokens": read,
        "completion_tokens": made,
        "total_tokens": read + made,
        "prompt_tokens_details": {
            "cached_tokens": sum(text.timing.reused_tokens for text in first)
        },
    }


def error(message: str, kind: str) -> Answer:
    """What says that something is wrong."""
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


@final
class Answers:
    """The answers to one request.

    Args:
        request: what was asked for.
        model: the name of who speaks.
        tokenizer: that of the model.
    """

    def __init__(self, request: Request, model: str, tokenizer: Tokenizer) -> None:
        self.request: Request = request
        self._tokenizer: Tokenizer = tokenizer
        prefix = "chatcmpl" if request.is_chat else "cmpl"
        self._id: str = f"{prefix}-{uuid.uuid4().hex[:24]}"
        self._created: int = int(time.time())
        self._model: str = model

    def head(self, *, is_whole: bool = False) -> Answer:
        """What every answer begins with."""
        kind = "text_completion"
        if self.request.is_chat:
            kind = "chat.completion" if is_whole else "chat.completion.chunk"
        found: Answer = {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": self._model,
        }
        if self.request.wants_usage and not is_whole:
            found["usage"] = None  # until the last event
        return found

    def whole(
        self, index: int, content: str, text: Text, calls: Sequence[ToolCall]
    ) -> Answer:
        """One text in one."""
        choice: Answer = {
            "index": index,
            "finish_reason": _TOOL_CALLS if calls else text.timing.reason,
            "logprobs": self._scores(text.scores),
        }
        if not self.request.is_chat:
            return choice | {"text": content}
        message: Answer = {"role": "assistant", "content": content}
        if calls:
            message["content"] = content.strip() or None
            message[_TOOL_CALLS] = [_call(call) for call in calls]
        return choice | {"message": message}

    def part(self, index: int, content: str, scores: Iterable[TokenScore]) -> Answer:
        """One event of a text in parts: more of it."""
        if self.request.is_chat:
            return self._event(index, {"delta": {"content": content}}, scores)
        return self._event(index, {"text": content}, scores)

    def first(self, index: int) -> Answer:
        """The event that says that a text begins."""
        if self.request.is_chat:
            return self._event(index, {"delta": {"role": "assistant", "content": ""}})
        return self._event(index, {"text": ""})

    def calls(self, index: int, calls: Sequence[ToolCall]) -> Answer:
        """The event that says what is called."""
        found = [{"index": at, **_call(call)} for at, call in enumerate(calls)]
        return self._event(index, {"delta": {_TOOL_CALLS: found}})

    def last(self, index: int, text: Text, *, has_calls: bool) -> Answer:
        """The event that says why a text ended."""
        found = self._event(index, {"delta": {}} if self.request.is_chat else {"text": ""})
        reason = _TOOL_CALLS if has_calls else text.timing.reason
        found["choices"][0]["finish_reason"] = reason
        return found

    def _event(
        self, index: int, content: Answer, scores: Iterable[TokenScore] = ()
    ) -> Answer:
        held = list(scores)
        choice: Answer = {
            "index": index,
            "finish_reason": None,
            "logprobs": self._scores(held) if held else None,
        }
        return {**self.head(), "choices": [choice | content]}

    # --- how likely tokens were

    def _scores(self, scores: Sequence[TokenScore]) -> Answer | None:
        likely = self.request.likely
        if likely is None:
            return None
        if self.request.is_chat:
            return {"content": [self._chat_score(each) for each in scores], "refusal": None}
        return {
            "tokens": [self._label(each.token) for each in scores],
            "token_logprobs": [each.logprob for each in scores],
            "top_logprobs": [self._table(each) for each in scores] if likely else None,
            "text_offset": [each.start for each in scores],
        }

    def _chat_score(self, score: TokenScore) -> Answer:
        own = self._with_bytes(score.token, score.logprob)
        return {**own, "top_logprobs": [self._with_bytes(t, p) for t, p in score.likely]}

    def _with_bytes(self, token: int, logprob: float) -> Answer:
        raw = self._tokenizer.piece(token, special=True)
        text = raw.decode("utf-8", "replace")
        return {"token": text, "logprob": logprob, "bytes": list(raw)}

    def _table(self, score: TokenScore) -> Mapping[str, float]:
        """The likely tokens and the one that was drawn; of two with one text the likelier counts."""
        found: dict[str, float] = {}
        for token, logprob in (*score.likely, (score.token, score.logprob)):
            found.setdefault(self._label(token), logprob)
        return found

    def _label(self, token: int) -> str:
        """The text of a token, or its bytes where they are none."""
        raw = self._tokenizer.piece(token, special=True)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _call(call: ToolCall) -> Answer:
    return {
        "id": f"call_{uuid.uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }
