"""Calls of `torch.compile` on tensors as they are: no arrays on the way, whatever lies where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fakes.dynamo_backend import entry

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
nn = torch.nn
BY_ARRAYS = "tilewright.api.torch_compile._Graph._by_arrays"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture
def without_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a call went by arrays")

    monkeypatch.setattr(BY_ARRAYS, fail)


def affine(x: Any) -> Any:
    return x * 2 + 1


def check(function: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    compiled = torch.compile(function, backend=entry(), dynamic=False)
    for arguments in calls:
        found, wanted = compiled(*arguments), function(*arguments)
        many = isinstance(wanted, tuple)
        for got, expected in zip(
            found if many else [found], wanted if many else [wanted], strict=True
        ):
            assert got.dtype == expected.dtype
            assert got.stride() == expected.stride()
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("without_arrays")
@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
    ],
)
def test_every_element_type_goes_as_it_is(dtype: str) -> None:
    check(affine, (torch.arange(5).to(getattr(torch, dtype)),))


@pytest.mark.usefixtures("without_arrays")
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1, 7, 1), (300, 301)])
def test_every_shape_goes_as_it_is(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    check(affine, (x,), (x + 1,))
    check(lambda x: x > 0, (x,))


@pytest.mark.usefixtures("without_arrays")
def test_tensors_that_begin_anywhere_are_read_where_they_begin() -> None:
    room = torch.randn(40)
    for start in range(1, 18):
        check(affine, (room[start : start + 16],))


@pytest.mark.usefixtures("without_arrays")
def test_results_are_never_each_others_memory() -> None:
    compiled = torch.compile(affine, backend=entry(), dynamic=False)
    for count in (16, 1 << 16):
        x = torch.randn(count)
        found = [compiled(x), compiled(x + 1), compiled(x)]
        assert len({tensor.data_ptr() for tensor in found}) == 3
        assert torch.equal(found[0], found[2])


def test_other_orders_marks_and_subclasses_go_by_arrays() -> None:
    x = torch.randn(2, 3, 4, 5)
    check(affine, (x.to(memory_format=torch.channels_last),), (x,))
    check(affine, (torch.complex(x, x).conj().imag,), (x,), (torch.complex(x, x),))
    check(affine, (nn.Parameter(x),), (x,), (x.clone().requires_grad_(),))
    check(affine, (x[:, ::2].flip(0),), (x.expand(7, 2, 3, 4, 5),))


@pytest.mark.usefixtures("without_arrays")
def test_a_place_of_the_data_that_there_is_not_fails_the_call() -> None:
    compiled = torch.compile(lambda x, i: x[i], backend=entry(), dynamic=False)
    x = torch.randn(4, 2)
    assert torch.equal(compiled(x, torch.tensor([3, -4])), x[[3, 0]])
    with pytest.raises(Exception, match="out of range"):
        compiled(x, torch.tensor([4, 0]))
    assert torch.equal(compiled(x, torch.tensor([1, 2])), x[1:3])


@pytest.mark.usefixtures("without_arrays")
def test_views_among_results_are_the_memory_that_they_look_at() -> None:
    def views(x: Any) -> Any:
        y = x * 2
        return y, x + 1, y.view(-1), x.view(-1), x.t()[1:, ::2], y[1:].diagonal(), x

    compiled = torch.compile(views, backend=entry(), dynamic=False)
    for x in (torch.randn(4, 6), torch.randn(40)[5:29].view(4, 6)):
        check(views, (x,))
        found = compiled(x)
        # Of an argument and of a result: what is written to the base is seen.
        found[0][1, 1], x[0, 1] = 7.0, 9.0
        assert found[2][7] == 7.0
        assert found[5][0] == found[0][1, 0]
        assert found[3][1] == found[4][0, 0] == found[6][0, 1] == 9.0


def test_views_that_strides_do_not_say_are_right() -> None:
    def marked(z: Any) -> Any:
        return z * 2, z.conj(), z.imag, torch.view_as_real(z)[..., 0]

    z = torch.randn(3, 4, dtype=torch.complex64)
    check(marked, (z,))
    check(lambda x: (x + 1, x.view(torch.int32), x.view(torch.uint8)[1:]), (z.real + 0,))
