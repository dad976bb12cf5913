import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from tilewright.base.diagnostics import Diagnostics, Severity, TilewrightWarning


def test_a_diagnostic_prints_location_message_cost_and_hint():
    found = Diagnostics()
    found.warn("runs on the host", location="m: node 'a'", cost="1 MFLOP", hint="try x")
    (diagnostic,) = found
    assert str(diagnostic) == "m: node 'a': runs on the host (1 MFLOP)\nhint: try x"
    assert diagnostic.severity is Severity.WARNING


def test_equal_diagnostics_are_counted_not_repeated():
    found = Diagnostics()
    for _ in range(3):
        found.warn("slow", hint="h")
    assert len(found) == 1
    assert found.count(found.warnings[0]) == 3
    assert found.render() == "warning: slow [3 times]\nhint: h"


def test_remarks_are_shown_on_request_only():
    found = Diagnostics()
    found.remark("tiled 12x32")
    assert found.render() == ""
    assert found.render(remarks=True) == "remark: tiled 12x32"


def test_show_goes_through_warnings_once():
    found = Diagnostics()
    found.warn("slow op")
    found.remark("stays")
    with pytest.warns(TilewrightWarning, match="slow op"):
        found.show()
    found.show()  # said once; they can still be looked at
    assert [d.message for d in found.warnings] == ["slow op"]
    assert len(found.remarks) == 1


@pytest.mark.parametrize("spelling", ["{}/./", "{}//", "/.{}"])
def test_a_warning_is_at_the_callers_line_however_the_path_is_spelled(
    spelling: str, tmp_path: Path
) -> None:
    """It was at a line of ours."""
    folder = spelling.format(Path(tilewright.__file__).parents[1])
    script = tmp_path / "user.py"
    script.write_text(
        f"import sys; sys.path.insert(0, {folder!r})\n"
        "from tilewright.base.diagnostics import Diagnostics\n"
        "found = Diagnostics()\n"
        "found.warn('slow')\n"
        "found.show()\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", str(script)], capture_output=True, text=True, check=True
    )
    assert done.stderr.startswith(f"{script}:5: TilewrightWarning: slow")


def test_code_without_lines_is_warned_at_line_0() -> None:
    found = Diagnostics()
    found.warn("slow")
    code = compile("show()", "made.py", "exec").replace(co_linetable=b"")
    with pytest.warns(TilewrightWarning, match="slow") as caught:
        exec(code, {"show": found.show})
    assert [(one.filename, one.lineno) for one in caught] == [("made.py", 0)]
