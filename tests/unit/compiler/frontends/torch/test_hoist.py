"""Constants of bodies that several operators run, against eager mode."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
nn = torch.nn


@torch.compiler.nested_compile_region
def scaled(x: Any) -> Any:
    return x * torch.tensor(0.5) + torch.tensor(1.0)


class Regions(nn.Module):
    """One body, three calls."""

    def forward(self, x: Any) -> Any:
        return scaled(scaled(scaled(x)))


class Branches(nn.Module):
    """Two operators, each with two branches; three of the branches have constants."""

    def forward(self, x: Any) -> Any:
        y = torch.cond(
            x.sum() > 0, lambda x: x * torch.tensor(2.0), lambda x: x.sin(), (x,)
        )
        return torch.cond(
            y.mean() > 1,
            lambda x: x * torch.tensor(2.0),
            lambda x: x + torch.tensor(7.0),
            (y,),
        )


class Nested(nn.Module):
    """A branch that another graph runs, too."""

    def forward(self, x: Any) -> Any:
        def inner(x: Any) -> Any:
            return torch.cond(
                x.mean() > 1, lambda x: x * torch.tensor(2.0), lambda x: x.cos(), (x,)
            )

        y = torch.cond(
            x.sum() > 0, lambda x: x * torch.tensor(2.0), lambda x: x.sin(), (x,)
        )
        return torch.cond(y.mean() > 0.5, inner, lambda x: x - torch.tensor(3.0), (y,))


def same(model: Any, module: Any) -> None:
    for x in (torch.ones(3, 4), -torch.ones(3, 4) * 9, torch.ones(3, 4) * 0.1):
        torch.testing.assert_close(model(x), module(x))


def test_a_body_that_several_operators_run_is_given_its_constants_by_each() -> None:
    module = Regions().eval()
    same(tw.compile(torch.export.export(module, (torch.ones(3, 4),), strict=True)), module)


def test_branches_that_are_shared_with_different_partners_have_all_constants() -> None:
    module = Branches().eval()
    exported = torch.export.export(module, (torch.ones(3, 4),))
    exported.graph_module.true_graph_1 = exported.graph_module.true_graph_0
    same(tw.compile(exported), module)


def test_a_branch_that_graphs_inside_of_others_share_has_its_constants() -> None:
    module = Nested().eval()
    exported = torch.export.export(module, (torch.ones(3, 4),))
    outer = exported.graph_module
    outer.true_graph_1.true_graph_0 = outer.true_graph_0
    same(tw.compile(exported), module)
