"""Says what became of a case: right, refused or wrong, by every way to run it.

onnxruntime says what is right.  Where it stands alone against the reference evaluator of ONNX and us, it is
its oddity, and counted as one.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import tilewright as tw
from fuzz.flow.models import Case, Feeds
from fuzz.flow.onnxruntime_worker import OnnxruntimeError, OnnxruntimeWorker
from fuzz.flow.shrinking import prune
from tilewright.base.errors import InputError, InternalError, ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

TOLERANCE = {"float16": 3e-2, "float32": 2e-4, "float64": 2e-4}
Expected = Sequence[Sequence[np.ndarray]]
Run = Callable[[Feeds], Sequence[np.ndarray]]
Way = Callable[[onnx.ModelProto], Run]


@dataclass(frozen=True)
class Verdict:
    """What became of a case: `right`, `refused`, `odd` (of onnxruntime), `invalid`, or a finding."""

    kind: str
    text: str = ""

    @property
    def is_finding(self) -> bool:
        return self.kind in ("wrong", "failed")


# --- ways to run a model ------------------------------------------------------------------------


def by_oracles(model: onnx.ModelProto) -> Run:
    """The front end, and the oracles of all ops."""
    graph = load(model)
    return lambda feeds: evaluate(graph, feeds)


def compiled(opt_level: int = 2, target: str = "host", threads: int = 1) -> Way:
    """Machine code, called where it was made."""

    def way(model: onnx.ModelProto) -> Run:
        made = tw.compile(
            model, target=target, opt_level=opt_level, threads=threads, jobs=1
        )
        return lambda feeds: _listed(made(**feeds))

    return way


def by_bytecode(model: onnx.ModelProto) -> Run:
    """Our bytecode in our virtual machine."""
    with tempfile.TemporaryDirectory() as folder:
        session = tw.load(_saved(model, folder), engine="vm", threads=1, copy=True)
    return lambda feeds: _listed(session(**feeds))


def by_iree(model: onnx.ModelProto) -> Run:
    """Our bytecode, run by IREE's runtime."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import iree.runtime as iree

    with tempfile.TemporaryDirectory() as folder:
        data = _saved(model, folder).read_bytes()
    instance, device = iree.VmInstance(), iree.get_device("local-task")
    hal = iree.create_hal_module(instance, device)
    module = iree.VmModule.copy_buffer(instance, data)
    context = iree.SystemContext(
        vm_modules=[hal, module], config=iree.Config(device=device)
    )
    main = context.modules[module.name]["main"]
    names = [value.name for value in model.graph.input]

    def call(feeds: Feeds) -> Sequence[np.ndarray]:
        results = main(*(feeds[name] for name in names))
        listed = results if isinstance(results, (tuple, list)) else [results]
        return [r.to_host() for r in listed]

    return call


def _saved(model: onnx.ModelProto, folder: str) -> Path:
    path = Path(folder) / "model.vmfb"
    tw.compile(model, threads=1, jobs=1).save(path)
    return path


def _listed(results: object) -> Sequence[np.ndarray]:
    return results if isinstance(results, tuple) else (results,)


class LogSoftmax(OpRun):
    """Of a row shifted by its largest: that of the evaluator is the logarithm of what may be 0."""

    def _run(self, x: np.ndarray, axis: int) -> tuple[np.ndarray]:
        with np.errstate(all="ignore"):
            shifted = x - x.max(axis=axis, keepdims=True)
            total = np.exp(shifted).sum(axis=axis, keepdims=True)
            return ((shifted - np.log(total)).astype(x.dtype),)


def by_reference(model: onnx.ModelProto) -> Run:
    """ONNX's own evaluator."""
    session = ReferenceEvaluator(model, new_ops=[LogSoftmax])
    return lambda feeds: session.run(None, feeds)


# --- judging ------------------------------------------------------------------------------------


def expected(case: Case, worker: OnnxruntimeWorker) -> Expected | Verdict:
    """What onnxruntime computes; a verdict where it or the checker refuses the model."""
    try:
        onnx.checker.check_model(case.model, full_check=True)
        return worker.run(case.model.SerializeToString(), case.calls)
    except (ValueError, onnx.checker.ValidationError, OnnxruntimeError) as error:
        return Verdict("invalid", f"{type(error).__name__}: {error}"[:300])
    except onnx.shape_inference.InferenceError as error:
        return Verdict("invalid", f"{type(error).__name__}: {error}"[:300])


