"""One contender with one model in a process of its own, told what to do line by line.

What it is: a small server on standard input and output: load, check against torch, time calls.
What it is not: a judge; it reports raw times.
Who calls it: ``measure.py`` starts it pinned to the cores of the measurement.

Requests and answers are JSON, one a line: ``{"do": "time", "seconds": 0.5}`` →
``{"times": [...]}``; ``{"do": "check"}`` → ``{"error": 3e-7}``; an error is ``{"failed": text}``.
"""

from __future__ import annotations

import gc
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol, TextIO

import numpy as np

from figures.limits import Limits

WARM_UP_CALLS: Final = 3
Array = np.ndarray[Any, np.dtype[Any]]
Answer = dict[str, Any]


class Contender(Protocol):
    """A loaded model."""

    load_seconds: float

    def call(self) -> Callable[[], object]:
        """Return the function whose calls are timed."""
        ...

    def outputs(self) -> list[Array]:
        """Return the results as arrays, in the model's order."""
        ...


def read_inputs(path: Path) -> dict[str, Array]:
    """Return the inputs that were exported beside the model."""
    with np.load(path.with_suffix(".inputs.npz")) as archive:
        return {name: archive[name] for name in archive.files}


class OnnxRuntime:
    """onnxruntime's CPU provider with its own defaults."""

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        start = time.perf_counter()
        self.session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self.load_seconds = time.perf_counter() - start
        self.inputs = read_inputs(path)

    def call(self) -> Callable[[], object]:
        """Return a closure over the dictionary of inputs, as users call it."""
        run, inputs = self.session.run, self.inputs
        return lambda: run(None, inputs)

    def outputs(self) -> list[Array]:
        """Return what the session gives."""
        return [np.asarray(value) for value in self.session.run(None, self.inputs)]


class OpenVino:
    """OpenVINO's CPU plugin in the precision of the model.

    Left to itself it computes f32 models in bf16 where the CPU can, with results to match.
    """

    def __init__(self, path: Path, threads: int) -> None:
        import openvino

        settings = {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": 1,
            "INFERENCE_PRECISION_HINT": "f32",
        }
        start = time.perf_counter()
        self.model = openvino.Core().compile_model(str(path), "CPU", settings)
        self.load_seconds = time.perf_counter() - start
        named = read_inputs(path)
        self.inputs = [named[port.get_any_name()] for port in self.model.inputs]
        self.request = self.model.create_infer_request()

    def call(self) -> Callable[[], object]:
        """Return a closure over the inputs, which are neither copied nor is their result."""
        infer, inputs = self.request.infer, self.inputs
        return lambda: infer(inputs, share_inputs=True, share_outputs=True)

    def outputs(self) -> list[Array]:
        """Return copies of what the request gives."""
        result = self.request.infer(self.inputs)
        return [np.array(result[port]) for port in self.model.outputs]


class Tilewright:
    """Tilewright through its public functions."""

    levels: tuple[str, ...] | None = None
    precision: str = "f32"

    def __init__(self, path: Path, threads: int) -> None:
        import tilewright

        start = time.perf_counter()
        self.model = tilewright.compile(
            path, levels=self.levels, precision=self.precision, threads=threads
        )
        self.load_seconds = time.perf_counter() - start
        self.inputs = tuple(read_inputs(path).values())

    def call(self) -> Callable[[], object]:
        """Return a closure over the positional inputs."""
        model, inputs = self.model, self.inputs
        return lambda: model(*inputs)

    def outputs(self) -> list[Array]:
        """Return the outputs in the model's order."""
        result = self.model(*self.inputs)
        return [np.asarray(v) for v in (result if isinstance(result, tuple) else (result,))]


class TilewrightLevels(Tilewright):
    """One artifact for every x86-64 level since v2, of which the machine takes the best."""

    levels = ("v2", "v3", "v4")


class TilewrightRounded(Tilewright):
    """Operands of products in bf16, by consent."""

    precision = "bf16"


CONTENDERS: Final[dict[str, Callable[[Path, int], Contender]]] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "tilewright": Tilewright,
    "tilewright-levels": TilewrightLevels,
    "tilewright-bf16": TilewrightRounded,
}


def relative_error(outputs: list[Array], path: Path) -> float:
    """Return the largest relative Frobenius error; infinite if shapes differ or NaN appears."""
    errors = [0.0]
    with np.load(path.with_suffix(".ref.npz")) as reference:
        if len(reference.files) != len(outputs):
            return math.inf
        for index, got in enumerate(outputs):
            want = reference[f"o{index}"]
            if want.shape != got.shape:
                return math.inf
            difference = np.linalg.norm((got.astype(np.float64) - want).ravel())
            errors.append(float(difference / (np.linalg.norm(want.ravel()) + 1e-30)))
    return math.inf if any(map(math.isnan, errors)) else max(errors)


def time_calls(call: Callable[[], object], seconds: float) -> list[float]:
    """Call for at least ``seconds`` and return the duration of each call."""
    clock = time.perf_counter
    for _ in range(WARM_UP_CALLS):
        call()
    times: list[float] = []
    gc.collect()
    gc.disable()
    end = clock() + seconds
    try:
        while True:
            start = clock()
            call()
            stop = clock()
            times.append(stop - start)
            if stop > end:
                return times
    finally:
        gc.enable()


def thin(times: list[float], most: int = 500) -> list[float]:
    """Return at most ``most`` order statistics of ``times``; their median is the same."""
    ordered = sorted(times)
    if len(ordered) <= most:
        return ordered
    places = np.linspace(0, len(ordered) - 1, most).round().astype(int)
    return [ordered[place] for place in places]


def serve_model(contender: Contender, path: Path, request: Answer) -> Answer:
    """Answer one request about a loaded model."""
    if request["do"] == "check":
        return {"error": relative_error(contender.outputs(), path)}
    return {"times": thin(time_calls(contender.call(), float(request["seconds"])))}


def serve_limits(limits: Limits, request: Answer) -> Answer:
    """Answer one request about the machine."""
    seconds = float(request["seconds"])
    if request["do"] == "fma":
        return {"rate": limits.fma_flops(seconds)}
    if request["do"] == "tile":
        return {"rate": limits.tile_flops(seconds)}
    return {"rate": limits.read_bytes(seconds)}


def connect_standard_streams() -> tuple[TextIO, TextIO]:
    """Keep standard output for answers: whatever libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return sys.stdin, answers


def main() -> int:
    """Load what the arguments name, then answer until standard input ends."""
    name, path, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    requests, answers = connect_standard_streams()

    def answer(value: Answer) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    try:
        if name == "limits":
            limits = Limits(threads)
            answer({"load_seconds": 0.0})
            for line in requests:
                answer(serve_limits(limits, json.loads(line)))
        else:
            contender = CONTENDERS[name](path, threads)
            answer({"load_seconds": contender.load_seconds})
            for line in requests:
                answer(serve_model(contender, path, json.loads(line)))
    except (
        Exception
    ) as error:  # whatever a peer raises belongs into the report, not into a trace
        first_line = str(error).partition("\n")[0]
        answer({"failed": f"{type(error).__name__}: {first_line}"})
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
