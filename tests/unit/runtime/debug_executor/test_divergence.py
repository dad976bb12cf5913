"""The first tensor that differs between two executors is found, with its node on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fakes.graphs_of_tvm import GraphMaker
from tilewright.base.errors import InputError
from tilewright.runtime.debug_executor import (
    GraphModuleDebug,
    create,
    first_divergence,
)
from tilewright.runtime.packed.function_table import FunctionTable

X = np.float32([1, -2, 3, -4])


def net(
    tanh: Callable[[Any], Any] = np.tanh, *, more: bool = False, prefix: str = ""
) -> GraphModuleDebug:
    """exp, then tanh over the same bytes, then exp again."""

    def into(compute: Callable[[Any], Any]) -> Callable[[Any, Any], None]:
        def call(x: Any, y: Any) -> None:
            np.from_dlpack(y)[...] = compute(np.from_dlpack(x))

        return call

    made = GraphMaker()
    value = made.input(f"{prefix}x", [4])
    if more:
        (value,) = made.call("copy", [value], [[4]], name="extra")
    (value,) = made.call("exp", [value], [[4]], name=f"{prefix}first")
    storage = made.storages[-1]
    (value,) = made.call("tanh", [value], [[4]], name=f"{prefix}second", storages=[storage])
    (value,) = made.call("exp", [value], [[4]], name=f"{prefix}third", storages=[storage])
    functions = {"exp": into(np.exp), "tanh": into(tanh), "copy": into(np.array)}
    return create(made.file([value]), FunctionTable(functions))


def test_two_that_agree_do_not_part() -> None:
    assert first_divergence(net(), net(more=True), x=X) is None


def test_the_first_node_that_differs_is_named_on_both_sides() -> None:
    found = first_divergence(net(), net(lambda x: np.tanh(x) + 1e-2, more=True), x=X)
    assert found is not None
    assert (found.name, found.nodes, found.output, found.agreed) == ("second", (2, 3), 0, 2)
    assert 5e-3 < found.difference.error < 2e-2
    assert "node 2 'second': error" in str(found)
    assert "2 tensors before it agree" in str(found)


def test_a_tolerance_lets_small_differences_pass() -> None:
    other = net(lambda x: np.tanh(x) + 1e-2)
    assert first_divergence(net(), other, tolerance=0.5, x=X) is None


def test_executors_without_a_node_in_common_are_refused() -> None:
    with pytest.raises(InputError, match="no node of the same name"):
        first_divergence(net(), net(prefix="my_"))


def test_nodes_in_another_order_are_compared_all_the_same() -> None:
    def side(names: tuple[str, str]) -> GraphModuleDebug:
        made = GraphMaker()
        x = made.input("x", [4])
        outs = [made.call(name, [x], [[4]], name=name)[0] for name in names]
        return create(made.file(outs), FunctionTable(library))

    def into(scale: float) -> Callable[[Any, Any], None]:
        def call(x: Any, y: Any) -> None:
            np.from_dlpack(y)[...] = scale * np.from_dlpack(x)

        return call

    library = {"left": into(2), "right": into(3)}
    first, second = side(("left", "right")), side(("right", "left"))
    assert first_divergence(first, second, x=X) is None
    library["right"] = into(4)
    found = first_divergence(first, side(("right", "left")), x=X)
    assert found is not None
    assert (found.name, found.nodes) == ("right", (2, 1))


def test_a_run_ends_where_they_part() -> None:
    ran: list[str] = []

    def note(name: str, value: float) -> Callable[[Any, Any], None]:
        def call(_: Any, y: Any) -> None:
            ran.append(name)
            np.from_dlpack(y)[...] = value

        return call

    def side(value: float) -> GraphModuleDebug:
        made = GraphMaker()
        (a,) = made.call("a", [made.input("x", [4])], [[4]], name="a")
        (b,) = made.call("b", [a], [[4]], name="b")
        return create(
            made.file([b]), FunctionTable({"a": note("a", value), "b": note("b", 0)})
        )

    assert first_divergence(side(1), side(2), x=X) is not None
    assert ran == ["a", "a"]
