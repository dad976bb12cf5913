"""What a broken invariant of ours says: it asks for a report and shows the IR."""

import pytest

from tilewright.base.errors import InternalError
from tilewright.base.registry import Registry
from tilewright.base.symbolic import symbol

HINT = "hint: this is a bug in Tilewright, please report it with the model and this text"


def test_it_asks_for_a_report_with_the_dumped_ir() -> None:
    error = InternalError("no place for %3", location="m.onnx", dump="graph main() {}")
    assert str(error) == f"m.onnx: no place for %3\ngraph main() {{}}\n{HINT}"


def test_branching_on_a_symbolic_dimension() -> None:
    with pytest.raises(InternalError) as caught:
        bool(symbol("n"))
    assert (
        str(caught.value) == f"truth value of symbolic dimension 'n' was asked for\n{HINT}"
    )


def test_a_name_that_is_registered_twice_names_both_owners() -> None:
    registry: Registry[int] = Registry("op")
    registry.register("add", 1, owner="here")
    with pytest.raises(InternalError) as caught:
        registry.register("add", 2, owner="there")
    assert str(caught.value).splitlines()[0] == (
        "op 'add' is registered twice, by 'here' and by 'there'"
    )
