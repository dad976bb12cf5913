"""Words of a user become the options of one engine, or an error that says which do not go together."""

from __future__ import annotations

import pytest

from tilewright.base.budget import Limits
from tilewright.base.errors import UserError
from tilewright.runtime.session_options import (
    BytecodeOptions,
    EngineOptions,
    HostOptions,
    LoadOptions,
    PlanOptions,
    choose_options,
)


def chosen(words: LoadOptions, *, has_plan: bool = True) -> EngineOptions:
    return choose_options(words, has_plan=has_plan, module=None, location="net")


def test_the_plan_is_taken_where_there_is_one() -> None:
    assert chosen({}) == PlanOptions()
    assert chosen({}, has_plan=False) == BytecodeOptions()
    assert chosen({"engine": "vm", "threads": 2}).host == HostOptions(threads=2)


def test_what_asks_for_bytecode_takes_the_virtual_machine() -> None:
    assert chosen({"bytecode": "interpret"}) == BytecodeOptions(mode="interpret")
    assert chosen({"libraries": ["a.vmfb"]}) == BytecodeOptions(libraries=("a.vmfb",))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"parameters": ["w.irpa"]}, "net: the weights are in the artifact"),
        ({"untrusted": True}, "net: the artifact has machine code only"),
        ({"engine": "plan", "bytecode": "translate"}, "net: a plan runs no bytecode"),
        ({"limits": Limits()}, "net: a plan is machine code, which no limits hold"),
        ({"function": "soup"}, "net: no function 'soup'"),
        ({"engine": "soup"}, "engine is 'soup', expected 'plan' or 'vm'"),
        ({"bytecode": "soup"}, "bytecode is 'soup', expected 'translate' or 'interpret'"),
        ({"threads": -1}, "threads is -1"),
        ({"device": 3}, "device is 3"),
        ({"libraries": "a.vmfb"}, "libraries is 'a.vmfb', expected a sequence of paths"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words: LoadOptions, text: str) -> None:
    with pytest.raises(UserError, match=text):
        chosen(words)
