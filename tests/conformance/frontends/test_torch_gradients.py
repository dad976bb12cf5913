"""Programs that differentiate (`torch.func`), exported and under `torch.compile`, against eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fakes import torch_programs as programs
from fakes.torch_programs import module_of
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.torch import Captured, failed_exports, load
from tilewright.compiler.graph.evaluator import evaluate

torch = pytest.importorskip("torch")
nn = torch.nn
f = nn.functional
func = torch.func
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


def same(module: Any, *args: Any) -> None:
    made = load(Captured(module.eval(), args=args))
    assert made.calling is not None

    def run(arrays: Any) -> Any:
        return evaluate(made.graph, [np.array(array, order="C") for array in arrays])

    found, wanted = made.calling(run, args, {}), module(*args)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


class Gradient(nn.Module):
    """Of a function of one tensor, squared and summed, that another tensor is given to."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any, y: Any) -> Any:
        return func.grad(lambda x: self.function(x, y).pow(2).sum())(x)


def image(x: Any) -> Any:
    return x[None, None]


def conv(groups: int = 1, **options: Any) -> Callable[[Any, Any], Any]:
    def function(x: Any, y: Any) -> Any:
        channels = x.reshape(1, 4, 3, 4)
        return f.conv2d(channels, y.reshape(4, 12)[:, : 4 // groups * 3].reshape(4, -1, 3, 1),
                        groups=groups, **options)  # fmt: skip

    return function


def filters(x: Any, y: Any) -> Any:
    moved = f.conv_transpose2d(y.reshape(2, 4, 2, 3), x.reshape(4, 2, 3, 2), stride=(2, 3))
    kept = f.conv2d(
        y.reshape(2, 4, 2, 3), x.reshape(6, 2, 2, 2), groups=2, padding=1, stride=2
    )
    return torch.cat(
        [moved.flatten(), kept.flatten(), f.conv1d(y, x[:5, :6, None]).flatten()]
    )


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "adaptive average": lambda x, y: f.adaptive_avg_pool2d(image(x), (3, 5)),
    "adaptive average of volumes": lambda x, y: f.adaptive_avg_pool3d(
        x.reshape(1, 1, 3, 4, 4), (2, 3, 3)
    ),
    "adaptive largest": lambda x, y: f.adaptive_max_pool2d(image(x), (2, 3)),
    "average": lambda x, y: f.avg_pool2d(image(x), 3, 2, 1, ceil_mode=True),
    "average inside": lambda x, y: f.avg_pool2d(image(x), 3, 2, 1, count_include_pad=False),
    "average by a divisor": lambda x, y: f.avg_pool2d(image(x), (2, 3), divisor_override=5),
    "average of volumes": lambda x, y: f.avg_pool3d(x.reshape(1, 1, 3, 4, 4), 2, 1, 1),
    "largest": lambda x, y: f.max_pool2d(image(x), 2, 1),
    "largest of volumes": lambda x, y: f.max_pool3d(x.reshape(1, 1, 3, 4, 4), 2, 1),
    "convolution": conv(padding=1, stride=2),
    "convolution in groups": conv(groups=2, padding=(0, 2)),
    "filters": filters,
    "attention": lambda x, y: f.scaled_dot_product_attention(image(x), image(y), image(y)),
    "causal attention": lambda x, y: f.scaled_dot_product_attention(
        image(y), image(x), image(x), is_causal=True
    ),
    "nearest": lambda x, y: f.interpolate(image(x), size=(9, 5)),
    "nearest exact": lambda x, y: f.interpolate(image(x), scale_factor=1.7, mode="nearest-exact"),
    "linear": lambda x, y: f.interpolate(x[None], size=11, mode="linear"),
    "bilinear": lambda x, y: f.interpolate(image(x), scale_factor=1.7, mode="bilinear"),
    "aligned": lambda x, y: f.interpolate(
        image(x), size=(9, 5), mode="bilinear", align_corners=True
    ),
    "bicubic": lambda x, y: f.interpolate(image(x), scale_factor=2, mode="bicubic"),
    "repeated border": lambda x, y: f.pad(image(x), (2, 0, 1, 3), mode="replicate"),
    "reflected border": lambda x, y: f.pad(image(x), (2, 0, 1, 3), mode="reflect"),
    "shrunk": lambda x, y: f.softshrink(x, 0.3),
    "distances": torch.cdist,
    "distances of one": lambda x, y: torch.cdist(x, y, p=1.0),
    "normalized": lambda x, y: f.layer_norm(x, (8,), y[0], y[1]) * f.group_norm(x, 2),
    "activations": lambda x, y: f.gelu(x) * f.silu(x) * f.mish(x) + f.hardswish(x) * f.elu(x),
    "losses": lambda x, y: f.cross_entropy(x, y.argmax(1)) + f.huber_loss(x, y),
    "written": lambda x, y: y.masked_scatter(y > 0, x),
    "sorted": lambda x, y: x.sort(1)[0] * y + x.cumprod(1),
}  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_gradient_in_a_program(name: str) -> None:
    same(Gradient(FUNCTIONS[name]), torch.randn(6, 8), torch.randn(6, 8))


