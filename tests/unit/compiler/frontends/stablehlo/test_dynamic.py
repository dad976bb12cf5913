"""Operations whose sizes are operands, and tensors of sizes that a call decides."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import tilewright as tw
from fakes.stablehlo_text import run
from tilewright.base.errors import ModelError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    ("line", "result", "expected"),
    [
        ('%r = stablehlo.dynamic_reshape %x, %s : (tensor<3x4xf32>, tensor<2xi64>) -> tensor<2x6xf32>',
         "tensor<2x6xf32>", X.reshape(2, 6)),
        ('%r = "stablehlo.real_dynamic_slice"(%x, %a, %b, %c) : (tensor<3x4xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<2x2xf32>',
         "tensor<2x2xf32>", X[1:3, 0:4:2]),
        ('%r = stablehlo.dynamic_iota %s, dim = 1 : (tensor<2xi64>) -> tensor<2x6xf32>',
         "tensor<2x6xf32>", np.tile(np.arange(6), (2, 1))),
        ('%r = "stablehlo.set_dimension_size"(%x, %four) {dimension = 1 : i64} : (tensor<3x4xf32>, tensor<i32>) -> tensor<3x4xf32>',
         "tensor<3x4xf32>", X),
    ],
)  # fmt: skip
def test_known_sizes_are_sizes(line: str, result: str, expected: np.ndarray) -> None:
    body = f"""
    %s = stablehlo.constant dense<[2, 6]> : tensor<2xi64>
    %a = stablehlo.constant dense<[1, 0]> : tensor<2xi64>
    %b = stablehlo.constant dense<[3, 4]> : tensor<2xi64>
    %c = stablehlo.constant dense<[1, 2]> : tensor<2xi64>
    %four = stablehlo.constant dense<4> : tensor<i32>
    {line}
    return %r : {result}"""
    (found,) = run(body, "%x: tensor<3x4xf32>", X)
    np.testing.assert_array_equal(found, expected)


def test_a_range_that_is_data_cuts_where_it_says() -> None:
    body = """
    %r = "stablehlo.real_dynamic_slice"(%x, %a, %b, %c) : (tensor<3x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>
    return %r : tensor<?x?xf32>"""
    arguments = (
        "%x: tensor<3x4xf32>, %a: tensor<2xi32>, %b: tensor<2xi32>, %c: tensor<2xi32>"
    )
    for start, limit, step in (([1, 0], [3, 4], [1, 2]), ([0, 3], [3, 4], [2, 1])):
        given = [np.int32(each) for each in (start, limit, step)]
        (found,) = run(body, arguments, X, *given)
        rows, columns = (slice(*each) for each in zip(start, limit, step, strict=True))
        np.testing.assert_array_equal(found, X[rows, columns])


SIZES = """
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %n1 = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
    %four = stablehlo.constant dense<4> : tensor<1xi32>
    %two = stablehlo.constant dense<2> : tensor<1xi32>
    %zero = stablehlo.constant dense<0> : tensor<1xi32>
    %one = stablehlo.constant dense<1> : tensor<1xi32>
    %none = stablehlo.constant dense<0.0> : tensor<f32>
    %shape = stablehlo.concatenate %n1, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %double = stablehlo.multiply %n1, %two : tensor<1xi32>
"""


def widened(x: np.ndarray) -> np.ndarray:
    found = np.zeros((1 + 2 * len(x) - 1 + len(x), 5), np.float32)
    found[1 : 2 * len(x) : 2, :4] = x
    return found


def turned(x: np.ndarray) -> np.ndarray:
    total = x[0]
    for line in x[1:]:
        total = np.maximum(total + line, line)
    return np.maximum(0 + total, total)


BY_SIZE = {
    "reshape": ("""
    %s = stablehlo.concatenate %two, %double, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %r = stablehlo.dynamic_reshape %x, %s : (tensor<?x4xf32>, tensor<2xi32>) -> tensor<2x?xf32>
    return %r : tensor<2x?xf32>""", lambda x: x.reshape(2, -1)),
    "broadcast": ("""
    %s = stablehlo.concatenate %two, %shape, dim = 0 : (tensor<1xi32>, tensor<2xi32>) -> tensor<3xi32>
    %r = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1, 2] : (tensor<?x4xf32>, tensor<3xi32>) -> tensor<2x?x4xf32>
    return %r : tensor<2x?x4xf32>""", lambda x: np.broadcast_to(x, (2, *x.shape))),
    "iota": ("""
    %i = stablehlo.dynamic_iota %shape, dim = 0 : (tensor<2xi32>) -> tensor<?x4xf32>
    %r = stablehlo.add %i, %x : tensor<?x4xf32>
    return %r : tensor<?x4xf32>""", lambda x: x + np.arange(len(x))[:, None]),
    "pad": ("""
    %high = stablehlo.concatenate %n1, %one, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %low = stablehlo.concatenate %one, %zero, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %in = stablehlo.concatenate %one, %zero, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %r = stablehlo.dynamic_pad %x, %none, %low, %high, %in : (tensor<?x4xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x5xf32>
    return %r : tensor<?x5xf32>""", widened),
    "slice": ("""
    %start = stablehlo.subtract %n1, %one : tensor<1xi32>
    %s = stablehlo.concatenate %start, %one, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %steps = stablehlo.concatenate %one, %two, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %r = stablehlo.real_dynamic_slice %x, %s, %shape, %steps : (tensor<?x4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<1x2xf32>
    return %r : tensor<1x2xf32>""", lambda x: x[-1:, 1::2]),
    "reverse and concatenate": ("""
    %b = stablehlo.reverse %x, dims = [0] : tensor<?x4xf32>
    %r = stablehlo.concatenate %x, %b, dim = 0 : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    return %r : tensor<?x4xf32>""", lambda x: np.concatenate([x, x[::-1]])),
    "product": ("""
    %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<?x4xf32>) -> tensor<4x?xf32>
    %r = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0] : (tensor<?x4xf32>, tensor<4x?xf32>) -> tensor<?x?xf32>
    return %r : tensor<?x?xf32>""", lambda x: x @ x.T),
    "a region in turn": ("""
    %r = stablehlo.reduce(%x init: %none) across dimensions = [0] : (tensor<?x4xf32>, tensor<f32>) -> tensor<4xf32>
     reducer(%p: tensor<f32>, %q: tensor<f32>) {
      %d = stablehlo.add %p, %q : tensor<f32>
      %e = stablehlo.maximum %d, %q : tensor<f32>
      stablehlo.return %e : tensor<f32>
    }
    return %r : tensor<4xf32>""", turned),
    "a gather": ("""
    %i = stablehlo.dynamic_iota %n1, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
    %j = stablehlo.reverse %i, dims = [0] : tensor<?xi32>
    %s = stablehlo.concatenate %one, %four, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %r = "stablehlo.dynamic_gather"(%x, %j, %s) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>} : (tensor<?x4xf32>, tensor<?xi32>, tensor<2xi32>) -> tensor<?x4xf32>
    return %r : tensor<?x4xf32>""", lambda x: x[::-1]),
}  # fmt: skip


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", BY_SIZE)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_sizes_that_a_call_decides_are_followed(name: str, size: int) -> None:
    body, expected = BY_SIZE[name]
    x = np.random.default_rng(size).normal(size=(size, 4)).astype(np.float32)
    (found,) = run(SIZES + body, "%x: tensor<?x4xf32>", x)
    np.testing.assert_allclose(found, expected(x), rtol=1e-6)


def test_arguments_of_two_sizes_must_agree_where_they_meet() -> None:
    text = """func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %r = stablehlo.add %x, %y : tensor<?x4xf32>
    return %r : tensor<?x4xf32>
    }"""
    model = tw.compile(text.encode())
    x = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(model(x, x), 2 * x)
    with pytest.raises(tw.InputError):
        model(x, x[:1])


ASSERTED = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {{
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %c = stablehlo.constant dense<{number}> : tensor<i32>
    %m = stablehlo.remainder %n, %c : tensor<i32>
    %ok = stablehlo.compare {direction}, {left}, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%ok, %n) {{error_message = "the size {{0}} is wrong", has_side_effect = true}} : (tensor<i1>, tensor<i32>) -> ()
    return %x : tensor<?xf32>
}}"""


