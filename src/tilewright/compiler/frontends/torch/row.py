"""The form of a row: which function imports the overloads of an operator.

Rows live in the family files, `table` collects them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call

Result = Tensor | Sequence[Tensor | None]
Build = Callable[[Call], Result]


@final
@dataclass(frozen=True, slots=True)
class Row:
    """Overloads that one function imports.

    Attributes:
        names: of the overloads, with the name of their library.
        build: makes the results.
        ignores: arguments that do not change the result.
    """

    names: tuple[str, ...]
    build: Build
    ignores: tuple[str, ...] = ()


def row(names: str, build: Build, *, ignores: Sequence[str] = ()) -> Row:
    """A row of ATen, spelled short: `add.Tensor add.Scalar`; a name without an overload is the default one."""
    return Row(tuple(map(_full, names.split())), build, tuple(ignores))


def _full(name: str) -> str:
    library, _, rest = name.rpartition("::")
    overload = rest if "." in rest else f"{rest}.default"
    return f"{library or 'aten'}.{overload}"