class Learner(nn.Module):
    """A step of gradient descent on its own parameters before it answers, and how often it did."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x: Any, y: Any) -> Any:
        held = dict(self.inner.named_parameters())

        def loss(parameters: Any) -> Any:
            return f.mse_loss(func.functional_call(self.inner, parameters, (x,)), y)

        slopes = func.grad(loss)(held)
        held = {name: value - 0.1 * slopes[name] for name, value in held.items()}
        return func.functional_call(self.inner, held, (x,)), slopes


class MaskedAttention(nn.Module):
    """The gradients of an attention for queries, keys and values."""

    def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        def total(q: Any, k: Any, v: Any) -> Any:
            return f.scaled_dot_product_attention(q, k, v, attn_mask=mask).sin().sum()

        return func.grad(total, argnums=(0, 1, 2))(q, k, v)


@pytest.mark.parametrize("is_added", [False, True])
def test_rows_that_see_nothing_have_no_part_in_a_gradient(is_added: bool) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, 5, 7), torch.randn(1, 2, 3, 7), torch.randn(1, 2, 3, 7)
    mask = torch.rand(1, 1, 5, 3) > 0.3
    mask[..., 0, :] = False
    mask[..., 1, :] = True
    given = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf) if is_added else mask
    same(MaskedAttention(), q, k, v, given)


def test_a_module_learns_while_it_runs() -> None:
    same(Learner(), torch.randn(3, 4), torch.randn(3, 2))


class Derivatives(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, x: Any) -> Any:
        value, along = func.jvp(self.inner, (x,), (torch.ones_like(x),))
        back = func.vjp(self.inner, x)[1](value)
        curvature = func.hessian(lambda x: self.inner(x).pow(2).sum())(x[0])
        return along, back, func.vmap(func.jacrev(self.inner))(x), curvature


def test_derivatives_of_every_kind() -> None:
    same(Derivatives(), torch.randn(3, 4))


class Counted(nn.Module):
    """A buffer written in place, and one that is another afterwards, beside a gradient of a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 2))
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.last = x.mean(0)
        slope = func.grad(lambda w: (x @ w.t().contiguous().t()).tanh().sum())(self.weight)
        return slope * self.calls, self.last * 1


def test_a_program_that_torch_exported_without_its_tensors_is_refused() -> None:
    """`torch.export` keeps the tensors of a transform as constants that have no elements."""
    module = Gradient(lambda x, y: (y @ x).tanh()).eval()
    exported = torch.export.export(module, (torch.randn(4, 2), torch.randn(3, 4)))
    with pytest.raises(ModelError, match="without elements") as raised:
        load(exported)
    assert "compile the module" in str(raised.value)


def test_buffers_of_a_module_that_differentiates_are_states() -> None:
    module = Counted().eval()
    made = load(Captured(module, args=(torch.randn(3, 4),)))
    assert made.calling is not None
    run = lambda arrays: evaluate(made.graph, [np.array(a, order="C") for a in arrays])  # noqa: E731
    for _ in range(3):
        x = torch.randn(3, 4)
        torch.testing.assert_close(made.calling(run, (x,), {}), module(x))


