"""Products that are written as letters, against numpy's."""

import numpy as np
import pytest

from fakes.stablehlo_text import run, type_of
from tilewright.base.errors import ModelError

CHOOSE = np.random.default_rng(6)


def einsum(config: str, *values: np.ndarray, rank: int) -> np.ndarray:
    names = ["%x", "%y"][: len(values)]
    name = "einsum" if len(values) == 2 else "unary_einsum"
    element = type_of(values[0][(0,) * values[0].ndim]).removeprefix("tensor<")
    result = f"tensor<{'?x' * rank}{element}"
    types = [type_of(v) for v in values]
    body = f"""
    %r = "stablehlo.{name}"({", ".join(names)}) {{einsum_config = "{config}"}} : ({", ".join(types)}) -> {result}
    return %r : {result}"""
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    found = run(body, arguments, *values)
    return found[0] if len(found) == 1 else found[0] + 1j * found[1]


@pytest.mark.parametrize(
    ("config", "left", "right"),
    [
        ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk->ki", (2, 3), (3, 1)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
        ("i,j->ij", (3,), (2,)), ("i,i->", (3,), (3,)), ("ijk,k->j", (2, 3, 4), (4,)),
        ("...ij,...jk->...ik", (2, 5, 3, 4), (2, 5, 4, 1)), ("ij,ij->ji", (2, 3), (2, 3)), ("ij,kl->", (2, 3), (0, 2)),
    ],
)  # fmt: skip
def test_letters_say_what_is_multiplied(
    config: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    x, y = CHOOSE.normal(size=left), CHOOSE.normal(size=right)
    expected = np.einsum(config, x, y)
    found = einsum(config, x, y, rank=expected.ndim)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("config", ["ij->ji", "ij->i", "ij->", "...j->...", "ij->ij"])
def test_letters_of_one_operand(config: str) -> None:
    x = CHOOSE.normal(size=(2, 3)) + 1j * CHOOSE.normal(size=(2, 3))
    expected = np.einsum(config, x)
    found = einsum(config, x, rank=expected.ndim)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_complex_numbers_are_multiplied() -> None:
    x, y = (CHOOSE.normal(size=s) + 1j * CHOOSE.normal(size=s) for s in ((2, 3), (3, 2)))
    np.testing.assert_allclose(einsum("ij,jk->ik", x, y, rank=2), x @ y, rtol=1e-12)


@pytest.mark.parametrize(
    ("config", "message"),
    [("ii,ij->j", "diagonals"), ("ij->i", "is none of 2"), ("ij,jk->iz", "letters of its own"), ("i,jk->ik", "does not fit")],
)  # fmt: skip
def test_letters_that_do_not_fit_are_refused(config: str, message: str) -> None:
    x = np.ones((2, 2))
    with pytest.raises(ModelError, match=message):
        einsum(config, x, x, rank=2)
