"""Programs with control flow are looked at as straight ones are: node by node, trip by trip."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from fakes import flow_graphs, flow_models
from fakes.flow_graphs import GROWTH
from fakes.graphs import parse
from tilewright.base.errors import InputError, UserError
from tilewright.runtime.debug_executor import GraphModuleDebug, first_divergence, flow_nodes
from tilewright.runtime.graph_executor import create_executor_module
from tilewright.runtime.plan_executor import PlanExecutor


def debugged(model: tw.Model) -> GraphModuleDebug:
    executor = model.session.executor
    assert isinstance(executor, PlanExecutor)
    return GraphModuleDebug(create_executor_module(executor))


def ending(module: GraphModuleDebug, word: str) -> list[str]:
    return [name for name in module.node_names if name.endswith(word)]


def test_a_step_of_a_loop_is_a_node_in_every_trip() -> None:
    module = debugged(tw.compile(parse(GROWTH)))
    x = np.float32([3, 4])
    for trips in (2, 0, 3):
        found = module.tensors(n=np.array(trips), x=x)
        wanted = [f"loop[{trip}]/concat" for trip in range(trips)]
        assert ending(module, "/concat") == wanted
        for trip, name in enumerate(wanted):
            grown = found[module.node_names.index(name), 0]
            np.testing.assert_array_equal(grown, np.tile(x, trip + 2))


def test_times_are_taken_without_changing_the_way() -> None:
    """A counter that a step adds to counts once, however often the step ran."""
    model = tw.compile(parse(flow_graphs.INDEXING))
    module = debugged(model)
    inputs = {"x": np.arange(5, dtype=np.float32), "p": np.array([4, 0, -2])}
    result = module.run(number=3, repeat=2, min_repeat_ms=0, **inputs)
    assert all(len(times) == 2 for times in result.times)
    assert {n.name.split("/")[0] for n in result.nodes if "/" in n.name} == {
        f"loop[{trip}]" for trip in range(4)
    }
    assert "loop[2]/" in result.table()
    assert any(np.array_equal(row[0], 7) for row in result.tensors if row)
    np.testing.assert_array_equal(module.get_output(0), 7)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", flow_models.models())
def test_the_last_tensors_are_what_a_call_gives(name: str) -> None:
    case = flow_models.models()[name]
    model = tw.compile(case.model)
    module = debugged(model)
    for inputs in case.calls:
        named = dict(zip(model.session.executor.input_names, inputs, strict=True))
        wanted = model(*inputs)
        found = module.tensors(**named)
        for array in wanted if isinstance(wanted, tuple) else (wanted,):
            assert any(
                # A result may be a view of what the last node made.
                seen.size == array.size
                and np.array_equal(seen.reshape(array.shape), array, equal_nan=True)
                for seen in found.values()
            )


@pytest.mark.slow
def test_parts_of_branches_have_names() -> None:
    case = flow_models.models()["branches_whose_results_have_sizes_of_their_own"]
    module = debugged(tw.compile(case.model))
    for index, word in ((0, "branch.then/"), (-1, "branch.else/")):
        c, x, z = case.calls[index]
        module.tensors(c=c, x=x, z=z)
        inside = {n.split("/")[0] + "/" for n in module.node_names if "/" in n}
        assert inside == {word}


def test_one_node_is_looked_at_and_what_is_gone_is_said() -> None:
    module = debugged(tw.compile(parse(GROWTH)))
    module.set_input("n", np.array(3))
    module.set_input("x", np.float32([1, 2]))
    module.prepare()
    grown = module.debug_get_output("loop[1]/concat")
    np.testing.assert_array_equal(grown, np.tile(np.float32([1, 2]), 3))
    assert module.run_individual_node("loop[2]/concat", number=2, repeat=3).min > 0
    with pytest.raises(InputError, match="is not the one that ran last"):
        module.get_node_output("loop[0]/concat")
    with pytest.raises(InputError, match="there is no node"):
        module.debug_get_output("loop[3]/concat")


def test_a_call_of_too_many_steps_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_nodes, "STEP_LIMIT", 20)
    module = debugged(tw.compile(parse(GROWTH)))
    with pytest.raises(UserError, match="runs more than 20 steps"):
        module.tensors(n=np.array(100), x=np.float32([1, 2]))


def test_two_ways_part_in_a_trip() -> None:
    left = debugged(tw.compile(parse(GROWTH)))
    right = debugged(tw.compile(parse(GROWTH.replace("concat(%p, %w)", "concat(%w, %p)"))))
    x = np.float32([1, 2])
    assert first_divergence(left, right, n=np.array(2), x=x) is None
    other = debugged(
        tw.compile(
            parse(
                GROWTH.replace(
                    "%q: f32[S + 2]", "%v: f32[2] = neg(%w) %q: f32[S + 2]"
                ).replace("(%p, %w) {", "(%p, %v) {")
            ),
            opt_level=0,
        )
    )
    plain = debugged(tw.compile(parse(GROWTH), opt_level=0))
    found = first_divergence(plain, other, n=np.array(2), x=x)
    assert found is not None
    assert found.name == "loop[0]/q"
