"""`torch.compile` with this backend, against eager mode."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import tilewright as tw
from fakes.dynamo_backend import entry
from tilewright.compiler.frontends.torch.dispatched import own_kernels

torch = pytest.importorskip("torch")
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


def perceptron() -> Any:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).eval()


def near(found: Any, wanted: Any) -> bool:
    return bool(torch.allclose(found, wanted, rtol=1e-5, atol=1e-5))


def test_a_module_gives_what_it_gives_for_every_size() -> None:
    module = perceptron()
    compiled = torch.compile(module, backend=entry())
    for rows in (4, 7, 9, 1):
        x = torch.randn(rows, 16)
        assert near(compiled(x), module(x))


def test_an_input_that_is_negated_as_it_is_read_gives_what_it_says() -> None:
    x = torch.randn(4, 16)
    negated = torch.complex(x, x).conj().imag
    assert negated.is_neg()
    module = perceptron()
    compiled = torch.compile(module, backend=entry())
    for given in (negated, x, negated):
        assert near(compiled(given), module(given))


def test_a_write_to_a_weight_is_noticed() -> None:
    module, x = perceptron(), torch.randn(4, 16)
    compiled = torch.compile(module, backend=entry())
    compiled(x)
    module[0].weight.mul_(2)
    assert near(compiled(x), module(x))
    module[0].weight.data = torch.randn(
        module[0].weight.shape
    )  # which torch does not count
    assert near(compiled(x), module(x))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_decomposition_that_torch_has_wrong_is_ours_while_it_is_compiled(
    reduction: str,
) -> None:
    labels = torch.tensor([[1, 2, -1, 0, 0], [-1, 3, 0, 0, 0], [0, 4, 1, 2, 3]])

    def loss(x: Any) -> Any:
        return nn.functional.multilabel_margin_loss(x, labels, reduction=reduction)

    x = torch.randn(3, 5)
    assert near(torch.compile(loss, backend=entry())(x), loss(x))


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("multilabel_margin_loss_forward", "Autograd"),
        ("one_hot", "CompositeImplicitAutograd"),
    ],
)
def test_kernels_of_torch_are_back_afterwards_and_those_of_others_stay(
    name: str, key: str
) -> None:
    operator = getattr(torch.ops.aten, name).default
    key, other = getattr(torch._C.DispatchKey, key), torch._C.DispatchKey.XPU
    before = dict(operator.py_kernels)
    try:
        with own_kernels():
            assert operator.py_kernels[key] is not before[key]
            operator.py_kernels[other] = nn.Identity
            operator._dispatch_cache[key] = operator.py_kernels[key]
        assert operator.py_kernels == {**before, other: nn.Identity}
        assert not operator._dispatch_cache, "what was looked up meanwhile is still called"
    finally:
        del operator.py_kernels[other]


@pytest.mark.parametrize("classes", [[2, -1], [1, 4]])
def test_a_class_that_there_is_not_fails_the_call(classes: list[int]) -> None:
    compiled = torch.compile(lambda i: nn.functional.one_hot(i, 4) * 2, backend=entry())
    for right in (torch.tensor([0, 3]), torch.tensor(2), torch.zeros(0, 3).long()):
        assert torch.equal(compiled(right), nn.functional.one_hot(right, 4) * 2)
    with pytest.raises(tw.InputError, match=rf"index {classes[1]} is out of range"):
        compiled(torch.tensor(classes))
    with pytest.raises(RuntimeError, match="Class values"):
        nn.functional.one_hot(torch.tensor(classes), 4)


class Mixed(nn.Module):
    """Has an operator that is not supported, a buffer that it changes and results of other layouts."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("seen", torch.zeros(8))

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.linear(x))
        factors, _ = torch.linalg.ldl_factor(y @ y.t())
        self.seen += y.sum(0)
        return factors @ y * 2, y.t(), torch.sin(y).transpose(0, 1) + 1


def test_an_unsupported_operator_runs_in_eager_mode_with_a_warning_that_names_it() -> None:
    module, other = Mixed().eval(), Mixed().eval()
    other.load_state_dict(module.state_dict())
    compiled, x = torch.compile(other, backend=entry()), torch.randn(8, 8)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled(x)
    named = [str(w.message) for w in caught if str(w.message).startswith("tilewright")]
    assert len(named) == 1
    assert "aten.linalg_ldl_factor_ex.default" in named[0]
    module(x)
    for found, wanted in zip(compiled(x), module(x), strict=True):
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)
        assert found.stride() == wanted.stride()
    assert near(other.seen, module.seen)


