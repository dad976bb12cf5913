"""ONNX's own BackendTest over `tilewright.onnx_backend`: all kinds of cases, compiled, values as inputs.

Every case passes or stands in `fakes.onnx_exclusions` with the reason.  The default run takes a few
cases, the nightly one all.
"""

from __future__ import annotations

import fnmatch
import unittest
import warnings

import pytest

import tilewright.onnx_backend as backend
from fakes.onnx_exclusions import EXCLUDED, NOISY

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from onnx.backend.test import BackendTest

    SUITE = BackendTest(backend.TilewrightBackend, __name__).test_cases

pytestmark = pytest.mark.filterwarnings("ignore")
NAMES = sorted(
    (kind, name)
    for kind, cases in SUITE.items()
    for name in dir(cases)
    if name.startswith("test_")
    and name.endswith("_cpu")
    and not any(fnmatch.fnmatchcase(name.removesuffix("_cpu"), p) for p in NOISY)
)
STRIDE = 211


def reason(name: str) -> str | None:
    for pattern, excuse in EXCLUDED.items():
        if fnmatch.fnmatchcase(name.removesuffix("_cpu"), pattern):
            return excuse
    return None


def outcome(kind: str, name: str) -> BaseException | None:
    case = SUITE[kind](name)
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
