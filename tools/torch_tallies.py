"""What became of the samples of torch's operator database: counted, kept in a file, and written as a page.

Not the running of them, which is `tools/torch_operators.py`.
"""

from __future__ import annotations

import collections
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, final

OUTCOMES: Final[tuple[str, ...]] = ("right", "refused", "wrong", "crashed", "slow")
KEPT: Final = 5
"""Failures that are kept as text, of each operator and element type."""
FORMAT: Final = 1
"""Of the lines of a state; lines that say none are of the first."""
SOURCES: Final = (
    "src/tilewright/base",
    "src/tilewright/compiler",
    "tools/torch_samples.py",
)
"""What decides about a sample, apart from torch."""


class StateError(SystemExit):
    """A state that cannot be gone on with; ends a tool with its text."""


Run = tuple[str, str]
"""An operator and an element type."""


@final
@dataclass(slots=True)
class Tally:
    """What became of the samples of one operator and element type, and how many there are."""

    operator: str
    dtype: str
    total: int = 0
    right: int = 0
    refused: int = 0
    wrong: int = 0
    crashed: int = 0
    slow: int = 0
    reasons: dict[str, int] = field(default_factory=dict[str, int])
    failures: list[str] = field(default_factory=list[str])
    revision: str = ""
    """Of the sources that its samples were tried with (`revision_of`); empty where nobody wrote it down."""

    @property
    def ran(self) -> int:
        """How many samples were tried."""
        return self.right + self.refused + self.wrong + self.crashed + self.slow

    def add(self, outcome: str, text: str) -> None:
        """Count one more sample."""
        setattr(self, outcome, getattr(self, outcome) + 1)
        if outcome == "refused":
            self.reasons[text] = self.reasons.get(text, 0) + 1
        elif outcome != "right" and len(self.failures) < KEPT:
            self.failures.append(f"{outcome}: {text}")


def read_state(path: Path) -> dict[tuple[str, str], Tally]:
    """What is known; the last line about an operator and element type counts."""
    return {(tally.operator, tally.dtype): tally for tally in _rows(path)}


