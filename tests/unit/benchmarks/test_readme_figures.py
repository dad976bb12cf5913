"""The README's table and plot say what was measured, and go where readers look."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import readme_figures
from figures.bars import MODEL_ROWS
from readme_figures import Row

ROWS = [
    Row(
        title="Net <A>", work="one image", ours_s=0.05, peer_s=0.1, error=1e-6, foreign=0.0
    ),
    Row(title="B", work="one row", ours_s=12.34e-6, peer_s=10e-6, error=2e-6, foreign=0.5),
]


def test_the_models_are_ones_of_the_benchmark() -> None:
    assert len(readme_figures.MODELS) == 6
    assert set(readme_figures.MODELS) <= {row.model for row in MODEL_ROWS}


def test_the_table_has_both_times_and_their_ratio_also_where_we_are_slower() -> None:
    lines = readme_figures.table(ROWS).splitlines()
    assert lines[2] == "| Net <A>, one image | 50.0 ms | 100 ms | 0.50 × |"
    assert lines[3] == "| B, one row | 12.3 µs | 10.0 µs | 1.23 × |"


def test_the_sentence_says_when_others_disturbed() -> None:
    assert "up to 50% of the core" in readme_figures.described(ROWS, "1 May", "")
    assert "Other processes" not in readme_figures.described(ROWS[:1], "1 May", "")
    assert "to 2e-06 or better" in readme_figures.described(ROWS, "1 May", "")


def test_the_plot_is_an_image_with_bars_as_long_as_the_ratios() -> None:
    root = ElementTree.fromstring(readme_figures.plot(ROWS))
    bars = [float(e.get("width", 0)) for e in root.iter() if e.tag.endswith("rect")]
    bars = bars[2:]  # the legend's
    ours, peer = bars[::2], bars[1::2]
    assert peer[0] == peer[1]
    assert ours[0] / peer[0] == pytest.approx(0.5, abs=0.01)
    assert ours[1] / peer[1] == pytest.approx(1.234, abs=0.01)
    assert max(bars) + 250 < readme_figures.WIDTH


def test_the_figures_replace_what_stands_between_the_marks(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    readme = tmp_path / "README.md"
    readme.write_text("a\n<!-- figures -->\nold \\1\n<!-- end of figures -->\nb\n")
    readme_figures.write(ROWS, "new \\1\n", tmp_path)
    assert (
        readme.read_text() == "a\n<!-- figures -->\nnew \\1\n<!-- end of figures -->\nb\n"
    )
    assert (tmp_path / readme_figures.PLOT).read_text().startswith("<svg")
    readme.write_text("nothing")
    with pytest.raises(SystemExit, match="no place"):
        readme_figures.write(ROWS, "new", tmp_path)


def test_the_readme_has_that_place() -> None:
    text = (readme_figures.ROOT / "README.md").read_text(encoding="utf-8")
    assert readme_figures._PLACE.search(text)
