"""What a contradictory request says."""

from pathlib import Path

import pytest

import tilewright as tw
from fakes.small_models import mlp
from tilewright.api.model import resolve_targets
from tilewright.base import knobs
from tilewright.base.errors import UserError


def test_an_unknown_level_lists_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        resolve_targets("x86_64", ["v2", "v9"])
    said = "unknown level 'v9', expected v1 v2 v3 v4 or an x86-64 CPU"
    assert str(caught.value).partition("\n")[0] == said


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
        "TILEWRIGHT_THREADS: got 'many', expected a number from 0 to 4096\n"
        "hint: unset TILEWRIGHT_THREADS for the default: "
        "threads that run kernels; 0 = one per core"
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"opt_level": 7}, "opt_level is 7, expected 0, 1, 2 or 3"),
        ({"opt_level": "2"}, "opt_level is '2', expected 0, 1, 2 or 3"),
        ({"opt_level": True}, "opt_level is True, expected 0, 1, 2 or 3"),
        ({"threads": -1}, "threads is -1, expected a number of 0 or more"),
        ({"threads": "two"}, "threads is 'two', expected a number of 0 or more"),
        ({"jobs": 1.5}, "jobs is 1.5, expected a number of 0 or more"),
        (
            {"levels": "v3"},
            "levels is 'v3', expected a sequence of levels\nhint: levels=('v2', 'v3', 'v4')",
        ),
        (
            {"levels": 3},
            "levels is 3, expected a sequence of levels\nhint: levels=('v2', 'v3', 'v4')",
        ),
        (
            {"target": 7},
            "target is 7, expected a text such as 'x86_64 -mcpu=znver4', or a Target",
        ),
        ({"cache": "no"}, "cache is 'no', expected True or False"),
        (
            {"progress": "bar"},
            "progress is 'bar', expected True, or an object with phase() and advance()",
        ),
        (
            {"input_shapes": {"x": (None, 784)}},
            (
                "axis 0 of input_shapes['x'] is None, expected a size or a name\n"
                "hint: a name makes a dimension dynamic: (1, 'sequence')"
            ),
        ),
        (
            {"input_shapes": {"x": 784}},
            (
                "input_shapes['x'] is 784, expected a sequence of sizes and names\n"
                "hint: a name makes a dimension dynamic: (1, 'sequence')"
            ),
        ),
        (
            {"input_shapes": [1, 784]},
            (
                "input_shapes is [1, 784], expected a mapping by input names\n"
                "hint: input_shapes={'x': (1, 'sequence')}"
            ),
        ),
        (
            {"input_values": {"x": "one"}},
            "input_values['x'] is 'one', expected an array of numbers",
        ),
        (
            {"input_values": {3: 1}},
            (
                "a key of input_values is 3, expected the name of an input\n"
                "hint: input_values={'shape': [1, 128]}"
            ),
        ),
    ],
)
def test_options_out_of_range_are_refused_before_work(
    options: dict[str, object], text: str
) -> None:
    with pytest.raises(UserError) as caught:
        tw.compile("none.onnx", **options)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"threads": "two"}, "threads is 'two', expected a number of 0 or more"),
        ({"engine": "plna"}, ("engine is 'plna', expected 'plan' or 'vm'\n"
         "hint: did you mean 'plan'?")),
        ({"engine": 1}, "engine is 1, expected 'plan' or 'vm'"),
        ({"bytecode": "jit"}, "bytecode is 'jit', expected 'translate' or 'interpret'"),
        ({"device": 3}, "device is 3, expected the URI of a device, or a Device"),
        ({"function": 3}, "function is 3, expected the name of a function"),
        ({"untrusted": "no"}, "untrusted is 'no', expected True or False"),
        ({"libraries": "a.vmfb"}, ("libraries is 'a.vmfb', expected a sequence of paths\n"
         "hint: libraries=['a.vmfb']")),
        ({"parameters": [3]}, "parameters[0] is 3, expected the path of a file"),
    ],
)  # fmt: skip
def test_options_of_loading_are_checked(
    options: dict[str, object], text: str, tmp_path: Path
) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(mlp()).save(path)
    with pytest.raises(UserError) as caught:
        tw.load(path, **options)
    assert str(caught.value) == text


def test_a_path_is_a_path() -> None:
    for call in (tw.load, tw.compile(mlp()).save):
        with pytest.raises(UserError, match="path is 42, expected the path of a file"):
            call(42)


def test_coverage_takes_the_options_of_compiling() -> None:
    with pytest.raises(UserError, match=r"axis 0 of input_shapes\['x'\] is None"):
        tw.coverage(mlp(), input_shapes={"x": (None, 784)})
    with pytest.raises(UserError, match="target is 7, expected a text"):
        tw.coverage(mlp(), target=7)
