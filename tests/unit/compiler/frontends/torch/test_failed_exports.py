"""Where a failed export was raised: in the module, not in torch or here; what is told of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from fakes.torch_programs import module_of
from tilewright.compiler.frontends.torch import failed_exports

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch


@pytest.mark.parametrize(
    ("folder", "place"),
    [("torch", ""), ("torchvision", "model.py:1"), ("mine", "model.py:1")],
)
def test_packages_whose_names_begin_like_torch_are_the_modules_own(
    folder: str, place: str
) -> None:
    file = Path(torch.__file__).parents[1] / folder / "model.py"
    with pytest.raises(ZeroDivisionError) as caught:
        exec(compile("1 / 0", str(file), "exec"), {})
    # This test's own line is the module's, too.
    found = failed_exports.place_of(caught.value)
    assert found == place or (not place and found.startswith(Path(__file__).name))


def test_what_torch_refuses_inside_of_a_transform_may_go_with_sizes_of_the_example() -> (
    None
):
    with pytest.raises(RuntimeError, match="random") as caught:
        torch.func.vmap(torch.rand_like)(torch.ones(2, 3))
    told = failed_exports.hint(caught.value, has_open_sizes=True)
    assert told == failed_exports.NO_TRANSFORM
    assert failed_exports.hint(caught.value, has_open_sizes=False) is None


class Bounded(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.low = torch.nn.Parameter(torch.tensor(-1.0))

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.hardtanh(x, self.low.item(), 1.0)


def repeated(x: Any, n: Any) -> Any:
    for _ in range(n.item()):
        x = x + 1
    return x


def misfitting(x: Any) -> Any:
    mask = x.new_ones(2, 7)
    return torch.nn.functional.scaled_dot_product_attention(x, x, x, mask)


@pytest.mark.filterwarnings("ignore")  # torch's own about its internals
def test_attempts_that_fail_print_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for model, args, words in (
        (Bounded().eval(), (torch.ones(3),), "data-dependent"),
        (module_of(repeated), (torch.ones(3), torch.tensor(2)), "data-dependent"),
        (module_of(misfitting), (torch.ones(1, 2, 4, 8),), "at test_failed_exports"),
    ):
        with pytest.raises(tw.ModelError, match=words):
            tw.compile(model, args=args)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]
