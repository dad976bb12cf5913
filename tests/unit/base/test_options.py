"""What callers pass as options: each mistake in the option's terms, whatever its kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.small_models import mlp, save
from tilewright.base.errors import InputError, UserError
from tilewright.base.knobs import THREAD_LIMIT
from tilewright.base.options import (
    count_option,
    names_option,
    path_option,
    real_option,
    sizes_option,
    values_option,
)
from tilewright.runtime import native


class Refusing:
    """An array of a library that does not hand it out."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("it is elsewhere")


class Elsewhere:
    """An array of a library that speaks DLPack alone."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: object) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


@pytest.mark.parametrize(
    "value", [[5, 6], (5, 6), np.array([5, 6]), Elsewhere(np.array([5, 6]))]
)
def test_values_of_inputs_become_arrays(value: object) -> None:
    found = values_option("input_values", {"x": value})["x"]
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [5, 6]


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x, x]])
def test_values_below_a_mask_are_none_of_an_input(wrap: Callable[[object], object]) -> None:
    masked = np.ma.masked_equal([5, 6], 6)
    with pytest.raises(
        InputError, match=r"^input_values\['x'\]: got MaskedArray with elements below"
    ):
        values_option("input_values", {"x": wrap(masked)})
    assert values_option("input_values", {"x": masked.filled(7)})["x"].tolist() == [5, 7]


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(mlp("batch"), tmp_path_factory.mktemp("options") / "m.onnx")


@pytest.fixture(scope="module")
def archive(onnx_file: Path) -> Path:
    path = onnx_file.with_suffix(".vmfb")
    tw.compile(onnx_file).save(path)
    return path


def test_values_that_make_sense_are_taken() -> None:
    assert count_option("n", np.int64(3), most=3) == 3
    assert real_option("x", np.float32(0.5)) == 0.5
    assert real_option("x", 0) == 0.0
    assert names_option("names", ["a", "b"], "names") == ("a", "b")
    assert sizes_option("dims", {"batch": np.int32(4)}) == {"batch": 4}
    assert path_option("path", Path("x")) == "x"


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        (lambda: count_option("n", 4, most=3), "n is 4, expected a number from 1 to 3"),
        (lambda: count_option("n", True), "n is True, expected a number of 1 or more"),
        (lambda: real_option("x", "a"), "x is 'a', expected a number of 0 or more"),
        (
            lambda: real_option("x", float("nan")),
            "x is nan, expected a number of 0 or more",
        ),
        (lambda: real_option("x", -1), "x is -1, expected a number of 0 or more"),
        (lambda: real_option("x", 10**400), "x is 1000"),
        (
            lambda: names_option("names", "ab", "names"),
            "names is 'ab', expected a sequence",
        ),
        (lambda: names_option("names", 5, "names"), "names is 5, expected a sequence"),
        (
            lambda: names_option("names", [{}], "names"),
            "one of names is {}, expected a text",
        ),
        (lambda: sizes_option("dims", 5), "dims is 5, expected a mapping"),
        (lambda: sizes_option("dims", {"n": "x"}), r"dims\['n'\] is 'x', expected"),
        (lambda: path_option("path", ""), "path is '', expected the path of a file"),
        (lambda: path_option("path", "a\0b"), r"path is 'a\\x00b', expected the path"),
    ],
)
def test_what_makes_no_sense_is_said(check: Callable[[], object], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        check()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"levels": ({},)}, "one of levels is {}"),
        (
            {"threads": THREAD_LIMIT + 1},
            "threads is 4097, expected a number from 1 to 4096",
        ),
        ({"check_indices": "no"}, "check_indices is 'no', expected True or False"),
        (
            {"input_values": {"x": [[1], [1, 2]]}},
            r"input_values\['x'\] is .*, expected an array",
        ),
        *(
            (
                {"input_values": {"x": value}},
                r"(?s)input_values\['x'\] is .*, expected an array",
            )
            for value in (
                np.array(["a"]),
                np.array([None]),
                np.zeros(2, "i8,f4"),
                np.zeros(2, "M8[s]"),
                {1, 2},
                Refusing(),
            )
        ),
        ({"input_shapes": {"x": (10**30, 20)}}, "axis 0 of input_shapes"),
    ],
)
def test_mistakes_in_the_options_of_compile(
    onnx_file: Path, options: dict[str, object], expected: str
) -> None:
    with pytest.raises(UserError, match=expected):
        tw.compile(onnx_file, **options)


def test_a_flag_of_coverage_is_a_flag(onnx_file: Path) -> None:
    with pytest.raises(UserError, match="quick is 'yes', expected True or False"):
        tw.coverage(onnx_file, quick="yes")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"against": 5}, "against is 5"),
        ({"inputs": 5}, "inputs is 5, expected arrays by position or by name"),
        ({"tolerance": "a"}, "tolerance is 'a'"),
        ({"tolerance": -1}, "tolerance is -1"),
        ({"seed": "a"}, "seed is 'a'"),
        ({"dims": 5}, "dims is 5, expected a mapping"),
        ({"dims": {"batch": "x"}}, r"dims\['batch'\] is 'x'"),
        ({"limit_bytes": 0}, "limit_bytes is 0"),
    ],
)
def test_mistakes_in_the_options_of_compare(
    onnx_file: Path, options: dict[str, object], expected: str
) -> None:
    with pytest.raises(UserError, match=expected):
        tw.compare(onnx_file, **options)


@pytest.mark.parametrize("where", ["argument", "uri", "variable"])
def test_more_threads_than_a_pool_can_have(
    where: str, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, object] = {}
    expected = "threads is 4097, expected a number from 1 to 4096"
    if where == "argument":
        options["threads"] = THREAD_LIMIT + 1
    elif where == "uri":
        options["device"] = f"local-task://?threads={THREAD_LIMIT + 1}"
    else:
        monkeypatch.setenv("TILEWRIGHT_THREADS", str(THREAD_LIMIT + 1))
        expected = "TILEWRIGHT_THREADS: got '4097', expected a number from 0 to 4096"
    with pytest.raises(UserError, match=expected):
        tw.load(archive, **options)


def test_the_limit_of_threads_is_that_of_the_core() -> None:
    with pytest.raises(ValueError, match=f"expected 1 to {THREAD_LIMIT};"):
        native.Pool(THREAD_LIMIT + 1, None, 0)


def test_a_size_that_kernels_cannot_count_to_is_the_callers(archive: Path) -> None:
    """An array of one element that is seen as many takes no memory."""
    many = np.broadcast_to(np.float32(1), (1 << 40, 20))
    with pytest.raises(
        tw.InputError, match=r"sizes are too large .* for batch = 1099511627776"
    ):
        tw.load(archive)(many)


@pytest.mark.parametrize(
    ("dtype", "text", "has_hint"),
    [
        ("f8", "f64", True),
        (">f4", "float32 of the other byte order ", True),
        ("c8", "complex64", False),
        ("O", "object", False),
        ("U3", "str96", False),
        ("M8[s]", r"datetime64\[s\]", False),
    ],
)
def test_types_that_do_not_fit_go_by_names_that_people_know(
    dtype: str, text: str, has_hint: bool, archive: Path
) -> None:
    with pytest.raises(
        tw.InputError, match=rf"got {text}\[5, 20\], expected f32"
    ) as caught:
        tw.load(archive)(np.zeros((5, 20), dtype))
    assert ("hint: convert" in str(caught.value)) == has_hint


def test_names_of_inputs_are_texts(archive: Path) -> None:
    with pytest.raises(tw.InputError, match="there is no input '1'"):
        tw.load(archive)({1: np.zeros((5, 20), np.float32)})
