"""Starts many interpreters whose calls are under way when they exit, fork or get a signal, and counts crashes.

    python tests/e2e/process_ends.py --count 1000

Every process is one of `WAYS` on one of the engines, with pauses drawn from its number, so that a run of
the same `--first` and `--count` does the same.  What is no crash: the end that the way asks for.  A process that
does not end in time is a hang, and counts.  Called by `test_stress` with small counts.
"""

from __future__ import annotations

import argparse
import collections
import random
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import onnx

import tilewright as tw

SECONDS: Final = 120  # on a busy machine a call takes its time
ROUNDS: Final = 5
PROGRESS: Final = 100  # processes between two lines on stderr
ENGINES: Final = ("plan", "vm")
_LOAD: Final = """
import os; os.environ["OPENBLAS_NUM_THREADS"] = "1"
import faulthandler, signal, sys, threading, time
import numpy as np
import tilewright as tw

faulthandler.enable()
faulthandler.dump_traceback_later(float(sys.argv[4]), exit=False)  # says where it hangs
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs inherit "ignored"
path, engine, pause = sys.argv[1], sys.argv[2], float(sys.argv[3])
session = tw.load(path, engine=engine, threads=2)
large, small = np.full((512, 512), 0.5, np.float32), np.full((8, 512), 0.5, np.float32)
expected = session(small)

def call():
    while True:
        session(large)

def load(count=3):
    for _ in range(count):
        threading.Thread(target=call, daemon=True).start()
    return [session.begin(large) for _ in range(8)]

def check():
    return np.array_equal(session(small), expected)
"""
# What happens after `_LOAD`, and the exit statuses that are right.
WAYS: Final = {
    "exit": ("pending = load(); time.sleep(pause)", (0,)),
    "exit in a call": ("load(); time.sleep(pause); session(large); sys.exit(3)", (3,)),
    "error": ("pending = load(); time.sleep(pause); raise SystemExit('end')", (1,)),
    "fork": (
        """
pending = load()
children = []
for _ in range(2):
    time.sleep(pause)
    # The thread that would dump is the parent's alone: a child that ends would wait for it for ever.
    faulthandler.cancel_dump_traceback_later()
    child = os.fork()
    if child == 0:  # leaves as a whole interpreter does, with calls of its own under way
        fine = check()
        pending = load(1)
        time.sleep(pause)
        sys.exit(0 if fine else 5)
    children.append(child)
    faulthandler.dump_traceback_later(float(sys.argv[4]), exit=False)
states = [os.waitpid(child, 0)[1] for child in children]
if any(states) or not check():
    print("children ended with", states, file=sys.stderr)
    os._exit(6)
""",
        (0,),
    ),
    "alarms": (
        """
heard = []
def hear(*_):
    heard.append(check())
    signal.setitimer(signal.ITIMER_REAL, 0.01)
signal.signal(signal.SIGALRM, hear)
hear()
pending = load()
end = time.monotonic() + pause
while time.monotonic() < end:
    session(large)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
sys.exit(0 if heard and all(heard) and check() else 6)
""",
        (0,),
    ),
    "ctrl-c": (
        "pending = load(); print('ready', flush=True)\nwhile True: session(large)",
        (-signal.SIGINT,),
    ),
    "terminate": (
        "pending = load(); print('ready', flush=True)\nwhile True: session(large)",
        (-signal.SIGTERM,),
    ),
}
# Every way meets every engine, and a few numbers meet every way.
PAIRS: Final = tuple(
    (way, ENGINES[(turn + place) % len(ENGINES)])
    for turn in range(len(ENGINES))
    for place, way in enumerate(WAYS)
)
_SENT: Final = {"ctrl-c": signal.SIGINT, "terminate": signal.SIGTERM}


@dataclass(frozen=True, slots=True)
class End:
    """How one process ended."""

    number: int
    way: str
    engine: str
    status: int | None  # None: it did not end
    errors: str

    @property
    def is_right(self) -> bool:
        return self.status in WAYS[self.way][1] and "Fatal Python error" not in self.errors

    def __str__(self) -> str:
        status = "hangs" if self.status is None else f"ended with {self.status}"
        return f"{self.number}: {self.way}, engine {self.engine}: {status}\n{self.errors}"


def make_model(path: Path) -> Path:
    """A chain of products that takes long enough to be interrupted inside."""
    weights = np.random.default_rng(1).standard_normal((512, 512), np.float32) / 32
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [
                onnx.helper.make_node("MatMul", [f"h{i}", "w"], [f"h{i + 1}"])
                for i in range(24)
            ],
            "chain",
            [onnx.helper.make_tensor_value_info("h0", 1, ["n", 512])],
            [onnx.helper.make_tensor_value_info("h24", 1, ["n", 512])],
            [onnx.numpy_helper.from_array(weights, "w")],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 21)],
        ir_version=10,
    )
    tw.compile(model, threads=2, jobs=1).save(path)
    return path


def run(model: Path, number: int) -> End:
    """One process from its start to its end."""
    choose = random.Random(number)
    way, engine = PAIRS[number % len(PAIRS)]
    pause = choose.uniform(0.0, 0.25)
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _LOAD + WAYS[way][0],
            str(model),
            engine,
            str(pause),
            str(SECONDS - 10),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if way in _SENT:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(pause)
        except subprocess.TimeoutExpired:
            process.send_signal(_SENT[way])
    for _ in range(ROUNDS):
        try:
            _, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            if not is_starved(process.pid):
                break
        else:
            return End(number, way, engine, process.returncode, errors)
    process.kill()
    return End(number, way, engine, None, process.communicate()[1])


def is_starved(pid: int) -> bool:
    """Whether some thread wants to run: on a busy machine that takes its time, and is no hang."""
    states = (task / "stat" for task in Path(f"/proc/{pid}/task").glob("*"))
    return any(stat.read_text().rpartition(")")[2].split()[0] == "R" for stat in states)


def main() -> int:
    """Run them one after the other; returns the number of wrong ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    ends: collections.Counter[str] = collections.Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "chain.vmfb")
        for number in range(options.first, options.first + options.count):
            end = run(model, number)
            ends[f"{end.way}, {end.engine}"] += 1
            if not end.is_right:
                wrong += 1
                sys.stdout.write(f"{end}\n")
                sys.stdout.flush()
            if (done := number + 1 - options.first) % PROGRESS == 0:
                sys.stderr.write(f"{done} of {options.count}, {wrong} wrong\n")
    for name, count in sorted(ends.items()):
        sys.stdout.write(f"{count:6} {name}\n")
    sys.stdout.write(f"{options.count} processes, {wrong} wrong ends\n")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
