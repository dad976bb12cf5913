"""Programs whose numbers, truth values and places the data decides; modules that torch reads in another way than it runs them."""

from __future__ import annotations

from typing import Any

import pytest

from fakes.torch_programs import module_of, same
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.torch import Captured, load

torch = pytest.importorskip("torch")
nn = torch.nn
AUTO = torch.export.Dim.AUTO
ROWS = {0: AUTO}
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


# --- numbers that elements are ------------------------------------------------------------------


def by_elements(x: Any) -> Any:
    """Real numbers of the data in arithmetic, in operators that take numbers, and among results."""
    size, least = x.abs().max().item(), x.min().item()
    return (
        x * size + least, x / size, torch.full((2,), size), x.clamp(max=least), x.long() + size,
        x.masked_fill(x > 0, size), size * 2 + least, least,
    )  # fmt: skip


def test_real_numbers_of_the_data_are_numbers_of_python() -> None:
    same(by_elements, [(torch.randn(n, 4),) for n in (3, 5)], (ROWS,))


def asked(x: Any) -> Any:
    any_large = (x > 8).any().item()
    chosen = torch.cond(any_large, lambda x: x * 2, lambda x: x - 1, (x,))
    by_size = torch.cond(x.max().item() > 8, lambda x: x * 3, lambda x: x + 1, (x,))
    return chosen, by_size, any_large


def test_truth_values_of_the_data_choose_branches_and_are_results() -> None:
    same(asked, [(torch.randn(3, 4),), (torch.randn(5, 4) + 9,)], (ROWS,))


def alike(x: Any, y: Any) -> Any:
    return torch.equal(x, y), x.allclose(y), x * torch.equal(x, y), torch.equal(x, y[:1])


def test_whether_tensors_are_alike_is_a_result() -> None:
    ones = torch.ones(5, 4)
    calls = [(torch.randn(3, 4), torch.randn(3, 4)), (ones, ones + 1e-9), (ones, ones + 1)]
    same(alike, calls[:1])
    same(lambda x, y: (torch.equal(x, y), torch.allclose(x, y)), calls, (ROWS, ROWS))


# --- places along open axes ---------------------------------------------------------------------


def running(x: Any) -> Any:
    """Values, with a number for what is none, and places."""
    found = torch.cummax(x, 0), torch.cummin(x, 0)
    return [(values.float().nan_to_num(9.0), places) for values, places in found]