class PerSample(nn.Module):
    """Gradients of a network that has parameters, one for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))

    def forward(self, x: Any) -> Any:
        weights = dict(self.network.named_parameters())

        def value(row: Any) -> Any:
            return func.functional_call(self.network, weights, (row,)).squeeze(-1)

        return func.vmap(func.grad(value))(x)


def test_gradients_of_each_of_as_many_rows_as_a_call_has() -> None:
    rows = ({0: torch.export.Dim.AUTO},)
    programs.same(PerSample().eval(), [(torch.randn(n, 4),) for n in (5, 3)], rows)


def misfit(x: Any) -> Any:
    return func.vmap(lambda row: row @ torch.ones(7))(x)


def refuses(x: Any) -> Any:
    def value(row: Any) -> Any:
        raise ValueError("no rows are taken")

    return func.vmap(value)(x)


@pytest.mark.parametrize(("function", "told"), [(misfit, "mismatch"), (refuses, "no rows")])
@pytest.mark.parametrize("sides", [None, ({0: torch.export.Dim.AUTO},)])
def test_a_mistake_of_the_module_inside_of_a_transform_is_none_of_the_transform(
    function: Any, told: str, sides: Any
) -> None:
    with pytest.raises(ModelError, match=told) as caught:
        load(Captured(module_of(function), args=(torch.randn(5, 4),), dynamic_shapes=sides))
    assert caught.value.hint is None


def test_an_interrupted_export_leaves_no_transform_open() -> None:
    stack = torch._C._functorch

    def interrupted() -> None:
        with failed_exports.ended_transforms():
            stack._vmap_increment_nesting(3, "error")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stack.get_dynamic_layer_stack_depth() == 0


def test_an_error_that_is_its_own_cause_ends_an_export() -> None:
    def fails(x: Any) -> Any:
        error = ValueError("no numbers")
        raise error from error

    with pytest.raises(ModelError, match="no numbers"):
        load(Captured(module_of(fails), args=(torch.randn(2),)))


def square(x: Any) -> Any:
    """Matrices that are not symmetric and have an inverse."""
    return x[..., :4, :4] + 3 * torch.eye(4)


WHOLE = {
    "linear": lambda x: f.linear(x, torch.ones(3, 6)),
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: f.layer_norm(x, (6,)),
    "attention": lambda x: f.scaled_dot_product_attention(x, x, x),
    "padded": lambda x: f.pad(x, (1, 1), mode="reflect"),
    "silu": f.silu,
    "mish": f.mish,
    "gated": lambda x: f.glu(x, -1) * f.glu(x, 1).sum(),
    "gradient of gated": func.grad(lambda x: f.glu(x, 1).sin().sum()),
    "inverse": lambda x: torch.linalg.inv(square(x)),
    "cholesky": lambda x: torch.linalg.cholesky(square(x) @ square(x).mT),
    "factors": lambda x: torch.linalg.qr(square(x))[1],
    "eigenvalues": lambda x: torch.linalg.eigvalsh(square(x) @ square(x).mT),
}  # fmt: skip
"""Operators that torch defines as compositions and keeps whole where a program is traced again."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", WHOLE)
def test_a_derivative_along_a_direction_goes_through_operators_that_stay_whole(
    name: str,
) -> None:
    same(
        module_of(lambda x, t: func.jvp(WHOLE[name], (x,), (t,))),
        torch.randn(2, 4, 6),
        torch.randn(2, 4, 6),
    )


