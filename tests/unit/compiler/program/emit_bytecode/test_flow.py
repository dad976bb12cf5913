"""Control flow in bytecode: blocks, rows at places that data has, sizes that are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import tilewright as tw
from fakes.graphs import parse
from tilewright.base.errors import DeviceError, InputError
from tilewright.formats.vmfb import read_archive
from tilewright.formats.vmfb.text import disassemble_module

ROWS = """graph @g(%i: i64[], %v: f32[5, 40, 32], %x: f32[1, 40]) {
  %zero: i64[] = constant {value = i64[] [0]}
  %w: f32[1, 32] = constant {value = f32[1, 32] splat 0.0}
  %t: i64[], %y: f32[1, 32] = while(%zero, %w, %i, %v, %x) {carried = 2}
    graph @go(%k: i64[], %s: f32[1, 32], %n: i64[], %u: f32[5, 40, 32], %z: f32[1, 40]) {
      %two: i64[] = constant {value = i64[] [2]}
      %c: bool[] = less(%k, %two)
      return %c
    }
    graph @body(%k: i64[], %s: f32[1, 32], %n: i64[], %u: f32[5, 40, 32], %z: f32[1, 40]) {
      %one: i64[] = constant {value = i64[] [1]}
      %j: i64[] = add(%k, %one)
      %at: i64[] = add(%k, %n)
      %r: f32[40, 32] = gather(%u, %at) {axis = 0}
      %p: f32[1, 32] = matmul(%z, %r)
      %q: f32[1, 32] = add(%s, %p)
      return %j, %q
    }
  return %y
}"""
SIZES = """graph @g(%n: i64[1], %x: f32[8]) {
  bind_sizes(%n) {sizes = [S]}
  %y: f32[S] = slice(%x) {axes = [0], sizes = [S], starts = [0], steps = [1]}
  %z: f32[S] = neg(%y)
  return %z
}""".replace("graph @g(", "graph @g<S: 2..8>(")
COLUMNS = """graph @g<N: 1.., S: 0..8>(%n: i64[1], %x: f32[N, 8]) {
  bind_sizes(%n) {sizes = [S]}
  %m: f32[1, 8] = reduce_max(%x) {axes = [0], keepdims = true}
  %d: f32[N, 8] = sub(%x, %m)
  %s: f32[N, 8] = sub(%d, %x)
  %k: f32[N, 8] = add(%s, %m)
  %w: f32[N, 8] = sub(%k, %x)
  %y: f32[N, S] = slice(%w) {axes = [1], sizes = [S], starts = [0], steps = [1]}
  return %y
}"""
TWICE = """graph @g<N: 1..>(%c: bool[], %x: f32[N, 3]) {
  %y: f32[N, 3] = if(%c, %x)
    graph @then(%a: f32[N, 3]) {
      %d: i64[1] = shape_tensor {values = [3*N]}
      %e: f32[1] = cast(%d) {dtype = f32}
      %f: f32[N, 3] = mul(%a, %e)
      return %f
    }
    graph @else(%a: f32[N, 3]) {
      %d: i64[1] = shape_tensor {values = [5*N]}
      %e: f32[1] = cast(%d) {dtype = f32}
      %f: f32[N, 3] = add(%a, %e)
      return %f
    }
  %h: i64[1] = shape_tensor {values = [3*N]}
  %k: f32[1] = cast(%h) {dtype = f32}
  %z: f32[N, 3] = sub(%y, %k)
  return %z
}"""


GROWTH = """graph @g<N: 1..>(%n: i64[], %x: f32[N], %y: f32[2]) {
  %zero: i64[] = constant {value = i64[] [0]}
  %t: i64[], %z: f32[E], %same: f32[N] = while(%zero, %y, %x, %n, %y) {carried = 3, sizes = [E], trip_sizes = [S]}
    graph @go(%i: i64[], %p: f32[S], %q: f32[N], %m: i64[], %w: f32[2]) {
      %c: bool[] = less(%i, %m)
      return %c
    }
    graph @body(%i: i64[], %p: f32[S], %q: f32[N], %m: i64[], %w: f32[2]) {
      %one: i64[] = constant {value = i64[] [1]}
      %j: i64[] = add(%i, %one)
      %d: f32[S] = add(%p, %p)
      %r: f32[S + N] = concat(%d, %q) {axis = 0}
      %u: f32[N] = neg(%q)
      return %j, %r, %u
    }
  %h: i64[1] = shape_tensor {values = [3*E]}
  %k: f32[1] = cast(%h) {dtype = f32}
  %a: f32[E] = add(%z, %k)
  return %a, %same
}"""

EXPECTED = """graph @g<N: 1.., M: 1..>(%c: bool[], %x: f32[N], %y: f32[M]) {
  %z: f32[N] = if(%c, %x, %y)
    graph @then(%a: f32[N], %b: f32[M]) {
      expect_sizes() {left = [N], right = [M]}
      %e: f32[N] = reshape(%b) {shape = [N]}
      %d: f32[N] = add(%a, %e)
      return %d
    }
    graph @else(%a: f32[N], %b: f32[M]) {
      %d: f32[N] = neg(%a)
      return %d
    }
  return %z
}"""


def machine(text: str, folder: Path) -> tw.Model:
    path = folder / "model.vmfb"
    tw.compile(parse(text)).save(path)
    return tw.load(path, engine="vm")


def test_rows_are_read_where_they_lie(tmp_path: Path) -> None:
    model = machine(ROWS, tmp_path)
    rng = np.random.default_rng(0)
    v = rng.standard_normal((5, 40, 32)).astype(np.float32)
    x = rng.standard_normal((1, 40)).astype(np.float32)
    for place in (0, 3, -2, -5):
        wanted = x @ v[place] + x @ v[place + 1]
        np.testing.assert_allclose(
            model(np.array(place), v, x), wanted, rtol=1e-4, atol=1e-4
        )
    for place in (4, -6, 1 << 40):  # no row, and no memory outside of the table
        with pytest.raises(
            (DeviceError, InputError), match="out of range on axis 0 of size 5"
        ):
            model(np.array(place), v, x)
    module = read_archive((tmp_path / "model.vmfb").read_bytes())
    assert "min.i64.s" in disassemble_module(module)


def test_sizes_that_are_read_are_looked_at(tmp_path: Path) -> None:
    model = machine(SIZES, tmp_path)
    x = np.arange(8, dtype=np.float32)
    for size in (2, 8, 5):
        np.testing.assert_array_equal(model(np.array([size]), x), -x[:size])
    for size, message in (
        (1, "gives a size less than 2"),
        (9, "gives a size greater than 8"),
    ):
        with pytest.raises((DeviceError, InputError), match=message):
            model(np.array([size]), x)


def test_what_a_branch_computes_of_sizes_is_not_known_behind_it(tmp_path: Path) -> None:
    model = machine(TWICE, tmp_path)
    for count in (1, 4):
        x = np.arange(3 * count, dtype=np.float32).reshape(count, 3)
        np.testing.assert_array_equal(model(np.array(True), x), x * 3 * count - 3 * count)
        np.testing.assert_array_equal(model(np.array(False), x), x + 5 * count - 3 * count)


def test_what_a_loop_carries_may_grow(tmp_path: Path) -> None:
    model = machine(GROWTH, tmp_path)
    y = np.array([1, 2], np.float32)
    for count, trips in ((1, 0), (3, 1), (2, 5), (1, 17)):
        x = np.arange(1, count + 1, dtype=np.float32)
        wanted, now = y, x
        for _ in range(trips):
            wanted, now = np.concatenate([2 * wanted, now]), -now
        grown, same = model(np.array(trips), x, y)
        np.testing.assert_array_equal(grown, wanted + 3 * len(wanted))
        np.testing.assert_array_equal(same, now)


def test_sizes_are_compared_where_a_branch_runs(tmp_path: Path) -> None:
    model, native = machine(EXPECTED, tmp_path), tw.compile(parse(EXPECTED))
    x, short = np.arange(3, dtype=np.float32), np.ones(2, np.float32)
    for way in (model, native):
        np.testing.assert_array_equal(way(np.array(True), x, x), 2 * x)
        np.testing.assert_array_equal(way(np.array(False), x, short), -x)
        with pytest.raises(
            (DeviceError, InputError), match=r"N must be M|do not agree: N is 3"
        ):
            way(np.array(True), x, short)
        np.testing.assert_array_equal(way(np.array(True), x, x), 2 * x)


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_a_size_of_zero_leaves_nothing_where_data_sizes_an_output(
    engine: Literal["plan", "vm"], tmp_path: Path
) -> None:
    """The steps run to say how large the output is; what data gives is looked at as ever."""
    tw.compile(parse(COLUMNS)).save(tmp_path / "columns.vmfb")
    model = tw.load(tmp_path / "columns.vmfb", engine=engine)
    for rows in (0, 1, 3):
        x = np.arange(8 * rows, dtype=np.float32).reshape(rows, 8)
        for count in (0, 5, 8):
            np.testing.assert_array_equal(model(np.array([count]), x), -x[:, :count])
        with pytest.raises((InputError, DeviceError), match="the data gives"):
            model(np.array([9]), x)
