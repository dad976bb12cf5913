"""Show that a change of the compiler leaves the code of real models as it was.

What it is: the replay of a refactoring.  `save` writes the printed code of every kernel of the model set,
for several targets; `compare` makes it again with the sources as they are now and says which kernels
differ, and in what.  An empty difference is what a refactoring shows; any other is measured.
What it is not: a benchmark or a test of results.
Who calls it: a developer, by hand::

    python tools/replay.py save build/replay                # before the change
    python tools/replay.py compare build/replay             # after it
    python tools/replay.py compare build/replay --show 3    # with the first three differences
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from tilewright.base.errors import UserError
from tilewright.base.host import usable_cores
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.backends.backend import route
from tilewright.compiler.backends.registry import backend_of

TARGETS: Final = ("x86_64-v2", "x86_64-v3", "x86_64-v4")
SHOWN_LINES: Final = 40


class Code(NamedTuple):
    """One kernel: its name in the artifact and what was printed for it."""

    name: str
    text: str


class Task(NamedTuple):
    """A model for a target, and the file that holds its code."""

    model: Path
    target: str
    threads: int
    file: Path


def codes_of(model: Path, target: Target, threads: int) -> list[Code]:
    """The code of every kernel of a model, in their order."""
    options = pipeline.CompileOptions(targets=(target,), threads=threads)
    graph = pipeline.import_model(model, options).graph
    pipeline.optimize(graph, options)
    groups = pipeline.find_kernels(graph)
    kernels = pipeline.schedule_kernels(groups, target, options)
    found: list[Code] = []
    for item in kernels:
        assert isinstance(item, pipeline.Scheduled), "there is no cache"
        module = route(backend_of(target).stages(target), item.kernel)
        found.append(Code(module.name, module.text))
    return found


def make(task: Task) -> list[Code]:
    """The code of a task; what is said of a model that cannot be compiled, as its only code.

    Runs in a process of its own.
    """
    try:
        with pipeline.rare_collections():
            return codes_of(task.model, Target.parse(task.target), task.threads)
    except UserError as refusal:
        return [Code("refused", str(refusal))]


def write(file: Path, codes: Sequence[Code]) -> None:
    """Keep codes in a file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(json.dumps(codes).encode(), 1))


def read(file: Path) -> list[Code]:
    """Read back what `write` kept."""
    return [Code(*row) for row in json.loads(gzip.decompress(file.read_bytes()))]


def differences(before: Sequence[Code], after: Sequence[Code]) -> Iterator[str]:
    """What became of kernels, one text each: gone, new, or the lines that differ.

    Kernels are matched by name; equal code under another name is no difference.
    """
    same = {c.text for c in before} & {c.text for c in after}
    old = {c.name: c.text for c in before if c.text not in same}
    new = {c.name: c.text for c in after if c.text not in same}
    for name in old.keys() - new.keys():
        yield f"{name}: gone"
    for name, text in new.items():
        if name not in old:
            yield f"{name}: new"
            continue
        lines = [
            line
            for line in difflib.unified_diff(
                old[name].splitlines(),
                text.splitlines(),
                "before",
                "after",
                lineterm="",
                n=1,
            )
            if "@tw_" not in line  # the symbol is a digest of the code
        ]
        more = f"\n... {len(lines)} lines in all" if len(lines) > SHOWN_LINES else ""
        yield f"{name}:\n" + "\n".join(lines[:SHOWN_LINES]) + more


def tasks_of(arguments: argparse.Namespace) -> list[Task]:
    """Every model for every target, the largest first."""
    models = list(arguments.models.glob("*.onnx"))
    if arguments.only:
        models = [p for p in models if p.stem in arguments.only]
    if not models:
        sys.exit(f"{arguments.models}: no models; make some with: make models")
    models.sort(key=lambda p: p.stat().st_size, reverse=True)
    return [
        Task(p, target, arguments.threads, arguments.folder / f"{p.stem}.{target}.json.gz")
        for p in models
        for target in arguments.targets
    ]


def run(arguments: argparse.Namespace) -> int:
    """Save or compare; returns how many kernels differ."""
    tasks = tasks_of(arguments)
    different = kernels = shown = 0
    start = time.monotonic()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for done, (task, codes) in enumerate(
            zip(tasks, pool.map(make, tasks), strict=True), 1
        ):
            kernels += len(codes)
            head = f"[{done}/{len(tasks)}] {task.model.stem} {task.target}: {len(codes)} kernels"
            if arguments.verb == "save":
                write(task.file, codes)
                print(head, file=sys.stderr)
                continue
            if not task.file.exists():
                sys.exit(f"{task.file}: not there; make it with: replay.py save")
            found = list(differences(read(task.file), codes))
            different += len(found)
            print(f"{head}, {len(found)} differ", file=sys.stderr)
            for text in found:
                shown += 1
                print(
                    text if shown <= arguments.show else text.partition("\n")[0].rstrip(":")
                )
    seconds = time.monotonic() - start
    print(f"{kernels} kernels, {different} differ ({seconds:.0f} s)")
    return different


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("verb", choices=("save", "compare"))
    parser.add_argument("folder", type=Path, help="where the code is kept")
    parser.add_argument("--models", type=Path, default=Path("build/models"))
    parser.add_argument("--only", nargs="+", metavar="NAME", help="models, by file name")
    parser.add_argument("--targets", nargs="+", default=TARGETS, metavar="TARGET")
    parser.add_argument("--threads", type=int, default=2, help="threads to schedule for")
    parser.add_argument("--jobs", type=int, default=usable_cores(), help="processes")
    parser.add_argument("--show", type=int, default=1, help="differences shown whole")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        sys.exit(1 if run(parse_arguments()) else 0)
    except KeyboardInterrupt:
        sys.exit(130)
