from __future__ import annotations

from dataclasses import replace

import numpy as np

from fakes.plans import flow_plan
from tilewright.base import dtypes
from tilewright.formats.plan import Entry, Plan, Step, Storage
from tilewright.runtime.plan_executor.shared_memory import saved, updated_inputs


def _plan(*steps: Step) -> Plan:
    """A plan over an input and an output of one size, entries 0 and 1."""
    storages = (Storage("input", 24), Storage("output", 24))
    entries = tuple(Entry(i, dtypes.f32, (3, 2)) for i in range(2))
    inputs, outputs = (("x", 0),), (("y", 1),)
    return replace(
        flow_plan(), inputs=inputs, outputs=outputs, storages=storages, entries=entries, steps=steps,
    )  # fmt: skip


COPY = Step("copy", "copy", "", (0, 1), 1)
LABEL = Step("label", "again", "", (), 0)


def test_an_output_that_takes_an_input_over_may_have_its_memory() -> None:
    assert updated_inputs(_plan(COPY)) == {(0, 0)}
    assert updated_inputs(_plan(LABEL, COPY)) == {(0, 0)}
    assert not updated_inputs(_plan(COPY, COPY))


def test_what_a_further_trip_reads_again_may_not_be_written() -> None:
    jump = Step("jump", "jump", "", (), 0, goto=0)
    assert not updated_inputs(_plan(LABEL, COPY, jump))
    assert updated_inputs(_plan(LABEL, jump, COPY)) == {(0, 0)}
    forwards = replace(jump, goto=2)
    assert updated_inputs(_plan(COPY, forwards, LABEL)) == {(0, 0)}


def test_inputs_that_an_output_overlaps_are_copied_where_they_may_not() -> None:
    held = np.zeros((4, 2), np.float32)
    inputs = [held, np.ones(3, np.float32)]
    assert [
        a is b
        for a, b in zip(saved(inputs, [None, held], frozenset()), inputs, strict=True)
    ] == [False, True]
    allowed = frozenset({(0, 1)})
    assert all(
        a is b for a, b in zip(saved(inputs, [None, held], allowed), inputs, strict=True)
    )
    assert saved(inputs, [None, held[1:]], allowed)[0] is not held
    assert saved(inputs, [held, None], allowed)[0] is not held
