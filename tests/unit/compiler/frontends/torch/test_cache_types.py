"""Containers that torch does not know by itself: how often a module is exported for them."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.torch.export import Captured, export

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


class Keeping(torch.nn.Module):
    """Returns what torch cannot take apart by itself."""

    def __init__(self, cache: Any) -> None:
        super().__init__()
        self.cache = cache

    def forward(self, x: Any) -> Any:
        return x + 1, self.cache(x * 2)


class Asking(Keeping):
    """Cannot be exported, whatever torch knows."""

    def forward(self, x: Any) -> Any:
        return (x + 1 if x.sum() > 0 else x), self.cache(x * 2)


@pytest.fixture
def cache(monkeypatch):
    """A container that only a library can tell torch of; torch forgets no type, so each test has its own."""
    tree = torch.utils._pytree

    class Cache:
        def __init__(self, kept: Any) -> None:
            self.kept = kept

    def register(model: Any) -> None:
        if Cache not in tree.SUPPORTED_NODES:
            tree.register_pytree_node(
                Cache, lambda cache: ([cache.kept], None), lambda kept, _: Cache(*kept)
            )

    library: Any = types.ModuleType("transformers.modeling_utils")
    library.PreTrainedModel = torch.nn.Module
    exporter: Any = types.ModuleType("transformers.exporters.exporter_dynamo")
    exporter.register_cache_pytrees_for_model = register
    for module in (library, exporter):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return Cache


@pytest.fixture
def attempts(monkeypatch):
    """Of each export whether it was by dynamo."""
    original, found = torch.export.export, []

    def noted(*args: Any, **kwargs: Any) -> Any:
        found.append(kwargs["strict"])
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.export, "export", noted)
    return found


@pytest.mark.parametrize("has_open_sizes", [False, True])
def test_a_cache_that_torch_does_not_know_takes_one_export(cache, attempts, has_open_sizes):
    x = torch.ones(5, 3)
    sizes = ({0: torch.export.Dim.AUTO},) if has_open_sizes else None
    export(Captured(Keeping(cache).eval(), (x,), dynamic_shapes=sizes))
    assert attempts == [False]


def test_what_cannot_be_exported_for_fixed_sizes_is_tried_twice(cache, attempts):
    with pytest.raises(ModelError, match="torch cannot export it"):
        export(Captured(Asking(cache).eval(), (torch.ones(5, 3),)))
    assert len(attempts) == 2  # the other is a function of its tensors
