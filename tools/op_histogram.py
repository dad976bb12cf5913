"""Count which ONNX operators, attributes, types and opsets a set of models uses.

What it is: a survey tool behind the op catalogue; it answers "what must be declared for these models".
What it is not: a coverage check against our own catalogue (that is ``tilewright coverage``).
Who calls it: a developer, by hand::

    python tools/op_histogram.py --onnx-cases build/models -o build/models/OPS.txt
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper

CASE_FOLDERS: Final = ("light", "simple", "pytorch-converted", "pytorch-operator")
LONGEST_VALUE_LIST: Final = 12


@dataclass(slots=True)
class OperatorUse:
    """Everything seen of one operator."""

    nodes: int = 0
    models: set[str] = field(default_factory=set[str])
    opsets: Counter[int] = field(default_factory=Counter[int])
    arities: Counter[str] = field(default_factory=Counter[str])
    types: Counter[str] = field(default_factory=Counter[str])
    attributes: defaultdict[str, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )


def describe_attribute(attribute: AttributeProto) -> str:
    """Return the value as short text; tensors and graphs only by their kind."""
    if attribute.type == AttributeProto.TENSOR:
        shape = list(attribute.t.dims)
        return f"tensor {TensorProto.DataType.Name(attribute.t.data_type).lower()}{shape}"
    if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
        return "graph"
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return repr(value.decode(errors="replace"))
    if isinstance(value, float):
        return f"{value:.6g}"
    text = (
        str(list(value))
        if hasattr(value, "__len__") and not isinstance(value, str)
        else str(value)
    )
    return text if len(text) <= 60 else text[:57] + "..."


def iterate_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph and of the graphs inside its attributes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from iterate_nodes(attribute.g)


def value_types(model: ModelProto) -> dict[str, str]:
    """Return the element type of every value for which the model or ONNX's inference knows it."""
    inferred = onnx.shape_inference.infer_shapes(model)
    types: dict[str, str] = {}
    values = [*inferred.graph.input, *inferred.graph.value_info, *inferred.graph.output]
    for value in values:
        if value.type.HasField("tensor_type"):
            number = value.type.tensor_type.elem_type
            types[value.name] = TensorProto.DataType.Name(number).lower()
    for tensor in inferred.graph.initializer:
        types[tensor.name] = TensorProto.DataType.Name(tensor.data_type).lower()
    return types


def survey_model(name: str, model: ModelProto, uses: defaultdict[str, OperatorUse]) -> None:
    """Add every node of ``model`` to ``uses``."""
    opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    types = value_types(model)
    functions = [node for function in model.functions for node in function.node]
    for node in [*iterate_nodes(model.graph), *functions]:
        domain = node.domain or "ai.onnx"
        key = node.op_type if domain == "ai.onnx" else f"{domain}::{node.op_type}"
        use = uses[key]
        use.nodes += 1
        use.models.add(name)
        use.opsets[opsets.get(domain, 0)] += 1
        given = "".join("x" if item else "_" for item in node.input)
        use.arities[f"{given or '-'} -> {len(node.output)}"] += 1
        use.types[
            ", ".join(types.get(item, "?") for item in node.input if item) or "-"
        ] += 1
        for attribute in node.attribute:
            use.attributes[attribute.name][describe_attribute(attribute)] += 1


def format_counter(counter: Counter[str] | Counter[int]) -> str:
    """Return ``value x count`` items, most frequent first, cut to a readable number."""
    items = [
        f"{value} x{count}" for value, count in counter.most_common(LONGEST_VALUE_LIST)
    ]
    left_out = len(counter) - len(items)
    return "; ".join(items) + (f"; and {left_out} more" if left_out > 0 else "")


def format_report(title: str, uses: dict[str, OperatorUse]) -> str:
    """Return the report of one group of models."""
    lines = [
        f"== {title}: {len(uses)} operators, {sum(u.nodes for u in uses.values())} nodes",
        "",
    ]
    for name, use in sorted(uses.items(), key=lambda item: -item[1].nodes):
        models = sorted(use.models)
        shown = ", ".join(models[:4]) + (
            f" and {len(models) - 4} more" if len(models) > 4 else ""
        )
        lines.append(f"{name}  nodes={use.nodes} models={len(models)} ({shown})")
        lines.append(f"    opsets: {format_counter(use.opsets)}")
        lines.append(f"    operands: {format_counter(use.arities)}")
        lines.append(f"    types: {format_counter(use.types)}")
        lines.extend(
            f"    {attribute}: {format_counter(values)}"
            for attribute, values in sorted(use.attributes.items())
        )
    return "\n".join(lines)


def onnx_case_models() -> Iterator[tuple[str, Path]]:
    """Yield the models that the installed onnx package brings for its backend tests."""
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for folder in CASE_FOLDERS:
        for path in sorted((data / folder).rglob("*.onnx")):
            name = path.parent.name if path.stem == "model" else path.stem
            yield f"{folder}/{name}", path


def folder_models(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the models below ``folder``."""
    for path in sorted(folder.glob("*.onnx")):
        yield path.stem, path


def survey(models: Iterator[tuple[str, Path]]) -> dict[str, OperatorUse]:
    """Load each model without its external data and count its operators."""
    uses: defaultdict[str, OperatorUse] = defaultdict(OperatorUse)
    for name, path in models:
        survey_model(name, onnx.load(path, load_external_data=False), uses)
    return dict(uses)


def main(arguments: list[str] | None = None) -> int:
    """Write the report of the folders given, and of the onnx package's cases if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument(
        "--onnx-cases", action="store_true", help="add the onnx package's cases"
    )
    parser.add_argument(
        "-o", "--output", type=Path, help="file to write; standard output if absent"
    )
    options = parser.parse_args(arguments)
    groups = [
        (f"models in {folder.name}", folder_models(folder)) for folder in options.folders
    ]
    if options.onnx_cases:
        groups.insert(0, (f"onnx {onnx.__version__} cases", onnx_case_models()))
    reports = [format_report(title, survey(models)) for title, models in groups]
    text = "\n\n\n".join(reports) + "\n"
    if options.output:
        options.output.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
