"""Distributions whose parameters and samples are checked by every call, while a module is traced.

Torch checks them by a branch on data, which ends an export.  Here the call fails for which a check does not hold, as in
eager mode; what says of shapes alone is asked as torch asks it.  Called by `export`.

Source: `torch.distributions.Distribution`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing

# Torch's distributions and tensors have no types that we see.
Held = Any


@contextlib.contextmanager
def checked_distributions() -> Generator[None]:
    """While this thread traces in this context, distributions are checked by calls.

    Contexts of several threads may overlap; for other threads distributions are what they were.
    """
    with _ARGUMENTS.used(), _SAMPLES.used():
        yield


def _kind() -> Any:
    return border.load("torch.distributions").Distribution


def _arguments(original: Callable[..., None], tracing: Tracing) -> Callable[..., None]:
    @functools.wraps(original)
    def begin(
        made: Held, batch_shape: Held = (), event_shape: Held = (), validate_args: bool | None = None
    ) -> None:  # fmt: skip
        size = border.load().Size
        shapes = size(batch_shape), size(event_shape)
        if not tracing.depth:
            original(made, *shapes, validate_args=validate_args)
            return
        wanted = made._validate_args if validate_args is None else validate_args
        original(made, *shapes, validate_args=False)
        made._validate_args = wanted
        if wanted:
            _check_arguments(made)

    return begin


def _check_arguments(made: Held) -> None:
    module = border.load("torch.distributions")
    lazy = border.load("torch.distributions.utils").lazy_property
    try:
        expected = made.arg_constraints
    except NotImplementedError:
        return
    for name, constraint in expected.items():
        is_late = name not in vars(made) and isinstance(getattr(type(made), name), lazy)
        is_asked = not module.constraints.is_dependent(constraint)
        if is_asked and not is_late and not _needs_factors(constraint):
            held = constraint.check(getattr(made, name))
            _expect(held, f"parameter {name} of {type(made).__name__}, {constraint}")


def _needs_factors(constraint: Held) -> bool:
    """Whether it asks matrices for their factors, which are not a number where there are none."""
    kinds = border.load("torch.distributions.constraints")
    while isinstance(constraint, kinds.independent):
        constraint = constraint.base_constraint
    return isinstance(constraint, type(kinds.symmetric))


def _samples(original: Callable[..., None], tracing: Tracing) -> Callable[..., None]:
    @functools.wraps(original)
    def check(made: Held, value: Held) -> None:
        if not tracing.depth:
            original(made, value)
            return
        try:
            support = made.support
        except NotImplementedError:
            return
        if not _fits(value, made):
            with _EVERYWHERE.used():
                original(made, value)
        _expect(support.check(value), f"a sample of {type(made).__name__}, {support}")

    return check


def _fits(value: Held, made: Held) -> bool:
    """Whether a sample has the very sizes of a distribution: torch asks first whether they are 1, which is a branch."""
    if not border.is_instance(value, "Tensor"):
        return False
    event, expected = made._event_shape, made._batch_shape + made._event_shape
    pairs = zip(reversed(value.shape), reversed(expected), strict=False)
    return value.dim() >= len(event) and all(_is_same(*pair) for pair in pairs)


def _is_same(size: Held, other: Held) -> bool:
    """Whether two sizes are one, without asking any."""
    if isinstance(size, int) or isinstance(other, int):
        return isinstance(size, int) and isinstance(other, int) and size == other
    return bool(size.node.expr == other.node.expr)


def _everywhere(original: Callable[..., Any], tracing: Tracing) -> Callable[..., Any]:
    @functools.wraps(original)
    def is_all_true(valid: Held) -> Held:
        return True if tracing.depth else original(valid)

    return is_all_true


def _expect(valid: Held, words: str) -> None:
    """Have a call fail for which it does not hold everywhere; what is expected in words."""
    border.load().ops.aten._assert_async.msg(valid.all(), words)


_ARGUMENTS: Final = Substitute(_kind, "__init__", _arguments)
_SAMPLES: Final = Substitute(_kind, "_validate_sample", _samples)
_EVERYWHERE: Final = Substitute(border.load, "_is_all_true", _everywhere)
"""What only asks shapes is left, where it asks data, too."""
