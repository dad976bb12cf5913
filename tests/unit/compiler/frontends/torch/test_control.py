"""Operators that run graphs, as data: no torch is needed to import one."""

import numpy as np
import pytest

from tilewright.base import symbolic
from tilewright.base.dtypes import f32, i64
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.torch.load import load_program
from tilewright.compiler.frontends.torch.program import (
    Argument,
    Body,
    Input,
    Operation,
    Output,
    Program,
    Ref,
    Relation,
    Role,
)
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.schema import Array, TensorType

WIDE = TensorType(f32, (300, 70))
X = Input("x", Role.USER, WIDE)


def scaled(factor: float, shape: tuple[int, ...] = (300, 70)) -> Body:
    """A graph that multiplies what it is given."""
    times = Operation(
        "y",
        "aten.mul.Tensor",
        {"self": Ref("a"), "other": factor},
        (TensorType(f32, shape),),
    )
    return Body(f"times_{factor}", (("a", None),), (), (times,), (Ref("y"),))


def program(operation: Operation, *inputs: Input) -> Program:
    item = Operation("z", "getitem", {"self": Ref(operation.name), "index": 0}, (None,))
    return Program("test", inputs, (operation, item), (Output(Ref("z")),))


def run(model: Program, *arrays: Array) -> Array:
    return evaluate(load_program(model).graph, list(arrays))[0]


def branch(asked: Argument) -> Operation:
    arguments = {
        "pred": asked, "true_fn": scaled(3.0), "false_fn": scaled(5.0), "operands": (Ref("x"),),
    }  # fmt: skip
    return Operation("c", "higher_order.cond", arguments, (WIDE,), is_list=True)


def test_of_branches_that_data_decides_about_one_runs() -> None:
    flag = Input("flag", Role.USER, TensorType(i64, (1,)))
    model = program(branch(Ref("flag")), X, flag)
    ones = np.ones((300, 70), np.float32)
    assert [n.op for n in load_program(model).graph].count("if") == 1
    assert (run(model, ones, np.array([1])) == 3).all()
    assert (run(model, ones, np.array([0])) == 5).all()


def test_a_condition_that_is_known_leaves_one_branch() -> None:
    model = program(branch(False), X)
    assert "if" not in [n.op for n in load_program(model).graph]
    assert (run(model, np.ones((300, 70), np.float32)) == 5).all()


@pytest.mark.parametrize(("rows", "factor"), [(1, 5), (2, 3), (4, 3), (5, 5)])
def test_a_condition_of_sizes_is_asked_in_every_call(rows: int, factor: int) -> None:
    size = symbolic.symbol("n", 1, 64)
    inside = Relation(
        "logical_and",
        (
            Relation("greater", (size, 1)),
            Relation("logical_not", (Relation("less", (4, size)),)),
        ),
    )
    of_size = Input("n", Role.USER, TensorType(f32, (size,)))
    model = program(branch(inside), X, of_size)
    found = run(model, np.ones((300, 70), np.float32), np.ones(rows, np.float32))
    assert (found == factor).all()


def test_rows_of_a_long_scan_are_a_loop_and_of_a_short_one_are_not() -> None:
    for rows, flow in ((300, 1), (3, 0)):
        x = Input("x", Role.USER, TensorType(f32, (rows, 70)))
        arguments = {
            "argument_0": scaled(2.0, (70,)), "argument_1": (Ref("x"),), "argument_2": (),
        }  # fmt: skip
        mapped = Operation("m", "higher_order.map_impl", arguments, (x.type,), is_list=True)
        model = program(mapped, x)
        assert [n.op for n in load_program(model).graph].count("while") == flow
        given = np.arange(rows * 70, dtype=np.float32).reshape(rows, 70)
        assert (run(model, given) == 2 * given).all()


def test_a_graph_that_is_given_too_much_is_refused() -> None:
    arguments = {
        "argument_0": scaled(2.0),
        "argument_1": "once",
        "argument_2": (Ref("x"), Ref("x")),
    }
    called = Operation(
        "c", "higher_order.invoke_subgraph", arguments, (WIDE,), is_list=True
    )
    with pytest.raises(ModelError, match=r"graph 'times_2\.0' takes 1 values, not 2"):
        load_program(program(called, X))


def test_a_problem_in_a_branch_is_told_once_and_with_its_place() -> None:
    magic = Operation("m", "aten.magic.default", {"self": Ref("a")}, (WIDE,))
    body = Body("body", (("a", None),), (), (magic,), (Ref("m"),))
    flag = Input("flag", Role.USER, TensorType(i64, ()))
    arguments = {
        "pred": Ref("flag"), "true_fn": body, "false_fn": scaled(5.0), "operands": (Ref("x"),),
    }  # fmt: skip
    asked = Operation("c", "higher_order.cond", arguments, (WIDE,), is_list=True)
    with pytest.raises(ModelError, match=r"^<test>: node 'c/m' \(aten\.magic\.default\)"):
        load_program(program(asked, X, flag))


def test_a_value_that_nobody_made_is_a_problem() -> None:
    lost = Operation("y", "aten.relu.default", {"self": Ref("lost")}, (WIDE,))
    model = Program("test", (X,), (lost,), (Output(Ref("y")),))
    with pytest.raises(ModelError, match="the value 'lost' is not in the program"):
        load_program(model)
