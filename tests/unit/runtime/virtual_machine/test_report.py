import csv
import io
import json

import pytest

from tilewright.base.errors import UserError
from tilewright.runtime.virtual_machine.metrics import Count, Duration, Percent, Ratio
from tilewright.runtime.virtual_machine.report import Report, make_report

TIMINGS = (
    ("matmul", "f32[2,3]", 30.0),
    ("relu", "f32[2]", 10.0),
    ("matmul", "f32[2,3]", 40.0),
)


def report_of(timings=TIMINGS, whole_us: float = 100.0) -> Report:
    return make_report(
        timings,
        whole_us=whole_us,
        device="cpu0",
        configuration={"Number of threads": Count(2)},
    )


def lines_of(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines()]


def test_calls_of_one_function_with_the_same_shapes_are_one_row_longest_first() -> None:
    lines = lines_of(report_of().table())
    assert lines[1] == ["matmul", "70.00", "70.00", "cpu0", "2", "f32[2,3]"]
    assert lines[2] == ["relu", "10.00", "10.00", "cpu0", "1", "f32[2]"]


def test_other_shapes_are_another_row() -> None:
    lines = lines_of(report_of((("f", "f32[1]", 1.0), ("f", "f32[2]", 2.0))).table())
    assert [line[0] for line in lines[1:3]] == ["f", "f"]
    assert lines[1][-1] == "f32[2]"


def test_single_calls_keep_their_order() -> None:
    lines = lines_of(report_of().table(sort=False, aggregate=False, col_sums=False))
    assert [line[0] for line in lines] == ["Name", "matmul", "relu", "matmul"]


def test_the_foot_has_the_sum_the_whole_and_what_it_ran_on() -> None:
    text = report_of().table()
    lines = lines_of(text)
    assert ["Sum", "80.00", "80.00", "3"] in lines
    assert ["Total", "100.00", "100.00", "cpu0", "1"] in lines
    assert text.endswith("Number of threads: 2")


def test_numbers_stand_below_each_other() -> None:
    table = report_of((("f", "", 12345.678), ("g", "", 1.0))).table(col_sums=False)
    first, second = table.splitlines()[1:]
    assert first.index("12,345.68") + len("12,345.68") == second.index("1.00") + len("1.00")


def test_numbers_stand_below_each_other_where_some_rows_have_none() -> None:
    before, after = report_of((("f", "", 1234.0),)), report_of((("g", "", 5.0),))
    head, *rows = before.compare(after).table().splitlines()
    end = head.index("After (us)") + len("After (us)")
    assert [row[:end].rstrip()[-4:] for row in rows if row.startswith("g")] == ["5.00"]
    assert all(len(row[:end].rstrip()) == end for row in rows if row.startswith("g"))


def test_short_times_are_compared_and_none_at_all_are_not() -> None:
    short, none = report_of((("f", "", 0.5),)), report_of((("f", "", 0.0),))
    assert short.compare(short).calls[0]["After / Before"] == Ratio(1.0)
    assert "After / Before" not in none.compare(short).calls[0]


def test_csv_has_plain_numbers_and_quotes_commas() -> None:
    rows = list(
        csv.DictReader(io.StringIO(report_of((("f", "f32[2,3], f32[3]", 1234.5),)).csv()))
    )
    assert rows[0]["Duration (us)"] == "1234.5"
    assert rows[0]["Argument Shapes"] == "f32[2,3], f32[3]"


def test_json_has_the_members_that_tools_know_and_comes_back() -> None:
    report = report_of()
    members = json.loads(report.json())
    assert members["calls"][1]["Duration (us)"] == {"microseconds": 10.0}
    assert members["calls"][1]["Name"] == {"string": "relu"}
    assert members["device_metrics"]["cpu0"]["Percent"] == {"percent": 100.0}
    assert members["configuration"] == {"Number of threads": {"count": 2}}
    assert Report.from_json(report.json()) == report


def test_other_metrics_come_through() -> None:
    report = Report(({"Name": "f", "IPC": Ratio(1.5), "Share": Percent(2.0)},))
    assert Report.from_json(report.json()) == report
    assert "1.500" in report.table()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"calls": 3}',
        '{"calls": [3]}',
        '{"calls": [{"Name": "f"}]}',
        '{"calls": [{"Name": {"count": 1.5}}]}',
        '{"calls": [{"Name": {"count": true}}]}',
        '{"calls": [{"Name": {"string": 1}}]}',
        '{"calls": [{"Name": {"count": 1, "string": "x"}}]}',
        '{"calls": [], "device_metrics": []}',
        '{"calls": [], "configuration": 1}',
        "[" * 100_000,
    ],
)
def test_what_is_no_report_is_an_error(text: str) -> None:
    with pytest.raises(UserError, match="profile report"):
        Report.from_json(text)


def test_two_reports_side_by_side_the_largest_change_first() -> None:
    after = report_of(
        (("matmul", "f32[2,3]", 35.0), ("relu", "f32[2]", 12.0), ("add", "", 1.0))
    )
    comparison = report_of().compare(after)
    names = [row["Name"] for row in comparison.calls]
    assert names == ["matmul", "relu", "add"]
    matmul, _, new = comparison.calls
    assert matmul["Before (us)"] == Duration(70.0)
    assert matmul["Difference (us)"] == Duration(-35.0)
    assert matmul["After / Before"] == Ratio(0.5)
    assert "Before (us)" not in new
    assert new["After (us)"] == Duration(1.0)
    assert comparison.total["After / Before"] == Ratio(48 / 80)
    assert lines_of(str(comparison))[-1][:3] == ["Sum", "80.00", "48.00"]


def test_reports_without_calls_print_and_compare() -> None:
    empty = Report(())
    assert empty.table(col_sums=False) == ""
    assert empty.compare(empty).calls == ()
    assert str(empty.compare(empty))
    assert Report.from_json(empty.json()) == empty
