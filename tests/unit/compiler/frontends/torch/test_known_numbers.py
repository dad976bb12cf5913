"""Numbers that modules keep as buffers, seen by exports, by threads beside them, and after exports that fail."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.torch.export import Captured, export
from tilewright.compiler.frontends.torch.known_numbers import known_numbers

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
nn = torch.nn


class Strided(nn.Module):
    """Takes every n-th element, n being a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("step", torch.tensor(2), persistent=False)

    def forward(self, x: Any) -> Any:
        return x[:: int(self.step)]


class Registered(Strided):
    """Its subclasses say what they are called."""

    def __init_subclass__(cls, *, label: str) -> None:
        super().__init_subclass__()
        cls.label = label

    def forward(self, x: Any) -> Any:
        return x + self.step


class Abstract(nn.Module):
    """Has a number without an element, which it does not read."""

    def __init__(self) -> None:
        super().__init__()
        empty = torch.empty((), dtype=torch.int64, device="meta")
        self.register_buffer("step", empty, persistent=False)

    def forward(self, x: Any) -> Any:
        return x + 1


class Asks(Strided):
    """Fails, for another reason where its number is not known."""

    reads = True

    def forward(self, _x: Any) -> Any:
        if self.reads:
            try:
                int(self.step)
            except Exception as error:
                raise ValueError("the last reason") from error
        raise ValueError("the first reason")


class _Counter:
    """Counts calls outside of the module, whose attributes stay what they are."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, *_: Any) -> None:
        self.count += 1


@pytest.mark.parametrize("kind", [Registered, Abstract])
def test_where_numbers_cannot_be_known_a_module_is_exported_without(kind: Any) -> None:
    module = kind().eval()
    exported = export(Captured(module, (torch.ones(3),)))
    assert exported.graph is not None
    assert type(module) is kind


def test_where_both_ways_fail_the_first_reason_is_told() -> None:
    module = Asks().eval()
    with pytest.raises(ModelError, match="the first reason"):
        export(Captured(module, (torch.ones(3),)))


def test_an_export_that_read_no_number_is_not_tried_again() -> None:
    counts: list[int] = []
    for reads in (True, False):
        module, seen = Asks().eval(), _Counter()
        module.reads = reads
        module.register_forward_pre_hook(seen)
        with pytest.raises(ModelError):
            export(Captured(module, (torch.ones(3),)))
        counts.append(seen.count)
    assert counts[0] == 2 * counts[1]


def test_a_thread_that_serves_the_module_sees_its_own_buffers() -> None:
    module, x = Strided().eval(), torch.arange(6.0)
    step = module.step
    with known_numbers(module), ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: module.step).result() is step
        assert other.submit(lambda: dict(module.named_buffers())["step"]).result() is step
        other.submit(setattr, module, "step", torch.tensor(3)).result()
        assert torch.equal(other.submit(module, x).result(), x[::3])
    assert int(module.step) == 3
    assert type(module) is Strided


def test_exports_of_one_module_in_two_threads_leave_it_as_it_was() -> None:
    module, entered = Strided().eval(), threading.Event()

    def second() -> None:
        entered.set()
        with known_numbers(module):
            assert type(module.step) is torch.Tensor

    with ThreadPoolExecutor(1) as other:
        with known_numbers(module):
            running = other.submit(second)
            entered.wait()
        running.result()
    assert type(module) is Strided
    assert set(dict(module.named_buffers())) == {"step"}


def test_a_write_to_a_known_number_is_told() -> None:
    module = Strided().eval()
    with known_numbers(module) as known:
        assert not known.were_read()
        number = module.step
        assert known.were_read()
        assert not known.were_written()
        number += 1
        assert known.were_written()
    with known_numbers(module), pytest.raises(AttributeError, match="step"):
        module.step = torch.tensor(5)
    assert int(module.step) == 2
