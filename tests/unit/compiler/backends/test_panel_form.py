"""Which machine decides how the weights of several targets are packed."""

from __future__ import annotations

from tilewright.base import dtypes
from tilewright.base.target import Target
from tilewright.compiler.backends.panel_form import PanelsOf, form_of, packing_target
from tilewright.compiler.backends.registry import find_backend


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
    assert cpu.graph_form([v3]) == c.graph_form([v3]) == cpu.graph_form([v3, v4])
    assert cpu.graph_form([v3]) != cpu.graph_form([v4])
    machine = cpu.machine_model(v3)
    assert form_of(machine) == cpu.graph_form([v3])
    assert PanelsOf(machine)((64,), 64, 64, dtypes.f32) % 8 == 0
