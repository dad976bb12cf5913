"""Text of strangers stays text."""

from __future__ import annotations

import pytest

from tilewright.api.report.markup import Markup, clean, element, joined, number, shortened


def test_children_and_attributes_are_escaped() -> None:
    made = element("text", "<b>&\"'", title='"\' onload="x', class_="a", data_step=3)
    assert made == (
        '<text title="&quot;&#x27; onload=&quot;x" class="a" data-step="3">'
        "&lt;b&gt;&amp;&quot;&#x27;</text>"
    )


def test_markup_is_not_escaped_twice() -> None:
    inner = element("i", "<")
    assert element("b", inner, ">") == "<b><i>&lt;</i>&gt;</b>"
    assert isinstance(joined(inner, "&"), Markup)


@pytest.mark.parametrize(
    "char", ["\x00", "\x1b", "\x7f", "\x85", "\u202e", "\u2066", "\ud800", "\uffff"]
)
def test_what_no_page_can_show_is_replaced(char: str) -> None:
    text = element("b", f"a{char}b", title=f"c{char}d")
    assert char not in text
    assert text.count("\ufffd") == 2
    text.encode()


@pytest.mark.parametrize("text", ["tab\tand\nline", "日本語", "naïve", "👍🏽", "עברית"])
def test_what_people_write_stays(text: str) -> None:
    assert clean(text) == text


def test_a_short_text_keeps_its_beginning_and_its_end() -> None:
    text = shortened("encoder.layer.11.attention.output.dense", 20)
    assert len(text) == 20
    assert text.startswith("encoder.")
    assert text.endswith("dense")
    assert shortened("short", 20) == "short"


def test_numbers_have_no_more_digits_than_a_drawing_needs() -> None:
    assert [number(v) for v in (3, 3.0, 0.5, 1 / 3, -0.25, 1e6)] == [
        "3", "3", "0.5", "0.33", "-0.25", "1000000",
    ]  # fmt: skip