@pytest.mark.parametrize(
    ("direction", "number", "right", "wrong"),
    [("GE", 3, 3, 2), ("GT", 3, 4, 3), ("LE", 3, 3, 4), ("LT", 3, 2, 3), ("EQ", 3, 3, 4), ("NE", 3, 4, 3)],
)  # fmt: skip
def test_conditions_on_sizes_are_those_of_a_call(
    direction: str, number: int, right: int, wrong: int
) -> None:
    text = ASSERTED.format(direction=direction, number=number, left="%n")
    model = tw.compile(text.encode())
    assert model(np.zeros(right, np.float32)).shape == (right,)
    with pytest.raises(tw.TilewrightError):
        model(np.zeros(wrong, np.float32))


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_a_condition_that_a_call_breaks_is_said_in_its_words(
    engine: Literal["plan", "vm"], tmp_path: Path
) -> None:
    """Its truth value was called a size that the data gives."""
    text = ASSERTED.format(direction="NE", number=3, left="%n")
    tw.compile(text.encode()).save(tmp_path / "asserted.vmfb")
    model = tw.load(tmp_path / "asserted.vmfb", engine=engine)
    assert model(np.zeros(4, np.float32)).shape == (4,)
    told = r"\(the size x_0 is wrong\): does not hold for this call"
    with pytest.raises((tw.InputError, tw.DeviceError), match=told):
        model(np.zeros(3, np.float32))


