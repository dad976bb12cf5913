"""The file form: the same plan comes back, damaged bytes give one kind of error, TVM can read it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.plans import (
    block_plan,
    calling_plan,
    checking_plan,
    dynamic_plan,
    flow_plan,
    static_plan,
)
from tilewright.base.errors import ArchiveError
from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import Dim
from tilewright.base.symbolic import parse as parse_dim
from tilewright.formats.plan import Plan, Step, from_json, json_form, to_json

PLANS = (static_plan(), dynamic_plan(), calling_plan(), checking_plan())


def same(left: object, right: object) -> bool:
    """Equality through dataclasses, sequences and arrays."""
    if dataclasses.is_dataclass(left) and type(left) is type(right):
        names = [field.name for field in dataclasses.fields(left)]
        return all(same(getattr(left, n), getattr(right, n)) for n in names)
    if isinstance(left, tuple):
        return (
            isinstance(right, tuple)
            and len(left) == len(right)
            and all(same(a, b) for a, b in zip(left, right, strict=True))
        )
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    return bool(left == right)


def members_of(plan: Plan) -> Any:
    return json.loads(to_json(plan))


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_a_plan_comes_back_as_it_was(plan: Plan) -> None:
    again = from_json(to_json(plan))
    assert same(again, plan)
    assert to_json(again) == to_json(plan)
    assert from_json(memoryview(to_json(plan))).name == plan.name


@pytest.mark.thinned(3)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_a_plan_that_is_cut_off_anywhere_is_refused(plan: Plan) -> None:
    data = to_json(plan)
    for end in range(len(data)):
        with pytest.raises(ArchiveError, match="plan"):
            from_json(data[:end])


@pytest.mark.thinned(3)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
@given(data=st.data())
def test_damaged_bytes_are_refused_or_harmless(plan: Plan, data: st.DataObject) -> None:
    text = bytearray(to_json(plan))
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text) - 1))
        end = data.draw(st.integers(start, min(len(text), start + 6)))
        filler = st.one_of(
            st.binary(max_size=6), st.sampled_from([b"9", b"-1", b"[]", b"null"])
        )
        text[start:end] = data.draw(filler)
    try:
        again = from_json(bytes(text))
    except ArchiveError:
        return
    assert from_json(to_json(again)).name == again.name


@pytest.mark.thinned(2)
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_any_value_in_any_place_is_refused_or_harmless(plan: Plan) -> None:
    """Every value of the tree replaced by every kind of wrong value."""
    tree = members_of(plan)
    wrong: tuple[object, ...] = (None, True, -1, 1 << 70, 0.5, "", "N//0", [], [[]], {})
    refused = 0
    for path in list(paths(tree["metadata"], ("metadata",))):
        for value in wrong:
            try:
                from_json(json.dumps(replaced(tree, path, value)).encode())
            except ArchiveError:
                refused += 1
    assert refused > 500


def paths(tree: object, at: tuple[object, ...]) -> Any:
    yield at
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in items:
        yield from paths(value, (*at, key))


def replaced(tree: Any, path: tuple[Any, ...], value: object) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = replaced(tree[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b"null", b"\xff", b'{"metadata": 3}', b"[" * 100000]
)
def test_other_files_are_no_plans(data: bytes) -> None:
    with pytest.raises(ArchiveError, match="not a plan"):
        from_json(data)


def without(row: dict[str, Any], member: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != member}


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("steps", lambda row: without(row, "grid"), "row 1 of 'steps': there is no 'grid'"),
        (
            "steps",
            lambda row: row | {"arguments": [0, "1"]},
            "row 1 of 'steps': expected an integer, got '1'",
        ),
        (
            "steps",
            lambda row: row | {"grid": [1, 1]},
            "row 1 of 'steps': a row has another",
        ),
        ("steps", lambda row: 5, "row 1 of 'steps': a value is of another kind"),
        ("storages", lambda row: row[1:], "row 1 of 'storages': a row has another number"),
        ("entries", lambda row: [row[0], "f33", *row[2:]], "row 1 of 'entries': .*'f33'"),
        ("entries", lambda row: [*row[:2], ["("], 0], "row 1 of 'entries': "),
        ("outputs", lambda row: [row[0]], "row 0 of 'outputs': a row has another number"),
    ],
)
def test_a_damaged_row_is_named_with_what_is_wrong_and_what_to_do(
    table: str, change: Callable[[Any], Any], message: str
) -> None:
    tree = members_of(static_plan())
    rows = tree["metadata"]["tilewright"][table]
    place = min(1, len(rows) - 1)
    rows[place] = change(rows[place])
    with pytest.raises(ArchiveError, match=f"^plan: {message}") as caught:
        from_json(json.dumps(tree).encode())
    assert caught.value.hint == "copy the file again, or compile the model again"
    assert "Error(" not in str(caught.value)


@pytest.mark.parametrize("member", ["storages", "name", "arena_bytes"])
def test_a_member_that_is_missing_is_named(member: str) -> None:
    tree = members_of(static_plan())
    del tree["metadata"]["tilewright"][member]
    with pytest.raises(ArchiveError, match=f"plan: there is no '{member}'"):
        from_json(json.dumps(tree).encode())


@pytest.mark.parametrize(
    ("version", "works"),
    [*(([1, n], n <= 6) for n in range(8)), ([2, 0], False), ([0, 9], False)],
)
def test_versions_that_are_not_read_are_refused_with_a_hint(
    version: list[int], works: bool
) -> None:
    tree = members_of(static_plan())
    tree["metadata"]["tilewright"]["version"] = version
    data = json.dumps(tree).encode()
    if works:
        assert from_json(data).name == "static"
        return
    with pytest.raises(
        ArchiveError, match=r"plan version \d\.\d, this runtime reads up to 1\.6"
    ) as caught:
        from_json(data)
    assert ("update Tilewright" in (caught.value.hint or "")) is (version > [1, 6])
    assert "compile the model again with this version" in (caught.value.hint or "")


def test_plans_from_before_there_were_outcomes_have_none() -> None:
    tree = members_of(static_plan())
    extension = tree["metadata"]["tilewright"]
    extension["version"] = [1, 0]
    assert [step.pop("outcome") for step in extension["steps"]] == [
        "pointwise",
        "rows",
        None,
    ]
    old = from_json(json.dumps(tree).encode())
    assert [step.outcome for step in old.steps] == [None, None, None]
    assert old.outcomes == {}
    assert static_plan().outcomes == {"add": Outcome.POINTWISE, "widen": Outcome.ROWS}


def test_an_outcome_that_is_none_is_refused() -> None:
    tree = members_of(static_plan())
    tree["metadata"]["tilewright"]["steps"][0]["outcome"] = "quick"
    with pytest.raises(ArchiveError, match="'quick' is not a valid Outcome"):
        from_json(json.dumps(tree).encode())


@pytest.mark.parametrize(
    "dim", ["(" * 3000 + "N" + ")" * 3000, "*".join(["(N+1)"] * 700), "N" * 5000]
)
def test_dimensions_that_would_take_forever_are_refused(dim: str) -> None:
    tree = members_of(dynamic_plan())
    tree["metadata"]["tilewright"]["entries"][0][2][0] = dim
    with pytest.raises(ArchiveError):
        from_json(json.dumps(tree).encode())


# --- the part that TVM's graph executor reads ------------------------------------------------


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_the_graph_part_has_the_members_of_tvm_in_order(plan: Plan) -> None:
    tree = members_of(plan)
    # TVM stops at the first member it does not know, and knows "metadata" to end there.
    assert list(tree) == [
        "nodes",
        "arg_nodes",
        "heads",
        "attrs",
        "node_row_ptr",
        "metadata",
    ]
    outputs = tree["node_row_ptr"][-1]
    assert len(tree["node_row_ptr"]) == len(tree["nodes"]) + 1
    for key, tag in (
        ("storage_id", "list_int"),
        ("shape", "list_shape"),
        ("dltype", "list_str"),
    ):
        assert tree["attrs"][key][0] == tag
        assert len(tree["attrs"][key][1]) == outputs
    for number, node in enumerate(tree["nodes"]):
        assert (node["op"] == "null") == (number in tree["arg_nodes"])
        for source, index, version in node["inputs"]:
            assert source < number
            assert version == 0
            assert index < tree["node_row_ptr"][source + 1] - tree["node_row_ptr"][source]
        if node["op"] == "tvm_op":
            assert node["attrs"]["num_inputs"] == str(len(node["inputs"]))


def test_views_are_nodes_without_work_between_the_steps() -> None:
    tree = members_of(static_plan())
    names = [node.get("attrs", {}).get("func_name", "") for node in tree["nodes"]]
    assert names == ["", "", "add", "__nop", "widen", "__nop", "__copy"]
    assert [node["name"] for node in tree["nodes"][:2]] == ["x", "w"]
    assert tree["nodes"][3]["inputs"] == [[2, 0, 0]]
    assert tree["nodes"][6]["inputs"] == [[5, 0, 0]]
    assert tree["heads"] == [[6, 0, 0]]
    assert tree["attrs"]["storage_id"][1] == [0, 1, 2, 2, 4, 4, 3]
    assert tree["attrs"]["shape"][1][5] == [2, 2]


def test_leaves_of_one_name_are_told_apart() -> None:
    plan = static_plan()
    storages = tuple(
        dataclasses.replace(s, name="x") if s.kind == "constant" else s
        for s in plan.storages
    )
    nodes = json.loads(to_json(dataclasses.replace(plan, storages=storages)))["nodes"]
    leaves = [node["name"] for node in nodes if node["op"] == "null"]
    assert leaves[0] == "x"
    assert len(set(leaves)) == len(leaves) == 2


def test_dynamic_axes_are_minus_one_and_bfloat16_has_its_name() -> None:
    tree = members_of(dynamic_plan())
    assert tree["attrs"]["shape"][1] == [[-1, 3], [], [-1, 3], [-1, 3]]
    assert tree["attrs"]["dltype"][1] == ["float32", "float32", "float32", "bfloat16"]


def test_a_tensor_written_over_its_operand_comes_from_the_step_that_wrote_last() -> None:
    plan = static_plan()
    in_place = dataclasses.replace(
        plan.steps[1], name="again", target="again", arguments=(2, 2)
    )
    steps = (plan.steps[0], in_place, dataclasses.replace(plan.steps[2], arguments=(4, 3)))
    storages = tuple(
        dataclasses.replace(s, last=2) if s.name == "sum" else s for s in plan.storages
    )
    tree = members_of(dataclasses.replace(plan, steps=steps, storages=storages))
    by_name = {node["name"]: node for node in tree["nodes"]}
    names = [node["name"] for node in tree["nodes"]]
    assert by_name["again"]["inputs"] == [[names.index("add"), 0, 0]]
    view = tree["nodes"][by_name["copy"]["inputs"][0][0]]
    assert view["inputs"] == [[names.index("again"), 0, 0]]


def test_an_expression_is_parsed_once_however_often_it_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    def parse(text: str) -> Dim:
        seen.append(text)
        return parse_dim(text)

    data = to_json(dynamic_plan())
    monkeypatch.setattr(json_form, "parse_dim", parse)
    assert same(from_json(data), dynamic_plan())
    assert seen
    assert len(seen) == len(set(seen)) < data.count(b"n")


def without_rows() -> Plan:
    """`flow_plan` with neither the row nor what reads it."""
    plan = flow_plan()
    steps = tuple(
        dataclasses.replace(
            step,
            arguments=(4, 3) if step.kind == "copy" else step.arguments,
            goto=max(step.goto - 1, -1),
        )
        for step in plan.steps[1:]
    )
    entries = (*plan.entries[:4], plan.entries[5])
    return dataclasses.replace(
        plan, steps=steps, storages=plan.storages[:4], entries=entries
    )


def test_plans_are_written_as_the_oldest_version_that_has_what_is_in_them() -> None:
    expect = Step("expect", "expect_sizes", "node 'x'", (), 0, dims=(3, 3))
    expecting = dataclasses.replace(static_plan(), steps=(*static_plan().steps, expect))
    rows = (
        (block_plan(), [1, 6]),
        (expecting, [1, 6]),
        (flow_plan(), [1, 5]),
        (without_rows(), [1, 4]),
        (static_plan(), [1, 3]),
    )
    for plan, version in rows:
        assert from_json(to_json(plan)) == plan
        assert members_of(plan)["metadata"]["tilewright"]["version"] == version
