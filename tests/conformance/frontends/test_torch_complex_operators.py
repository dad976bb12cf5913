"""Operators of complex numbers that networks and solvers use: what eager mode gives, by the oracles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fakes.torch_programs import same

torch = pytest.importorskip("torch")
functional, linalg = torch.nn.functional, torch.linalg
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


def numbers(*shape: int, dtype: Any = torch.complex64) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7), dtype=dtype)


def positive(count: int) -> Any:
    """A Hermitian matrix that has factors."""
    x = numbers(count, count)
    return x @ x.mH + 4 * torch.eye(count)


def chosen(z: Any) -> Any:
    """As many as the data says: twice, and behind other operators."""
    far = z.abs() > 1
    return z[far].abs(), (z[far] * 2).sum(), z.masked_select(far) - 1, z[z.real > 9].abs()


def test_what_data_chooses_of_complex_numbers_goes_on() -> None:
    """The size was bound, and unknown to the next operator."""
    same(chosen, [(numbers(3, 4),), (numbers(3, 4) * 3,)])


def spread(z: Any) -> Any:
    both = (*torch.var_mean(z, 0, correction=0), *torch.std_mean(z, 1, keepdim=True))
    return z.var(), z.std(1), z.var(0, unbiased=False), *both


def multiples(z: Any, x: Any) -> Any:
    sums = (torch.add(z, x, alpha=2), torch.sub(z, z.mH.mT, alpha=1j), 1 + z)
    products = (
        torch.addmm(z, z, z, beta=1j, alpha=2),
        torch.addmv(z[0], z, z[1], beta=0.5),
    )
    one_by_one = (torch.addcmul(z, z, z, value=2j), torch.addcdiv(z, z[0], z, value=2))
    return *sums, *products, *one_by_one, torch.eye(2, dtype=z.dtype)


def no_numbers(z: Any) -> Any:
    """With a factor of 0 torch does not look at what is added."""
    lost = z * float("nan")
    return (
        torch.addmm(lost, z, z, beta=0),
        torch.addmv(lost[0], z, z[1], beta=0, alpha=2j),
        torch.baddbmm(lost[None], z[None], z[None], beta=0),
    )


def of_other_types(z: Any) -> Any:
    """What is summed and multiplied in a type that is given, also of real numbers, which have no imaginary part."""
    wide, x = torch.complex128, z.real
    running = (
        z.cumsum(1, dtype=wide),
        z.cumprod(1, dtype=wide),
        x.cumprod(1, dtype=z.dtype),
    )
    whole = (z.sum(1, dtype=wide), z.mean(dtype=wide), z.prod(1, dtype=wide))
    of_reals = (x.sum(1, dtype=z.dtype), x.cumsum(0, dtype=z.dtype), x.prod(dtype=z.dtype))
    to_reals = (z.cumprod(1, dtype=x.dtype), z.prod(1, dtype=x.dtype), z.sum(dtype=x.dtype))
    return *running, *whole, *of_reals, *to_reals


def logarithms_of_sums(z: Any) -> Any:
    far = torch.cat([z + 1000, z - 1000])  # whose powers are no numbers
    every = z.logsumexp((0, 1)), torch.special.logsumexp(z, 1), far.logsumexp(0)
    return *every, z.logsumexp(0, keepdim=True), z[:0].logsumexp(0)


@pytest.mark.parametrize("sides", [None, ({0: torch.export.Dim.AUTO},)])
def test_complex_sums_and_means_have_the_roots_and_logarithms_that_torch_has(
    sides: Any,
) -> None:
    counts = (3, 1, 5) if sides else (3,)
    same(logarithms_of_sums, [(numbers(n, 4),) for n in counts], sides)
    same(means, [(numbers(n, 4),) for n in counts], sides)


def means(z: Any) -> Any:
    """By the mean of squares, not of magnitudes."""
    plain, wide = functional.rms_norm(z, (4,)), functional.rms_norm(z * 1j, (4,), eps=1e-2)
    return plain, wide, functional.rms_norm(z, (4,), z[0] + 1)


def even_steps(z: Any) -> Any:
    steps = [torch.linspace(1 - 1j, 2 + 5j, count) for count in (7, 4, 2, 1, 0)]
    given = torch.linspace(1j, 2, 3, dtype=torch.complex128)
    return *steps, given, torch.linspace(0, 1, 5, dtype=z.dtype) * z[0, 0]


def test_complex_numbers_lie_between_others_in_even_steps() -> None:
    same(even_steps, [(numbers(2, 2),)])


def turned(z: Any) -> Any:
    return torch.rsub(z, z[0], alpha=1 - 2j), torch.rsub(z.real, z), torch.rsub(z, 2.0)


def filled(z: Any) -> Any:
    places = torch.tensor([[0, 1, 1, 2]])
    lost = z / torch.tensor([0, 1, 2, 3])
    return z.scatter(0, places, 2 - 1j), torch.nan_to_num(lost), torch.isfinite(lost)


def functions(z: Any) -> Any:
    running = (z.cumprod(1), linalg.vander(z[0]), z[:, :1].cumprod(1))
    bits = (z.view(torch.float32), z.real.contiguous().view(torch.complex64))
    dropped = functional.dropout(z, 0.5, training=False)
    return *running, *bits, torch.exp2(z), functional.silu(z), dropped


def by_other_names(z: Any) -> Any:
    """Operators that have more than one name: each was refused under one of them."""
    special, places = torch.special, torch.tensor([2, 0])
    quotients = (torch.true_divide(z, z[0]), torch.true_divide(z, 2))
    same_numbers = (torch.positive(z), torch.alias_copy(z), torch.detach_copy(z))
    of_each = (special.expm1(z), special.log1p(z), special.exp2(z), special.expit(z))
    unchecked = torch.ops.aten._unsafe_index_put(z, [places], z[:2], True)
    moved = (torch.ops.aten._unsafe_index(z, [places]), unchecked, torch.ger(z[:, 0], z[1]))
    written = (z.new_empty((2, 3)), z.new_empty_strided((2, 3), (3, 1)))
    either = torch.where(z.real > 0, 1j, 2.0)
    return (
        *quotients,
        *same_numbers,
        *of_each,
        *moved,
        *[e.fill_(1j) for e in written],
        either,
    )


def one_after_the_other(z: Any) -> Any:
    """A list that begins empty has one axis."""
    nothing = z.new_zeros(0)
    return torch.cat([nothing, z, nothing, z.real], 1), torch.cat([nothing, nothing.real])


def truths(z: Any) -> Any:
    far = torch.where(z.real > 0, z, 0)
    both = (torch.logical_and(far, z), torch.logical_or(far, 0 * z))
    return (
        *both,
        torch.logical_xor(far, z),
        torch.count_nonzero(far),
        torch.logical_not(far),
    )


def lengths(z: Any) -> Any:
    norms = (
        torch.norm(z, 2, dim=1, dtype=z.dtype),
        linalg.vector_norm(z, 3, dtype=z.dtype),
    )
    older = torch.ops.aten.norm.ScalarOpt_dim(z, 3, [1], True)
    return *norms, older, torch.masked.normalize(z, 2.0, 1)


@pytest.mark.parametrize(
    "function",
    [
        spread,
        filled,
        functions,
        no_numbers,
        of_other_types,
        turned,
        by_other_names,
        lengths,
        truths,
        one_after_the_other,
    ],
    ids=lambda f: f.__name__,
)
def test_what_a_tensor_of_complex_numbers_is_asked(function: Callable[..., Any]) -> None:
    same(function, [(numbers(4, 4),)])


def multiplied(z: Any) -> Any:
    return z.prod(1), z.prod(0, keepdim=True), z.prod(), z.cumprod(1), z.cumprod(0)


def test_products_of_as_many_complex_numbers_as_a_call_decides() -> None:
    auto = torch.export.Dim.AUTO
    shapes = ((3, 5), (4, 1), (1, 9), (0, 3), (2, 0))
    same(multiplied, [(numbers(*s),) for s in shapes], ({0: auto, 1: auto},))
    same(multiplied, [(numbers(0, 3),)])


def test_a_single_complex_number_is_multiplied_along_its_only_place() -> None:
    one = torch.randn((), dtype=torch.complex64)
    same(lambda z: (z.prod(0), z.prod(-1, keepdim=True), z.cumprod(0)), [(one,)])


def determinants(z: Any) -> Any:
    return linalg.det(z), *linalg.slogdet(z)


def test_matrices_of_complex_numbers_without_elements_have_determinants() -> None:
    auto = torch.export.Dim.AUTO
    same(determinants, [(numbers(2, 0, 0),)])
    calls = [(numbers(2, n, n),) for n in (3, 1, 0)]
    same(determinants, calls, ({1: auto, 2: auto},))


def test_multiples_of_complex_numbers_are_added() -> None:
    same(multiples, [(numbers(4, 4), numbers(4, 4).real)])


def along_a_line(x: Any, w: Any, bias: Any, turned: Any) -> Any:
    steps = functional.conv1d(x, w, bias, stride=2, padding=1, dilation=2)
    one = functional.conv1d(x[0], w, bias, padding="same")
    return steps, one, functional.conv_transpose1d(x, turned, bias, 2, output_padding=1)


def over_images(x: Any, w: Any) -> Any:
    return functional.conv2d(x, w, groups=2), functional.conv2d(x.real, w.real, groups=2)


def test_complex_images_are_convolved() -> None:
    line = (numbers(2, 3, 9), numbers(4, 3, 3), numbers(4), numbers(3, 4, 3))
    same(along_a_line, [line])
    same(over_images, [(numbers(2, 4, 6, 5), numbers(6, 2, 3, 2))])


def solved(a: Any, b: Any) -> Any:
    packed = linalg.lu_factor(a)
    both = [linalg.lu_solve(*packed, b, adjoint=turned) for turned in (False, True)]
    right = linalg.lu_solve(*packed, b.mT, left=False, adjoint=True)
    triangles = (
        linalg.solve_triangular(a, b, upper=True),
        linalg.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
    )
    return linalg.solve(a, b), linalg.solve(a, b.mT, left=False), *both, right, *triangles


def of_one_matrix(a: Any) -> Any:
    sign, size = linalg.slogdet(a)
    values, vectors = linalg.eig(a)
    similar = (vectors * values) @ linalg.inv(vectors)
    powers = (linalg.matrix_power(a, -2), linalg.matrix_exp(a * 0.3))
    return linalg.inv(a), linalg.det(a), sign, size, *linalg.lu(a), similar, *powers


def of_a_positive_matrix(a: Any, b: Any) -> Any:
    upper = linalg.cholesky(a, upper=True)
    values, vectors = linalg.eigh(a)
    found = (torch.cholesky_solve(b, upper, upper=True), torch.cholesky_inverse(upper.mH))
    return linalg.cholesky(a), upper, *found, values, (vectors * values) @ vectors.mH


def of_any_matrix(a: Any) -> Any:
    left, values, right = linalg.svd(a, full_matrices=False)
    q, r = linalg.qr(a, mode="complete")
    turned = torch.ormqr(*torch.geqrf(a), a, transpose=True)
    return (left * values) @ right, linalg.svdvals(a), q @ r, q, turned, linalg.pinv(a)


CASES = {
    "solved": (solved, numbers(4, 4), numbers(4, 3)),
    "several": (solved, numbers(2, 3, 3), numbers(2, 3, 2)),
    "one matrix": (of_one_matrix, numbers(4, 4)),
    "of f64": (of_one_matrix, numbers(3, 3, dtype=torch.complex128)),
    "positive": (of_a_positive_matrix, positive(4), numbers(4, 3)),
    "tall": (of_any_matrix, numbers(5, 3)),
    "wide": (of_any_matrix, numbers(3, 5)),
}


@pytest.mark.parametrize("case", CASES)
def test_factors_of_complex_matrices(case: str) -> None:
    """`matrix_exp` lost the imaginary parts, in silence; the others were refused."""
    function, *given = CASES[case]
    same(function, [tuple(given)])
