"""Modules of torch, compiled, against the modules themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import InputError, ModelError, UserError

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
nn, functional = torch.nn, torch.nn.functional


def agree(model: Any, module: Any, *arguments: Any, tolerance: float = 1e-5) -> None:
    with torch.no_grad():
        wanted = module(*arguments)
    found = model(*arguments)
    assert torch.allclose(found, wanted, rtol=tolerance, atol=tolerance)


def perceptron() -> Any:
    torch.manual_seed(0)
    layers = (nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4), nn.Softmax(-1))
    return nn.Sequential(*layers).eval()


def test_a_module_is_compiled_with_its_arguments() -> None:
    module, x = perceptron(), torch.randn(5, 16)
    model = tw.compile(module, args=(x,))
    agree(model, module, x)
    found = model(x.numpy())
    assert isinstance(found, np.ndarray)


def test_images_go_through_convolutions_and_pooling() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 6, 3, stride=2, groups=2), nn.SiLU(), nn.AdaptiveAvgPool2d((3, 2)),
        nn.Flatten(), nn.Linear(36, 5),
    ).eval()  # fmt: skip
    module[1].running_mean.normal_()
    x = torch.randn(2, 3, 21, 17)
    agree(tw.compile(module, args=(x,)), module, x)


def test_named_sizes_are_decided_by_calls_and_their_ranges_hold() -> None:
    module, x = perceptron(), torch.randn(5, 16)
    batch = torch.export.Dim("batch", max=64)
    model = tw.compile(module, args=(x,), dynamic_shapes=({0: batch},))
    assert str(model.inputs[0].shape[0]) == "batch"
    for rows in (1, 9, 64):
        agree(model, module, torch.randn(rows, 16))
    with pytest.raises(InputError, match="65"):
        model(torch.randn(65, 16))


def test_sizes_that_torch_finds_by_itself_may_be_one_and_none() -> None:
    module, auto = perceptron(), torch.export.Dim.AUTO
    model = tw.compile(
        module, args=(torch.randn(5, 3, 16),), dynamic_shapes=({0: auto, 1: auto},)
    )
    for shape in ((1, 3, 16), (4, 1, 16), (1, 1, 16), (0, 2, 16), (7, 9, 16)):
        agree(model, module, torch.randn(shape))


class Framing(nn.Module):
    """As codecs of sound do it: what a convolution is padded by follows from numbers that are buffers."""

    def __init__(self, written: str = "") -> None:
        super().__init__()
        self.convolution = nn.Conv1d(2, 3, 7, stride=2)
        self.stride = nn.Buffer(torch.tensor(2), persistent=False)
        self.overlap = nn.Buffer(torch.tensor(5), persistent=False)
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)
        self.register_buffer("kept", torch.tensor(3))
        self.register_buffer("counted", torch.tensor(3), persistent=False)
        self.written: str = written

    def forward(self, x: Any) -> Any:
        if self.written:
            getattr(self, self.written).add_(1)
        if self.written == "counted":
            return x + self.counted
        frames = torch.ceil((x.shape[-1] - 2) / self.stride + 1).to(torch.int64) - 1
        padding = (self.overlap, frames * self.stride + 2 - x.shape[-1])
        padded = functional.pad(x, padding, mode="reflect")
        return self.convolution(padded * self.scale) + self.kept


@pytest.mark.parametrize("written", ["", "kept", "counted"])
def test_numbers_that_are_buffers_decide_sizes_unless_a_call_writes_to_them(
    written: str,
) -> None:
    module, reference = Framing(written).eval(), Framing(written).eval()
    reference.load_state_dict(module.state_dict())
    buffers = list(module.named_buffers())
    x = torch.randn(1, 2, 33)
    model = tw.compile(module, args=(x,))
    assert type(module) is Framing
    assert [(n, id(b)) for n, b in module.named_buffers()] == [
        (n, id(b)) for n, b in buffers
    ]
    for _ in range(3):
        agree(model, reference, x)


class Moving(nn.Module):
    """As routers of experts do it: a part is moved to the type that it has before it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Sequential(nn.Linear(16, 4), nn.BatchNorm1d(4))

    def forward(self, x: Any) -> Any:
        self.router = self.router.to(x.dtype)
        return self.router(x)