def test_a_graph_that_asks_for_gradients_runs_in_eager_mode() -> None:
    module, x = perceptron(), torch.randn(4, 16)
    compiled = torch.compile(module, backend=entry())
    with torch.enable_grad(), pytest.warns(RuntimeWarning, match="for inference"):
        compiled(x).sum().backward()
    assert module[0].weight.grad is not None


def test_unknown_options_are_refused() -> None:
    compiled = torch.compile(perceptron(), backend=entry(), options={"thread": 1})
    with pytest.raises(Exception, match="no option 'thread'"):
        compiled(torch.randn(4, 16))


def test_halves_and_whole_numbers_come_back_as_they_are() -> None:
    def function(x: Any, y: Any) -> Any:
        return (x * 2).relu(), y + 1, x.shape[0]

    x, y = torch.randn(3, 4).bfloat16(), torch.arange(5)
    found = torch.compile(function, backend=entry())(x, y)
    wanted = function(x, y)
    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])
    assert found[2] == 3


class Inverse(nn.Module):
    """Torch checks what it factors, which is an effect: its graphs have a token."""

    def forward(self, x: Any) -> Any:
        return torch.linalg.inv(x @ x.t() + torch.eye(5)) + 1


def test_graphs_with_effects_are_compiled() -> None:
    module, x = Inverse().eval(), torch.randn(5, 5)
    compiled = torch.compile(module, backend=entry())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what of it runs on the host, or in eager mode
        found = compiled(x)
    assert torch.allclose(found, module(x), rtol=1e-4, atol=1e-4)


class Enlarged(nn.Module):
    def forward(self, x: Any) -> Any:
        larger = nn.functional.interpolate(x, scale_factor=2.0)
        return nn.functional.relu(larger) * (x.shape[2] / 7)


def test_images_of_several_sizes_are_enlarged_in_one_part() -> None:
    compiled = torch.compile(Enlarged(), backend=entry())
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*run in eager mode.*")
        for size in ((2, 4, 8, 8), (2, 4, 5, 7), (2, 4, 6, 9)):
            x = torch.randn(size)
            assert near(compiled(x), Enlarged()(x))


def parts(x: Any, y: Any) -> Any:
    """Views of an argument and of a result, each at a place that sizes decide."""
    doubled = x * 2
    return x[:, y.shape[0] :], doubled[:, y.shape[0] :], doubled, doubled.t(), x.t()[1:], x


def copies(x: Any, y: Any) -> Any:
    return x[:, y.shape[0] :], x.t(), y.expand(3, -1)[1:]


@pytest.mark.parametrize("function", [parts, copies])
def test_results_that_are_views_are_views(function: Any) -> None:
    compiled = torch.compile(function, backend=entry(), dynamic=True)
    for rows, width in ((3, 8), (2, 8), (1, 9)):
        x, y = torch.randn(4, width), torch.randn(rows)
        for found, wanted in zip(compiled(x, y), function(x, y), strict=True):
            assert torch.equal(found, wanted)
            assert found.stride() == wanted.stride()
            own, theirs = (
                t.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
                for t in (found, wanted)
            )
            assert own == theirs


def unsupported_parts(x: Any, y: Any) -> Any:
    factors, _ = torch.linalg.ldl_factor(x @ x.t())
    summed = factors.sin() + 1
    return x[:, y.shape[0] :], summed[y.shape[0] :], summed


