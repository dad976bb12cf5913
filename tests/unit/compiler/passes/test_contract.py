from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import pytest

from tilewright.base.errors import UserError
from tilewright.compiler.passes import GraphPass, PassResult


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FoldThings(GraphPass):
    """A pass with options."""

    limit_bytes: int = 7
    ratio: float = 0.5
    deep: bool = False
    mode: str = "a"
    choose: Callable[[str], int] | None = None

    def run(self, graph, context):
        return PassResult(modified=False)


def test_the_name_is_the_class_in_kebab_case():
    assert FoldThings().name == "fold-things"


def test_options_are_parsed_to_the_type_of_the_field():
    options = {"limit_bytes": "12", "ratio": "2", "deep": "true", "mode": "b"}
    assert FoldThings().configured(options) == FoldThings(
        limit_bytes=12, ratio=2.0, deep=True, mode="b"
    )
    assert FoldThings().configured({"limit_bytes": 3}).limit_bytes == 3


def test_unknown_and_unreadable_options_are_refused():
    with pytest.raises(
        UserError, match="no option 'limit_byte'\nhint: did you mean 'limit_b"
    ):
        FoldThings().configured({"limit_byte": 1})
    with pytest.raises(
        UserError, match="option 'deep' of pass 'fold-things' is 'perhaps', expe"
    ):
        FoldThings().configured({"deep": "perhaps"})
    with pytest.raises(UserError, match="is 'x', expected int"):
        FoldThings().configured({"limit_bytes": "x"})


def test_printing_shows_options_that_are_not_default():
    assert str(FoldThings()) == "fold-things"
    assert str(FoldThings(deep=True)) == "fold-things(deep=True)"


def test_decisions_of_a_back_end_are_not_printed():
    assert str(FoldThings(choose=len, deep=True)) == "fold-things(deep=True)"


def test_results_add_up():
    total = PassResult(False, {"a": 1}) | PassResult(True, {"a": 2, "b": 3})
    assert total == PassResult(True, {"a": 3, "b": 3})