def test_a_condition_that_never_holds_is_said_at_once() -> None:
    text = ASSERTED.format(direction="GE", number=3, left="%m")
    with pytest.raises(ModelError, match="condition on sizes does not hold"):
        tw.compile(text.encode())


def test_places_in_the_text_of_an_assertion_are_filled_as_llvm_does() -> None:
    """`{0}` stayed as it was."""
    text = """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %c = stablehlo.constant dense<-7> : tensor<i32>
    %no = stablehlo.constant dense<false> : tensor<i1>
    stablehlo.custom_call @shape_assertion(%no, %c, %n) {error_message = "is {0}, {1:x} {0,+4}} {{0} {2}", has_side_effect = true} : (tensor<i1>, tensor<i32>, tensor<i32>) -> ()
    return %x : tensor<?xf32>
    }"""
    with pytest.raises(ModelError) as caught:
        tw.compile(text.encode())
    assert caught.value.message.endswith("is -7, x_0 -7} {0} {2}")


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_a_long_condition_is_said_whole(
    engine: Literal["plan", "vm"], tmp_path: Path
) -> None:
    """The C core cut texts behind 1023 characters, and with them what it is about; the words themselves are no mark."""
    words = "odd, which does not hold for this call, " + "long " * 1000
    text = ASSERTED.format(direction="NE", number=3, left="%n")
    text = text.replace("the size {0} is wrong", words.strip())
    tw.compile(text.encode()).save(tmp_path / "asserted.vmfb")
    model = tw.load(tmp_path / "asserted.vmfb", engine=engine)
    with pytest.raises((tw.InputError, tw.DeviceError)) as caught:
        model(np.zeros(3, np.float32))
    assert f"({words.strip()}): does not hold for this call" in str(caught.value)


def test_a_bound_of_a_type_is_one_of_the_call() -> None:
    text = b"""func.func @main(%x: tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<?xf32> {
    return %x : tensor<?xf32, #stablehlo.bounds<4>>
    }"""
    model = tw.compile(text)
    assert model(np.zeros(4, np.float32)).shape == (4,)
    with pytest.raises(tw.InputError):
        model(np.zeros(5, np.float32))


BOUNDED = """
    %b = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>
    %e = stablehlo.negate %b : tensor<?xf32, #stablehlo.bounds<4>>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %s = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [0] : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<f32>) -> tensor<f32>
    %d = stablehlo.get_dimension_size %e, dim = 0 : (tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<i32>
    return %e, %s, %d : tensor<?xf32, #stablehlo.bounds<4>>, tensor<f32>, tensor<i32>"""


@pytest.mark.parametrize("size", [0, 1, 3, 4])
def test_a_size_below_the_bound_leaves_what_is_before_it(size: int) -> None:
    x = np.float32([1, 2, 4, 8])
    given = "%x: tensor<4xf32>, %n: tensor<i32>"
    left, total, count = run(BOUNDED, given, x, np.int32(size))
    np.testing.assert_array_equal(left, -x[:size])
    assert (total, count) == (-x[:size].sum(), size)
    known = f"%n = stablehlo.constant dense<{size}> : tensor<i32>{BOUNDED}"
    np.testing.assert_array_equal(run(known, "%x: tensor<4xf32>", x)[0], -x[:size])


def test_a_size_beyond_the_bound_is_refused() -> None:
    x = np.float32([1, 2, 4, 8])
    with pytest.raises(tw.TilewrightError, match="size 5"):
        run(BOUNDED, "%x: tensor<4xf32>, %n: tensor<i32>", x, np.int32(5))
    known = f"%n = stablehlo.constant dense<5> : tensor<i32>{BOUNDED}"
    with pytest.raises(ModelError, match="a dimension of 4 elements cannot have 5"):
        run(known, "%x: tensor<4xf32>", x)


def test_a_size_that_the_type_does_not_leave_open_is_that_of_the_type() -> None:
    body = """
    %r = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<4xf32>
    return %r : tensor<4xf32>"""
    x = np.float32([1, 2, 4, 8])
    given = "%x: tensor<4xf32>, %n: tensor<i32>"
    np.testing.assert_array_equal(run(body, given, x, np.int32(4))[0], x)
    with pytest.raises(tw.TilewrightError):
        run(body, given, x, np.int32(3))


def test_what_is_known_to_be_repeated_has_one_element() -> None:
    body = """
    %r = stablehlo.dynamic_broadcast_in_dim %x, %s, dims = [1] {known_expanding_dimensions = array<i64: 0>} : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x?xf32>
    return %r : tensor<?x?xf32>"""
    given = "%x: tensor<?xf32>, %s: tensor<2xi32>"
    found = run(body, given, np.float32([7]), np.int32([2, 3]))[0]
    np.testing.assert_array_equal(found, np.full((2, 3), 7))


