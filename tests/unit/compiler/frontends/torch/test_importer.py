"""Programs as data: no torch is needed to import one."""

import numpy as np
import pytest

from tilewright.base import symbolic
from tilewright.base.dtypes import f16, f32, i64
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.problems import Problem
from tilewright.compiler.frontends.torch.importer import Importer
from tilewright.compiler.frontends.torch.load import load_program
from tilewright.compiler.frontends.torch.program import (
    Input,
    Opaque,
    Operation,
    Output,
    Program,
    Ref,
    Role,
)
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.schema import TensorType

VECTOR = TensorType(f32, (3,))
X = Input("x", Role.USER, VECTOR)


def program(*operations: Operation, inputs: tuple[Input, ...] = (X,)) -> Program:
    last = operations[-1].name
    return Program("test", inputs, operations, (Output(Ref(last)),))


def problems(model: Program) -> list[Problem]:
    importer = Importer(model, "<test>")
    importer.run()
    return importer.problems


def test_an_operator_is_what_its_row_makes_of_it() -> None:
    add = Operation(
        "y", "aten.add.Tensor", {"self": Ref("x"), "other": 2.0, "alpha": 3}, (VECTOR,)
    )
    graph = load_program(program(add)).graph
    (found,) = evaluate(graph, [np.array([1, 2, 3], np.float32)])
    assert found.tolist() == [7, 8, 9]


def test_every_unknown_operator_is_named_with_its_place_and_what_follows_is_not() -> None:
    found = problems(
        program(
            Operation(
                "a", "aten.magic.default", {"self": Ref("x")}, (VECTOR,), place="m.py:3"
            ),
            Operation("b", "aten.relu.default", {"self": Ref("a")}, (VECTOR,)),
            Operation("c", "aten.trick.default", {"self": Ref("x")}, (VECTOR,)),
            Operation(
                "d", "aten.spell.default", {"self": Ref("b")}, (VECTOR,), place="m.py:9"
            ),
        )
    )
    assert [(p.op_type, p.node) for p in found] == [
        ("aten.magic.default", "a at m.py:3"),
        ("aten.trick.default", "c"),
        ("aten.spell.default", "d at m.py:9"),
    ]


def test_what_follows_a_problem_is_checked_by_the_types_that_torch_says() -> None:
    odd = {"self": Ref("a"), "dim": 0, "oddity": 3}
    pair = (VECTOR, VECTOR)
    found = problems(
        program(
            Operation("a", "aten.magic.default", {"self": Ref("x")}, (VECTOR,)),
            Operation("b", "aten.cumsum.default", odd, (VECTOR,)),
            Operation("c", "aten.trick.default", {"self": Ref("b")}, pair, is_list=True),
            Operation("d", "getitem", {"self": Ref("c"), "index": 1}, (VECTOR,)),
            Operation("e", "aten.relu.default", {"self": Ref("d"), "shiny": 1}, (VECTOR,)),
            Operation("y", "aten.relu.default", {"self": Ref("e")}, (VECTOR,)),
        )
    )
    assert [(p.node, p.reason) for p in found] == [
        ("a", "operator 'aten.magic.default' is not supported"),
        ("b", "argument 'oddity' = 3 is not supported"),
        ("c", "operator 'aten.trick.default' is not supported"),
        ("e", "argument 'shiny' = 1 is not supported"),
    ]


def test_an_element_of_a_stand_in_is_not_called_a_problem() -> None:
    found = problems(
        program(
            Operation(
                "a", "aten.magic.default", {"self": Ref("x")}, (TensorType(i64, ()),)
            ),
            Operation(
                "y", "aten.cumsum.default", {"self": Ref("x"), "dim": Ref("a")}, (VECTOR,)
            ),
        )
    )
    assert [p.node for p in found] == ["a"]


