from __future__ import annotations

import pytest

from tilewright.api.language.tool_calls import ToolCall, ToolReader

CALL = '<tool_call>\n{"name": "f", "arguments": {"x": "ä"}}\n</tool_call>'


def _read(text: str, size: int) -> tuple[str, list[ToolCall]]:
    reader = ToolReader()
    said = "".join(reader.add(text[at : at + size]) for at in range(0, len(text), size))
    return said + reader.finish(), reader.calls


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_calls_are_taken_out_of_the_text_however_it_comes(size: int) -> None:
    said, calls = _read(f"Well. {CALL}\n{CALL} Done <b>", size)
    assert said == "Well. \n Done <b>"
    assert calls == [ToolCall("f", '{"x": "ä"}')] * 2


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "<tool_call> no JSON </tool_call> and on",
        "<tool_call>[1]</tool_call>",
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f", "arguments": "x"}</tool_call>',
        '<tool_call>{"name": "f"',
        "<tool_",
        "<tool_call>" + "[" * 100_000 + "</tool_call>",
    ],
)
def test_what_is_no_call_stays_text(text: str, size: int) -> None:
    if len(text) > 1000 and size == 1:
        size = 1000
    assert _read(text, size) == (text, [])


def test_what_is_said_before_a_call_does_not_wait_for_it() -> None:
    reader = ToolReader()
    assert reader.add("So: <tool") == "So: "
    assert reader.add("_call>") == ""
    assert reader.add("{}</tool_call>!") == "<tool_call>{}</tool_call>!"


def test_of_several_calls_only_so_many_are_taken() -> None:
    reader = ToolReader(1)
    said = reader.add(f"{CALL}{CALL} so") + reader.finish()
    assert said == " so"
    assert len(reader.calls) == 1
