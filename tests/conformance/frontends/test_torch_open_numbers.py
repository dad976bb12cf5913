"""What Python or torch would make a number of, which an export would fix: functions of sizes, orders of products, switches, and what distributions expect of data."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest

import tilewright as tw
from fakes.torch_programs import module_of, same
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.torch import Captured, load

torch = pytest.importorskip("torch")
distributions = torch.distributions
nn = torch.nn
AUTO = torch.export.Dim.AUTO
ROWS = {0: AUTO}
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


# --- functions of sizes -------------------------------------------------------------------------


def functions(x: Any) -> Any:
    n = x.shape[0]
    of_one = [
        getattr(math, f)(n) for f in ("log", "log2", "log10", "log1p", "sqrt", "exp", "sin")
    ]
    of_share = [
        getattr(math, f)(1 / n) for f in ("acos", "asin", "atanh", "erf", "expm1", "lgamma")
    ]
    of_two = (
        math.log(n, 3),
        math.hypot(n, 4),
        math.fmod(n, 3),
        math.atan2(2, n),
        math.copysign(n, -1),
        math.pow(n, 1.5),
        math.ldexp(0.75, n),
    )
    return *(x * f for f in (*of_one, *of_share, *of_two)), x[: math.isqrt(n)], math.degrees(n)  # fmt: skip


@pytest.mark.slow
def test_functions_of_math_leave_a_size_open() -> None:
    """Torch fixed it, in silence where it chooses what is open; `sqrt` is one that torch has a word for."""
    calls = [(torch.randn(n, 4),) for n in (5, 2, 9, 16)]
    same(functions, calls, (ROWS,))
    named = {0: torch.export.Dim("rows", min=2, max=1 << 10)}
    same(functions, calls[:2], (named,))


def bits(x: Any) -> Any:
    n = x.shape[0]
    numbers = (
        n & 1,
        n & 12,
        5 & n,
        n & 0b1011010,
        n | 4,
        n | 9,
        -n & 6,
        (n + (n & 1)) // 2,
        (n + 7) & ~7,
        n & ~0b101100,
        n & -1,
        -n & -6,
        n | -4,
        n | ~9,
    )
    wide = x.new_ones((n + 7) & ~7)
    return *(x * number for number in numbers), n & 3, x[: n & 7], wide


def test_bits_of_a_size_are_digits_of_it() -> None:
    same(bits, [(torch.randn(n),) for n in (5, 2, 9, 16, 63, 100)], (ROWS,))


def test_bits_of_two_sizes_are_refused_with_what_to_write() -> None:
    two = lambda x: x * (x.shape[0] & x.shape[1])  # noqa: E731
    captured = Captured(module_of(two), args=(torch.ones(6, 3),), dynamic_shapes=({0: AUTO, 1: AUTO},))  # fmt: skip
    with pytest.raises(ModelError, match=r"'&' and '\|' of two sizes") as caught:
        load(captured)
    assert "torch.scalar_tensor(n, dtype=torch.int64)" in str(caught.value)

    def as_tensors(x: Any) -> Any:
        rows, columns = (torch.scalar_tensor(n, dtype=torch.int64) for n in x.shape)
        return x * (rows & columns)

    same(as_tensors, [(torch.ones(n, 3),) for n in (6, 5)], ({0: AUTO, 1: AUTO},))


POWERS = {"power": lambda x: x * 2 ** x.shape[0], "shift": lambda x: x * (1 << x.shape[0])}


@pytest.mark.parametrize("form", POWERS)
def test_a_power_to_a_size_is_refused_as_python_has_it(form: str) -> None:
    captured = Captured(module_of(POWERS[form]), args=(torch.ones(5),), dynamic_shapes=(ROWS,))  # fmt: skip
    with pytest.raises(ModelError, match=r"'2 \*\* \w+' is not supported") as caught:
        load(captured)
    assert "2 ** torch.scalar_tensor(n)" in str(caught.value)
    as_tensor = lambda x: x * 2 ** torch.scalar_tensor(x.shape[0])  # noqa: E731
    same(as_tensor, [(torch.ones(n),) for n in (5, 9)], (ROWS,))


def by_data(x: Any) -> Any:
    return x * math.log(x.abs().sum().item())


def test_functions_of_math_take_elements_of_the_data() -> None:
    same(by_data, [(torch.randn(n, 4),) for n in (5, 3)], (ROWS,))


def test_math_is_itself_again_behind_an_export() -> None:
    before = {name: getattr(math, name) for name in ("log", "sqrt", "isqrt")}
    load(Captured(module_of(functions), args=(torch.ones(3, 4),), dynamic_shapes=(ROWS,)))
    assert all(getattr(math, name) is function for name, function in before.items())
    assert torch.SymInt.__index__.__module__ == "torch"


def counted(x: Any) -> Any:
    return sum(x[i] * (i + 1) for i in range(x.shape[0]))


def test_a_number_that_is_made_of_an_open_size_is_told() -> None:
    module, x = module_of(counted), torch.randn(3, 4)
    with pytest.warns(
        TilewrightWarning, match=r"a number of a size .*3 at test_torch_open"
    ):
        load(Captured(module, args=(x,), dynamic_shapes=(ROWS,)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", TilewrightWarning)
        load(Captured(module, args=(x,)))


PYTHON: dict[str, Any] = {
    "len": lambda x: x.flatten(1).reshape(len(x), -1),
    "len of a row": lambda x: x[:, : len(x[0]) - 1],
    "int of a quotient": lambda x: x[:, : int(x.shape[1] / 2)],
    "int of a share": lambda x: x[: int(x.shape[0] * 0.75)],
    "int of a root": lambda x: x[:, : int(math.sqrt(x.shape[1]))],
    "a float": lambda x: x * float(x.shape[0]),
    "int of a count": lambda x: x.reshape(int(x.numel() / 2), 2),
}


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("form", PYTHON)
def test_numbers_that_python_makes_of_a_size_leave_it_open(form: str) -> None:
    """Python has `len` and `int` give numbers; they were those of the example, or calls with others were refused."""
    calls = [(torch.randn(n, m),) for n, m in ((5, 8), (3, 12), (8, 6))]
    same(PYTHON[form], calls, ({0: AUTO, 1: AUTO},))
    rows, columns = (torch.export.Dim(name, min=2, max=64) for name in ("rows", "columns"))
    same(PYTHON[form], calls[:2], ({0: rows, 1: columns},))


def test_the_length_of_a_tensor_leaves_its_rows_open() -> None:
    calls = [(torch.randn(n, 2, 3),) for n in (5, 3)]
    same(lambda x: (2 * x).view(len(x), -1), calls, (ROWS,))


class Looking(nn.Module):
    """Asks a size in a way."""

    def __init__(self, asked: Any) -> None:
        super().__init__()
        self.asked = asked

    def forward(self, x: Any) -> Any:
        return self.asked(x, {"n6": 2.0})


FIXING: dict[str, Any] = {
    "a text, looked up": lambda x, table: x * table[f"n{x.shape[0]}"],
    "a text in a form": lambda x, _: x * len(f"{x.shape[0]:03d}"),
    "one of several": lambda x, _: x * 2 if x.shape[0] in (5, 6) else x,
    "a branch": lambda x, _: x * 2 if x.shape[0] == 6 else x * 3,
    "a key": lambda x, _: x * {6: 2.0}.get(x.shape[0], 1.0),
    "a place": lambda x, _: x * [1.0, 2, 3, 4, 5, 6, 7][x.shape[0]],
    "bits": lambda x, _: x.new_ones(1 << (x.shape[0] - 1).bit_length()) * x.sum(),
    "rows": lambda x, _: torch.stack([row * 2 for row in x]),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FIXING)
def test_a_size_that_the_module_fixes_is_named_with_its_place(form: str) -> None:
    """Torch says nothing where it may choose what is open: a call of another size failed, and nobody knew why."""
    module, x = Looking(FIXING[form]).eval(), torch.randn(6, 4)
    line = FIXING[form].__code__.co_firstlineno
    with pytest.warns(TilewrightWarning) as told:
        same(module, [(x,)], (ROWS,))
    (message,) = (str(w.message) for w in told if w.category is TilewrightWarning)
    assert f"x.shape[0] is 6 at test_torch_open_numbers.py:{line}" in message
    assert "out of dynamic_shapes" in message


def test_a_size_that_operators_alone_fix_is_not_told() -> None:
    module = module_of(lambda x: x.view(6, 4) @ x.new_ones(4, 2))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", TilewrightWarning)
        load(Captured(module, args=(torch.randn(6, 4),), dynamic_shapes=(ROWS,)))
    assert [w for w in told if w.category is TilewrightWarning] == []


def test_a_size_of_a_tensor_within_an_argument_is_named_as_python_has_it() -> None:
    module = module_of(lambda pair: pair["a"] * len(f"{pair['b'].shape[0]:d}"))
    pair = {"a": torch.randn(3), "b": torch.randn(6)}
    with pytest.warns(TilewrightWarning, match=r"\(pair\['b'\].shape\[0\] is 6 at"):
        load(Captured(module, args=(pair,), dynamic_shapes=({"a": ROWS, "b": ROWS},)))


def test_a_text_of_an_open_size_is_told() -> None:
    """It is torch's name of the size, so that what is looked up by it is not found."""
    module = module_of(lambda x: x * {"6": 2.0}.get(str(x.shape[0]), 1.0))
    with pytest.warns(TilewrightWarning, match=r"makes a text of a size .*numbers.py:\d"):
        load(Captured(module, args=(torch.randn(6, 4),), dynamic_shapes=(ROWS,)))
    assert "__str__" not in vars(torch.SymInt)


