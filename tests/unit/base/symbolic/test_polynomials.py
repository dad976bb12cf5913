import pytest

from tilewright.base.symbolic.algebra import Symbol
from tilewright.base.symbolic.polynomials import divide, product_of

N, M = Symbol("n"), Symbol("m")


def test_the_atoms_of_a_product_stand_in_order() -> None:
    assert product_of((N,), (M, N)) == (M, N, N)
    assert product_of((), (N,)) == (N,)


@pytest.mark.parametrize(
    ("left", "right", "quotient"),
    [
        ({(N,): 896, (): 896}, {(N,): 64, (): 64}, {(): 14}),
        ({(N, N): 1, (): -1}, {(N,): 1, (): 1}, {(N,): 1, (): -1}),
        ({(M, N): 6}, {(N,): 3}, {(M,): 2}),
        ({(N,): 1, (): 2}, {(N,): 1, (): 1}, None),  # something is left over
        ({(N,): 3, (): 3}, {(N,): 2, (): 2}, None),  # no integer
        ({(N,): 1}, {(M,): 1, (N,): 1}, None),
        ({(M,): 1}, {(N,): 1}, None),
    ],
)
def test_a_quotient_is_exact_or_none(left, right, quotient) -> None:
    assert divide(left, right) == quotient
