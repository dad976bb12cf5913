from __future__ import annotations

import errno
import subprocess

import pytest

from fakes.language_models import TEMPLATE
from tilewright.api.language.chat import Message, render
from tilewright.base.errors import ModelError, UserError

pytest.importorskip("jinja2")
pytestmark = pytest.mark.slow  # with torch comes jinja2

TURNS: list[Message] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "ho"},
]


def _render(template: str) -> str:
    return render(
        template, TURNS, tokens={"bos_token": "<s>", "eos_token": "</s>"}, location="m"
    )


def test_a_conversation_ends_where_the_assistant_begins() -> None:
    assert _render(TEMPLATE) == "<|user|>hi<|end|><|assistant|>ho<|end|><|assistant|>"


def test_blocks_that_training_looks_for_are_what_is_inside() -> None:
    template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        "{%- generation -%} {{ m.content }} {%- endgeneration -%}{% else %}?{% endif %}{% endfor %}"
    )
    assert _render(template) == "?ho"


def test_templates_may_look_at_options_that_are_none_of_ours() -> None:
    found = render(
        "{{ enable_thinking }} {{ messages|length }}",
        TURNS,
        options={"enable_thinking": False, "messages": []},
        tokens={},
        location="m",
    )
    assert found == "False 2"


def test_templates_know_tokens_and_may_refuse() -> None:
    assert _render("{{ bos_token }}{{ messages|length }}{{ eos_token }}") == "<s>2</s>"
    with pytest.raises(UserError, match="refuses this: no system"):
        _render("{{ raise_exception('no system') }}")


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{% for i in range(10000000) %}x{% endfor %}",
        "{{ messages.append(1) }}",
        "{{ 1 / 0 }}",
    ],
)
def test_templates_of_strangers_stay_in_their_sandbox(template: str) -> None:
    with pytest.raises(UserError, match="refuses this"):
        _render(template)


def test_broken_templates_are_errors_of_the_model() -> None:
    with pytest.raises(ModelError, match="chat template is broken"):
        _render("{% for %}")


@pytest.mark.parametrize(
    "template",
    [
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{{ 'a' * 10000000000 }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ 'a'|center(10000000000) }}",
        "{{ messages.foo.bar }}",
        "{{ raise_exception }}{{ messages[0].content.x.y }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_what_a_template_wants_too_much_of_it_does_not_get(
    template: str,
) -> None:
    with pytest.raises(UserError, match="refuses this"):
        _render(template)


@pytest.mark.parametrize(
    "template",
    [
        "".join(f"{{% for {name} in range(99999) %}}" for name in "abcd")
        + "{% endfor %}" * 4,
        "{{ 7 ** (7 ** (7 ** 7)) }}",
    ],
)
def test_a_template_without_an_end_is_ended(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.api.language.chat._SECONDS", 1)
    with pytest.raises(UserError, match="too much time"):
        _render(template)


def test_a_system_without_processes_is_told_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "run", none_left)
    with pytest.raises(UserError, match=r"no process for .*\nhint: end other processes"):
        _render("{{ messages }}")


def test_templates_see_tools_and_write_json_as_it_is() -> None:
    tool = {"type": "function", "function": {"name": "füge"}}
    template = "{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% else %}none{% endif %}"
    names = {"bos_token": "", "eos_token": ""}
    found = render(template, TURNS, tools=[tool], tokens=names, location="m")
    assert found == '{"type": "function", "function": {"name": "füge"}}'
    assert render(template, TURNS, tokens=names, location="m") == "none"
    ordered = "{{ {'b': 'é', 'a': 1} | tojson(sort_keys=True, ensure_ascii=True, separators=(',', ':')) }}"
    assert render(ordered, TURNS, tokens=names, location="m") == '{"a":1,"b":"\\u00e9"}'
    today = render("{{ strftime_now('%Y') }}", TURNS, tokens=names, location="m")
    assert int(today) > 2000


def test_any_text_comes_back_as_it_is() -> None:
    odd = "\ud800 \x00 🙂 \r\n é"
    found = render(
        "{{ messages[0].content }}",
        [{"role": "user", "content": odd}],
        tokens={},
        location="m",
    )
    assert found == odd
