"""`build`: a model compiled to plan, kernels and weights, as users of TVM know it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ParamSpec, cast

from tilewright.api.factory import Factory
from tilewright.api.model import Model
from tilewright.api.model import compile as compile_model

Options = ParamSpec("Options")


def _with_options_of(
    verb: Callable[Options, object],
) -> Callable[[Callable[..., Factory]], Callable[Options, Factory]]:
    """Say that a function takes what another takes, to type checkers and to `help`."""
    signature = inspect.signature(verb).replace(return_annotation="Factory")

    def said(function: Callable[..., Factory]) -> Callable[Options, Factory]:
        vars(function)["__signature__"] = signature
        return cast("Callable[Options, Factory]", function)

    return said


@_with_options_of(compile_model)
def build(*arguments: object, **options: object) -> Factory:
    """Compile a model; its plan, kernels and weights, apart and as a factory of executors.

    Args:
        arguments: the model, as for `compile`.
        options: those of `compile`.

    Returns: a `Factory`, which also unpacks: `graph_json, lib, params = tw.build("net.onnx")`.
    Raises: as `compile`.
    """
    compile_any = cast("Callable[..., Model]", compile_model)
    return compile_any(*arguments, **options).build()