def _rows(path: Path) -> list[Tally]:
    """The lines of a state.  Raises: StateError naming the one that is none."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    whole, _, _ = text.rpartition("\n")  # behind it is a line that a run was stopped in
    return [
        _tally(line, f"{path}:{number}")
        for number, line in enumerate(whole.split("\n"), 1)
        if line
    ]


def _tally(line: str, place: str) -> Tally:
    try:
        members = json.loads(line)
        version = members.pop("format", FORMAT)
        if version == FORMAT:
            return Tally(**members)
    except (AttributeError, TypeError, ValueError) as error:
        raise StateError(
            f"{place}: is no line of a state ({error}); --again begins anew"
        ) from error
    raise StateError(
        f"{place}: has format {version}, expected {FORMAT}; --again begins anew"
    )


def append_state(path: Path, tally: Tally) -> None:
    """Write down what is known of one operator and element type, behind the last line that is whole."""
    line = json.dumps({"format": FORMAT, **asdict(tally)}) + "\n"
    with path.open("ab+") as target:
        size = target.seek(0, os.SEEK_END)
        target.seek(0)
        end = target.read().rfind(b"\n") + 1
        if end < size:
            target.truncate(end)
        target.write(line.encode())


def forget(path: Path, runs: Iterable[Run]) -> None:
    """Take the lines about these operators and element types out of a file, and those that are none."""
    gone, kept = set(runs), list[str]()
    for line in path.read_text(errors="replace").split("\n") if path.exists() else ():
        try:
            tally = _tally(line, "")
        except StateError:
            continue
        if (tally.operator, tally.dtype) not in gone:
            kept.append(f"{line}\n")
    if not path.exists() and not kept:
        return
    # The old one stays until the new one is whole.
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as made:
        made.writelines(kept)
    Path(made.name).replace(path)


def stale(path: Path, revision: str) -> set[Run]:
    """The operators and element types that something of was tried with other sources."""
    rows = read_state(path).items()
    return {run for run, tally in rows if tally.revision != revision}


def revision_of(root: Path, version: str) -> str:
    """A name for the sources that decide about a sample, and torch's version."""
    digest = hashlib.sha256(version.encode())
    for source in (root / name for name in SOURCES):
        files = sorted(source.rglob("*.py")) if source.is_dir() else [source]
        for file in files:
            digest.update(str(file.relative_to(root)).encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def count_of(tallies: Iterable[Tally]) -> dict[str, int]:
    """Samples by outcome."""
    found: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
    for tally in tallies:
        for outcome in OUTCOMES:
            found[outcome] += getattr(tally, outcome)
    return found


def page(tallies: Iterable[Tally], version: str) -> str:
    """The page of results as Markdown."""
    by_operator: dict[str, list[Tally]] = collections.defaultdict(list)
    for tally in tallies:
        if tally.ran:
            by_operator[tally.operator].append(tally)
    lines = [line_of(name, by_operator[name]) for name in sorted(by_operator)]
    return head(by_operator, version) + "".join(lines)


def head(by_operator: Mapping[str, Sequence[Tally]], version: str) -> str:
    """What stands above the table."""
    counts = [count_of(tallies) for tallies in by_operator.values()]
    every = [tally for tallies in by_operator.values() for tally in tallies]
    all_of = count_of(every)
    tried, total = sum(all_of.values()), sum(tally.total for tally in every)
    whole = sum(c["right"] == sum(c.values()) for c in counts)
    partly = sum(
        c["right"] > 0 and c["right"] + c["refused"] == sum(c.values()) for c in counts
    )
    refused = sum(c["refused"] == sum(c.values()) for c in counts)
    left = [
        name for name, rows in by_operator.items() if any(t.ran < t.total for t in rows)
    ]
    how_many = (
        f"{tried} of {total} samples, all of {len(by_operator) - len(left)} operators"
    )
    revisions = len({tally.revision for tally in every})
    one = (
        ""
        if revisions < 2
        else f" The samples were tried with {revisions} revisions of the sources."
    )
    return f"""<!-- Written by tools/torch_operators.py --page; run it again instead of changing this. -->

# Operators of PyTorch

The operator database of `torch.testing` (torch {version}) in f32, f64, f16, bf16, i64 and bool, exported by `torch.export`, imported,
computed by the oracles of the graph's ops and compared with torch: {"all " if not left else ""}{how_many if left else f"{total} samples"}.
Of {len(by_operator)} operators and variants **{whole}** are right on every sample that was tried, {partly - whole} on some and refused by name on the
others, {refused} are refused by name on all of them, and {len(counts) - partly - refused} give a wrong result, crash or take too long. Of {tried} samples
{all_of["right"]} are right ({100 * all_of["right"] / max(tried, 1):.1f} %), {all_of["refused"]} refused, {all_of["wrong"]} wrong; {all_of["crashed"]} crash, {all_of["slow"]} take more than a minute.{one}

A result of f32 or halves that is farther from torch's than torch's tolerance is right if it is as near to what torch gives in f64 as
torch's own: torch rounds sums on the way. Of operators that draw random numbers, and of those whose elements are what lay in memory,
shapes and types are compared; of singular and eigenvectors, whose signs are free, what torch's own tests make of them.

    python tools/torch_operators.py --page docs/torch-operators.md --samples 2     # then without --samples: all of them, many hours; it goes on where it ended

| operator | samples | right | refused | wrong | why it is refused |
| --- | --- | --- | --- | --- | --- |
"""


def line_of(name: str, tallies: Sequence[Tally]) -> str:
    """One line of the table."""
    count = count_of(tallies)
    total = sum(tally.total for tally in tallies)
    reasons = collections.Counter[str]()
    for tally in tallies:
        reasons.update(tally.reasons)
    first = reasons.most_common(1)
    reason = re.sub(r"[|`<>\[\]]", " ", first[0][0])[:110] if first else ""
    tried = sum(count.values())
    of = f"{tried} of {total}" if tried < total else str(total)
    bad = count["wrong"] + count["crashed"] + count["slow"]
    return (
        f"| `{name}` | {of} | {count['right']} | {count['refused']} | {bad} | {reason} |\n"
    )