def test_quotients_with_remainders_of_open_sizes() -> None:
    """Torch's sizes have no `divmod`."""

    def shared(x: Any) -> Any:
        whole, rest = divmod(x.shape[0], 4)
        return x * whole + rest + divmod(64, x.shape[0])[1]

    same(shared, [(torch.randn(n, 4),) for n in (6, 9, 3)], (ROWS,))


def test_a_size_where_only_a_number_goes_is_refused_with_what_helps() -> None:
    module = module_of(lambda x: x * x.shape[0].real)
    with pytest.raises(ModelError) as refused:
        load(Captured(module, args=(torch.randn(6, 4),), dynamic_shapes=(ROWS,)))
    assert "out of dynamic_shapes" in str(refused.value.hint)


WITHOUT_WORDS: dict[str, Any] = {
    "rounded": lambda x: x.new_zeros(math.ceil(math.log2(x.shape[0]))),
    "a whole number": lambda x: x.sum() + int(math.log2(x.shape[0])),
    "a factor": lambda x: torch.add(x, x, alpha=math.log(x.shape[0])),
    "an exponent": lambda x: x.abs() ** math.log(x.shape[0]),
    "a rest": lambda x: x * (math.log(x.shape[0]) % 0.5),
    "a range": lambda x: torch.arange(0, math.log(x.shape[0])),
}


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_WORDS)
def test_functions_of_sizes_that_calls_cannot_compute_fix_the_size(name: str) -> None:
    module, x = module_of(WITHOUT_WORDS[name]), torch.randn(6, 4)
    with pytest.warns(TilewrightWarning, match="a number of a size"):
        same(module, [(x,)], (ROWS,))
    named = {0: torch.export.Dim("rows", min=2, max=64)}
    with pytest.raises(ModelError) as refused:
        load(Captured(module, args=(x,), dynamic_shapes=(named,)))
    assert "leave it to torch" in str(refused.value.hint)


