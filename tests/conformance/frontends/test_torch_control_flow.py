"""Branches, loops, scans and maps of torch, against eager mode, as modules and under `torch.compile`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import tilewright as tw
from fakes.dynamo_backend import entry

torch = pytest.importorskip("torch")
scans = pytest.importorskip("torch._higher_order_ops")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
nn = torch.nn


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Branch(nn.Module):
    """Branches of weights, a constant and a size."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        def positive(x: Any) -> Any:
            return self.first(x).relu() * x.shape[0]

        def negative(x: Any) -> Any:
            return self.second(x) - torch.tensor([1.0, 2.0, 3.0, 4.0])

        return torch.cond(x.sum() > 0, positive, negative, (x,))


class OfSizes(nn.Module):
    def forward(self, x: Any) -> Any:
        few = (x.shape[0] > 1) & (x.shape[0] < 4)
        return torch.cond(few, lambda x: x * 2, lambda x: x - 1, (x,))


class Shorter(nn.Module):
    """The size of the result is one or another."""

    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x[1:] * 2, lambda x: x[:2] + 1, (x,))


class OfComplex(nn.Module):
    def forward(self, x: Any) -> Any:
        z = torch.complex(x, x + 1)
        turned = torch.cond(x.sum() > 0, lambda z: z * 2, lambda z: z.conj() * z, (z,))
        return turned.real.clone(), turned.imag.clone()


class Nested(nn.Module):
    """A loop in a branch, and a branch in the loop."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.linear = Branch(), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        def grown(x: Any) -> Any:
            return scans.while_loop(
                lambda i, x: (x.abs().sum() < 50) & (i < 9),
                lambda i, x: (i + 1, x * 1.5 + self.inner(x)),
                (torch.tensor(0), x),
            )[1]

        return torch.cond(x.mean() > 0.1, lambda x: self.linear(x) + 1, grown, (x,))


class Counted(nn.Module):
    """The number of trips is data, and so is what is carried."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any, count: Any) -> Any:
        return scans.while_loop(
            lambda i, x: i < count.sum(),
            lambda i, x: (i + 1, self.linear(x).tanh()),
            (torch.tensor(0), x),
        )


class OfNumbers(nn.Module):
    """A whole number of Python is carried."""

    def forward(self, x: Any) -> Any:
        return scans.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + i), (0, x))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, state: Any, x: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            later = self.linear(state).tanh() + x
            return later, later * 2

        return scans.scan(step, state, x, dim=0, reverse=x.shape[0] == 3)


class Products(nn.Module):
    def forward(self, x: Any) -> Any:
        return scans.associative_scan(lambda a, b: a * b, x, dim=0, combine_mode="generic")


class Recurrence(nn.Module):
    """A linear one of two numbers a step, from the end."""

    def forward(self, x: Any, y: Any) -> Any:
        step = lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])  # noqa: E731
        return scans.associative_scan(
            step, (x, y), dim=-2, reverse=True, combine_mode="generic"
        )


class Mapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return scans.map(lambda row: self.linear(row).relu(), x)


ROWS = ((3, 4), (7, 4), (1, 4))
CASES: list[tuple[type[Any], list[tuple[Any, ...]], bool]] = [
    (OfSizes, [(shape,) for shape in ROWS], True),
    (Branch, [(shape,) for shape in ROWS], True),
    (Recurrent, [((3, 4), (7, 3, 4))], False),
    (Shorter, [((5, 4),)], False),
    (Nested, [((3, 4),), ((2, 4),)], True),
    (Recurrent, [((3, 4), (3, 3, 4))], False),
    (OfComplex, [((3, 4),)], False),
    (Counted, [((3, 4), 5), ((7, 4), 0)], True),
    (Recurrent, [((3, 4), (70, 3, 4)), ((5, 4), (70, 5, 4))], True),
    (OfNumbers, [((3, 4),)], True),
    (Mapped, [((5, 4),)], False),
    (Mapped, [((5, 4),), ((1, 4),)], True),
    (Products, [((5, 4),)], False),
    (Products, [((5, 4),), ((1, 4),), ((8, 4),), ((9, 4),)], True),
    (Recurrence, [((2, 5, 4), (2, 5, 4)), ((2, 3, 4), (2, 3, 4))], True),
]


