"""A dated page of one run: a table per number of threads, and a plot of the ratios.

What it is: Markdown and an SVG beside it, both made of outcomes.
What it is not: the choice of what is measured (``bars.py``), or the README's figures (``readme_figures.py``).
Who calls it: ``bench.py --page``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

from figures.machine import describe_machine, vector_words
from figures.rows import Outcome

WIDTH: Final = 760
_LEFT: Final = 270
_RIGHT: Final = 60
_PITCH: Final = 22
_TOP: Final = 34
_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.small { font-size: 11px; fill: #57606a }
.met { fill: #0a7d6c } .missed { fill: #bc4c00 } .line { stroke: #57606a } .bar { stroke: #24292f }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9aa4ae }
  .met { fill: #2bb8a0 } .missed { fill: #f0883e } .line { stroke: #9aa4ae } .bar { stroke: #e6edf3 }
}
"""


def write_page(
    folder: Path, date: str, command: str, runs: Mapping[int, Sequence[Outcome]]
) -> Path:
    """Write the page and its plots; return where it is.

    Args:
        folder: made if it is not there.
        date: of the run, year first; it names the files.
        command: how to do it again.
        runs: outcomes by number of threads.
    """
    folder.mkdir(parents=True, exist_ok=True)
    machine = describe_machine()
    lines = [
        f"# Figures of {date}",
        "",
        (
            f"{machine['processor']} ({machine['cores']} cores{vector_words()}), Python {machine['python']}. One run, "
            f"contenders in turns, medians: `{command}`"
        ),
    ]
    for threads, outcomes in runs.items():
        name = f"{date}-{threads}.svg"
        (folder / name).write_text(plot(outcomes, threads), encoding="utf-8")
        words = f"{threads} thread" + ("s" if threads > 1 else "")
        lines += ["", f"## {words}", "", f"![{escape(summary(outcomes))}]({name})", ""]
        lines += table(outcomes)
    page = folder / f"{date}.md"
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return page


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the rows as Markdown."""
    lines = [
        "| what | ratio | bar | of | | measured |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for outcome in outcomes:
        sign = "≥" if outcome.at_least else "≤"
        cells = (
            outcome.name,
            "-" if outcome.ratio is None else f"{outcome.ratio:.3f}",
            "" if outcome.bar is None else f"{sign} {outcome.bar:g}",
            outcome.unit,
            outcome.verdict,
            outcome.detail.replace("|", "/"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def against_peers(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes that are times over a peer's."""
    return [o for o in outcomes if o.unit.startswith("×") and o.ratio is not None]


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the ratios in words, for who cannot see the plot."""
    return ", ".join(f"{o.name} {o.ratio:.2f}" for o in against_peers(outcomes))


def plot(outcomes: Sequence[Outcome], threads: int) -> str:
    """Return one bar per ratio, a mark where its bar is, and a line at the peer's time."""
    rows = against_peers(outcomes)
    longest = max([1.0, *(row.ratio or 0.0 for row in rows)])
    scale = (WIDTH - _LEFT - _RIGHT) / longest
    bottom = _TOP + _PITCH * len(rows)
    one = _LEFT + scale
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 12}" '
            f'width="{WIDTH}" height="{bottom + 12}" role="img">'
        ),
        f"<title>{escape(summary(outcomes))}</title>",
        f"<style>{_STYLE}</style>",
        (
            f'<text class="small" x="{_LEFT}" y="17">our time over the peer\'s, {threads} thread(s); '
            "the mark is the bar, shorter is better</text>"
        ),
    ]
    for index, row in enumerate(rows):
        parts += _row(row, _TOP + _PITCH * index, scale)
    parts.append(
        f'<line class="line" x1="{one:.1f}" y1="{_TOP - 6}" x2="{one:.1f}" y2="{bottom}"/>'
    )
    return "\n".join([*parts, "</svg>"]) + "\n"


def _row(row: Outcome, top: float, scale: float) -> list[str]:
    ratio = row.ratio or 0.0
    kind = "missed" if row.verdict in ("MISS", "WRONG") else "met"
    end = _LEFT + ratio * scale
    parts = [
        f'<text x="{_LEFT - 10}" y="{top + 13}" text-anchor="end">{escape(row.name)}</text>',
        (
            f'<rect class="{kind}" x="{_LEFT}" y="{top + 2}" width="{ratio * scale:.1f}" height="14" rx="2">'
            f"<title>{escape(row.detail)}</title></rect>"
        ),
        f'<text class="small" x="{end + 6:.1f}" y="{top + 13}">{ratio:.2f}</text>',
    ]
    if row.bar is not None:
        at = _LEFT + row.bar * scale
        parts.append(
            f'<line class="bar" x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{top + 18}" stroke-width="2"/>'
        )
    return parts