KNOWN_NUMBERS: dict[str, Any] = {
    "a root": lambda x: nn.functional.layer_norm(x, (4,), eps=math.sqrt(x.shape[0])),
    "a share": lambda x: nn.functional.scaled_dot_product_attention(
        x.t()[None], x.t()[None], x.t()[None], scale=1 / math.sqrt(x.shape[0])
    ),
    "a power": lambda x: nn.functional.scaled_dot_product_attention(
        x.t()[None], x.t()[None], x.t()[None], scale=x.shape[0] ** -0.5
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN_NUMBERS)
def test_a_number_that_torch_made_of_a_named_size_is_refused(name: str) -> None:
    """Every other call failed, and where torch rounds otherwise than Python (`n ** -0.5`) that of the example, too."""
    module, x = module_of(KNOWN_NUMBERS[name]), torch.randn(6, 4)
    named = {0: torch.export.Dim("rows", min=2, max=64)}
    with pytest.raises(ModelError, match="torch made a number of it") as refused:
        load(Captured(module, args=(x,), dynamic_shapes=(named,)))
    assert "out of dynamic_shapes" in str(refused.value.hint)
    if name != "a power":
        with pytest.warns(TilewrightWarning, match="a number of a size"):
            same(module, [(x,)], (ROWS,))


def test_a_branch_on_a_root_of_a_size_that_a_call_breaks_is_told_in_words() -> None:
    module = module_of(lambda x: x * 2 if math.sqrt(x.shape[0]) > 2.5 else x * 3)
    same(module, [(torch.randn(n, 4),) for n in (6, 2)], (ROWS,))
    with pytest.raises(tw.InputError) as refused:
        same(module, [(torch.randn(n, 4),) for n in (6, 9)], (ROWS,))
    assert "<= 2.5)': does not hold for this call" in str(refused.value)
    assert "torch decided by the example" in str(refused.value.hint)


def powers(x: Any) -> Any:
    return sum(x.sum() * i for i in range(int(math.log2(x.shape[0]) + 1)))


def test_logarithms_of_sizes_to_base_2_are_exact_for_powers_of_2() -> None:
    """A product with the reciprocal of a constant would be below 3 for 8."""
    same(powers, [(torch.randn(n, 4),) for n in (8, 9, 15)], (ROWS,))


# --- orders of products -------------------------------------------------------------------------


class Adapters(nn.Module):
    """A low-rank adapter for each row of a batch, chosen by its number."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Linear(4, 6)
        self.narrow = nn.Parameter(torch.randn(8, 2, 4))
        self.wide = nn.Parameter(torch.randn(8, 6, 2))

    def forward(self, x: Any, chosen: Any) -> Any:
        weights = self.narrow[chosen], self.wide[chosen]
        return self.base(x) + torch.einsum("bi,bri,bor->bo", x, *weights)


def test_products_of_three_tensors_have_open_sizes() -> None:
    def rows(*chosen: int) -> tuple[Any, Any]:
        return torch.randn(len(chosen), 4), torch.tensor(chosen)

    same(Adapters().eval(), [rows(0, 1, 2, 3, 7), rows(5, 5), rows(1)], (ROWS, ROWS))


# --- structures ---------------------------------------------------------------------------------


def shapes(x: Any) -> Any:
    return x.shape, {"of": [x.size(), x.T.shape]}, x * 2, ()


def test_shapes_among_results_are_shapes() -> None:
    for sides in (None, (ROWS,)):
        x = torch.randn(3, 4)
        model = tw.compile(module_of(shapes), args=(x,), dynamic_shapes=sides)
        first, held, *_ = model(x)
        assert type(first) is torch.Size
        assert first == (3, 4)
        assert [type(s) for s in held["of"]] == [torch.Size] * 2
        assert held["of"][1] == (4, 3)


# --- quantization in training -------------------------------------------------------------------


def prepared(*, is_fused: bool) -> Any:
    quantization = torch.ao.quantization
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).train()
    version = 1 if is_fused else 0
    module.qconfig = quantization.get_default_qat_qconfig("fbgemm", version=version)
    quantization.prepare_qat(module, inplace=True)
    module(torch.randn(8, 4))
    return module.eval()


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("is_fused", [False, True])
def test_modules_that_quantize_in_training_are_compiled_when_they_observe_no_more(
    is_fused: bool,
) -> None:
    module = prepared(is_fused=is_fused)
    with pytest.raises(ModelError) as refused:
        load(Captured(module, args=(torch.randn(5, 4),)))
    assert "disable_observer" in str(refused.value.hint)
    module.apply(torch.ao.quantization.disable_observer)
    same(module, [(torch.randn(n, 4),) for n in (5, 1)], (ROWS,))
    same(module, [(torch.randn(5, 4),)], None)
    module.apply(torch.ao.quantization.disable_fake_quant)
    same(module, [(torch.randn(n, 4),) for n in (5, 1)], (ROWS,))


def test_modules_that_only_observe_are_refused_in_words() -> None:
    quantization = torch.ao.quantization
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU()).eval()
    module.qconfig = quantization.get_default_qconfig("fbgemm")
    observing = quantization.prepare(module)
    with pytest.raises(ModelError, match="observes the ranges"):
        load(Captured(observing, args=(torch.randn(5, 4),)))


def on_a_grid(x: Any) -> Any:
    scales, zeros = torch.tensor([0.1, 0.2, 0.3, 0.7]), torch.zeros(4, dtype=torch.int)
    between = torch.tensor([0, 1.5, 2.3, 1])
    return (
        torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255),
        torch.fake_quantize_per_tensor_affine(
            x, torch.tensor(0.1), torch.tensor(3), 0, 255
        ),
        torch.fake_quantize_per_tensor_affine(
            x, torch.tensor(0.1), torch.tensor(2.7), 0, 255
        ),
        torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -128, 127),
        torch.fake_quantize_per_channel_affine(x, scales, between, 1, -128, 127),
    )


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64]
)
@pytest.mark.parametrize("sides", [None, (ROWS,)])
def test_a_grid_has_a_scale_of_f32_for_numbers_of_any_type(dtype: Any, sides: Any) -> None:
    """Halfway between two places, too, on which the reciprocal of the scale decides."""
    x = (torch.arange(-400, 5200, dtype=torch.float64) * 0.0125).reshape(-1, 4).to(dtype)
    model = tw.compile(module_of(on_a_grid), args=(x,), dynamic_shapes=sides)
    for ours, theirs in zip(model(x), on_a_grid(x), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("scale", [0.0, 1e-50, 1e-39])
def test_a_grid_without_distances_is_one(scale: float) -> None:
    """Without warnings of numpy, which the front end computes the scale with."""

    def grid(x: Any) -> Any:
        return torch.fake_quantize_per_tensor_affine(x, scale, 0, -8, 7)

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        same(grid, [(torch.tensor([0.0, 1.0, -2.0]),)], None)


# --- what distributions expect ------------------------------------------------------------------


def scored(mean: Any, scale: Any, x: Any) -> Any:
    normal = distributions.Normal(mean, scale)
    other = distributions.Gamma(scale, scale + 1)
    places = distributions.Categorical(logits=mean.expand(3, -1))
    return (
        normal.log_prob(x), normal.entropy(), other.log_prob(scale * 2),
        places.log_prob(torch.tensor([0, 1, 1])), distributions.kl_divergence(normal, distributions.Normal(x, scale)),
        distributions.MultivariateNormal(mean, torch.diag(scale)).log_prob(x),
    )  # fmt: skip


@pytest.mark.slow
def test_distributions_are_checked_by_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    # Dynamo takes the checks from the whole process, once it has compiled anything.
    monkeypatch.setattr(distributions.Distribution, "_validate_args", True)
    given = [(torch.randn(5), torch.rand(5) + 0.1, torch.randn(5)) for _ in range(2)]
    same(scored, given, None)
    model = tw.compile(module_of(scored), args=given[0])
    mean, scale, x = given[1]
    for wrong, told in (
        ((mean, -scale, x), "parameter scale of Normal, GreaterThan"),
        ((mean, scale, x * math.nan), "a sample of Normal, Real"),
        ((mean * math.inf, scale, x), "parameter logits of Categorical"),
    ):
        with pytest.raises(ValueError, match=r"constraint|support"):
            scored(*wrong)
        with pytest.raises(tw.InputError, match=f"{told}.*: does not hold for this call$"):
            model(*wrong)


class Expects(nn.Module):
    """Takes numbers above zero."""

    def forward(self, x: Any) -> Any:
        torch._assert_async((x > 0).all(), "above zero")
        return x.log()


def test_what_a_module_expects_of_data_fails_the_call() -> None:
    model = tw.compile(Expects().eval(), args=(torch.ones(3),))
    assert torch.equal(model(torch.ones(3)), torch.zeros(3))
    with pytest.raises(
        tw.InputError, match=r"\(above zero\) at test_.*: does not hold for this call$"
    ):
        model(torch.tensor([1.0, -1.0, 1.0]))


def test_a_distribution_of_one_sample_is_taken_where_more_were_traced() -> None:
    def scored_alone(x: Any) -> Any:
        normal = distributions.Normal(x, x.abs() + 1)
        joint = distributions.MultivariateNormal(x, torch.eye(3))
        return normal.log_prob(x * 2), joint.log_prob(x + 1)

    same(scored_alone, [(torch.randn(n, 3),) for n in (6, 1, 3)], (ROWS,))


def test_a_distribution_of_another_shape_is_refused_as_in_torch() -> None:
    def wrong(x: Any) -> Any:
        return distributions.Normal(torch.zeros(3), torch.ones(3)).log_prob(x)

    with pytest.raises(ModelError, match=r"not broadcastable|broadcastable to"):
        load(Captured(module_of(wrong), args=(torch.zeros(4),)))