def of_shapes(shapes: tuple[Any, ...], sign: int) -> list[Any]:
    """Tensors of one sign, or of both; a number is one of whole numbers."""
    return [
        torch.tensor([shape]) if isinstance(shape, int)
        else torch.randn(shape) if not sign else torch.randn(shape).abs() * sign
        for shape in shapes
    ]  # fmt: skip


def same(found: Any, wanted: Any) -> None:
    leaves = torch.utils._pytree.tree_leaves
    for ours, theirs in zip(leaves(found), leaves(wanted), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def dimensions(shapes: tuple[Any, ...]) -> Any:
    batch = torch.export.Dim("batch", max=64)
    places = [None if isinstance(s, int) else {len(s) - 2: batch} for s in shapes]
    return tuple(places)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "calls", "dynamic"), CASES)
def test_control_flow_gives_what_eager_mode_gives(
    kind: type[Any], calls: list[tuple[Any, ...]], dynamic: bool
) -> None:
    module = kind().eval()
    shapes = dimensions(calls[0]) if dynamic else None
    model = tw.compile(module, args=tuple(of_shapes(calls[0], 0)), dynamic_shapes=shapes)
    for call in calls:
        for sign in (0, 1, -1):
            given = of_shapes(call, sign)
            same(model(*given), module(*given))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [Nested, Branch, Counted, OfNumbers, Recurrent, Mapped])
def test_control_flow_is_compiled_under_torch_compile(kind: type[Any]) -> None:
    module = kind().eval()
    calls = next(calls for entry_, calls, _ in CASES if entry_ is kind)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled = torch.compile(module, backend=entry(), fullgraph=True)
        for sign in (0, 1, -1):
            given = of_shapes(calls[0], sign)
            same(compiled(*given), module(*given))
    assert not [w for w in caught if "eager mode" in str(w.message)]


class Unsupported(nn.Module):
    def forward(self, x: Any) -> Any:
        def factored(x: Any) -> Any:
            return torch.linalg.ldl_factor_ex(x @ x)[0] @ x

        return torch.cond((x * 2).sum() > 0, factored, lambda x: x.sin(), (x.relu(),)) * 3


def test_an_operator_in_a_branch_that_is_not_supported_is_named_with_the_branch() -> None:
    report = tw.coverage(Unsupported().eval(), args=(torch.eye(4),))
    (problem,) = report.problems
    assert problem.node.startswith("cond/")
    assert problem.op_type == "aten.linalg_ldl_factor_ex.default"


def test_a_branch_that_is_not_supported_runs_in_eager_mode_and_the_rest_does_not() -> None:
    module = Unsupported().eval()
    compiled = torch.compile(module, backend=entry(), fullgraph=True)
    for x, warned in ((torch.eye(4), 1), (-torch.eye(4), 0)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            same(compiled(x), module(x))
        named = [str(w.message) for w in caught if "eager mode" in str(w.message)]
        assert len(named) == warned
        assert all("aten.linalg_ldl_factor_ex.default" in text for text in named)


class Drawn(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cond(
            x.sum() > 0, lambda x: x + torch.rand_like(x), lambda x: x * 2, (x,)
        )


def test_what_a_branch_draws_differs_from_call_to_call() -> None:
    model = tw.compile(Drawn().eval(), args=(torch.ones(300),))
    first, second = model(torch.ones(300)), model(torch.ones(300))
    assert ((first >= 1) & (first < 2)).all()
    assert not torch.equal(first, second)
    assert torch.equal(model(-torch.ones(3).repeat(100)), -2 * torch.ones(300))
