"""The teaching compiler: every rewrite keeps the meaning, and so does the machine code."""

from __future__ import annotations

import numpy as np
import pytest

from from_scratch import (
    Buffer,
    Decisions,
    Load,
    Loop,
    ScheduleError,
    Store,
    at,
    best_of,
    build,
    evaluate,
    fuse,
    keep_in_registers,
    layer,
    lines_of,
    main,
    nest,
    reorder,
    schedule,
    space,
    split,
    walk,
)
from tilewright.base.dtypes import f32
from tilewright.base.target import Target

M, N, K = 4, 8, 5


def inputs(m: int, n: int, k: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {"a": (m, k), "b": (k, n), "bias": (n,)}
    return {
        name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()
    }


def meaning(body, m: int = M, n: int = N, k: int = K) -> np.ndarray:
    arrays = {name: x.astype(float) for name, x in inputs(m, n, k).items()}
    arrays["c"] = np.full((m, n), 7.0)
    evaluate(body, arrays, {})
    return arrays["c"]


def expected(m: int = M, n: int = N, k: int = K) -> np.ndarray:
    x = inputs(m, n, k)
    return np.maximum(x["a"].astype(float) @ x["b"] + x["bias"], 0)


def test_the_naive_nests_mean_what_they_say() -> None:
    np.testing.assert_allclose(meaning(layer(M, N, K)[1]), expected(), rtol=1e-6)


@pytest.mark.parametrize(("variable", "factor"), [("i", 2), ("i", 4), ("j", 8), ("j", 1)])
def test_split_keeps_the_meaning(variable: str, factor: int) -> None:
    body = layer(M, N, K)[1]
    changed = tuple(split(item, variable, factor) for item in body)
    np.testing.assert_array_equal(meaning(changed), meaning(body))


def test_split_refuses_a_rest() -> None:
    with pytest.raises(ScheduleError, match="'k' runs 5 times, no multiple of 2"):
        split(layer(M, N, K)[1][1], "k", 2)


def test_reorder_keeps_the_meaning_to_the_last_bit() -> None:
    body = layer(M, N, K)[1]
    changed = (body[0], reorder(body[1], ["k", "j", "i"]), body[2])
    np.testing.assert_array_equal(meaning(changed), meaning(body))
    with pytest.raises(ScheduleError, match="the loops are"):
        reorder(body[1], ["i", "j"])


@pytest.mark.parametrize("depth", [1, 2])
def test_fuse_keeps_the_meaning(depth: int) -> None:
    body = layer(M, N, K)[1]
    np.testing.assert_array_equal(meaning((fuse(body, depth),)), meaning(body))


def test_fuse_refuses_other_loops() -> None:
    body = layer(M, N, K)[1]
    with pytest.raises(ScheduleError, match="the outer loops differ: i, j"):
        fuse([body[0], reorder(body[2], ["j", "i"])], 1)


def test_a_tile_in_registers_is_as_large_as_what_is_touched() -> None:
    buffer = Buffer("c", (6, 8))
    index = ((("i_o", 2), ("i_i", 1)), (("j", 1),))
    body = (Store(buffer, index, Load(buffer, index)),)
    loop = nest({"i_o": 3, "i_i": 2, "j": 8}, body)
    changed = keep_in_registers(loop, "c", ["i_o"])
    loads = {s.value.buffer for s in walk((changed,)) if isinstance(s, Store)}
    assert loads == {Buffer("c_tile", (2, 8))}
    with pytest.raises(ScheduleError, match="outer loop is 'i_o', got 'j'"):
        keep_in_registers(loop, "c", ["j"])


@pytest.mark.parametrize(("m", "n", "k"), [(2, 8, 1), (4, 16, 7), (8, 8, 3)])
def test_the_schedule_keeps_the_meaning(m: int, n: int, k: int) -> None:
    body = layer(m, n, k)[1]
    tiled = schedule(body, Decisions(rows=2, vectors=2), lanes=4)
    np.testing.assert_array_equal(meaning(tiled, m, n, k), meaning(body, m, n, k))
    kinds = {x.variable: x.kind for x in walk(tiled) if isinstance(x, Loop)}
    assert kinds["j_i_i"] == "vector"
    assert kinds["k"] == "serial"


@pytest.mark.thinned(3)
@pytest.mark.parametrize("scheduled", [False, True], ids=["naive", "scheduled"])
@pytest.mark.parametrize(("tiles_m", "tiles_n", "k"), [(1, 1, 1), (3, 2, 33)])
def test_machine_code_computes_the_same(
    tiles_m: int, tiles_n: int, k: int, scheduled: bool
) -> None:
    target = Target.host()
    lanes = target.vector_lanes(f32)
    m, n = 6 * tiles_m, 2 * lanes * tiles_n
    parameters, body = layer(m, n, k)
    code = build(
        parameters, schedule(body, Decisions(6, 2), lanes) if scheduled else body, target
    )
    c = np.full((m, n), np.nan, np.float32)
    x = inputs(m, n, k)
    code(x["a"], x["b"], x["bias"], c)
    np.testing.assert_allclose(c, expected(m, n, k), rtol=1e-4, atol=1e-5)


def test_the_text_reads_like_loops() -> None:
    body = (nest({"i": 3}, (Store(Buffer("c", (3,)), at("i"), 0.0),)),)
    assert list(lines_of(body)) == ["for i in range(3):  # serial", "    c[i] = 0.0"]


@pytest.mark.slow
def test_the_document_runs_and_the_schedule_pays(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main()
    printed = capsys.readouterr().out
    assert "both mean the same: True" in printed
    rates = [line.split()[-2] for line in printed.splitlines() if "GFLOP/s" in line]
    assert len(rates) == 3
    assert all(float(rate) > 0 for rate in rates)


@pytest.mark.slow
def test_every_point_of_the_space_means_the_same() -> None:
    m, n, k = 12, 32, 3
    target = Target.level("v3")
    body = layer(m, n, k)[1]
    points = space(m, n, target)
    assert best_of(points) in points
    assert len(points) > 5
    for chosen in points:
        tiled = schedule(body, chosen, target.vector_lanes(f32))
        np.testing.assert_array_equal(meaning(tiled, m, n, k), meaning(body, m, n, k))
