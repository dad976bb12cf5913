from __future__ import annotations

import pytest

from fakes.contractions import depthwise
from fakes.contractions import product as packed_product
from fakes.loop_nests import assert_same, body_text, doubled, op_kernel, product
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.primitives import bind, partition, reorder, split, unroll
from tilewright.compiler.schedule.rules import schedule
from tilewright.compiler.schedule.trace import (
    PRIMITIVES,
    Primitive,
    Schedule,
    _check_arguments,
    from_json,
    replay,
    to_json,
)


def test_a_schedule_records_names_and_plain_arguments() -> None:
    n = symbol("N", 0)
    s = Schedule(doubled(n))
    s.apply(partition, "i", n // 4 * 4)
    s.apply(split, "i", 4, into=("o", "l"))
    assert s.kernel.trace == (
        ("partition", {"loop": "i", "at": "4*(N // 4)"}),
        ("split", {"loop": "i", "factor": 4, "into": ["o", "l"]}),
    )


def test_replay_of_a_trace_gives_the_same_kernel() -> None:
    s = Schedule(product())
    s.apply(split, "j", 4)
    s.apply(reorder, ["j_o", "i", "j_i"])
    s.apply(unroll, "j_i")
    s.apply(bind, "j_o", "x")
    again = replay(product(), from_json(to_json(s.kernel.trace)))
    assert kernel_text(again) == kernel_text(s.kernel)
    assert again.trace == s.kernel.trace


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("op", "shapes", "result", "attributes"),
    [
        ("contract", [(19, 21), (2, 21, 32)], (19, 40), packed_product(40)),
        ("softmax", [(5, 77)], (5, 77), {"axis": -1}),
        ("contract", [(1, 7, 9, 20), (3, 3, 20)], (1, 5, 7, 20), depthwise()),
        ("transpose", [(33, 20)], (20, 33), {"perm": (1, 0)}),
        (
            "contract",
            [(symbol("M", 1), 6), (1, 6, 16)],
            (symbol("M", 1), 10),
            packed_product(10),
        ),
    ],
)
def test_what_the_rules_did_can_be_replayed_from_json(
    op, shapes, result, attributes
) -> None:
    kernel = op_kernel(op, shapes, result, attributes)
    scheduled = schedule(kernel, MachineModel.of(Target.level("v4")), threads=2)
    assert scheduled.trace
    again = replay(kernel, from_json(to_json(scheduled.trace)))
    assert body_text(again) == body_text(scheduled)
    assert_same(kernel, again, {"M": 9}, exact=False)


def test_a_failed_step_leaves_the_kernel_as_it_was() -> None:
    s = Schedule(doubled())
    assert not s.attempt(split, "nowhere", 2)
    assert s.kernel.trace == ()
    assert s.attempt(split, "i", 2)


@pytest.mark.parametrize(
    ("step", "arguments"),
    [
        (split, {"loop": "i", "factor": 0}),
        (split, {"loop": "i", "factor": 2, "tail": "loose"}),
        (bind, {"loop": "i", "axis": "w"}),
        (reorder, {"order": ["i", "nowhere"]}),
    ],
)
def test_every_error_of_a_primitive_names_the_kernel(
    step: Primitive[..., object], arguments: dict[str, object]
) -> None:
    kernel = product()
    with pytest.raises(ScheduleError) as caught:
        step(kernel, **arguments)
    assert caught.value.location == kernel.name


def test_replay_names_the_step_that_fails() -> None:
    with pytest.raises(ScheduleError, match="step 0: unknown primitive 'melt'"):
        replay(doubled(), [("melt", {})])
    with pytest.raises(ScheduleError, match="step 1, 'split': doubled: no loop 'i'"):
        replay(doubled(), [("split", {"loop": "i", "factor": 2})] * 2)
    with pytest.raises(ScheduleError, match="step 0: missing a required argument"):
        replay(doubled(), [("split", {"loops": "i"})])


@pytest.mark.parametrize(
    "text", ["", "{", '["split"]', '[["split"]]', "[[1, {}]]", '[["split", 3]]']
)
def test_a_damaged_trace_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError, match=r"a trace is not JSON|a step of a trace"):
        from_json(text)


def test_a_trace_that_is_nested_too_deeply_is_refused() -> None:
    with pytest.raises(ScheduleError, match="a trace is not JSON"):
        from_json("[" * 100_000)


def test_what_has_no_form_in_json_is_refused() -> None:
    with pytest.raises(ScheduleError, match="a trace cannot be JSON"):
        to_json([("split", {"loop": "i", "factor": object()})])


@pytest.mark.parametrize(
    ("step", "arguments", "text"),
    [
        ("split", {"loop": 3, "factor": 2}, "'loop' of 'split' is 3, expected a text"),
        ("split", {"loop": "i", "factor": 2.0}, "is 2.0, expected a whole number"),
        ("split", {"loop": "i", "factor": True}, "is True, expected a whole number"),
        ("split", {"loop": "i", "factor": 2, "into": "ab"}, "expected a list of texts"),
        ("split", {"loop": "i", "factor": 2, "into": ["a", 1]}, "expected a list of texts"),
        ("reorder", {"order": "i"}, "'order' of 'reorder' is 'i', expected a list of"),
        ("partition", {"loop": "i", "at": None}, "'at' of 'partition' is None, expected a"),
        ("tile", {"loop_factors": "i"}, "expected a list of [loop, factor]"),
        ("tile", {"loop_factors": ["i"]}, "expected a list of [loop, factor]"),
        ("cache_read", {"buffer": "x", "loop": "i", "into": 4}, "is 4, expected a text"),
    ],
)
def test_an_argument_of_another_type_is_refused(
    step: str, arguments: dict[str, object], text: str
) -> None:
    with pytest.raises(ScheduleError) as caught:
        replay(doubled(), [(step, arguments)])
    assert text in str(caught.value)


def test_every_argument_of_every_primitive_can_be_left_to_the_check() -> None:
    for name, function in PRIMITIVES.items():
        for key in list(function.signature.parameters)[1:]:
            with pytest.raises(ScheduleError, match=f"'{key}' of '{name}' is <object"):
                _check_arguments(function, {key: object()})


def test_every_primitive_says_what_it_rewrites() -> None:
    for name, function in PRIMITIVES.items():
        assert "rewrite:" in (function.__doc__ or ""), name
        assert "->" in (function.__doc__ or ""), name
