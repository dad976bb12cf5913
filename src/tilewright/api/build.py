"""`build`: a model compiled to plan, kernels and weights, as users of TVM know it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, Protocol, cast, overload

from tilewright.api.factory import Factory
from tilewright.api.model import Model
from tilewright.api.model import compile as compile_model
from tilewright.base.errors import UserError
from tilewright.base.target import Target

Options = ParamSpec("Options")
_TRIPLE = "-mtriple="


class _Build(Protocol[Options]):
    """What another verb takes, and what TVM's `build` takes in its order."""

    @overload
    def __call__(self, *arguments: Options.args, **options: Options.kwargs) -> Factory: ...
    @overload
    def __call__(
        self,
        model: object,
        target: str | Target | None,
        params: Mapping[str, object] | None = None,
        **options: Any,
    ) -> Factory: ...


def _with_options_of(
    verb: Callable[Options, object],
) -> Callable[[Callable[..., Factory]], _Build[Options]]:
    """Say that a function takes what another takes, to type checkers and to `help`."""

    def said(function: Callable[..., Factory]) -> _Build[Options]:
        own = inspect.signature(function, eval_str=False).parameters.values()
        first = [each for each in own if each.kind is not each.VAR_KEYWORD]
        names = {each.name for each in first}
        taken = inspect.signature(verb).parameters.values()
        others = [each for each in taken if each.name not in names]
        vars(function)["__signature__"] = inspect.Signature(
            [*first, *others], return_annotation="Factory"
        )
        return cast("_Build[Options]", function)

    return said


@_with_options_of(compile_model)
def build(
    model: object,
    target: str | Target | None = None,
    params: Mapping[str, object] | None = None,
    **options: Any,
) -> Factory:
    """Compile a model; its plan, kernels and weights, apart and as a factory of executors.

    Args:
        model: as for `compile`.
        target: as for `compile`; also TVM's `"llvm"` (this machine), `"llvm -mcpu=skylake"`, `"llvm -mtriple=aarch64-linux-gnu"`.
        params: nothing: a model has its weights inside. Here because TVM's `build(mod, target, params=params)` has it.
        options: those of `compile`.

    Returns: a `Factory`, which also unpacks: `graph_json, lib, params = tw.build("net.onnx")`.
    Raises: as `compile`; UserError for weights in `params`.
    """
    if params:
        raise UserError(
            f"got {len(params)} weights beside the model, which has its own inside",
            location="params",
            hint="leave params out, and put the weights into the model",
        )
    compile_any = cast("Callable[..., Model]", compile_model)
    return compile_any(model, target=_in_our_words(target), **options).build()


def _in_our_words(target: str | Target | None) -> str | Target | None:
    """A target as TVM writes those of processors (`llvm -mcpu=skylake`), or as it is."""
    words = target.split() if isinstance(target, str) else []
    if words[:1] != ["llvm"]:
        return target
    triples = [word for word in words if word.startswith(_TRIPLE)]
    others = [word for word in words[1:] if word not in triples]
    if not triples and not others:
        return "host"
    arch = Target.host().arch
    if triples:
        arch = triples[-1].removeprefix(_TRIPLE).partition("-")[0]
    return " ".join((arch, *others))
