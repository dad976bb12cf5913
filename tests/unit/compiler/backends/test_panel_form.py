"""Which machine decides how the weights of several targets are packed."""

from __future__ import annotations

from tilewright.base import dtypes
from tilewright.base.target import Target
from tilewright.compiler.backends.panel_form import PanelsOf, form_of, packing_target
from tilewright.compiler.backends.registry import find_backend
from tilewright.compiler.schedule.machine_model import MachineModel

FLOATS = frozenset({dtypes.f32})


def test_among_several_levels_the_widest_up_to_avx2_packs_the_weights() -> None:
    levels = {name: Target.level(name) for name in ("v1", "v2", "v3", "v4")}
    for names, packing in (
        (("v2", "v3", "v4"), "v3"),
        (("v4", "v3", "v1"), "v3"),
        (("v2", "v4"), "v2"),
        (("v4",), "v4"),
        (("v1", "v2"), "v1"),
    ):
        assert packing_target([levels[name] for name in names]) == levels[packing], names


def test_forms_are_equal_where_machines_are() -> None:
    v3, v4 = Target.level("v3"), Target.level("v4")
    cpu, c = find_backend("cpu"), find_backend("c")
    alone, both = cpu.graph_form(v3, [v3], FLOATS), cpu.graph_form(v3, [v3, v4], FLOATS)
    assert alone == c.graph_form(v3, [v3], FLOATS) == cpu.graph_form(v3, [v3, v3], FLOATS)
    assert both == c.graph_form(v3, [v3, v4], FLOATS)
    assert alone != cpu.graph_form(v4, [v4], FLOATS) != both
    machine = cpu.machine_model(v3)
    assert form_of(machine) == alone
    assert PanelsOf(machine)((64,), 64, 64, dtypes.f32) % 8 == 0


def test_targets_share_a_form_until_they_multiply_other_words() -> None:
    named = ("v2", "v3", "v4", "znver4")
    targets = [Target.level(name) for name in named]

    def shared(*types: dtypes.DType) -> list[set[str]]:
        found = [
            find_backend("cpu").graph_form(t, targets, FLOATS | {*types}) for t in targets
        ]
        return [
            {name for name, form in zip(named, found, strict=True) if form == each}
            for each in found
        ]

    assert shared() == [{*named}] * 4
    assert shared(dtypes.i64, dtypes.f16) == [{*named}] * 4
    assert shared(dtypes.bf16) == [{"v2", "v3", "v4"}] * 3 + [{"znver4"}]
    assert shared(dtypes.bool_) == [{*named}] * 4
    for narrow in (dtypes.i8, dtypes.u8, dtypes.u4):
        assert shared(narrow) == [{"v2", "v3"}] * 2 + [{"v4"}, {"znver4"}]


def test_panels_of_words_are_those_of_the_widest_machine_alone() -> None:
    v2, v3, v4 = (MachineModel.of(Target.level(name)) for name in ("v2", "v3", "v4"))
    shared, alone = PanelsOf(v3, (v2, v4), PanelsOf(v4)), PanelsOf(v4)
    for rows in ((1,), (64,), (1000,)):
        for dtype, each in ((dtypes.i32, 1), (dtypes.f32, 8)):
            assert shared(rows, 1000, 64, dtype, each) == alone(rows, 1000, 64, dtype, each)
        assert shared(rows, 1000, 64, dtypes.f32) == PanelsOf(v3, (v2, v4))(
            rows, 1000, 64, dtypes.f32
        )


def test_panels_that_are_shared_are_one_vector_of_the_widest_machine() -> None:
    v2, v3, v4 = (MachineModel.of(Target.level(name)) for name in ("v2", "v3", "v4"))
    shared = PanelsOf(v3, (v2, v4))
    assert [shared((64,), n, 64, dtypes.f32) for n in (17, 24, 160, 1000)] == [16] * 4
    assert shared((64,), 1000, 64, dtypes.f64) == 8
    assert PanelsOf(v3, (v2,))((64,), 1000, 64, dtypes.f32) == 8
    assert shared((1,), 1000, 64, dtypes.f32) == 32  # memory decides: several lines at once
    assert shared((64,), 5, 64, dtypes.f32) == PanelsOf(v3)((64,), 5, 64, dtypes.f32) == 8
