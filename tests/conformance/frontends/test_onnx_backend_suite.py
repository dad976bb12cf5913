"""ONNX's own BackendTest over `tilewright.onnx_backend`: all kinds of cases, compiled, values as inputs.

Every case passes or stands in `fakes.onnx_exclusions` with the reason.  The default run takes a few
cases, the nightly one all.
"""

from __future__ import annotations

import fnmatch
import re
import unittest
import unittest.mock
from collections import Counter
from pathlib import Path

import onnx
import pytest
from onnx.backend.test import BackendTest

import tilewright.onnx_backend as backend
from fakes import onnx_suite
from fakes.onnx_exclusions import EXCLUDED, NOISY

pytestmark = pytest.mark.filterwarnings("ignore")
# As onnx's runner calls the kinds.
KINDS = {
    "OnnxBackendNodeModelTest": "node",
    "OnnxBackendPyTorchConvertedModelTest": "pytorch-converted",
    "OnnxBackendPyTorchOperatorModelTest": "pytorch-operator",
    "OnnxBackendRealModelTest": "real",
    "OnnxBackendSimpleModelTest": "simple",
}
EVERY = [(kind, f"{name}_cpu") for kind in KINDS for name in onnx_suite.names(KINDS[kind])]
NAMES = sorted(
    (kind, name)
    for kind, name in EVERY
    if not any(fnmatch.fnmatchcase(name.removesuffix("_cpu"), p) for p in NOISY)
)
STRIDE = 211
PAGE = Path(__file__).resolve().parents[3] / "docs" / "onnx-conformance.md"


def suite(kind: str, name: str) -> dict[str, type[unittest.TestCase]]:
    """onnx's BackendTest of one case, which has the other devices' methods, too."""
    raw = onnx_suite.raw_case(KINDS[kind], name.removesuffix("_cpu"))

    def load_one(kind: str) -> list[object]:
        return [raw] if kind == raw.kind else []

    with unittest.mock.patch("onnx.backend.test.runner.load_model_tests", load_one):
        return BackendTest(backend.TilewrightBackend, __name__).test_cases


def reason(name: str) -> str | None:
    for pattern, excuse in EXCLUDED.items():
        if fnmatch.fnmatchcase(name.removesuffix("_cpu"), pattern):
            return excuse
    return None


def outcome(kind: str, name: str) -> BaseException | None:
    case = suite(kind, name)[kind](name)
    try:
        getattr(case, name)()
    except (Exception, unittest.SkipTest) as error:
        return error
    return None


def verdict(kind: str, name: str) -> str:
    """What is wrong with a case; nothing where it does what the list says."""
    failure, excluded = outcome(kind, name), reason(name)
    if excluded is None:
        return "" if failure is None else f"{type(failure).__name__}: {failure}"
    return "" if failure is not None else f"passes now, but is excluded: {excluded}"


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("kind", "name"), NAMES[::STRIDE])
def test_a_few_cases_of_the_suite_pass(kind: str, name: str) -> None:
    assert verdict(kind, name) == ""


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_every_case_of_the_suite_passes_or_is_excluded(kind: str, name: str) -> None:
    assert verdict(kind, name) == ""


def test_every_exclusion_names_a_case() -> None:
    names = [name.removesuffix("_cpu") for _, name in NAMES]
    for pattern in EXCLUDED:
        assert fnmatch.filter(names, pattern), f"no case matches '{pattern}'"


def test_the_page_of_results_says_what_the_list_says() -> None:
    """Written by tools/onnx_conformance.py: of another version, or another list, it has to be written again."""
    text = PAGE.read_text(encoding="utf-8")
    assert f"of onnx {onnx.__version__} " in text, "run tools/onnx_conformance.py --page"
    rows = re.findall(
        r"^\| `(.+)` \| .+ \| (\d+) \| (?:differs|wrong|refused) \|", text, re.MULTILINE
    )
    listed: Counter[str] = Counter()
    for pattern, count in rows:
        listed[f"test_{pattern}"] += int(count)
    every = [name.removesuffix("_cpu") for _, name in EVERY]
    expected = {
        pattern: len(fnmatch.filter(every, pattern)) for pattern in (*EXCLUDED, *NOISY)
    }
    assert dict(listed) == expected
    totals = re.findall(
        r"^\| [^`|]+ \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE
    )
    sums = [sum(map(int, column)) for column in zip(*totals, strict=True)]
    assert sums[0] == len(every)
    assert sums[1] == len(every) - sum(expected.values())
    assert sums[3] == 0, "wrong"
