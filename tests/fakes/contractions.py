"""Nodes and kernels of `contract` for tests: its attributes by the shapes of operands, and as graph text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node
from tilewright.compiler.transforms import contract_forms
from tilewright.compiler.transforms.contract_forms import Window

Form = Callable[[Sequence[Sequence[Dim]]], Mapping[str, object]]
"""Shapes of operands -> attributes."""


def product(columns: Dim, **others: object) -> Form:
    """A matrix product whose right operand lies in panels."""
    return lambda shapes: contract_forms.product_in_panels(*shapes, columns, **others)


def convolution(
    columns: Dim, *, strides: tuple[int, ...] = (), groups: int = 1, **others: object
) -> Form:
    """A convolution with filters in panels."""
    window = Window(strides)
    return lambda shapes: contract_forms.convolution_in_panels(
        *shapes, columns, window, groups=groups, **others
    )


def depthwise(*, strides: tuple[int, ...] = ()) -> Form:
    """A convolution of each channel alone."""
    return lambda shapes: contract_forms.depthwise_convolution(*shapes, Window(strides))


def groups_side_by_side(*, strides: tuple[int, ...] = ()) -> Form:
    """A convolution with the filters of all groups side by side, [kernel…, C/G, G, F/G]."""
    return lambda shapes: contract_forms.grouped_convolution(*shapes, Window(strides))


def planar(places: Dim, *, steps: tuple[int, ...], first: int = 0) -> Form:
    """A convolution of images that are laid out on one axis."""
    return lambda shapes: contract_forms.convolution_along_line(
        *shapes, places, steps=steps, first=first
    )


def product_text(left: str, right: str, shape: str, panel: int, more: str = "") -> str:
    """A product in panels of some columns, [.., M, K] by [.., P, K, panel], as a node of graph text."""
    batch = (
        [f"b{axis}" for axis in range(shape.count(","))][:-1]
        if shape.count(",") > 1
        else []
    )
    maps = {
        "axes": ", ".join([*batch, "m", "p", "l"]),
        "sums": "k",
        "left": ", ".join([*batch, "m", "k"]),
        "right": ", ".join([*batch, "p", "k", "l"]),
        "result": ", ".join([*batch, "m", f"l + {panel}*p"]),
    }
    words = "".join(f'{name} = "{text}", ' for name, text in maps.items())
    return f"contract({left}, {right}) {{{words}shape = [{shape}]{more}}}"


def form_of(node: Node) -> str:
    """The op of a node, and of a contraction what it is in the words of models."""
    return f"contract:{node.title}" if node.op == "contract" else node.op
