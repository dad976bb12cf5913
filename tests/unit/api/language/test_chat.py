from __future__ import annotations

import pytest

from fakes.language_models import TEMPLATE
from tilewright.api.language.chat import Message, render
from tilewright.base.errors import ModelError, UserError

pytest.importorskip("jinja2")

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
