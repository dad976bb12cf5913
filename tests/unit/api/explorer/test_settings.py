"""What can be asked for: fields of a form, each with what it may be."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from tilewright.api.explorer.settings import Settings, SettingsForm
from tilewright.base.errors import UserError
from tilewright.base.target import Target

FIRST = Settings(threads=2, dims=(("batch", 3), ("a b&<", 1)))
FORM = SettingsForm(FIRST, is_fixed=False)


def test_nothing_asked_for_is_the_first_choice() -> None:
    assert FORM.read("") == FIRST


def test_a_choice_comes_back_from_its_query() -> None:
    chosen = Settings(
        opt_level=0, precision="bf16", threads=1, dims=(("batch", 0), ("a b&<", 7))
    )
    assert FORM.read(FORM.query(chosen)) == chosen
    assert str(chosen) == "O0, host, bf16, 1 thread, batch = 0, a b&< = 7"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"opt_level": "9"}, "opt_level is '9', expected 0 1 2"),
        ({"target": "aarch64"}, "target is 'aarch64', expected host"),
        ({"precision": ""}, "precision is '', expected f32 bf16 f16"),
        ({"threads": "0"}, "threads is '0', expected 1"),
        ({"dim.batch": "-1"}, "dim.batch is '-1', expected a size up to"),
        ({"dim.batch": "99999999999"}, "expected a size up to"),
        ({"dim.batch": "²"}, "expected a size up to"),
        (
            {"dim.bath": "1"},
            "nothing is called 'dim.bath' here\nhint: did you mean 'dim.batch'",
        ),
        ({"path": "/etc/passwd"}, "nothing is called 'path' here"),
    ],
)
def test_anything_else_is_refused(query: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as raised:
        FORM.read(urlencode(query))
    assert message in str(raised.value)


def test_an_address_has_only_so_many_fields() -> None:
    with pytest.raises(UserError, match="more than 64 fields"):
        FORM.read("&".join(["opt_level=1"] * 65))


def test_of_an_artifact_only_sizes_can_be_chosen() -> None:
    fixed = SettingsForm(FIRST, is_fixed=True)
    assert fixed.read("dim.batch=5").dims[0] == ("batch", 5)
    with pytest.raises(UserError, match="nothing is called 'opt_level' here"):
        fixed.read("opt_level=1")
    assert "<select" not in fixed.form(FIRST)


def test_only_levels_that_run_here_are_offered() -> None:
    host, *levels = FORM.values["target"]
    assert host == "host"
    for level in levels:
        assert Target.level(level).features <= Target.host().features


def test_the_form_shows_what_is_chosen_and_escapes_names() -> None:
    form = FORM.form(Settings(opt_level=1, threads=2, dims=FIRST.dims))
    assert '<option value="1" selected="selected">1</option>' in form
    assert 'name="dim.a b&amp;&lt;"' in form
    assert '<input type="number" min="0"' in form
    assert "</input>" not in form
