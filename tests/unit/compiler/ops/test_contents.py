import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.compiler.graph import contents as known
from tilewright.compiler.graph.contents import Contents, Ratio, UndecidedError
from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.declaration import OpDecl

N = symbolic.symbol("N", 1)
M = symbolic.symbol("M", 1)
ENV = {"N": 7, "M": 3}


def vector(*items: object, dtype: DType = dtypes.i64) -> Contents:
    return known.known(dtype, list(items), (len(items),))


def numbers(contents: Contents) -> np.ndarray:
    """The contents with numbers for the symbols."""

    def value(item: object) -> float:
        if isinstance(item, Ratio):
            return symbolic.evaluate(item.numerator, ENV) / item.denominator
        return item if isinstance(item, bool) else symbolic.evaluate(item, ENV)

    flat = [value(v) for v in contents.elements.flat]
    return np.array(flat, contents.dtype.numpy).reshape(contents.shape)


def oracle(op: str, operands: list[Contents], **attributes: object) -> np.ndarray:
    schema = catalogue.lookup(op).schema
    plain = {
        k: tuple(symbolic.evaluate(d, ENV) for d in v) if isinstance(v, tuple) else v
        for k, v in attributes.items()
    }
    (result,) = schema.evaluate([numbers(c) for c in operands], plain)
    return result


@pytest.mark.parametrize(
    ("op", "operands", "attributes"),
    [
        ("add", [vector(N, 2), vector(1, M)], {}),
        ("sub", [vector(N + 4, 2), vector(1, 5)], {}),
        ("mul", [vector(N, M), vector(2, N)], {}),
        ("div", [vector(N * 6, 7, -7), vector(4, 2, 2)], {}),
        ("mod", [vector(N * 6, 7), vector(4, 2)], {"fmod": False}),
        ("min", [vector(N, 3), vector(N + 1, 5)], {}),
        ("max", [vector(N, 3), vector(0, 5)], {}),
        ("pow", [vector(N, 3), vector(2, 2)], {}),
        ("neg", [vector(N, -3)], {}),
        ("abs", [vector(N, -3)], {}),
        ("equal", [vector(N, 3), vector(0, 3)], {}),
        ("less", [vector(-1, 3), vector(N, 3)], {}),
        ("greater_equal", [vector(N, 3), vector(1, 4)], {}),
        ("concat", [vector(N), vector(M, 4)], {"axis": 0}),
        ("reshape", [vector(N, M, 4, 5)], {"shape": (2, 2)}),
        ("gather", [vector(N, M, 4), vector(2, -3)], {"axis": 0}),
        ("gather", [vector(N, M, 4), known.known(dtypes.i64, [1], ())], {"axis": 0}),
        ("slice", [vector(N, M, 4)],
         {"axes": (0,), "starts": (2,), "sizes": (2,), "steps": (-1,)}),
        ("tile", [vector(N, M)], {"repeats": (2,)}),
        ("broadcast_to", [vector(N)], {"shape": (3,)}),
        ("reduce_prod", [vector(N, M, 4)], {"axes": (0,), "keepdims": False}),
        ("reduce_sum", [vector(N, M, 4)], {"axes": (0,), "keepdims": True}),
        ("cast", [vector(N, 4)], {"dtype": dtypes.f32}),
        ("cast", [vector(N, 0)], {"dtype": dtypes.bool_}),
    ],
)  # fmt: skip
def test_followed_contents_agree_with_the_oracle(
    op: str, operands: list[Contents], attributes: dict[str, object]
) -> None:
    dtype = dtypes.from_numpy(oracle(op, operands, **attributes).dtype)
    result = known.follow(catalogue.schema(op).contents, operands, attributes, dtype)
    np.testing.assert_array_equal(numbers(result), oracle(op, operands, **attributes))


def test_a_float_computed_from_a_dimension_can_be_rounded_down() -> None:
    ratio = known.follow(
        catalogue.schema("cast").contents, [vector(N)], {"dtype": dtypes.f32}, dtypes.f32
    )
    scaled = known.follow(
        catalogue.schema("mul").contents,
        [ratio, vector(Ratio(5, 2), dtype=dtypes.f32)],
        {},
        dtypes.f32,
    )
    floor = known.follow(catalogue.schema("floor").contents, [scaled], {}, dtypes.f32)
    whole = known.follow(
        catalogue.schema("cast").contents, [floor], {"dtype": dtypes.i64}, dtypes.i64
    )
    assert list(whole.elements) == [symbolic.floordiv(N * 5, 2)]
    assert numbers(whole) == math.floor(7 * 2.5)


