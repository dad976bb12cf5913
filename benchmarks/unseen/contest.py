"""One exported family against torch and onnxruntime: what coverage says, what runs, how fast.

What it is: ``python -m unseen.contest MODEL.onnx`` prints one row as JSON; a row has everything
that a stranger would look at: errors, words of coverage and whether they hold, warnings, times, peaks.
What it is not: protection from a contender that ends the process (``unseen_models.py``).
Who calls it: the command, one process per family.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

import tilewright
from sweep.contest import WALL, Ours, Peer, count_for, difference, time_round
from sweep.network import Array
from tilewright.api.model import coverage
from tilewright.api.profiling.kernels import rows_of, sample
from tilewright.base.outcome import Outcome

ROUNDS: Final = 9
NOTICED_SHARE: Final = 0.05
WITHOUT_LANES: Final = (Outcome.GENERIC, Outcome.HOST)
Row = dict[str, Any]


def read(path: Path, kind: str) -> dict[str, Array]:
    """Return the arrays written beside the model."""
    with np.load(path.with_suffix(f".{kind}.npz")) as archive:
        return {name: archive[name] for name in archive.files}


def worst(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """Return the largest relative error over the results; infinite where they do not correspond."""
    if len(ours) != len(theirs):
        return float("inf")
    pairs = zip(ours, theirs, strict=True)
    return max((difference(one, other) for one, other in pairs), default=0.0)


def words_of(path: Path) -> Row:
    """Return what ``tilewright coverage`` says: words by operator type, reasons of bad ones."""
    report = coverage(str(path))
    reasons = [
        f"{row.op_type} {row.status.value}: {reason.text}"
        for row in report.rows
        for reason in row.reasons
    ]
    return {
        "words": dict(Counter(row.status.value for row in report.rows)),
        "reasons": reasons[:12],
    }


def shares(model: tilewright.Model, feeds: dict[str, Array]) -> dict[str, float]:
    """Return which share of a call's time kernels of each outcome take, as measured."""
    arrays = tuple(feeds.values())
    session = model.session
    rows = rows_of(session, arrays, [sample(session, arrays) for _ in range(3)])
    total = sum(row.time_ns for row in rows) or 1
    found: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        found[row.outcome or Outcome.HOST] += row.time_ns / total
    return {key: round(value, 4) for key, value in found.items()}


def untrue(row: Row) -> str:
    """Return where the words of coverage and what was measured contradict each other."""
    slow = sum(row["words"].get(word, 0) for word in ("slow", "fallback"))
    share = sum(row["shares"].get(outcome, 0.0) for outcome in WITHOUT_LANES)
    if share > NOTICED_SHARE and not slow:
        return f"{share:.0%} of the time runs without lanes, coverage has no word for it"
    if row["words"].get("slow") and not row["warnings"]:
        return "coverage says slow, compiling warned of nothing"
    if row["warnings"] and not slow:
        return "compiling warned, coverage says nothing is slow"
    return ""


def doubled(model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Array] | None:
    """Return inputs twice as long along each dynamic axis, none where no axis is dynamic."""
    found = False
    larger = dict(feeds)
    for entry in model.graph.input:
        for axis, dim in enumerate(entry.type.tensor_type.shape.dim):
            if dim.dim_param:
                found = True
                both = (larger[entry.name], larger[entry.name])
                larger[entry.name] = np.concatenate(both, axis)
    return larger if found else None


def peak_mib(code: str, *arguments: str) -> float:
    """Return how much memory a fresh process takes at its peak while it loads and runs a model."""
    # Not ru_maxrss: a child begins with the peak of the process that it was forked from.
    ending = "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"
    asked = [sys.executable, "-c", f"{code}\n{ending}", *arguments]
    answer = subprocess.run(asked, capture_output=True, text=True, check=True)
    return int(answer.stdout.split()[-1]) / 1024


OURS_RUNS: Final = """
import sys, numpy as np, tilewright.runtime as runtime
from tilewright.api.load import load
session = load(sys.argv[1], threads=1)
inputs = dict(np.load(sys.argv[2]))
for _ in range(2): session(*inputs.values())
"""
PEER_RUNS: Final = """
import sys, numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
inputs = dict(np.load(sys.argv[2]))
for _ in range(2): session.run(None, inputs)
"""


def peaks(model: tilewright.Model, path: Path) -> Row:
    """Return the peaks of two processes that load and run the model, MiB."""
    artifact = path.with_suffix(".vmfb")
    inputs = str(path.with_suffix(".inputs.npz"))
    try:
        model.save(artifact, sources=False)
        return {
            "ours_mib": peak_mib(OURS_RUNS, str(artifact), inputs),
            "peer_mib": peak_mib(PEER_RUNS, str(path), inputs),
        }
    finally:
        artifact.unlink(missing_ok=True)


def race(ours: Ours, peer: Peer) -> Row:
    """Return least and median time of each by name, taken in turns.

    Calls of a whole model are long: a disturbed one must not be the only one.
    """
    contenders = (ours, peer)
    counts = [count_for(contender.call, WALL) for contender in contenders]
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for contender, count, taken in zip(contenders, counts, times, strict=True):
            taken += time_round(contender.call, count, WALL)
    return {
        contender.name: {"min_s": min(taken), "median_s": statistics.median(taken)}
        for contender, taken in zip(contenders, times, strict=True)
    }


def hold(path: Path) -> Row:
    """Return the row of a family."""
    facts = json.loads(path.with_suffix(".json").read_text())
    row: Row = {"name": path.stem, "parameters": facts["parameters"]}
    row.update(words_of(path))
    proto, feeds = onnx.load(path), read(path, "inputs")
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            ours = Ours(proto, feeds)
            results = ours.outputs()
        except Exception as refusal:  # whatever it is, a stranger would see it
            return row | {"refused": f"{type(refusal).__name__}: {refusal}"[:400]}
    row["compile_s"] = round(time.perf_counter() - start, 1)
    row["compile_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row["warnings"] = [str(w.message)[:300] for w in caught]
    row["torch_error"] = worst(results, list(read(path, "ref").values()))
    row["shares"] = shares(ours.model, feeds)
    row["untrue"] = untrue(row)
    peer = Peer(proto, feeds)
    row["peer_error"] = worst(results, peer.outputs())
    if (larger := doubled(proto, feeds)) is not None:
        wide = [np.asarray(value) for value in peer.session.run(None, larger)]
        outputs = [np.asarray(value) for value in ours.model.run(larger).values()]
        row["larger_error"] = worst(outputs, wide)
    row.update(race(ours, peer))
    row.update(peaks(ours.model, path))
    return row


def main() -> int:
    """Print the row."""
    print(json.dumps(hold(Path(sys.argv[1]))), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
