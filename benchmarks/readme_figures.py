"""The six figures of README.md: one run, one machine, onnxruntime beside; as a table and as a plot.

What it is: models of different kinds, each timed in rounds that alternate between the two.
What it is not: all figures (``bench.py``), or a choice of good ones: the models stand here, before they are measured.
Who calls it: whoever brings the README up to date, on a quiet machine::

    python benchmarks/readme_figures.py                  # prints the table
    python benchmarks/readme_figures.py --write          # and puts it into README.md, the plot into docs/
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final, final

from figures.bars import OURS, PEER
from figures.machine import describe_machine, vector_words
from figures.measure import ATTEMPTS, Arena
from figures.rows import LARGEST_ERROR
from tilewright.base.version import VERSION

ROOT: Final = Path(__file__).resolve().parent.parent
PLOT: Final = "docs/figures.svg"
MODELS: Final = {
    "resnet50": ("ResNet-50", "an image of 224 × 224"),
    "mobilenetv2": ("MobileNetV2", "an image of 224 × 224"),
    "bert_base": ("BERT-base", "128 tokens"),
    "llama_decode": ("Llama-style decoder", "one token"),
    "unet_diffusion": ("U-Net of a diffusion model", "one step"),
    "mlp_b1": ("Perceptron 784-256-256-10", "one row, called from Python"),
}
_PLACE: Final = re.compile(
    r"(?<=<!-- figures -->\n).*?(?=<!-- end of figures -->)", re.DOTALL
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model on both sides.

    Attributes:
        ours_s, peer_s: medians of the rounds' medians.
        error: of our result against torch's, relative.
        foreign: the largest share of a core that other processes took during a round.
    """

    title: str
    work: str
    ours_s: float
    peer_s: float
    error: float
    foreign: float

    @property
    def ratio(self) -> float:
        """Our time in the peer's; below 1 we are faster."""
        return self.ours_s / self.peer_s


def measure(models: Path, *, rounds: int, seconds: float, attempts: int) -> list[Row]:
    """Time every model on one thread.  Raises: SystemExit naming what failed or is wrong."""
    rows: list[Row] = []
    with Arena(threads=1, rounds=rounds, seconds=seconds, attempts=attempts) as arena:
        for model, (title, work) in MODELS.items():
            path = models / f"{model}.onnx"
            if not path.exists():
                raise SystemExit(f"{path} is not there\nhint: make models")
            found = arena.measure((OURS, PEER), path)
            for name, reason in found.failures.items():
                raise SystemExit(f"{model}: {name} failed: {reason}")
            ours, peer = found.series[OURS], found.series[PEER]
            error = ours.error or 0.0
            if not error <= LARGEST_ERROR:
                raise SystemExit(f"{model}: wrong result, error {error:.1e}")
            row = Row(
                title=title,
                work=work,
                ours_s=ours.seconds,
                peer_s=peer.seconds,
                error=error,
                foreign=max(*ours.foreign, *peer.foreign),
            )
            sys.stderr.write(f"{title}: {row.ratio:.2f} ×\n")
            rows.append(row)
    return rows


def duration(seconds: float) -> str:
    """Three digits, with a unit that suits."""
    value, unit = (seconds * 1e6, "µs") if seconds < 1e-3 else (seconds * 1e3, "ms")
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}"


def described(rows: Sequence[Row], date: str, words: str) -> str:
    """When, where, with what: the sentence below the table."""
    machine = describe_machine()
    disturbed = max(row.foreign for row in rows)
    quiet = (
        ""
        if disturbed < 0.1
        else f" Other processes took up to {disturbed:.0%} of the core."
    )
    error = max(row.error for row in rows)
    return (
        f"{date}, one thread of {machine['processor']} ({platform.system()}, {machine['cores']} cores{words}), "
        f"f32, Python {machine['python']}. Tilewright {VERSION} and onnxruntime "
        f"{importlib.metadata.version('onnxruntime')} take turns in one run; medians; less is better. Results "
        f"agree with torch to {error:.0e} or better, relative.{quiet}"
    )


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| one call | Tilewright | onnxruntime | ratio |", "| --- | --- | --- | --- |"]
    lines += [
        f"| {row.title}, {row.work} | {duration(row.ours_s)} | "
        f"{duration(row.peer_s)} | {row.ratio:.2f} × |"
        for row in rows
    ]
    return "\n".join(lines)


# --- the plot --------------------------------------------------------------------------------

