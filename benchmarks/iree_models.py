"""Time models that IREE compiled, here and under IREE's own runtime: the same archive, one run.

What it is: each row is one archive on one kind of device; the two runtimes take turns call by
call, numpy in and numpy out, and the least of their times are compared.  Beside the time on the
clock stands the processors' time, which other work of the machine disturbs less.
What it is not: a comparison of compilers; both run IREE's code.
Who calls it: developers, with the extra `interop` and the exported models::

    python benchmarks/iree_models.py                      # resnet50 and bert_base, 1 and 2 threads
    python benchmarks/iree_models.py mobilenetv2 --rounds 40 --threads 1
    python benchmarks/iree_models.py --archive other.vmfb --input 3x4xf32
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from figures.worker import Array, read_inputs
from tilewright.formats.tensor_text import TensorReader
from tilewright.runtime.bytecode_machine import BytecodeMachine

BAR: Final = 1.02
DEFAULT: Final = ("resnet50", "bert_base")
FLAGS: Final = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
)
SETTLE_S: Final = 0.002
Call = Callable[[], Sequence[Array]]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one archive took on one kind of device, in seconds per call."""

    name: str
    threads: int
    ours: list[float]
    theirs: list[float]
    our_cpu: list[float]
    their_cpu: list[float]
    same_bits: bool

    @property
    def ratio(self) -> float:
        """Least of ours over least of theirs, on the clock."""
        return min(self.ours) / min(self.theirs)

    def line(self) -> str:
        """For the terminal."""
        ours, theirs = (
            f"{min(t) * 1e3:9.3f} (median {statistics.median(t) * 1e3:9.3f})"
            for t in (self.ours, self.theirs)
        )
        verdict = "pass" if self.ratio <= BAR else "MISS"
        bits = "same bits" if self.same_bits else "OTHER BITS"
        cpu = min(self.our_cpu) / min(self.their_cpu)
        return (
            f"{self.name:20} {self.threads} thread(s)  here {ours} ms  IREE {theirs} ms"
            f"  ratio {self.ratio:.3f} (bar {BAR})  {verdict}, {bits}"
            f"; processors {min(self.our_cpu) * 1e3:.3f} / {min(self.their_cpu) * 1e3:.3f} ms"
            f" = {cpu:.3f}"
        )


def compile_model(model: Path, folder: Path) -> Path:
    """The archive of an ONNX file, compiled for this CPU unless it is there."""
    archive = folder / f"{model.stem}.vmfb"
    if archive.exists():
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    source, draft = folder / f"{model.stem}.mlir", folder / f"{model.stem}.draft"
    importer = [sys.executable, "-m", "iree.compiler.tools.import_onnx"]
    subprocess.run([*importer, str(model), "-o", str(source)], check=True)
    compiler = str(Path(sys.executable).with_name("iree-compile"))
    subprocess.run([compiler, *FLAGS, str(source), "-o", str(draft)], check=True)
    source.unlink()
    return draft.replace(archive)


def open_here(archive: Path, inputs: Sequence[Array], threads: int) -> Call:
    """A call of our runtime: the device that IREE gets, of ours."""
    device = "local-sync" if threads == 1 else f"local-task://?threads={threads}"
    function = BytecodeMachine.from_file(archive, device).function()
    return lambda: [np.asarray(result) for result in function(*inputs)]


def open_iree(archive: Path, inputs: Sequence[Array], threads: int) -> Call:
    """A call of IREE's runtime."""
    runtime: Any = importlib.import_module("iree.runtime")  # extra `interop`
    if threads > 1:
        runtime.flags.parse_flags(f"--task_topology_group_count={threads}")
    config = runtime.Config("local-sync" if threads == 1 else "local-task")
    module = runtime.VmModule.mmap(config.vm_instance, str(archive))
    context = runtime.SystemContext(vm_modules=[module], config=config)
    names = [n for n in module.function_names if not n.startswith("__")]
    name = next(n for n in names if not n.endswith("$async"))
    function = context.modules[module.name][name]

    def call() -> Sequence[Array]:
        results = function(*inputs)
        many = results if isinstance(results, tuple | list) else (results,)
        return [result.to_host() for result in many]

    return call


def measure(
    name: str, archive: Path, inputs: Sequence[Array], threads: int, rounds: int
) -> Row:
    """Let the two take turns."""
    calls = (open_here(archive, inputs, threads), open_iree(archive, inputs, threads))
    first, second = (call() for call in calls)
    same = all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))
    clock: tuple[list[float], list[float]] = ([], [])
    cpu: tuple[list[float], list[float]] = ([], [])
    for index in range(rounds):
        for side in (0, 1) if index % 2 else (1, 0):
            time.sleep(SETTLE_S)
            start, start_cpu = time.perf_counter(), time.process_time()
            calls[side]()
            cpu[side].append(time.process_time() - start_cpu)
            clock[side].append(time.perf_counter() - start)
    return Row(
        name=name,
        threads=threads,
        ours=clock[0],
        theirs=clock[1],
        our_cpu=cpu[0],
        their_cpu=cpu[1],
        same_bits=same,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=DEFAULT, help="of exported models")
    parser.add_argument("--models", type=Path, default=Path("build/models"))
    parser.add_argument("--archives", type=Path, default=Path("build/iree-archives"))
    parser.add_argument("--archive", type=Path, help="measure this one instead")
    parser.add_argument("--input", action="append", default=[], help="for --archive")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    subjects: list[tuple[str, Path, list[Array]]] = []
    if options.archive is not None:
        inputs = TensorReader().read(options.input)
        subjects.append((options.archive.stem, options.archive, inputs))
    else:
        for name in options.names:
            model = options.models / f"{name}.onnx"
            archive = compile_model(model, options.archives)
            subjects.append((name, archive, list(read_inputs(model).values())))
    missed = False
    for name, archive, inputs in subjects:
        for threads in options.threads:
            row = measure(name, archive, inputs, threads, options.rounds)
            sys.stdout.write(row.line() + "\n")
            sys.stdout.flush()
            missed |= row.ratio > BAR or not row.same_bits
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
