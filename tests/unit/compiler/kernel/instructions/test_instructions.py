"""Which instructions targets have, and in which widths."""

from __future__ import annotations

import pytest

from tilewright.base.dtypes import i32
from tilewright.base.target import Target
from tilewright.compiler.kernel.instructions import (
    INSTRUCTIONS,
    form_for,
    forms_for,
)

ICE = Target.parse("x86_64 -mcpu=icelake-server")
N2 = Target.parse("aarch64 -mcpu=neoverse-n2")
MOVES = "pshufb_0 pshufb_1 pshufb_2 pshufb_3"


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("v2", f"{MOVES} vpdpbusd vpmaddubsw vpmaddwd vpmaddwd_i8"),
        ("v4", f"{MOVES} vpdpbusd vpermps vpmaddubsw vpmaddwd vpmaddwd_i8"),
        (
            "x86_64 -mcpu=icelake-server",
            f"{MOVES} vpdpbusd vpdpwssd vpermps vpmaddubsw vpmaddwd vpmaddwd_i8",
        ),
        (
            "x86_64 -mcpu=znver4",
            f"{MOVES} vdpbf16ps vpdpbusd vpdpwssd vpermps vpmaddubsw vpmaddwd vpmaddwd_i8",
        ),
        ("aarch64 -mcpu=neoverse-n2", "sdot sdot_u7 smmla udot ummla usdot usmmla"),
        ("aarch64 -mcpu=neoverse-n1", "sdot sdot_u7 udot usdot"),
        ("aarch64", ""),
        ("riscv64", ""),
    ],
)
def test_a_target_has_what_its_features_say(target, names):
    there = Target.parse(target)
    rows = INSTRUCTIONS.values()
    found = [r.name for r in rows if {*r.forms} & {*forms_for(r, there)}]
    assert sorted(found) == names.split()


@pytest.mark.parametrize(
    ("lanes", "width"),
    [(64, 16), (16, 16), (24, 8), (8, 8), (12, 4), (4, 4), (1, None), (6, None)],
)
def test_the_widest_form_that_divides_the_lanes_is_taken(lanes, width):
    form = form_for(INSTRUCTIONS["vpdpbusd"], ICE, lanes)
    assert (form.lanes if form else None) == width


def test_short_vectors_have_forms_without_avx512_and_one_instruction_goes_before_two():
    target = Target.parse("x86_64 -mcpu=x86-64-v3 -mattr=+avxvnni")
    forms = forms_for(INSTRUCTIONS["vpdpbusd"], target)
    assert [(form.lanes, form.features) for form in forms] == [
        (8, {"avxvnni"}),
        (8, {"avx2"}),
        (4, {"avxvnni"}),
        (4, {"sse2"}),
    ]


def test_where_another_means_the_same_it_is_taken():
    names = [form.llvm for form in forms_for(INSTRUCTIONS["vpdpbusd"], N2)]
    assert names[::2] == [
        f"llvm.aarch64.neon.usdot.{x}" for x in ("v4i32.v16i8", "v2i32.v8i8")
    ]
    assert "vpdpwssd" in forms_for(INSTRUCTIONS["vpmaddwd"], ICE)[0].llvm
    assert "pmadd" in forms_for(INSTRUCTIONS["vpdpwssd"], Target.level("v3"))[0].llvm


def test_one_instruction_goes_before_three_that_do_the_same():
    once = form_for(INSTRUCTIONS["vpdpbusd"], N2, 8)
    more = form_for(INSTRUCTIONS["vpdpbusd"], Target.parse("aarch64 -mcpu=neoverse-n1"), 8)
    assert once is not None
    assert more is not None
    assert (len(once.rounds), len(more.rounds)) == (0, 3)
    assert ".sdot." in more.llvm


def test_instructions_that_nothing_there_is_like_have_no_form():
    assert forms_for(INSTRUCTIONS["sdot"], ICE) == ()
    assert forms_for(INSTRUCTIONS["vdpbf16ps"], N2) == ()


@pytest.mark.parametrize("row", INSTRUCTIONS.values(), ids=INSTRUCTIONS)
def test_packed_operands_are_words_of_32_bits_or_on_the_right_of_as_many_elements(row):
    total, *left, right = row.parameters
    if row.tile_lanes > 1:
        assert row.operands == (total.dtype, i32, i32)
        return
    assert total.shape == ()
    assert all(x.shape[0] * x.dtype.itemsize == 4 for x in left)
    assert all(x.shape == right.shape for x in left)
    assert row.operands[-1].itemsize == right.shape[0] * right.dtype.itemsize
    assert row.operands[1:-1] == (i32,) * len(left)
    assert bool(row.caution) == (row.replaces is not None)