def judge(case: Case, way: Way, wanted: Expected) -> Verdict:
    """Run a case one way and compare; every exception that is not a refusal is a finding."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _judge(case, way, wanted)


def _judge(case: Case, way: Way, wanted: Expected) -> Verdict:
    try:
        run = way(case.model)
    except ModelError as error:
        return _refusal(error)
    except Exception as error:
        return Verdict("failed", f"{type(error).__name__}: {error}")
    verdict = Verdict("right")
    for number, (feeds, outputs) in enumerate(zip(case.calls, wanted, strict=True)):
        try:
            results = run(feeds)
        except Exception as error:
            if has_no_elements(feeds) and is_about_sizes(error):
                continue
            return Verdict("failed", f"call {number}: {type(error).__name__}: {error}")
        problem = difference(results, outputs, tolerance_of(case.model))
        if not problem:
            continue
        if is_odd(case.model, feeds, results, outputs):
            verdict = Verdict("odd", f"call {number}: {problem}")
            continue
        return Verdict("wrong", f"call {number}: {problem}")
    return verdict


def _refusal(error: ModelError) -> Verdict:
    """A refusal names the node and what helps; one about malformed models is wrong of a valid model."""
    text = str(error)
    if isinstance(error, InternalError) or "malformed" in text or not has_place(text):
        return Verdict("failed", text)
    return Verdict("refused", text)


def has_place(text: str) -> bool:
    """Whether a refusal names a node, or lists several, and says what helps."""
    return ("node '" in text or "problems in the model" in text) and "hint: " in text


def has_no_elements(feeds: Feeds) -> bool:
    """Whether an input is empty: sizes of zero are refused at the call where something would be left to do."""
    return any(array.size == 0 for array in feeds.values())


def is_about_sizes(error: Exception) -> bool:
    """Whether an error says that a size must not be zero; the machines say it with a status of their own."""
    return isinstance(error, InputError) or "must be at least 1" in str(error)


def tolerance_of(model: onnx.ModelProto) -> float:
    """The tolerance of the type with the fewest digits that the model has."""
    kinds = {"float32"}
    if has_type(model, onnx.TensorProto.FLOAT16):
        kinds.add("float16")
    return max(TOLERANCE[kind] for kind in kinds)


def has_type(model: onnx.ModelProto, element: int) -> bool:
    """Whether a tensor of a type can be in the model."""

    def within(graph: onnx.GraphProto) -> bool:
        values = (*graph.input, *graph.output, *graph.value_info)
        if any(v.type.tensor_type.elem_type == element for v in values):
            return True
        if any(t.data_type == element for t in graph.initializer):
            return True
        return any(
            (a.name == "to" and a.i == element)
            or (a.HasField("t") and a.t.data_type == element)
            or (a.HasField("g") and within(a.g))
            for node in graph.node
            for a in node.attribute
        )

    return within(model.graph)


def difference(
    results: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float
) -> str:
    """What differs; empty if nothing does."""
    if len(results) != len(wanted):
        return f"{len(results)} outputs, expected {len(wanted)}"
    for index, (one, other) in enumerate(zip(results, wanted, strict=True)):
        one, other = np.asarray(one), np.asarray(other)
        if one.dtype != other.dtype:
            return f"output {index}: type {one.dtype}, expected {other.dtype}"
        if one.size == other.size == 0:
            continue  # onnxruntime forgets sizes where there are no rows
        if one.shape != other.shape:
            return f"output {index}: shape {one.shape}, expected {other.shape}"
        problem = _unequal(one, other, tolerance)
        if problem:
            return f"output {index}: {problem}"
    return ""


def _unequal(one: np.ndarray, other: np.ndarray, tolerance: float) -> str:
    if one.dtype.kind != "f":
        wrong = one != other
    else:
        left, right = one.astype(np.float64), other.astype(np.float64)
        finite = np.abs(right[np.isfinite(right)])
        scale = max(1.0, float(finite.max(initial=0)))
        with np.errstate(all="ignore"):
            near = np.abs(left - right) <= tolerance * scale
        same = (left == right) | (np.isnan(left) & np.isnan(right))
        wrong = ~(near | same)
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"at {place}: {one[place]}, expected {other[place]} ({int(wrong.sum())} of {one.size})"


def is_odd(
    model: onnx.ModelProto,
    feeds: Feeds,
    results: Sequence[np.ndarray],
    outputs: Sequence[np.ndarray],
) -> bool:
    """Whether ONNX's own evaluator says what we say.

    Of f64 rows with an infinity onnxruntime's LogSoftmax says -inf where it is NaN, for one.
    """
    tolerance = tolerance_of(model)
    if len(results) != len(outputs):
        return False
    differing = [
        place
        for place, (one, other) in enumerate(zip(results, outputs, strict=True))
        if difference([one], [other], tolerance)
    ]
    try:
        wanted = by_reference(_with_outputs(model, differing))(feeds)
    except Exception:
        return False
    return not difference([results[place] for place in differing], wanted, tolerance)


def _with_outputs(model: onnx.ModelProto, places: Sequence[int]) -> onnx.ModelProto:
    """What those outputs need of a model: the evaluator may not know the rest."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    kept = [copy.graph.output[place] for place in places]
    copies = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in kept]
    del copy.graph.output[:]
    copy.graph.output.extend(copies)
    prune(copy.graph)
    return copy
