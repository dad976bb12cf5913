"""Change the compiler's core in small wrong ways, one at a time, and see whether a test fails.

What it is: a mutation run.  A mutant that no test notices (a survivor) is either a test that is missing, or a change
that makes no difference; those stand in `mutants.toml` beside this file, each with its reason.
What it is not: the maker of the changes (`mutants.py`), or a gate of `make check`: a run takes hours.
Who calls it: a developer, by hand::

    nice python tools/mutate.py --count 150                     a sample of the whole core
    nice python tools/mutate.py --count 40 --seed 2 schedule    of one room; the next seed takes others
    python tools/mutate.py --again                              survivors of earlier runs, after tests were added
    python tools/mutate.py --check                              is every row of mutants.toml still a mutant?

It works in a copy of the repository (`build/mutation`), so the sources may change meanwhile.  Tests run from near to
far, until one fails: those that mirror the file, those of its room, those of the other rooms, those that run machine
code.  `--reach` says how far: what only far tests notice takes minutes each, and deserves a near test.  Each result is written when it is known (`build/mutation.jsonl`): a run that
was ended goes on where it was.

Why not mutmut or cosmic-ray: mutmut exchanges functions while they run, so it changes nothing outside of functions
and nothing that a declaration or a table took over on import; cosmic-ray runs one fixed command for every mutant, in
the working tree itself.  Neither begins with the second of tests that most probably suffices.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from mutants import Mutant, mutants_of

ROOT: Final = Path(__file__).resolve().parent.parent
COMPILER: Final = "src/tilewright/compiler"
CORE: Final = (
    "graph",
    "kernel",
    "analysis",
    "lowering",
    "schedule",
    "transforms",
    "program",
)
NEIGHBOURS: Final = ("tests/unit/compiler/ops", "tests/unit/compiler/passes", "tests/text")
CODE: Final = (
    "tests/conformance/ops",
    "tests/unit/compiler/backends",
    "tests/unit/compiler/printers",
    "tests/conformance/native",
)
REACHES: Final = ("room", "core", "code")
EXPLAINED: Final = Path(__file__).with_name("mutants.toml")
RESULTS: Final = ROOT / "build" / "mutation.jsonl"
COPY: Final = ROOT / "build" / "mutation"
COPIED: Final = ("src", "tests", "docs", "native", "tools", "examples", "benchmarks")
PYTEST: Final = ("-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider")
NO_TESTS: Final = 5
"""What pytest returns where nothing was collected."""
PATIENCE: Final = 5
"""A mutant may take so many times as long as the unchanged code, and `GRACE_S` more."""
GRACE_S: Final = 30.0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a mutant: `killed`, `timeout` or `survived`, and by which test."""

    key: str
    status: str
    by: str
    seconds: float


# ------------------------------------------------------------------ which mutants


def core_files(root: Path, parts: Sequence[str]) -> list[Path]:
    """The source files of the core in whose path one of `parts` stands; all without any."""
    rooms = [root / COMPILER / room for room in CORE]
    files = [path for room in rooms for path in sorted(room.rglob("*.py"))]
    names = {path: path.relative_to(root / COMPILER).as_posix() for path in files}
    return [path for path in files if not parts or any(one in names[path] for one in parts)]


