"""The first check that failed becomes the error of the call."""

import numpy as np
import pytest

from fakes.complaints import complaint_of
from tilewright.base.errors import InputError
from tilewright.base.symbolic import evaluate, symbol
from tilewright.formats.plan import CHECK_PASSED, IndexCheck
from tilewright.formats.plan.findings import IndexReport

N = symbol("n", 1)
CHECKS = (IndexCheck("node 'a'", 0, N, -N, N - 1), IndexCheck("", 2, 4, 0, 4))


def report(*found):
    records = np.full(8 * len(found), 77, np.int64)
    records[::8] = found
    bound = IndexReport.bound(
        CHECKS, lambda d: d if isinstance(d, int) else evaluate(d, {"n": 3})
    )
    bound(memoryview(records).cast("B"))


def test_nothing_found_is_no_error():
    assert complaint_of(report, CHECK_PASSED, CHECK_PASSED) == ""


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ((3, 5), "node 'a': index 3 is out of range on axis 0 of size 3, expected -3 .. 2"),
        ((CHECK_PASSED, 5), "index 5 is out of range on axis 2 of size 4, expected 0 .. 4"),
    ],
)
def test_the_first_finding_is_reported(found, text):
    with pytest.raises(InputError) as caught:
        report(*found)
    assert str(caught.value) == text
