"""More modules that `tvm_models.py` compiles: attention caches, and tokens that are drawn, as language models have them."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import IRModule
from tvm.script import relax as R  # noqa: N812 (TVM's own spelling)
from tvm_modules import TYPES


def _called(builder: Any, name: str, *args: Any, result: Any = None) -> Any:
    """A call of a registered function that may do more than give a result."""
    types = [R.Object() if result is None else result]
    call = relax.Call(relax.ExternFunc(f"vm.builtin.{name}"), list(args), **{TYPES: types})
    return builder.emit(call)


def caches() -> IRModule:
    """Keys and values of attention, kept between steps."""
    builder = relax.BlockBuilder()
    shape = relax.ShapeExpr([2, 3])
    cache = "attention_kv_cache_"

    def made(x: Any) -> Any:
        count = relax.prim_value(0)
        return _called(
            builder,
            f"{cache}create",
            relax.const(np.zeros((2, 3), "float32")),
            shape,
            count,
        )

    x = relax.Var("x", R.Tensor((1, 3), "float32"))
    y = relax.Var("y", R.Tensor((4, 3), "float32"))
    kept = R.Tensor((5, 3), "float32")
    with builder.function("main", [x, y], pure=False):
        both = _called(builder, f"{cache}append", made(x), x)
        both = _called(builder, f"{cache}append", both, y)
        seen = _called(builder, f"{cache}view", both, relax.ShapeExpr([5, 3]), result=kept)
        builder.emit_func_output(builder.emit(relax.op.add(seen, seen)))
    x = relax.Var("x", R.Tensor((5, 3), "float32"))
    with builder.function("changed", [x], pure=False):
        whole = _called(builder, f"{cache}append", made(x), x)
        whole = _called(
            builder, f"{cache}update", whole, builder.emit(relax.op.negative(x))
        )
        builder.emit_func_output(_called(builder, f"{cache}view", whole, result=kept))
    x = relax.Var("x", R.Tensor((3, 3), "float32"))
    y = relax.Var("y", R.Tensor((2, 3), "float32"))
    kept = R.Tensor((4, 3), "float32")
    for name, override, bounds in (
        ("window", "window_override", (4,)),
        ("sinks", "window_override_with_sinks", (4, 1)),
    ):
        with builder.function(name, [x, y], pure=False):
            last = made(x)
            for value in (x, y, x):
                numbers = [relax.prim_value(one) for one in bounds]
                last = _called(builder, cache + override, last, value, *numbers)
            builder.emit_func_output(_called(builder, f"{cache}view", last, result=kept))
    x = relax.Var("x", R.Tensor((3, 3), "float32"))
    with builder.function("shortened", [x], pure=False):
        first, second = (_called(builder, f"{cache}append", made(x), x) for _ in range(2))
        both = builder.emit(relax.Tuple([first, second]))
        _called(builder, f"{cache}array_popn", both, relax.prim_value(1))
        seen = _called(builder, f"{cache}view", first, result=R.Tensor((2, 3), "float32"))
        cleared = builder.emit(relax.Tuple([second]))
        _called(builder, f"{cache}array_clear", cleared)
        again = _called(builder, f"{cache}append", second, x)
        last = _called(builder, f"{cache}view", again, result=R.Tensor((3, 3), "float32"))
        builder.emit_func_output(builder.emit(relax.Tuple([seen, last])))
    return builder.finalize()


def sampling() -> IRModule:
    """Tokens drawn from logits and probabilities; penalties."""
    builder = relax.BlockBuilder()
    row, ids = R.Tensor((1, 64), "float32"), R.Tensor((5,), "int32")
    number = R.Prim("float64")

    def parameters(*names: str) -> list[Any]:
        return [relax.Var(name, number) for name in names]

    def function(name: str, builtin: str, given: list[Any], result: Any = None) -> None:
        with builder.function(name, given, pure=False):
            found = _called(builder, builtin, *given, result=result)
            builder.emit_func_output(given[0] if result is None else found)

    index = R.Object()
    x = relax.Var("x", row)
    function("logits", "sample_top_p_from_logits", [x, *parameters("t", "p", "u")], index)
    x = relax.Var("x", row)
    function("prob", "sample_top_p_from_prob", [x, *parameters("p", "u")], index)
    x = relax.Var("x", R.Tensor((3, 64), "float32"))
    u = relax.Var("u", R.Tensor((3, 1), "float32"))
    function("multinomial", "multinomial_from_uniform", [x, u], R.Tensor((3, 1), "int64"))
    x, i = relax.Var("x", row), relax.Var("i", ids)
    function("repetition", "apply_repetition_penalty", [x, i, *parameters("p")])
    x, i, f = relax.Var("x", row), relax.Var("i", ids), relax.Var("f", ids)
    function(
        "presence", "apply_presence_and_frequency_penalty", [x, i, f, *parameters("p", "q")]
    )
    x = relax.Var("x", row)
    function("softmax", "apply_softmax_with_temperature", [x, *parameters("t")])
    return builder.finalize()