def sample(mutants: Sequence[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` of them, the operators in turns: the commonest one must not crowd out the others."""
    by_operator: defaultdict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_operator[mutant.operator].append(mutant)
    chance = random.Random(seed)
    for group in by_operator.values():
        chance.shuffle(group)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(by_operator.values()):
        chosen += [group.pop() for group in by_operator.values() if group]
    return chosen[:count]


def read_explained(path: Path) -> dict[str, str]:
    """The mutants that make no difference: key → reason."""
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("explained", [])
    explained: dict[str, str] = {}
    for row in rows:
        if not str(row.get("reason", "")).strip():
            raise SystemExit(f"{path.name}: '{row.get('before')}' has no reason")
        explained[f"{row['place']}: {row['before']} -> {row['after']}"] = str(row["reason"])
    return explained


def find_stale(root: Path, explained: Iterable[str]) -> list[str]:
    """The explained keys that are no mutant of the sources any more."""
    keys: defaultdict[str, set[str]] = defaultdict(set)
    stale: list[str] = []
    for key in explained:
        name = key.partition("::")[0]
        path = root / name
        if name not in keys and path.exists():
            keys[name] = {one.key for one in mutants_of(path, root)}
        if key not in keys[name]:
            stale.append(key)
    return stale


# ------------------------------------------------------------------ which tests


def stages(root: Path, file: str, *, reach: str) -> list[list[str]]:
    """The tests for a mutant of `file`, from near to far; each folder or file stands once."""
    inside = Path(file).relative_to(COMPILER)
    mirrored = root / "tests" / "unit" / "compiler" / inside.parent
    near = [
        *mirrored.glob(f"test_{inside.stem}.py"),
        *mirrored.glob(f"test_{inside.stem}_*.py"),
    ]
    room = f"tests/unit/compiler/{inside.parts[0]}"
    others = [f"tests/unit/compiler/{one}" for one in CORE if one != inside.parts[0]]
    wanted = [
        sorted(path.relative_to(root).as_posix() for path in near),
        [room],
        [*NEIGHBOURS, *others],
        list(CODE),
    ][: REACHES.index(reach) + 2]
    return [
        there for tests in wanted if (there := [t for t in tests if (root / t).exists()])
    ]


@final
@dataclass(slots=True)
class Runner:
    """Runs tests in a copy of the repository."""

    copy: Path
    _usual_s: dict[tuple[str, ...], float] = field(
        default_factory=dict[tuple[str, ...], float]
    )
    _written: int = 0

    def prepare(self) -> None:
        """Copy what the tests read."""
        shutil.rmtree(self.copy, ignore_errors=True)
        self.copy.mkdir(parents=True)
        for name in COPIED:
            shutil.copytree(ROOT / name, self.copy / name)
        for path in (*ROOT.glob("*.toml"), *ROOT.glob("*.md"), ROOT / "setup.py"):
            shutil.copy(path, self.copy)

    def judge(self, mutant: Mutant, *, reach: str) -> Result:
        """Run tests on the mutant until one fails."""
        path = self.copy / mutant.file
        source = path.read_text(encoding="utf-8")
        changed = mutant.apply(source)
        begin = time.monotonic()
        status, by = "survived", ""
        for tests in stages(self.copy, mutant.file, reach=reach):
            limit_s = GRACE_S + PATIENCE * self.usual_s(tests)
            try:
                self._write(path, changed)
                status, by = self._run(tests, limit_s)
            finally:
                self._write(path, source)
            if status != "survived":
                break
        return Result(
            key=mutant.key, status=status, by=by, seconds=round(time.monotonic() - begin, 1)
        )

    def usual_s(self, tests: Sequence[str]) -> float:
        """How long the tests take on the unchanged copy; they must pass there."""
        known = tuple(tests)
        if known not in self._usual_s:
            begin = time.monotonic()
            status, by = self._run(tests, limit_s=3600)
            if status != "survived":
                raise SystemExit(f"without any change {by or tests} fails: {status}")
            self._usual_s[known] = time.monotonic() - begin
        return self._usual_s[known]

    def _write(self, path: Path, text: str) -> None:
        """Each text gets a time of its own: compiled code of another one must never look current."""
        path.write_text(text, encoding="utf-8")
        self._written += 1
        when = int(time.time()) + self._written
        os.utime(path, (when, when))

    def _run(self, tests: Sequence[str], limit_s: float) -> tuple[str, str]:
        environment = {**os.environ, "PYTHONPATH": str(self.copy / "src"), "CI": "1"}
        with subprocess.Popen(
            [sys.executable, *PYTEST, *tests],
            cwd=self.copy, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                return "timeout", " ".join(tests)
            finally:  # compile workers, too
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode in (0, NO_TESTS):
            return "survived", ""
        failed = [
            line.split(" ")[1]
            for line in output.splitlines()
            if line.startswith(("FAILED ", "ERROR "))
        ]
        return "killed", failed[0] if failed else output.strip().splitlines()[-1]


# ------------------------------------------------------------------ what is said


def read_results(path: Path) -> dict[str, Result]:
    """The results of earlier runs; of a mutant tried twice, the later one."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {result.key: result for result in (Result(**json.loads(line)) for line in lines)}


def write_result(path: Path, result: Result) -> None:
    """Add a line."""
    row = {name: getattr(result, name) for name in Result.__slots__}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def show_diff(mutant: Mutant, source: str) -> str:
    """The mutant as a patch."""
    changed = mutant.apply(source)
    lines = difflib.unified_diff(
        source.splitlines(),
        changed.splitlines(),
        mutant.file,
        mutant.file,
        lineterm="",
        n=2,
    )
    return "\n".join(lines)


def run(
    todo: Sequence[Mutant], runner: Runner, results: Path, *, reach: str
) -> list[Mutant]:
    """Judge them all; return those that survived.  Ctrl-C ends early."""
    runner.prepare()
    survivors: list[Mutant] = []
    counts: Counter[str] = Counter()
    begin = time.monotonic()
    try:
        for number, mutant in enumerate(todo, 1):
            result = runner.judge(mutant, reach=reach)
            write_result(results, result)
            counts[result.status] += 1
            if result.status == "survived":
                survivors.append(mutant)
            left_min = (time.monotonic() - begin) / number * (len(todo) - number) / 60
            print(
                f"[{number}/{len(todo)}, {left_min:.0f} min left] {result.status:8} "
                f"{mutant.file.removeprefix(COMPILER + '/')}:{mutant.line} "
                f"{mutant.operator}, {result.seconds:.0f} s  {result.by}",
                flush=True,
            )
    except KeyboardInterrupt:
        print("ended early; the same command goes on from here")
    print(", ".join(f"{count} {status}" for status, count in counts.most_common()))
    return survivors


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="parts of paths in the core: rooms, files")
    parser.add_argument("--count", type=int, default=50, help="mutants to try (50)")
    parser.add_argument("--seed", type=int, default=0, help="which sample (0)")
    parser.add_argument("--again", action="store_true", help="only earlier survivors")
    parser.add_argument(
        "--reach", choices=REACHES, default="room", help="the farthest tests to run (room)"
    )
    parser.add_argument("--list", action="store_true", help="show the mutants, try none")
    parser.add_argument("--check", action="store_true", help="look at mutants.toml only")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"({RESULTS.name})")
    parser.add_argument("--copy", type=Path, default=COPY, help="where the copy goes")
    return parser.parse_args(arguments)


def choose(options: argparse.Namespace, known: dict[str, Result]) -> list[Mutant]:
    """The mutants to try: survivors again, or a sample without what is known."""
    explained = read_explained(EXPLAINED)
    files = core_files(ROOT, options.parts)
    found = [mutant for path in files for mutant in mutants_of(path, ROOT)]
    found = [mutant for mutant in found if mutant.key not in explained]
    if options.again:
        return [m for m in found if m.key in known and known[m.key].status == "survived"]
    chosen = sample(found, options.count, options.seed)
    return [mutant for mutant in chosen if mutant.key not in known]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as asked; 1 if a mutant survived or a row is stale."""
    options = parse(arguments)
    if options.check:
        stale = find_stale(ROOT, read_explained(EXPLAINED))
        for key in stale:
            print(f"mutants.toml: no such mutant any more, take the row out: {key}")
        return 1 if stale else 0
    todo = choose(options, read_results(options.results))
    if options.list:
        for mutant in todo:
            print(f"{mutant.key}  ({mutant.operator}, line {mutant.line})")
        return 0
    options.results.parent.mkdir(parents=True, exist_ok=True)
    survivors = run(todo, Runner(options.copy), options.results, reach=options.reach)
    for mutant in survivors:
        print(
            "\n"
            + show_diff(mutant, (options.copy / mutant.file).read_text(encoding="utf-8"))
        )
    return 1 if survivors else 0


if __name__ == "__main__":
    raise SystemExit(main())