WIDTH: Final = 760
_LEFT: Final = 250
_RIGHT: Final = 110
_PITCH: Final = 46
_TOP: Final = 34
_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.small { font-size: 11px; fill: #57606a }
.peer { fill: #9aa4ae } .ours { fill: #0a7d6c }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9aa4ae }
  .peer { fill: #59636e } .ours { fill: #2bb8a0 }
}
"""


def plot(rows: Sequence[Row]) -> str:
    """Two bars per row, as long as the time in the peer's; colours follow the reader's theme."""
    longest = max(1.0, *(row.ratio for row in rows))
    scale = (WIDTH - _LEFT - _RIGHT) / longest
    height = _TOP + _PITCH * len(rows) + 12
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}" role="img">'
        ),
        f"<title>Time of one call, onnxruntime = 1; less is better: {escape(summary(rows))}</title>",
        f"<style>{_STYLE}</style>",
        *_legend(),
    ]
    for index, row in enumerate(rows):
        parts += _bars(row, _TOP + _PITCH * index, scale)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> list[str]:
    """Which colour is whose."""
    parts: list[str] = []
    for kind, name, x in (
        ("ours", "Tilewright", _LEFT),
        ("peer", "onnxruntime", _LEFT + 92),
    ):
        parts.append(f'<rect class="{kind}" x="{x}" y="8" width="11" height="11" rx="2"/>')
        parts.append(f'<text class="small" x="{x + 16}" y="17">{name}</text>')
    words = "time of one call; shorter is better"
    parts.append(f'<text class="small" x="{_LEFT + 196}" y="17">{words}</text>')
    return parts


def _bars(row: Row, top: float, scale: float) -> list[str]:
    label = _LEFT - 12
    rows = (("ours", row.ratio, row.ours_s, top), ("peer", 1.0, row.peer_s, top + 17))
    parts = [
        f'<text x="{label}" y="{top + 12}" text-anchor="end">{escape(row.title)}</text>',
        f'<text class="small" x="{label}" y="{top + 28}" text-anchor="end">{escape(row.work)}</text>',
    ]
    for kind, ratio, seconds, y in rows:
        end = _LEFT + ratio * scale
        name = "Tilewright" if kind == "ours" else "onnxruntime"
        parts.append(
            f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{ratio * scale:.1f}" height="15" rx="2">'
            f"<title>{name}: {duration(seconds)}</title></rect>"
        )
        parts.append(
            f'<text class="small" x="{end + 6:.1f}" y="{y + 12}">{duration(seconds)}</text>'
        )
    return parts


def summary(rows: Sequence[Row]) -> str:
    """The ratios in words, for who cannot see the plot."""
    return ", ".join(f"{row.title} {row.ratio:.2f}" for row in rows)


# --- where they go ---------------------------------------------------------------------------


def section(rows: Sequence[Row], sentence: str, command: str) -> str:
    """What stands between the marks in README.md."""
    return (
        f"{table(rows)}\n\n![Time of one call, onnxruntime = 1: {summary(rows)}]({PLOT})\n\n"
        f"{sentence} `{command}`\n"
    )


def write(rows: Sequence[Row], text: str, root: Path) -> None:
    """Put the figures where readers look.  Raises: SystemExit if README.md has no place for them."""
    readme = root / "README.md"
    before = readme.read_text(encoding="utf-8")
    if not _PLACE.search(before):
        raise SystemExit(f"{readme}: no place marked '<!-- figures -->'")
    readme.write_text(_PLACE.sub(lambda _: text, before), encoding="utf-8")
    (root / PLOT).write_text(plot(rows), encoding="utf-8")


def _command(parser: argparse.ArgumentParser, options: argparse.Namespace) -> str:
    """How to do it again: the options that decide what is measured."""
    words = ["python benchmarks/readme_figures.py"]
    for name in ("rounds", "seconds", "attempts"):
        value = getattr(options, name)
        if value != parser.get_default(name):
            words.append(f"--{name} {value}")
    return " ".join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, default=ROOT / "build" / "models")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.6, help="per side and round")
    parser.add_argument("--attempts", type=int, default=ATTEMPTS)
    parser.add_argument("--write", action="store_true", help="into README.md and docs/")
    options = parser.parse_args(arguments)
    rows = measure(
        options.models,
        rounds=options.rounds,
        seconds=options.seconds,
        attempts=options.attempts,
    )
    sentence = described(rows, time.strftime("%d %B %Y"), vector_words())
    text = section(rows, sentence, _command(parser, options))
    if options.write:
        write(rows, text, ROOT)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