def test_an_operator_that_changes_its_arguments_goes_by_its_own_name() -> None:
    """And gets the hint for operators of users, not torch's wrapper."""
    changing = {"_mutable_op": Opaque("mine.bump.default"), "x": Ref("x")}
    name = "higher_order.auto_functionalized_v2"
    (found,) = problems(program(Operation("y", name, changing, (VECTOR,))))
    assert found.op_type == "mine.bump.default"
    assert found.reason == "operator 'mine.bump.default' is not supported"
    assert found.hint.startswith("what an operator of your own computes")


@pytest.mark.parametrize(
    ("changing", "name"),
    [
        ("mine.bump.default", "mine.bump.default"),
        ("triton_kernel_wrapper_mutation", "higher_order.triton_kernel_wrapper_mutation"),
    ],
)
def test_the_record_of_an_operator_that_changes_its_arguments_has_the_name_of_its_problem(
    changing: str, name: str
) -> None:
    target = "higher_order.auto_functionalized_v2"
    given = {"_mutable_op": Opaque(changing), "x": Ref("x")}
    importer = Importer(program(Operation("y", target, given, (VECTOR,))), "<test>")
    importer.run()
    assert [record.op_type for record in importer.records] == [name]
    (problem,) = importer.problems
    assert problem.op_type == name
    assert ("of your own" in problem.hint) == name.startswith("mine.")


def test_an_argument_that_no_row_asks_for_is_refused() -> None:
    relu = Operation("y", "aten.relu.default", {"self": Ref("x"), "slope": 0.5}, (VECTOR,))
    with pytest.raises(ModelError, match=r"argument 'slope' = 0\.5 is not supported"):
        load_program(program(relu))


def test_a_row_that_gives_another_type_than_torch_is_refused() -> None:
    relu = Operation("y", "aten.relu.default", {"self": Ref("x")}, (TensorType(f16, (3,)),))
    with pytest.raises(ModelError, match=r"gives f32\[3\], torch f16\[3\]"):
        load_program(program(relu))


def test_tied_weights_are_one_constant() -> None:
    array = np.ones((3,), np.float32)
    weights = [Input(n, Role.WEIGHT, VECTOR, array, target=n) for n in ("a", "b")]
    first = Operation(
        "c", "aten.add.Tensor", {"self": Ref("x"), "other": Ref("a")}, (VECTOR,)
    )
    second = Operation(
        "d", "aten.mul.Tensor", {"self": Ref("c"), "other": Ref("b")}, (VECTOR,)
    )
    graph = load_program(program(first, second, inputs=(X, *weights))).graph
    assert [node.op for node in graph].count("constant") == 1


def test_weights_are_views_of_the_memory_that_they_came_in() -> None:
    array = np.ones((3,), np.float32)
    weight = Input("a", Role.WEIGHT, VECTOR, array)
    add = Operation(
        "c", "aten.add.Tensor", {"self": Ref("x"), "other": Ref("a")}, (VECTOR,)
    )
    graph = load_program(program(add, inputs=(X, weight))).graph
    (constant,) = (node for node in graph if node.op == "constant")
    assert np.shares_memory(np.asarray(constant.attributes["value"]), array)


def test_a_size_that_a_call_decides_is_a_result_when_it_is_returned() -> None:
    batch = symbolic.symbol("batch", 1, 64)
    x = Input("x", Role.USER, TensorType(f32, (batch, 2)))
    model = Program("test", (x,), (), (Output(batch * 3),))
    graph = load_program(model).graph
    assert graph.outputs[0].type == TensorType(i64, ())
    assert evaluate(graph, [np.zeros((5, 2), np.float32)])[0] == 15


def test_a_dropped_input_that_nobody_reads_is_no_problem() -> None:
    token = Input("token", Role.WEIGHT, None, None, "a TOKEN is not supported")
    relu = Operation("y", "aten.relu.default", {"self": Ref("x")}, (VECTOR,))
    assert problems(program(relu, inputs=(X, token))) == []
