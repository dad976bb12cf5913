"""Checks of indices run beside other work, and nobody writes what they read meanwhile."""

from fakes.graphs import parse
from fakes.programs import planned
from tilewright.compiler.passes import run_passes
from tilewright.compiler.program.emit_plan import emit_plan
from tilewright.compiler.program.ir import operands_of, results_of
from tilewright.compiler.transforms import GuardIndices
from tilewright.formats.plan import CHECK_BYTES, from_json, to_json


def program_of(text):
    graph = parse(text)
    run_passes(graph, [GuardIndices()])
    return planned(graph)


INPUT = (
    "graph @g(%t: f32[5, 3], %i: i64[4])"
    " { %y: f32[4, 3] = gather(%t, %i) {axis = 0} return %y }"
)
COMPUTED = (
    "graph @g(%t: i64[5], %i: i64[5], %u: i64[5]) {"
    " %a: i64[5] = add(%i, %u) %b: i64[5] = gather(%t, %a) {axis = 0}"
    " %c: i64[5] = mul(%b, %b) %d: i64[5] = gather(%c, %b) {axis = 0} return %d }"
)


def names(program):
    return [step.name for step in program.steps]


def test_the_gather_does_not_wait_for_the_check_of_an_input():
    program = program_of(INPUT)
    assert names(program) == ["out_of_range", "gather"]
    assert [step.barrier for step in program.steps] == [True, False]


def test_a_check_waits_for_what_it_reads():
    program = program_of(COMPUTED)
    for position, step in enumerate(program.steps):
        since = position
        while not program.steps[since].barrier:
            since -= 1
        together = program.steps[since:position]
        written = {e.storage for s in together for e in results_of(s)}
        written.discard(program.check_storage)
        assert not written & {e.storage for e in operands_of(step)}


def test_nobody_writes_what_a_check_reads_beside_it():
    program = program_of(COMPUTED)
    for position, step in enumerate(program.steps):
        if results_of(step)[0].storage is not program.check_storage:
            continue
        (operand,) = {e.storage for e in operands_of(step)}
        if operand.kind != "transient":
            continue
        following = program.steps[position + 1]
        if following.barrier:
            continue
        start, end = operand.offset_bytes, operand.offset_bytes + operand.size_bytes
        for entry in results_of(following):
            if entry.storage.kind == "transient":
                begin = entry.storage.offset_bytes
                assert begin >= end or begin + entry.storage.size_bytes <= start


def test_the_records_live_from_the_first_step_to_the_last():
    program = program_of(COMPUTED)
    storage = program.check_storage
    assert (storage.first, storage.last) == (0, len(program.steps) - 1)
    assert storage.size_bytes == CHECK_BYTES * len(program.checks) == 2 * CHECK_BYTES
    plan = emit_plan(program)
    assert from_json(to_json(plan)) == plan
    assert [check.size for check in plan.checks] == [5, 5]