def with_holes(rows: int) -> Any:
    x = torch.randn(rows, 2)
    x[rows // 2, 1] = torch.nan
    return x


@pytest.mark.parametrize("kind", ["real", "whole", "flags"])
def test_running_extremes_go_along_axes_of_any_size(kind: str) -> None:
    made = {
        "real": with_holes,
        "whole": lambda rows: torch.randint(-3, 3, (rows, 2)),
        "flags": lambda rows: torch.randint(0, 2, (rows, 2)) > 0,
    }[kind]
    same(running, [(made(rows),) for rows in (5, 1, 128, 129, 300)], (ROWS,))


def test_running_extremes_of_a_long_axis_that_is_known() -> None:
    same(running, [(with_holes(700),), (torch.full((700, 2), -torch.inf),)])


def placed(x: Any) -> Any:
    cleared = x.clone()
    cleared.diagonal().zero_()
    return x.diagonal(), x.diagonal(1), cleared, x.median(), *x.median(0), x.nanmedian()


def test_diagonals_and_medians_of_open_sizes() -> None:
    calls = [(torch.randn(*shape),) for shape in ((3, 4), (5, 4), (2, 9), (1, 2))]
    same(placed, calls, ({0: AUTO, 1: AUTO},))


def padded(x: Any, y: Any) -> Any:
    pad = nn.utils.rnn.pad_sequence
    return pad([x, y], batch_first=True), pad(
        [y, x], padding_value=2.0, padding_side="left"
    )


def test_rows_are_as_long_as_the_longest_of_the_call_not_of_the_example() -> None:
    calls = [(torch.randn(a, 2), torch.randn(b, 2)) for a, b in ((3, 5), (7, 2), (4, 4))]
    same(padded, calls, (ROWS, ROWS))


def hashed(x: Any) -> Any:
    whole = (x * 1000).long()
    return (
        torch.hash_tensor(x),
        torch.hash_tensor(whole, (0,)),
        torch.hash_tensor(x, 1, keepdim=True),
    )


def test_a_hash_is_the_exclusive_or_of_all_bits() -> None:
    same(hashed, [(torch.randn(3, 5),)])


# --- complex numbers ----------------------------------------------------------------------------


def filled(z: Any, places: Any) -> Any:
    changed = z.clone()
    changed[0] = 2 - 1j
    return (
        changed, z.masked_fill(z.real > 0, 3j), z.masked_fill(z.real > 0, z.real[0, 0]),
        z.index_fill(0, places, 1 + 2j), torch.where(z.imag > 0, z, 1),
        torch.nn.functional.embedding(places, z), torch.nn.functional.pad(z, (1, 1), value=2.0),
    )  # fmt: skip


def test_numbers_are_filled_into_both_parts_of_complex_ones() -> None:
    calls = [
        (torch.randn(n, 3, dtype=torch.complex64), torch.tensor([0, 2])) for n in (5, 8)
    ]
    same(filled, calls, (ROWS, None))


def of_functions(z: Any) -> Any:
    row = z[0]
    return (
        z.sqrt(), z.log(), z.tanh(), z.sin(), z**2, z**0.5, z.sigmoid(), z.sgn(), z == row, z.ne(row), z.isnan(),
        z.prod(1), z.prod(), torch.linalg.norm(z), z.any(), z.all(0), torch.lerp(z, row, 0.5), torch.addcmul(z, z, row),
    )  # fmt: skip


def of_products(z: Any) -> Any:
    return (
        torch.vdot(z[0], z[1]), torch.dot(z[0], z[1]), torch.outer(z[0], z[1]), z @ z[0], z[0] @ z.mT,
        torch.nn.functional.linear(z, z[:2]), torch.addmm(z[:3], z[:3], z[:3]),
    )  # fmt: skip


@pytest.mark.parametrize("function", [of_functions, of_products])
def test_functions_and_products_of_complex_numbers(function: Any) -> None:
    same(function, [(torch.randn(4, 3, dtype=torch.complex64),)])


# --- modules ------------------------------------------------------------------------------------


class Late(nn.Module):
    """Registers a buffer when it runs first."""

    def forward(self, x: Any) -> Any:
        if not hasattr(self, "places"):
            self.register_buffer("places", torch.arange(4.0), persistent=False)
        return x + self.places


def test_a_buffer_that_a_trace_registers_is_refused_and_one_of_a_call_is_not() -> None:
    module = Late().eval()
    with pytest.raises(
        ModelError, match=r"buffer 'places' while it runs\nhint: call the module once"
    ):
        load(Captured(module, args=(torch.ones(2, 4),)))
    module(torch.ones(2, 4))
    same(module, [(torch.randn(3, 4),)])


def test_modules_of_torchscript_are_converted_whole_and_refused_as_parts() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval())
    same(scripted, [(torch.randn(2, 4),)] * 2)
    whole = nn.Sequential(scripted, nn.Tanh()).eval()
    with pytest.raises(ModelError, match="the part '0' of it is a module of TorchScript"):
        load(Captured(whole, args=(torch.ones(2, 4),)))


def test_packed_weights_are_refused_by_the_name_of_their_part() -> None:
    net = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval()
    packed = torch.ao.quantization.quantize_dynamic(net, {nn.Linear}, dtype=torch.qint8)
    with pytest.raises(ModelError, match=r"the part '0' of it is Linear of torch\.ao"):
        load(Captured(packed, args=(torch.ones(2, 8),)))


def test_a_function_without_a_name_for_what_it_asks_is_refused_by_its_line() -> None:
    with pytest.raises(ModelError, match=r"at test_torch_answers_of_data\.py:\d+"):
        load(Captured(module_of(lambda x: x if x.sum() > 0 else -x), args=(torch.ones(3),)))


def test_an_operator_of_the_user_is_refused_with_what_helps() -> None:
    library = torch.library.Library("strange_answers", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: 2 * x, "CPU")
    library.impl("twice", torch.empty_like, "Meta")
    module = module_of(lambda x: torch.ops.strange_answers.twice(x) + 1)
    with pytest.raises(
        ModelError, match=r"strange_answers\.twice(?s:.*)CompositeImplicitAutograd"
    ):
        load(Captured(module, args=(torch.ones(3),)))