def test_results_that_are_views_are_views_beside_what_is_not_supported() -> None:
    compiled = torch.compile(unsupported_parts, backend=entry(), dynamic=True)
    for rows, width in ((3, 8), (2, 8)):
        x, y = torch.randn(4, width), torch.randn(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what runs in eager mode
            found = compiled(x, y)
        for ours, theirs in zip(found, unsupported_parts(x, y), strict=True):
            assert near(ours, theirs)


def moved(x: Any, place: int) -> Any:
    return x[:, place:] + 1, x * place


def test_whole_numbers_beside_tensors_may_change_and_be_negative() -> None:
    compiled, x = torch.compile(moved, backend=entry()), torch.randn(2, 8)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*run in eager mode.*")
        for place in (-3, -2, 1, 4, -5):
            for found, wanted in zip(compiled(x, place), moved(x, place), strict=True):
                assert torch.equal(found, wanted)


class Remembering(nn.Module):
    """Its buffer is another tensor after each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3, 4))

    def forward(self, x: Any) -> Any:
        self.seen = torch.roll(self.seen, 1, 0)
        self.seen[0] = x.mean(0)
        return self.seen.sum(0)


def test_a_buffer_that_is_another_tensor_after_each_call_is_read_anew() -> None:
    module, plain = Remembering().eval(), Remembering().eval()
    compiled = torch.compile(module, backend="tilewright")
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(5, 4)
            torch.testing.assert_close(compiled(x), plain(x))
            torch.testing.assert_close(module.seen, plain.seen)


def test_other_parameters_in_place_of_the_old_ones_are_weights_too() -> None:
    module, x = nn.Linear(4, 2).eval(), torch.randn(3, 4)
    compiled = torch.compile(module, backend="tilewright")
    with torch.no_grad():
        for step in range(4):
            state = {name: value + step for name, value in module.state_dict().items()}
            module.load_state_dict(state, assign=True)
            for _ in range(2):
                torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.parametrize("norm_first", [False, True])
def test_layers_of_transformers_are_compiled_whole(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(
        8, 2, 16, batch_first=True, norm_first=norm_first, activation="gelu"
    )
    module = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
    compiled = torch.compile(module, backend=entry(), dynamic=True)
    hidden = torch.tensor([[False, True, False, False], [False, False, False, True]])
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*run in eager mode.*")
        for mask in (None, hidden):
            x = torch.randn(2, 4, 8)
            found = compiled(x, src_key_padding_mask=mask)
            assert near(found, module(x, src_key_padding_mask=mask))


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("kind", ["keys", "places", "none"])
def test_weights_of_attention_come_out_of_torchs_one_operator(
    kind: str, averaged: bool
) -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    keys = torch.tensor([[False, True, False], [True, True, True]])
    places = torch.ones(3, 3, dtype=torch.bool).triu(1)
    masks = {"keys": {"key_padding_mask": keys}, "places": {"attn_mask": places}}
    named = {**masks.get(kind, {}), "average_attn_weights": averaged}
    compiled, x = torch.compile(module, backend=entry()), torch.randn(2, 3, 8)
    with torch.no_grad():
        for found, wanted in zip(
            compiled(x, x, x, **named), module(x, x, x, **named), strict=True
        ):
            torch.testing.assert_close(found, wanted, equal_nan=True)


def test_parts_know_sizes_that_their_operands_do_not_say() -> None:
    def cut(x: Any) -> Any:
        y = (x * 2).flatten(1)[:, : x.shape[1] // 2 * (x.shape[2] // 4) + 1]
        (more,) = torch._foreach_add([y], 1)
        return more * x.shape[1] + y.sin()

    compiled = torch.compile(cut, backend=entry(), dynamic=True)
    with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for size in ((2, 4, 8), (2, 6, 12), (2, 4, 12)):
            x = torch.randn(size)
            torch.testing.assert_close(compiled(x), cut(x))
    assert any("run in eager mode" in str(w.message) for w in caught)


def test_the_order_of_axes_in_memory_is_known_without_asking_sizes() -> None:
    """An answer about a size would hold for that size alone, and graphs would be compiled for every one."""
    images = torch.nn.functional.conv2d
    filters = torch.randn(2, 3, 2, 2)

    def turned(x: Any) -> Any:
        last = x.to(memory_format=torch.channels_last)
        return images(last, filters), x.permute(0, 2, 3, 1) * 2

    compiled: list[int] = []

    def counting(module: Any, given: Any) -> Any:
        compiled.append(1)
        return entry()(module, given)

    fast = torch.compile(turned, backend=counting)
    for batch, width in ((2, 5), (4, 7), (5, 8), (6, 11)):
        x = torch.randn(batch, 3, 4, width)
        for ours, theirs in zip(fast(x), turned(x), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
            assert ours.stride() == theirs.stride()
    assert len(compiled) == 2  # sizes of the example, and any


def test_rows_that_data_counts_come_out_in_the_order_of_torch() -> None:
    def chosen(x: Any, flags: Any) -> Any:
        kept = x[flags]
        return kept.t() * 2, x.nonzero(), torch.unique(kept), (kept * 3).unsqueeze(0)

    x = torch.tensor([[0.0, 2.0], [1.0, 2.0], [-3.0, 0.0], [1.0, 2.0]])
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        fast = torch.compile(chosen, backend=entry(), fullgraph=True)
        for flags in ([True] * 4, [False] * 4, [False, True, True, False]):
            call = x, torch.tensor(flags)
            for ours, theirs in zip(fast(*call), chosen(*call), strict=True):
                torch.testing.assert_close(ours, theirs)