class Slope(nn.Module):
    """A derivative by `torch.autograd.grad`, of numbers that are no parameters."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_(True)
            return torch.autograd.grad(self.function(x).sin().sum(), x)[0]


@pytest.mark.parametrize("function", [f.silu, f.mish])
def test_gradients_of_gates_are_operators_of_the_program(function: Any) -> None:
    same(Slope(function), torch.tensor([-100.0, -3.0, -0.0, 0.5, 20.0, 90.0]))


DETERMINANTS = {
    "det": torch.linalg.det,
    "slogdet": lambda x: torch.linalg.slogdet(x)[1],
    "slogdet of turned": lambda x: torch.linalg.slogdet(x.mT)[1],
}  # fmt: skip


@pytest.mark.parametrize("name", DETERMINANTS)
@pytest.mark.parametrize("is_turned", [False, True])
def test_derivatives_of_determinants_have_the_factors_that_torch_has(
    name: str, is_turned: bool
) -> None:
    """Torch factors the transposed matrix where rows lie one behind the other; its derivatives know that."""
    x, along = square(torch.randn(2, 4, 4)), torch.randn(2, 4, 4)
    x = x.mT if is_turned else x
    same(Slope(DETERMINANTS[name]), x)
    same(module_of(lambda x, t: func.jvp(DETERMINANTS[name], (x,), (t,))), x, along)
    same(module_of(lambda x: func.grad(lambda x: DETERMINANTS[name](x).sum())(x) * 2), x)


def test_a_gradient_by_a_tensor_that_is_no_parameter() -> None:
    held = torch.randn(3, 6)
    same(
        module_of(lambda x, t: func.grad(lambda x: f.linear(x, held).sin().sum())(x) * t),
        torch.randn(2, 6),
        torch.randn(2, 6),
    )


OPEN = {
    "viewed": lambda x: x.view(-1).sin(),
    "reshaped": lambda x: x.reshape(-1, 1).tanh() * x.reshape(1, -1),
    "turned": lambda x: (x.t().contiguous().view(-1) ** 2).cumsum(0),
    "parted": lambda x: torch.cat([part.sin() for part in x.chunk(2, 0)]) * x[0],
    "unfolded": lambda x: x.unfold(1, 2, 1).prod(-1),
    "linear": lambda x: f.linear(x, torch.ones(3, 5), torch.ones(3)).softmax(-1),
    "written": lambda x: x.clone().mul_(2).sin_(),
    "softmax": lambda x: x.softmax(-1),
    "loss": lambda x: f.gaussian_nll_loss(x, torch.ones_like(x), x.abs()),
}  # fmt: skip
"""Where sizes are open and results are views, or of such."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OPEN)
def test_derivatives_along_directions_of_open_sizes(name: str) -> None:
    rows = ({0: torch.export.Dim.AUTO},) * 2
    # Of one row there is one part, and turned it lies as it lay.
    counts = (4, 7, 3, 2) if name in ("parted", "turned") else (4, 7, 3, 2, 1)
    calls = [(torch.randn(n, 5), torch.randn(n, 5)) for n in counts]
    programs.same(lambda x, t: func.jvp(OPEN[name], (x,), (t,)), calls, rows)