def test_a_part_that_is_moved_to_the_type_it_has_stays_as_it_is() -> None:
    torch.manual_seed(0)
    module, x, to = Moving().eval(), torch.randn(3, 16), nn.Module.to
    agree(tw.compile(module, args=(x,)), module, x)
    assert nn.Module.to is to


class Asking(nn.Module):
    """As checks of placeholders for images ask: whether all of a mask holds, and any of it."""

    def forward(self, mask: Any) -> Any:
        return torch._is_all_true(mask), torch._is_any_true(mask)


@pytest.mark.parametrize("shape", [(), (0,), (1, 1), (3, 5)])
def test_whether_all_or_any_of_a_mask_holds(shape: tuple[int, ...]) -> None:
    module = Asking().eval()
    model = tw.compile(module, args=(torch.ones(shape, dtype=torch.bool),))
    for mask in (
        torch.ones(shape),
        torch.zeros(shape),
        torch.rand(shape).round(),
    ):
        assert model(mask.bool()) == module(mask.bool())


class Counting(nn.Module):
    """Keeps a sum of what it saw; takes and gives structures."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, given: dict[str, Any], scale: float = 1.0) -> dict[str, Any]:
        self.total += given["x"].sum(0) * scale
        return {
            "total": self.total * 1,
            "rows": given["x"].shape[0],
            "pair": (given["y"], None),
        }


def test_buffers_that_a_call_changes_are_kept_for_the_next_one() -> None:
    module = Counting().eval()
    given = {"x": torch.randn(4, 3), "y": torch.randn(2)}
    model = tw.compile(module, args=(given,), kwargs={"scale": 2.0})
    for _ in range(3):
        found, wanted = model(given, scale=2.0), module(given, scale=2.0)
        assert torch.allclose(found["total"], wanted["total"], rtol=1e-5, atol=1e-5)
        assert found["rows"] == 4
        assert torch.equal(found["pair"][0], given["y"])
        assert found["pair"][1] is None


def test_a_module_without_arguments_gives_tensors() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self) -> Any:
            self.count += 1
            return self.count * 2

    model = tw.compile(Counted().eval(), args=())
    assert [model(), model()] == [torch.tensor(2.0), torch.tensor(4.0)]


class Writing(nn.Module):
    """Changes its argument."""

    def forward(self, x: Any) -> Any:
        x.mul_(2)
        return x + 1


def test_an_argument_that_the_module_changes_is_changed() -> None:
    model = tw.compile(Writing().eval(), args=(torch.ones(3),))
    x = torch.tensor([1.0, 2.0, 3.0])
    assert model(x).tolist() == [3, 5, 7]
    assert x.tolist() == [2, 4, 6]


def test_arguments_of_another_structure_or_another_constant_are_refused() -> None:
    given = {"x": torch.randn(4, 3), "y": torch.randn(2)}
    model = tw.compile(Counting().eval(), args=(given,), kwargs={"scale": 2.0})
    with pytest.raises(InputError, match="structure"):
        model({"x": given["x"]}, scale=2.0)
    with pytest.raises(InputError, match=r"3\.0 was 2\.0"):
        model(given, scale=3.0)


def test_results_lie_in_memory_of_their_own_and_arguments_are_not_copied() -> None:
    module = nn.Identity().eval()
    x = torch.randn(1000)
    model = tw.compile(module, args=(x,))
    found = model(x)
    x.zero_()
    assert found.abs().sum() > 0


def test_an_exported_program_needs_no_arguments() -> None:
    module, x = perceptron(), torch.randn(5, 16)
    agree(tw.compile(torch.export.export(module, (x,))), module, x)


def test_the_module_of_an_exported_program_has_no_mode() -> None:
    """Torch says that it is in training, and lets nobody change that; so do modules that PT2E has quantized."""
    dropped = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout()).eval()
    x = torch.randn(5, 16)
    program = torch.export.export(dropped, (x,))
    for module in (program.module(), torch.export.unflatten(program)):
        assert module.training
        agree(tw.compile(module, args=(x,)), dropped, x)
    asks = nn.Module()
    asks.forward = lambda x: functional.dropout(x, 0.5, asks.training)
    for other in (torch.fx.symbolic_trace(dropped.train()), asks):
        with pytest.raises(UserError, match="training mode"):
            tw.compile(other, args=(x,))


class Holder(nn.Module):
    """Holds a part that torch lets nobody take out of training, and so cannot leave it by itself."""

    def __init__(self, part: Any, own: Any) -> None:
        super().__init__()
        self.part, self.own = part, own

    def forward(self, x: Any) -> Any:
        return self.own(self.part(x))


def test_only_the_other_parts_of_what_holds_an_exported_one_have_a_mode() -> None:
    first, second, x = perceptron(), nn.Dropout(), torch.randn(5, 16)
    holder = Holder(torch.export.export(first, (x,)).module(), second)
    with pytest.raises(UserError, match="training mode"):
        tw.compile(holder, args=(x,))
    second.eval()
    agree(tw.compile(holder, args=(x,)), first, x)


def test_a_module_without_arguments_or_in_training_is_refused() -> None:
    with pytest.raises(UserError, match="arguments that it is exported with are missing"):
        tw.compile(perceptron())
    with pytest.raises(UserError, match="training mode"):
        tw.compile(perceptron().train(), args=(torch.randn(5, 16),))


class Fancy(nn.Module):
    """Uses what is not supported, twice."""

    def forward(self, x: Any) -> Sequence[Any]:
        factors, places = torch.linalg.ldl_factor(x)
        return torch.linalg.ldl_solve(factors, places, x), torch.relu(x)


def test_everything_unsupported_is_listed_before_any_work() -> None:
    x = torch.randn(3, 3)
    report = tw.coverage(Fancy().eval(), args=(x,))
    named = {problem.op_type for problem in report.problems}
    assert {"aten.linalg_ldl_factor_ex.default", "aten.linalg_ldl_solve.default"} <= named
    assert all("test_torch_models.py" in p.node for p in report.problems)
    with pytest.raises(ModelError, match="ldl_solve"):
        tw.compile(Fancy().eval(), args=(x,))


def test_a_supported_model_is_covered_in_the_words_of_torch() -> None:
    report = tw.coverage(perceptron(), args=(torch.randn(5, 16),))
    assert report.supported
    assert {"aten.linear.default", "aten.gelu.default"} <= {
        row.op_type for row in report.rows
    }


def test_an_encoder_of_transformers_gives_its_own_kind_of_output() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        vocab_size=50,
    )  # fmt: skip
    torch.manual_seed(0)
    module = transformers.BertModel(config).eval()
    ids = torch.randint(0, 50, (2, 7))
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    named = {"input_ids": ids, "attention_mask": mask}
    model = tw.compile(module, kwargs=named)
    with torch.no_grad():
        wanted = module(**named)
    found = model(**named)
    assert type(found) is type(wanted)
    assert torch.allclose(found.last_hidden_state, wanted.last_hidden_state, atol=1e-5)


def test_tensors_alone_are_not_taken_apart_and_all_else_is() -> None:
    x, y = torch.randn(2, 3), torch.randn(3)
    module = Sum().eval()
    model = tw.compile(module, args=(x, y))
    want = module(x, y)
    assert torch.equal(model(x, y), want)
    np.testing.assert_array_equal(model(x.numpy(), y.numpy()), want.numpy())
    negated = torch.complex(x, -x).conj().imag  # a view whose sign is a bit of the tensor
    assert negated.is_neg()
    assert torch.equal(model(negated, y), module(negated, y))
    for wrong in ((x,), (x, y, y), ([x], y), (x, (y, y))):
        with pytest.raises(tw.InputError):
            model(*wrong)


class Sum(nn.Module):
    def forward(self, x, y):
        return x * 2 + y
