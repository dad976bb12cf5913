import pytest

from tilewright.base.errors import InternalError, ModelError, UserError
from tilewright.base.registry import Registry


def test_lookup_returns_what_was_registered():
    ops = Registry[int]("op")
    assert ops.register("add", 1, owner="ops.arithmetic") == 1
    assert ops.lookup("add") == 1
    assert ops.owner("add") == "ops.arithmetic"
    assert "add" in ops
    assert ops.find("sub") is None


def test_a_duplicate_name_is_an_error_that_names_both_owners():
    ops = Registry[int]("op")
    ops.register("add", 1, owner="first")
    with pytest.raises(
        InternalError, match="'add' is registered twice, by 'first' and by 'second'"
    ):
        ops.register("add", 2, owner="second")
    assert ops.lookup("add") == 1


def test_an_unknown_name_suggests_the_closest():
    ops = Registry[int]("op", error=ModelError)
    ops.register("matmul", 1, owner="x")
    with pytest.raises(ModelError) as caught:
        ops.lookup("matmuul", location="m.onnx: node 'a'")
    assert str(caught.value) == (
        "m.onnx: node 'a': unknown op 'matmuul'\nhint: did you mean 'matmul'?"
    )


def test_an_unknown_name_far_from_all_lists_what_there_is():
    ops = Registry[int]("op")
    with pytest.raises(UserError, match="no op is registered"):
        ops.lookup("x")
    for i in range(14):
        ops.register(f"name{i:02}", i, owner="x")
    with pytest.raises(UserError, match=r"known: name00 .* and 2 more"):
        ops.lookup("zzzzzz")


def test_iteration_is_sorted_whatever_the_order_of_registration():
    ops = Registry[int]("op")
    ops.register("b", 2, owner="x")
    ops.register("a", 1, owner="x")
    assert list(ops) == ["a", "b"]
    assert ops.values() == (1, 2)
    assert len(ops) == 2