FOUR = torch.arange(1.0, 5, dtype=torch.float64)
NORMS = {
    "features": (lambda x: f.layer_norm(x, (x.shape[-1],)), (3, 4, None)),
    "rows": (lambda x: f.layer_norm(x, (4, 3), None, torch.ones(4, 3).double()), (None, 4, 3)),
    "groups": (lambda x: f.group_norm(x, 2, FOUR, FOUR.flip(0)), (None, 4, 3)),
    "length of groups": (lambda x: f.group_norm(x, 2), (2, 4, None)),
    "statistics of the batch": (lambda x: f.batch_norm(x, None, None, FOUR, training=True), (None, 4, 3)),
    "statistics": (lambda x: f.batch_norm(x, FOUR, FOUR, FOUR, FOUR), (None, 4)),
    "instances": (lambda x: f.instance_norm(x, weight=FOUR), (None, 4, 3)),
    "squares": (lambda x: f.rms_norm(x, (3,)), (None, 4, 3)),
}  # fmt: skip
"""What torch's core computes along a direction with numbers that it makes of sizes, and shapes; None is open."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NORMS)
def test_derivatives_of_normalizations_along_directions_of_open_sizes(name: str) -> None:
    function, shape = NORMS[name]

    def both(x: Any, t: Any) -> Any:
        along = func.jvp(function, (x,), (t,))
        return *along, func.jacfwd(lambda x: function(x).sum(0))(x)

    shapes = [[n if size is None else size for size in shape] for n in (4, 7, 1, 3, 2)]
    calls = [tuple(torch.randn(2, *sizes).double()) for sizes in shapes]  # views
    programs.same(both, calls, ({shape.index(None): torch.export.Dim.AUTO},) * 2)


def test_normalizations_of_halves_along_directions_are_computed_wide() -> None:
    """Of elements that only a wide mean tells from none."""

    def along(x: Any, t: Any) -> Any:
        halves = ((x + 300).half(),), (t.half(),)
        found = func.jvp(lambda x: f.layer_norm(x, (9,)), *halves)
        return [(part * 4).round().int() for part in found]

    # In any order: by a wide mean none is near what is rounded the other way, by that of halves four of nine are.
    row = torch.tensor([5, 6, 6, 2, 8, 5, 4, 6, 4])
    rows = [torch.stack([row[torch.randperm(9)] for _ in range(n)]) for n in (4, 1, 6)]
    calls = [(x.float(), torch.zeros_like(x).float()) for x in rows]
    programs.same(along, calls, ({0: torch.export.Dim.AUTO},) * 2)


UNFIT = {
    "no statistics": lambda x: f.batch_norm(x, None, None),
    "one statistic": lambda x: f.batch_norm(x, FOUR, None, training=True),
    "other features": lambda x: f.layer_norm(x, (3,)),
}
"""What torch refuses, whoever computes it."""


@pytest.mark.parametrize("name", UNFIT)
def test_normalizations_that_torch_refuses_are_refused_along_directions(name: str) -> None:
    along = module_of(lambda x, t: func.jvp(UNFIT[name], (x,), (t,)))
    args = (torch.randn(5, 4), torch.randn(5, 4))
    with pytest.raises((RuntimeError, ValueError)):
        along(*args)
    with pytest.raises(ModelError):
        load(Captured(along, args, dynamic_shapes=({0: torch.export.Dim.AUTO},) * 2))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("loss", [f.smooth_l1_loss, f.huber_loss])
def test_rows_of_derivatives_of_means_of_open_sizes(loss: Any) -> None:
    """By what they divide is a number of sizes, which torch makes a tensor of."""

    def rows(x: Any) -> Any:
        return func.jacrev(lambda x: loss(x, torch.ones_like(x)))(x)

    calls = [(torch.randn(n, 5) * 2,) for n in (4, 7, 1, 2)]
    programs.same(rows, calls, ({0: torch.export.Dim.AUTO},))


def test_what_torch_fixes_the_sizes_of_is_refused() -> None:
    """Of the operator itself, which modules do not call."""
    along = module_of(
        lambda x, t: func.jvp(
            lambda x: torch.native_layer_norm(x, (6,), None, None, 1e-5)[0], (x,), (t,)
        )
    )
    args = (torch.randn(4, 6), torch.randn(4, 6))
    with pytest.raises(ModelError) as caught:
        load(Captured(along, args, dynamic_shapes=({0: torch.export.Dim.AUTO},) * 2))
    assert caught.value.hint == failed_exports.NO_TRANSFORM
    same(along, *args)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM, nn.RNN])
def test_gradients_through_recurrent_layers_are_not_zero(layer: Any) -> None:
    """They were, without a word: the operators that stand for such layers have no derivatives."""
    inner, rows = layer(5, 3, batch_first=True).eval(), ({0: torch.export.Dim.AUTO},)

    def slope(x: Any) -> Any:
        return func.grad(lambda x: inner(x)[0].sin().sum())(x)

    calls = [(torch.randn(n, 2, 5),) for n in (2, 3)]
    programs.same(slope, calls, rows)
    if layer is not nn.LSTM:  # torch has none
        same(
            module_of(lambda x: func.jvp(lambda x: inner(x)[0], (x,), (x.cos(),))),
            *calls[0],
        )


class Trained(nn.Module):
    """Derivatives by the parameters of a part, and along a direction through it."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))

    def forward(self, x: Any) -> Any:
        held = dict(self.part.named_parameters())
        loss = lambda p, x: func.functional_call(self.part, p, (x,)).pow(2).mean()  # noqa: E731
        return func.grad(loss)(held, x), func.jvp(self.part, (x,), (torch.ones_like(x),))


def test_derivatives_by_parameters_of_open_sizes() -> None:
    module, rows = Trained().eval(), ({0: torch.export.Dim.AUTO},)
    programs.same(module, [(torch.randn(n, 5),) for n in (4, 7)], rows)


def test_a_derivative_along_a_direction_that_is_refused_leaves_nothing_open() -> None:
    """One level of such derivatives is all that torch has, and what is left of it fails whatever comes next."""

    def along(x: Any) -> Any:
        asks = lambda x: x.softmax(-1) if x.sum() < 1e9 else x  # noqa: E731
        return func.jvp(asks, (x,), (torch.ones_like(x),))[1]

    core, x = torch._C, torch.randn(5, 4)
    excluded = core._dispatch_tls_local_exclude_set()
    with pytest.raises(ModelError):
        load(
            Captured(
                module_of(along), args=(x,), dynamic_shapes=({0: torch.export.Dim.AUTO},)
            )
        )
    assert core._functorch.get_dynamic_layer_stack_depth() == 0
    assert core._dispatch_tls_local_exclude_set() == excluded
    assert along(x).shape == (5, 4)
