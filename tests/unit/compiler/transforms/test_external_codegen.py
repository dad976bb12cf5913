"""Code generators of users are found by their names, and what they lack is named."""

from __future__ import annotations

import pytest

from tilewright.base.errors import UserError
from tilewright.compiler.transforms.external_codegen import choose_codegens


def test_a_generator_that_nobody_registered_or_offers_is_named() -> None:
    with pytest.raises(UserError, match="there is no code generator 'nobodys'") as caught:
        choose_codegens(["nobodys"])
    assert "--byoc-module" in str(caught.value.hint)


def test_without_names_there_is_none() -> None:
    assert choose_codegens(None) == choose_codegens([]) == ()
