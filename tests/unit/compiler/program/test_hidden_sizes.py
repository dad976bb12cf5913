"""Sizes inside of kernels: a call in which one would be negative fails, as if it were a tensor of its own."""

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.onnx_models import parse
from tilewright.base.errors import DeviceError, InputError

FILLED = """agraph (float[N] x) => (float[P] y) <int64[1] five = {5}> {
    s = Shape(x)  d = Sub(five, s)  z = ConstantOfShape(d)  y = Concat<axis = 0>(x, z)
}"""
REPEATED = """agraph (float[N] x) => (float[P] y) <int64[1] five = {5}, float one = {1}> {
    s = Shape(x)  d = Sub(five, s)  z = Expand(one, d)  y = Concat<axis = 0>(x, z, x)
}"""
BRANCH = """agraph (float[N] x, bool c) => (float[P] y) <int64[1] five = {5}> {
    y = If (c) <
        then_branch = g1 () => (float[Q] y1) {
            s = Shape(x)  d = Sub(five, s)  z = ConstantOfShape(d)  y1 = Concat<axis = 0>(x, z)
        },
        else_branch = g2 () => (float[R] y2) { y2 = Identity(x) }>
}"""
LOOP = """agraph (float[N] x, int64 n) => (float[P] y) <int64[1] five = {5}, bool t = {1}> {
    y = Loop (n, t, x) <body = g1 (int64 i, bool go, float[Q] a) => (bool on, float[R] b) {
        on = Identity(go)
        s = Shape(a)  d = Sub(five, s)  z = ConstantOfShape(d)  b = Concat<axis = 0>(a, z)
    }>
}"""
GROWING = """agraph (float[N] x, int64 n) => (float[P] y)
    <int64[1] five = {5}, bool t = {1}, float[2] two = {1, 1}> {
    y = Loop (n, t, x) <body = g1 (int64 i, bool go, float[Q] a) => (bool on, float[R] b) {
        on = Identity(go)
        s = Shape(a)  d = Sub(five, s)  z = ConstantOfShape(d)  b = Concat<axis = 0>(a, z, two)
    }>
}"""
BRANCH_IN_LOOP = """agraph (float[N] x, int64 n, bool c) => (float[P] y)
    <int64[1] five = {5}, bool t = {1}> {
    y = Loop (n, t, x) <body = g1 (int64 i, bool go, float[Q] a) => (bool on, float[R] b) {
        on = Identity(go)
        b = If (c) <
            then_branch = g2 () => (float[U] y1) {
                s = Shape(a)  d = Sub(five, s)  z = ConstantOfShape(d)  y1 = Concat<axis = 0>(a, z)
            },
            else_branch = g3 () => (float[V] y2) { y2 = Identity(a) }>
    }>
}"""
COUNTED = """agraph (float[N] x) => (float[P] y)
    <int64[1] five = {5}, int64[1] all = {-1}, int64 last = {1}, float one = {1}> {
    found = NonZero(x)  s = Shape(found)  count = Gather(s, last)  size = Reshape(count, all)
    o = Expand(one, size)  d = Sub(five, size)  z = ConstantOfShape(d)  y = Concat<axis = 0>(o, z)
}"""
BEHIND_A_BRANCH = """agraph (float[N] x, bool c) => (float[P] y) <int64[1] five = {5}> {
    w = If (c) <then_branch = g1 () => (float[Q] y1) { y1 = Concat<axis = 0>(x, x) },
                else_branch = g2 () => (float[R] y2) { y2 = Identity(x) }>
    s = Shape(w)  d = Sub(five, s)  z = ConstantOfShape(d)  y = Concat<axis = 0>(w, z)
}"""
ENGINES = ("plan", "vm")
REFUSALS = (InputError, DeviceError)


def loaded(text: str, engine: str, folder: Path) -> tw.Model:
    path = folder / "model.vmfb"
    tw.compile(parse(text)).save(path)
    return tw.load(path, engine=engine)


