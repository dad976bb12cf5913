"""Random ONNX models against onnxruntime and ONNX's evaluator: of control flow and sizes of data, or of networks.

What it is: the numbers of cases, the ways each is run, and what became of it.  Every case runs by the oracles of
its ops; some as machine code at some level for some target, some in our bytecode (our virtual machine, and IREE's
if it is there).  The same number is always the same case.
What it is not: the models (`flow`), or models that are damaged (`test_corrupt_models`).
Who calls it: `make test-nightly`, and developers::

    nice -n 19 python tests/fuzz/control_flow.py --count 100000 > build/fuzz-control-flow.txt
    nice -n 19 python tests/fuzz/control_flow.py --family network --count 100000 > build/fuzz-network.txt
    python tests/fuzz/control_flow.py --first 4711 --count 1 --compile-every 1 --shrink
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.flow import judging, shrinking
from fuzz.flow.judging import Verdict, Way
from fuzz.flow.models import Case, make_case
from fuzz.flow.networks import make_network
from fuzz.flow.onnxruntime_worker import OnnxruntimeWorker

FAMILIES: dict[str, Callable[[int], Case]] = {"flow": make_case, "network": make_network}
TARGETS = ("host", "v1", "c")
COMPILE_EVERY = 40
HANG_S = 300
REPORT_EVERY = 1000
HAS_IREE = importlib.util.find_spec("iree") is not None


@dataclass(frozen=True)
class Judged:
    """What became of a case on one way."""

    number: int
    way: str
    verdict: Verdict

    def __str__(self) -> str:
        return f"case {self.number} {self.way}: {self.verdict.kind}: {self.verdict.text}"


def ways(number: int, compile_every: int) -> dict[str, Way]:
    """How a case is run: each by the oracles, every so many as machine code."""
    found: dict[str, Way] = {"by oracles": judging.by_oracles}
    if compile_every and number % compile_every == 0:
        turn = number // compile_every
        level, target, threads = (2, 2, 1, 0)[turn % 4], TARGETS[turn % 3], 1 + turn % 2
        found[f"compiled at level {level} for {target}, threads: {threads}"] = (
            judging.compiled(level, target, threads)
        )
        if turn % 3 == 0:
            found["in our virtual machine"] = judging.by_bytecode
        if turn % 6 == 0 and HAS_IREE:
            found["in the machine of IREE"] = judging.by_iree
    return found


def run_one(
    number: int, worker: OnnxruntimeWorker, compile_every: int, family: str
) -> list[Judged]:
    """What became of a case, on each way until one refuses it."""
    case = FAMILIES[family](number)
    wanted = judging.expected(case, worker)
    if isinstance(wanted, Verdict):
        return [Judged(number, "in onnxruntime", wanted)]
    found: list[Judged] = []
    for name, way in ways(number, compile_every).items():
        found.append(Judged(number, name, judging.judge(case, way, wanted)))
        if found[-1].verdict.kind == "refused":
            break
    return found


def run(
    first: int, count: int, compile_every: int = COMPILE_EVERY, family: str = "flow"
) -> Iterator[Judged]:
    """What became of a range of cases."""
    with OnnxruntimeWorker() as worker:
        for number in range(first, first + count):
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            yield from run_one(number, worker, compile_every, family)
        faulthandler.cancel_dump_traceback_later()


def smaller(finding: Judged, compile_every: int, family: str) -> Case:
    """The case of a finding, made smaller."""
    way = ways(finding.number, compile_every)[finding.way]
    begin = finding.verdict.text.split("[", maxsplit=1)[0][:30]
    with OnnxruntimeWorker() as worker:

        def fails(case: Case) -> bool:
            wanted = judging.expected(case, worker)
            if isinstance(wanted, Verdict):
                return False
            verdict = judging.judge(case, way, wanted)
            is_wrong = verdict.kind == "wrong" == finding.verdict.kind
            return is_wrong or (verdict.is_finding and verdict.text.startswith(begin))

        return shrinking.shrunk(FAMILIES[family](finding.number), fails)


def main() -> int:
    """Run a range of cases, print findings and counts; exit code 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--compile-every", type=int, default=COMPILE_EVERY)
    parser.add_argument("--family", choices=sorted(FAMILIES), default="flow")
    parser.add_argument("--shrink", action="store_true", help="make findings smaller")
    options = parser.parse_args()
    faulthandler.enable()
    counts: Counter[str] = Counter()
    findings, begin = 0, time.monotonic()
    for judged in run(options.first, options.count, options.compile_every, options.family):
        counts[f"{judged.way}: {judged.verdict.kind}"] += 1
        if judged.verdict.is_finding:
            findings += 1
            print(judged, flush=True)  # noqa: T201
            if options.shrink:
                case = smaller(judged, options.compile_every, options.family)
                print(shrinking.text_of(case))  # noqa: T201
        if (judged.number + 1) % REPORT_EVERY == 0:
            print(f"to {judged.number}: {dict(counts)}", flush=True)  # noqa: T201
    seconds = time.monotonic() - begin
    print(f"{options.count} cases: {dict(counts)}, {seconds:.0f} s", flush=True)  # noqa: T201
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
