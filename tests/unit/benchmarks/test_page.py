"""The dated page of a run has a table and a plot that say the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

from figures.page import plot, write_page
from figures.rows import Outcome

MET = Outcome(
    subset="models",
    name="A & B",
    ratio=0.5,
    at_least=False,
    bar=0.8,
    unit="× openvino",
    detail="ours | theirs",
    error=1e-7,
)
MISSED = replace(MET, name="C", ratio=1.5)
SHARE = replace(MET, name="D", unit="of FMA peak", at_least=True, ratio=0.9)
NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_the_page_has_a_table_and_a_plot_for_each_number_of_threads(tmp_path: Path) -> None:
    page = write_page(
        tmp_path / "figures", "2026-01-02", "bench.py", {1: [MET, SHARE], 2: [MISSED]}
    )
    text = page.read_text(encoding="utf-8")
    assert "| A & B | 0.500 | ≤ 0.8 | × openvino | PASS | ours / theirs |" in text
    assert "| D | 0.900 | ≥ 0.8 | of FMA peak | PASS | ours / theirs |" in text
    assert "## 2 threads" in text
    assert "| C | 1.500 | ≤ 0.8 | × openvino | MISS |" in text
    for threads in (1, 2):
        assert (page.parent / f"2026-01-02-{threads}.svg").exists()


def test_bars_of_the_plot_are_as_long_as_their_ratios() -> None:
    root = ElementTree.fromstring(plot([MET, MISSED, SHARE], 1))
    bars = root.findall(f"{NAMESPACE}rect")
    assert [bar.get("class") for bar in bars] == ["met", "missed"]
    widths = [float(bar.get("width", "0")) for bar in bars]
    assert abs(widths[1] - 3 * widths[0]) < 0.2


def test_a_run_without_ratios_has_an_empty_plot() -> None:
    root = ElementTree.fromstring(plot([SHARE], 1))
    assert root.findall(f"{NAMESPACE}rect") == []