def run(model: tw.Model, size: int, **inputs: object) -> np.ndarray:
    arrays = {name: np.array(value) for name, value in inputs.items()}
    (found,) = model.run({"x": np.ones(size, np.float32), **arrays}).values()
    return np.asarray(found)


def filled(size: int, total: int = 5) -> list[float]:
    return [1.0] * size + [0.0] * (total - size)


@pytest.mark.parametrize(("text", "copies"), [(FILLED, 1), (REPEATED, 2)])
def test_what_is_joined_with_less_than_nothing_fails_the_call(
    text: str, copies: int
) -> None:
    model = tw.compile(parse(text))
    for size in (1, 4, 5):
        assert run(model, size).shape == (5 + (copies - 1) * size,)
    for size in (6, 9):
        text = rf"a size is below zero: .*-N . 5. is {5 - size} for N = {size}$"
        with pytest.raises(InputError, match=text):
            run(model, size)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_branch_that_runs_fails_the_call(engine: str, tmp_path: Path) -> None:
    model = loaded(BRANCH, engine, tmp_path)
    for size in (1, 4, 5):
        assert run(model, size, c=True).tolist() == filled(size)
    for size in (6, 7, 4096):
        with pytest.raises(REFUSALS, match=r"node 'y1': .*below zero"):
            run(model, size, c=True)
        assert run(model, size, c=False).tolist() == [1.0] * size
    assert run(model, 2, c=True).tolist() == filled(2)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_trip_of_a_loop_fails_the_call(engine: str, tmp_path: Path) -> None:
    model = loaded(LOOP, engine, tmp_path)
    for size in (1, 4, 5):
        assert run(model, size, n=3).tolist() == filled(size)
    for size in (6, 7, 4096):
        with pytest.raises(REFUSALS, match=r"node 'b': .*below zero"):
            run(model, size, n=1)
        assert run(model, size, n=0).tolist() == [1.0] * size


@pytest.mark.parametrize("engine", ENGINES)
def test_a_later_trip_of_a_loop_fails_the_call(engine: str, tmp_path: Path) -> None:
    """The first one leaves 7 elements, which the second one cannot fill up to 5."""
    model = loaded(GROWING, engine, tmp_path)
    assert run(model, 3, n=1).tolist() == [*filled(3), 1.0, 1.0]
    with pytest.raises(REFUSALS, match=r"node 'b': .*below zero"):
        run(model, 3, n=2)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_branch_within_a_loop_fails_the_call(engine: str, tmp_path: Path) -> None:
    model = loaded(BRANCH_IN_LOOP, engine, tmp_path)
    for size in (1, 5):
        assert run(model, size, n=2, c=True).tolist() == filled(size)
    for size in (6, 7, 4096):
        with pytest.raises(REFUSALS, match=r"node 'y1': .*below zero"):
            run(model, size, n=2, c=True)
        assert run(model, size, n=2, c=False).tolist() == [1.0] * size


@pytest.mark.parametrize("engine", ENGINES)
def test_sizes_that_data_decides_fail_the_call(engine: str, tmp_path: Path) -> None:
    model = loaded(COUNTED, engine, tmp_path)
    for size in (0, 1, 5):
        assert run(model, size).tolist() == filled(size)
    for size in (6, 7, 4096):
        with pytest.raises(REFUSALS, match="below zero"):
            run(model, size)


@pytest.mark.parametrize("engine", ENGINES)
def test_sizes_that_a_branch_decides_fail_the_call(engine: str, tmp_path: Path) -> None:
    model = loaded(BEHIND_A_BRANCH, engine, tmp_path)
    for size, taken in ((2, True), (2, False), (5, False)):
        assert run(model, size, c=taken).tolist() == filled(size * (1 + taken))
    for size, taken in ((3, True), (6, False)):
        with pytest.raises(REFUSALS, match="below zero"):
            run(model, size, c=taken)
