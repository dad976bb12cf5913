"""Generators of random bits, against what XLA gives for the same state, and draws against their moments."""

import numpy as np
import pytest

from fakes.stablehlo_text import run
from tilewright.base.errors import ModelError

KEPT = [3, 7]


def bits(algorithm: str, state: list[int], result: str) -> list[np.ndarray]:
    type_ = f"tensor<{len(state)}xui64>"
    body = (
        f"%s, %r = stablehlo.rng_bit_generator %x, algorithm = {algorithm} : ({type_}) -> ({type_}, {result})\n"
        f"return %s, %r : {type_}, {result}"
    )
    return run(body, f"%x: {type_}", np.array(state, np.uint64))


@pytest.mark.parametrize(
    ("algorithm", "result", "counter", "expected"),
    [
        ("THREE_FRY", "tensor<3xui32>", 9, [849634428, 1054234490, 4095841382]),
        ("THREE_FRY", "tensor<ui32>", 8, [849634428]),
        ("THREE_FRY", "tensor<2x3xui64>", 13, [
            4527902657714873468, 8383197504944051302, 4366398505681499039,
            6119252761062751216, 9768217007057408782, 10525117937953693494]),
        ("THREE_FRY", "tensor<3x5xui32>", 16, [
            849634428, 1054234490, 4095841382, 1951865270, 2263954335, 167328752, 1424749559,
            446042894, 2274340253, 114450230, 4257800847, 3882310316, 2068253415, 499203904,
            701563975]),
        ("THREE_FRY", "tensor<4x3xui8>", 13, [124, 102, 159, 122, 182, 78, 240, 14, 54, 247, 157, 0]),
        ("THREE_FRY", "tensor<5xui16>", 10, [25724, 22394, 37990, 6582, 13215]),
        ("PHILOX", "tensor<3xui32>", 8, [2350238537, 593189726, 1255079973]),
        ("PHILOX", "tensor<2x3xui64>", 10, [
            2547730475843439433, 10230772650499571749, 1475545799255769891,
            12958603422860892669, 17060272206817550329, 18388939454296222744]),
        ("PHILOX", "tensor<4x3xui8>", 10, [73, 94, 37, 133, 35, 22, 253, 39, 249, 46, 24, 1]),
        ("DEFAULT", "tensor<5xui16>", 9, [52041, 23390, 37, 389, 49955]),
    ],
)  # fmt: skip
def test_bits_are_those_of_xla(
    algorithm: str, result: str, counter: int, expected: list[int]
) -> None:
    state, found = bits(algorithm, KEPT, result)
    assert state.tolist() == [3, counter]
    assert found.ravel().tolist() == expected


def test_a_counter_of_two_words_carries() -> None:
    state, _ = bits("PHILOX", [3, 2**64 - 1, 7], "tensor<8xui32>")
    assert state.tolist() == [3, 1, 8]


def test_a_state_of_four_words_is_refused() -> None:
    with pytest.raises(ModelError, match="a state of 4 words"):
        bits("THREE_FRY", [1, 2, 3, 4], "tensor<3xui32>")


def drawn(distribution: str, low: str, high: str, element: str) -> np.ndarray:
    body = f"""
    %a = stablehlo.constant dense<{low}> : tensor<{element}>
    %b = stablehlo.constant dense<{high}> : tensor<{element}>
    %n = stablehlo.constant dense<[200, 300]> : tensor<2xi64>
    %r = stablehlo.rng %a, %b, %n, distribution = {distribution} : (tensor<{element}>, tensor<{element}>, tensor<2xi64>) -> tensor<200x300x{element}>
    return %r : tensor<200x300x{element}>"""
    return run(body, "")[0]


def test_draws_have_the_moments_of_their_distribution() -> None:
    uniform = drawn("UNIFORM", "-1.0", "3.0", "f32")
    assert uniform.min() >= -1
    assert uniform.max() < 3
    assert abs(uniform.mean() - 1) < 0.02
    normal = drawn("NORMAL", "2.0", "0.5", "f32")
    assert abs(normal.mean() - 2) < 0.01
    assert abs(normal.std() - 0.5) < 0.01
    whole = drawn("UNIFORM", "-3", "4", "i32")
    assert np.unique(whole).tolist() == [-3, -2, -1, 0, 1, 2, 3]
