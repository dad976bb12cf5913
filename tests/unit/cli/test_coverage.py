"""`tilewright coverage` says of every operator how it will run."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import tilewright as tw
from fakes import onnx_models
from tilewright.cli import root


def write_model(path: Path, *op_types: str) -> str:
    nodes = [
        helper.make_node(op, [f"v{i}"], [f"v{i + 1}"]) for i, op in enumerate(op_types)
    ]
    last = f"v{len(op_types)}"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 3])
        for name in ("v0", last)
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return str(path)


def test_each_operator_has_a_line_with_its_status(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx", "Relu", "Relu", "Tanh")
    finished = CliRunner().invoke(root, ["coverage", model])
    lines = [line.split() for line in finished.output.splitlines()]
    assert ["Relu", "2", "fast", "pointwise"] in lines
    assert ["input", "v0:", "f32[batch,", "3]"] in lines


def test_a_quick_report_says_what_has_a_kernel_and_no_more(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx", "Relu", "Relu")
    finished = CliRunner().invoke(root, ["coverage", "--quick", model])
    lines = [line.split() for line in finished.output.splitlines()]
    assert ["Relu", "2", "kernel"] in lines


def test_shapes_decide_what_a_report_says(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx", "Relu")
    options = ["--input-shape=v0=2,3", "--target=v3"]
    finished = CliRunner().invoke(root, ["coverage", model, *options])
    lines = [line.split() for line in finished.output.splitlines()]
    assert ["input", "v0:", "f32[2,", "3]"] in lines


def test_what_would_help_stands_below_the_table(tmp_path: Path) -> None:
    model = onnx_models.parse(
        "graph (seq(float[N]) items, float[3] x) => (float[M] y, float[3] z)"
        " { y = ConcatFromSequence<axis = 0>(items) z = Sigmoyd(x) }"
    )
    onnx.save(model, tmp_path / "m.onnx")
    finished = CliRunner().invoke(root, ["coverage", str(tmp_path / "m.onnx")])
    below = finished.output.partition("operator ")[2]
    hints = [
        "hint: tilewright.onnx_backend.prepare(model) takes the items from the values of a call",
        "hint for Sigmoyd: did you mean 'Sigmoid' or 'HardSigmoid'?",
    ]
    assert [line for line in below.splitlines() if "hint" in line] == hints
    report = str(tw.coverage(model))
    assert all(hint in report for hint in hints)


def test_an_unsupported_operator_is_named_with_its_node_and_exits_with_1(
    tmp_path: Path,
) -> None:
    model = write_model(tmp_path / "m.onnx", "Relu", "NoSuchOperator")
    finished = CliRunner().invoke(root, ["coverage", model])
    assert finished.exit_code == 1
    (line,) = [x for x in finished.output.splitlines() if x.startswith("NoSuchOperator")]
    assert "unsupported" in line


@pytest.mark.parametrize("operator", ["Relu", "NoSuchOperator"])
def test_the_report_is_also_json(tmp_path: Path, operator: str) -> None:
    model = write_model(tmp_path / "m.onnx", operator)
    report = json.loads(CliRunner().invoke(root, ["coverage", "--json", model]).output)
    assert report["supported"] is (operator == "Relu")
    (row,) = report["rows"]
    assert row["op_type"] == operator
    assert row["status"] == ("fast" if operator == "Relu" else "unsupported")


MODULE = """
from tilewright import byoc

def never(*_):
    raise AssertionError("coverage generates nothing")

byoc.register_codegen("mine", never, patterns=[("tanh", byoc.is_op("tanh"))], override=True)
"""


def test_what_a_code_generator_takes_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "generator_of_coverage.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    model = write_model(tmp_path / "m.onnx", "Relu", "Tanh")
    options = ["--byoc=mine", "--byoc-module=generator_of_coverage", "--json"]
    finished = CliRunner().invoke(root, ["coverage", model, *options])
    rows = {row["op_type"]: row for row in json.loads(finished.output)["rows"]}
    assert rows["Relu"]["status"] == "fast"
    assert rows["Tanh"]["status"] == "call"
    assert rows["Tanh"]["outcomes"] == ["call"]
    assert rows["Tanh"]["reasons"][0]["text"] == "code generator 'mine' takes it"


def test_a_model_with_strings_says_what_runs_it(tmp_path: Path) -> None:
    model = tmp_path / "upper.onnx"
    onnx.save(
        onnx_models.parse(
            "graph (string[N] x) => (string[N] y)"
            ' { y = StringNormalizer<case_change_action = "UPPER">(x) }'
        ),
        model,
    )
    finished = CliRunner().invoke(root, ["coverage", str(model)])
    assert finished.exit_code == 0
    assert "tilewright.onnx_backend runs it, compile does not" in finished.output
    assert "unsupported" not in finished.output