@pytest.mark.parametrize(
    ("op", "operands"),
    [
        ("equal", [vector(N), vector(M)]),
        ("less", [vector(N), vector(5)]),
        ("div", [vector(N), vector(0)]),
        ("div", [vector(N - M), vector(2)]),
        ("gather", [vector(N, M), vector(N)]),
        ("gather", [vector(N, M), vector(5)]),
        ("exp", [vector(Ratio(N), dtype=dtypes.f32)]),
    ],
)
def test_what_does_not_follow_is_undecided(op: str, operands: list[Contents]) -> None:
    with pytest.raises(UndecidedError):
        known.follow(catalogue.schema(op).contents, operands, {"axis": 0}, dtypes.i64)


@pytest.mark.parametrize("place", [-1, 2])
def test_a_place_outside_is_undecided_where_none_counts_from_the_end(place: int) -> None:
    rule = catalogue.schema("gather").contents
    attributes = {"axis": 0, "from_end": False}
    with pytest.raises(UndecidedError):
        known.follow(rule, [vector(N, M), vector(place)], attributes, dtypes.i64)
    found = known.follow(rule, [vector(N, M), vector(1)], attributes, dtypes.i64)
    assert list(found.elements) == [M]


def test_squaring_forever_ends_undecided() -> None:
    value = vector(N)
    for _ in range(3):
        value = known.follow(
            catalogue.schema("mul").contents, [value, value], {}, dtypes.i64
        )
    value = known.follow(catalogue.schema("mul").contents, [value, value], {}, dtypes.i64)
    with pytest.raises(UndecidedError):
        known.follow(catalogue.schema("mul").contents, [value, value], {}, dtypes.i64)


def test_contents_without_symbols_are_a_constant() -> None:
    constant = vector(Ratio(1, 2), Ratio(3), dtype=dtypes.f32).constant
    np.testing.assert_array_equal(constant, np.array([0.5, 3], np.float32))
    assert vector(N).constant is None


@pytest.mark.parametrize("value", [np.inf, np.nan, np.float32(1 / 3)])
def test_floats_that_are_no_short_ratio_are_not_followed(value: float) -> None:
    with pytest.raises(UndecidedError):
        known.from_array(np.array([value], np.float32), dtypes.f32)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "sub", "mul", "min", "max", "div", "mod"]),
            st.integers(-6, 6),
        ),
        max_size=6,
    )
)
def test_chains_of_integer_arithmetic_agree_with_numpy(
    steps: list[tuple[str, int]],
) -> None:
    symbolic_value, expected = vector(N), np.array([7])
    for op, number in steps:
        other = vector(number)
        try:
            symbolic_value = known.follow(
                catalogue.schema(op).contents,
                [symbolic_value, other],
                {"fmod": False},
                dtypes.i64,
            )
        except UndecidedError:
            return
        attributes = {"fmod": False} if op == "mod" else {}
        (expected,) = catalogue.lookup(op).schema.evaluate(
            [expected, np.array([number])], attributes
        )
    np.testing.assert_array_equal(numbers(symbolic_value), expected)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "row", [r for r in catalogue.all_ops() if r.schema.contents], ids=lambda row: row.name
)
def test_every_rule_agrees_with_the_oracle_of_its_row(row: OpDecl) -> None:
    checked = 0
    for case in cases.instances(row):
        arrays = [array for array in case.operands if array is not None]
        if len(arrays) < len(case.operands):
            continue  # rules are asked where all operands are known
        attributes = row.complete(case.attributes)
        (wanted,) = row.schema.evaluate(arrays, attributes)
        try:
            held = [known.from_array(a, dtypes.from_numpy(a.dtype)) for a in arrays]
            dtype = dtypes.from_numpy(wanted.dtype)
            found = known.follow(row.schema.contents, held, attributes, dtype).constant
        except UndecidedError:
            continue
        assert found is not None
        if dtype.is_integer and dtype.bits < 64:
            continue  # oracles wrap at the width of the type, contents do not
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=1e-2
        )
        checked += 1
    assert checked
