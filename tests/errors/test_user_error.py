"""What a contradictory request says."""

import pytest

import tilewright as tw
from tilewright.api.model import resolve_targets
from tilewright.base import knobs
from tilewright.base.errors import UserError


def test_an_unknown_level_lists_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        resolve_targets("x86_64", ["v2", "v9"])
    assert str(caught.value) == "unknown level 'v9', expected v1 v2 v3 v4"


def test_levels_are_for_one_architecture() -> None:
    with pytest.raises(UserError) as caught:
        resolve_targets("aarch64", ["v2"])
    assert str(caught.value) == "levels are for x86_64, the target is 'aarch64'"


def test_a_setting_that_does_not_parse_names_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TILEWRIGHT_THREADS", "many")
    with pytest.raises(UserError) as caught:
        knobs.THREADS.get()
    assert str(caught.value) == (
        "TILEWRIGHT_THREADS: got 'many', expected a number that is not negative\n"
        "hint: unset TILEWRIGHT_THREADS for the default: "
        "threads that run kernels; 0 = one per core"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"opt_level": 7}, "opt_level is 7, expected 0, 1 or 2"),
        ({"threads": -1, "jobs": 2}, "threads is -1, jobs is 2, expected 1 or more"),
        (
            {"levels": "v3"},
            "levels is the text 'v3', expected a sequence\nhint: levels=('v2', 'v3', 'v4')",
        ),
    ],
)
def test_options_out_of_range_are_refused_before_work(
    options: dict[str, object], text: str
) -> None:
    with pytest.raises(UserError) as caught:
        tw.compile("none.onnx", **options)
    assert str(caught.value) == text
