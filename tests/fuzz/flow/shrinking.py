"""Makes a failing case smaller while it fails in the same way.

A try is a copy of the model with one thing less: an output, a call, a node whose result something else takes the
place of, a result of a body.  It counts if onnxruntime still runs it and the verdict is of the same kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from fuzz.flow.models import Case

Fails = Callable[[Case], bool]


def shrunk(case: Case, fails: Fails, *, most_tries: int = 400) -> Case:
    """The smallest case that was found; `fails` says whether a case is valid and still fails."""
    tries = 0
    found = case
    progress = True
    while progress and tries < most_tries:
        progress = False
        for candidate in candidates(found):
            tries += 1
            if tries > most_tries:
                break
            if fails(candidate):
                found, progress = candidate, True
                break
    return found


def candidates(case: Case) -> Iterator[Case]:
    """Every way to leave one thing out, what leaves out most first."""
    if len(case.calls) > 1:
        for call in case.calls:
            yield replace(case, calls=(call,))
    outputs = len(case.model.graph.output)
    if outputs > 1:
        for index in range(outputs):
            yield _changed(case, lambda g, i=index: _only_output(g, i))
    for frame in range(len(list(_graphs(case.model.graph)))):
        yield from _without_nodes(case, frame)


def _without_nodes(case: Case, frame: int) -> Iterator[Case]:
    graph = list(_graphs(case.model.graph))[frame]
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        for attribute in node.attribute:
            if attribute.HasField("g") and node.op_type == "If":
                yield _changed(
                    case, lambda g, i=index, a=attribute.name: _inlined(g, i, a), frame
                )
        last = node.op_type == "Identity" and node.output[0] in {
            o.name for o in graph.output
        }
        for name in () if last else dict.fromkeys(n for n in node.input if n):
            for output in node.output:
                yield _changed(case, lambda g, o=output, n=name: _renamed(g, o, n), frame)
        if node.op_type in ("Loop", "Scan"):
            for output in reversed(range(len(node.output))):
                yield _changed(
                    case, lambda g, i=index, o=output: _without_result(g, i, o), frame
                )
    if frame == 0:
        for value in graph.input:
            array = case.calls[0][value.name]
            if len(case.calls) == 1 and array.size < 100:
                yield _changed(case, lambda g, n=value.name, a=array: _fixed(g, n, a))


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The model's graph and all bodies."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _changed(case: Case, change: Callable[[onnx.GraphProto], None], frame: int = 0) -> Case:
    """A copy with one graph changed, and without what nobody reads then."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    change(list(_graphs(model.graph))[frame])
    prune(model.graph)
    _drop_inputs(model.graph)
    names = {value.name for value in model.graph.input}
    calls = tuple({n: a for n, a in call.items() if n in names} for call in case.calls)
    return replace(case, model=model, calls=calls)


def _only_output(graph: onnx.GraphProto, index: int) -> None:
    kept = onnx.ValueInfoProto()
    kept.CopyFrom(graph.output[index])
    del graph.output[:]
    graph.output.append(kept)


def _renamed(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Let everything read another value; an output of a graph stays one by an Identity."""
    for inner in _graphs(graph):
        for node in inner.node:
            for place, name in enumerate(node.input):
                if name == old:
                    node.input[place] = new
        for output in inner.output:
            if output.name == old:
                maker = next((n for n in inner.node if old in n.output), None)
                if maker is None:
                    continue
                place = list(maker.output).index(old)
                maker.output[place] = f"{old}_unused"
                inner.node.append(helper.make_node("Identity", [new], [old], name=old))


def _without_result(graph: onnx.GraphProto, index: int, output: int) -> None:
    """Take a carried value or a column off a loop."""
    node = graph.node[index]
    (body,) = (a.g for a in node.attribute if a.HasField("g"))
    extra = 2 if node.op_type == "Loop" else 0
    first = len(body.output) - len(node.output)
    carried = len(node.input) - extra if extra else len(node.input) - _scanned(node)
    if output < carried:
        del node.input[extra + output]
        initial = body.input[extra + output]
        # The body reads what the loop began with no more: a constant takes its place.
        element = initial.type.tensor_type.elem_type
        shape = [d.dim_value or 1 for d in initial.type.tensor_type.shape.dim]
        array = np.ones(shape, helper.tensor_dtype_to_np_dtype(element))
        body.initializer.append(numpy_helper.from_array(array, initial.name))
        del body.input[extra + output]
    else:
        column = output - carried
        for attribute in node.attribute:
            if attribute.name.startswith("scan_output"):
                del attribute.ints[column]
    del body.output[first + output]
    del node.output[output]
    if not node.output:
        del graph.node[index]


def _scanned(node: onnx.NodeProto) -> int:
    return next(a.i for a in node.attribute if a.name == "num_scan_inputs")


def _inlined(graph: onnx.GraphProto, index: int, branch: str) -> None:
    """A branch in place of an If."""
    node = graph.node[index]
    (body,) = (a.g for a in node.attribute if a.name == branch)
    nodes = [*graph.node[:index], *body.node]
    for name, output in zip(node.output, body.output, strict=True):
        nodes.append(helper.make_node("Identity", [output.name], [name], name=name))
    nodes += graph.node[index + 1 :]
    graph.initializer.extend(body.initializer)
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _fixed(graph: onnx.GraphProto, name: str, array: np.ndarray) -> None:
    """A constant in place of an input."""
    kept = [v for v in graph.input if v.name != name]
    copies = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in kept]
    del graph.input[:]
    graph.input.extend(copies)
    graph.initializer.append(numpy_helper.from_array(array, name))


def prune(graph: onnx.GraphProto) -> None:
    """Drop nodes and initializers that nothing reads, in bodies, too."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                prune(attribute.g)
    needed = {o.name for o in graph.output}
    kept: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(onnx.NodeProto.FromString(node.SerializeToString()))
            needed |= _read(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    tensors = [t for t in graph.initializer if t.name in needed]
    copies = [onnx.TensorProto.FromString(t.SerializeToString()) for t in tensors]
    del graph.initializer[:]
    graph.initializer.extend(copies)


def _drop_inputs(graph: onnx.GraphProto) -> None:
    """Drop what the model takes and does not read."""
    read = {name for node in graph.node for name in _read(node)}
    kept = [v for v in graph.input if v.name in read]
    copies = [onnx.ValueInfoProto.FromString(v.SerializeToString()) for v in kept]
    del graph.input[:]
    graph.input.extend(copies)


def _read(node: onnx.NodeProto) -> set[str]:
    """The values that a node and its bodies read."""
    found = set(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            for inner in attribute.g.node:
                found |= _read(inner)
            found |= {o.name for o in attribute.g.output}
    return found


def text_of(case: Case) -> str:
    """The model as text, with its inputs."""
    calls = [_call_text(call) for call in case.calls]
    return "\n".join([onnx.printer.to_text(case.model), *calls])


def _call_text(call: Mapping[str, np.ndarray]) -> str:
    return ", ".join(f"{n}: {a.dtype}{list(a.shape)} {a.tolist()}" for n, a in call.items())