def static_pad(low: list[int], high: list[int], interior: list[int]) -> np.ndarray:
    sizes = [
        max(0, n + a + b + (n - 1) * between)
        for n, a, b, between in zip(X.shape, low, high, interior, strict=True)
    ]
    result = f"tensor<{'x'.join(map(str, sizes))}xf32>"
    body = f"""
    %none = stablehlo.constant dense<9.0> : tensor<f32>
    %r = stablehlo.pad %x, %none, low = {low}, high = {high}, interior = {interior} : (tensor<3x4xf32>, tensor<f32>) -> {result}
    return %r : {result}"""
    return run(body, "%x: tensor<3x4xf32>", X)[0]


PADDED_BY_DATA = """
    %none = stablehlo.constant dense<9.0> : tensor<f32>
    %r = stablehlo.dynamic_pad %x, %none, %low, %high, %in : (tensor<3x4xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>) -> tensor<?x?xf32>
    return %r : tensor<?x?xf32>"""


@pytest.mark.parametrize(
    ("low", "high", "interior"),
    [
        ([-1, 0], [1, -1], [1, 0]), ([2, -2], [-1, 1], [0, 2]), ([0, 0], [0, 0], [0, 0]),
        ([-1, -3], [-1, 0], [0, 0]), ([-3, 1], [2, -2], [2, 1]), ([3, 0], [-6, 0], [0, 0]),
    ],
)  # fmt: skip
def test_padding_below_zero_that_data_gives_takes_elements_away(
    low: list[int], high: list[int], interior: list[int]
) -> None:
    given = (
        "%x: tensor<3x4xf32>, %low: tensor<2xi32>, %high: tensor<2xi32>, %in: tensor<2xi32>"
    )
    amounts = [np.int32(each) for each in (low, high, interior)]
    (found,) = run(PADDED_BY_DATA, given, X, *amounts)
    np.testing.assert_array_equal(found, static_pad(low, high, interior))


def test_padding_takes_away_no_more_than_there_is() -> None:
    text = """func.func @main(%x: tensor<3xf32>, %low: tensor<1xi32>, %high: tensor<1xi32>) -> tensor<?xf32> {
    %none = stablehlo.constant dense<9.0> : tensor<f32>
    %in = stablehlo.constant dense<[0]> : tensor<1xi32>
    %r = stablehlo.dynamic_pad %x, %none, %low, %high, %in : (tensor<3xf32>, tensor<f32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
    return %r : tensor<?xf32> }"""
    model, x = tw.compile(text.encode()), np.float32([1, 2, 3])
    assert model(x, np.int32([-1]), np.int32([-2])).shape == (0,)
    for low, high in ((-2, -2), (0, -4), (-9, 5)):
        with pytest.raises(
            tw.InputError, match=r"a size is below zero|a size does not fit"
        ):
            model(x, np.int32([low]), np.int32([high]))
    with pytest.raises(ModelError, match="takes -5 and 1 from 3 elements"):
        static_pad([-5, 0], [1, 0], [0, 0])


@pytest.mark.parametrize("padding", [(1, 1), (-1, 2), (3, -2), (-1, -1), (0, 0)])
def test_windows_of_a_convolution_begin_where_data_says(padding: tuple[int, int]) -> None:
    x = np.arange(1, 13, dtype=np.float32).reshape(1, 6, 2)
    w = np.arange(1, 25, dtype=np.float32).reshape(3, 2, 4)
    body = """
    %r = "stablehlo.dynamic_conv"(%x, %w, %p) <{window_strides = array<i64: 2>, lhs_dilation = array<i64: 1>, rhs_dilation = array<i64: 2>, dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, i, o]->[b, 0, f]>, feature_group_count = 1 : i64, batch_group_count = 1 : i64}> : (tensor<1x6x2xf32>, tensor<3x2x4xf32>, tensor<1x2xi32>) -> tensor<1x?x4xf32>
    return %r : tensor<1x?x4xf32>"""
    given = "%x: tensor<1x6x2xf32>, %w: tensor<3x2x4xf32>, %p: tensor<1x2xi32>"
    (found,) = run(body, given, x, w, np.int32([padding]))
    wide = np.pad(x, ((0, 0), tuple(max(n, 0) for n in padding), (0, 0)))
    wide = wide[:, max(-padding[0], 0) : wide.shape[1] - max(-padding[1], 0)]
    starts = range(0, wide.shape[1] - 4, 2)
    lines = [np.einsum("ni,nio->o", wide[0, s : s + 5 : 2], w) for s in starts]
    np.testing.assert_array_equal(found, np.reshape(lines, (1, len(starts), 4)))
