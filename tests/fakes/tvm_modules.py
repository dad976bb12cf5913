"""The modules that `tvm_models.py` compiles: TVMScript, which looks like Python and is not."""

# What stands in these modules is TVM's language: its functions have no `self`, a name that is bound is a
# symbolic size, and a return takes a name.
# ruff: noqa: N805, RET504, F841

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax, te
from tvm.ir import IRModule
from tvm.script import ir as I  # noqa: N812 (TVM's own spelling)
from tvm.script import relax as R  # noqa: N812
from tvm.script import tirx as T  # noqa: N812

RNG = np.random.default_rng(7)
# 0.25 calls the types of results by an older name.
TYPES = "sinfo_args" if tvm.__version__.startswith("0.25") else "ty_args"


def f32(*shape: int) -> np.ndarray:
    """Numbers around zero."""
    return RNG.standard_normal(shape).astype(np.float32)


def packed(name: str, *args: Any, result: Any) -> Any:
    """A call of a registered function, pure."""
    return R.call_pure_packed(name, *args, **{TYPES: result})


# --- networks -----------------------------------------------------------------------------------


def mlp(batch: int | None) -> IRModule:
    """Two dense layers with their weights as constants; a batch of None is symbolic."""
    builder = relax.BlockBuilder()
    rows = tvm.tirx.Var("n", "int64") if batch is None else batch
    x = relax.Var("x", R.Tensor((rows, 16), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            hidden = builder.emit(relax.op.matmul(x, relax.const(f32(16, 64))))
            hidden = builder.emit(relax.op.add(hidden, relax.const(f32(64))))
            hidden = builder.emit(relax.op.nn.relu(hidden))
            out = builder.emit(relax.op.matmul(hidden, relax.const(f32(64, 10))))
            out = builder.emit_output(relax.op.nn.softmax(out))
        builder.emit_func_output(out)
    return builder.finalize()


def convolutions() -> IRModule:
    """Convolution, pooling, dense and softmax, as a classifier has them."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((2, 3, 17, 19), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(
                relax.op.nn.conv2d(
                    x, relax.const(f32(8, 3, 3, 3)), strides=(2, 2), padding=(1, 1)
                )
            )
            value = builder.emit(
                relax.op.add(value, relax.const(f32(8).reshape(1, 8, 1, 1)))
            )
            value = builder.emit(relax.op.nn.relu(value))
            value = builder.emit(
                relax.op.nn.max_pool2d(value, pool_size=(2, 2), strides=(2, 2))
            )
            value = builder.emit(
                relax.op.nn.conv2d(
                    value, relax.const(f32(8, 1, 3, 3)), groups=8, padding=(1, 1)
                )
            )
            value = builder.emit(relax.op.nn.adaptive_avg_pool2d(value, (1, 1)))
            value = builder.emit(relax.op.reshape(value, (2, 8)))
            value = builder.emit(relax.op.matmul(value, relax.const(f32(8, 5))))
            out = builder.emit_output(relax.op.nn.log_softmax(value))
        builder.emit_func_output(out)
    return builder.finalize()


def normalized() -> IRModule:
    """Layer norm with gelu, on a batch of any size."""

    @I.ir_module
    class Normalized:
        @R.function
        def main(
            x: R.Tensor(("n", 32), "float32"),
            scale: R.Tensor((32,), "float32"),
            shift: R.Tensor((32,), "float32"),
        ) -> R.Tensor(("n", 32), "float32"):
            with R.dataflow():
                y = R.nn.layer_norm(x, scale, shift, axes=[-1])
                z = R.nn.gelu(y)
                R.output(z)
            return z

    return Normalized


def attention() -> IRModule:
    """Attention of two heads over a sequence of any length."""

    @I.ir_module
    class Attention:
        @R.function
        def main(
            q: R.Tensor((1, "s", 2, 8), "float32"),
            k: R.Tensor((1, "t", 2, 8), "float32"),
            v: R.Tensor((1, "t", 2, 8), "float32"),
        ) -> R.Tensor((1, "s", 2, 8), "float32"):
            s, t = T.int64(), T.int64()
            with R.dataflow():
                a = R.permute_dims(q, [0, 2, 1, 3])
                b = R.permute_dims(k, [0, 2, 3, 1])
                c = R.permute_dims(v, [0, 2, 1, 3])
                scores = R.divide(R.matmul(a, b), R.const(2.8284271, "float32"))
                weights = R.nn.softmax(scores, axis=-1)
                out = R.permute_dims(R.matmul(weights, c), [0, 2, 1, 3])
                R.output(out)
            return out

    return Attention


def integers() -> IRModule:
    """Products of int8 summed in int32, shifts and divisions."""

    @I.ir_module
    class Integers:
        @R.function
        def main(x: R.Tensor((5, 12), "int8"), w: R.Tensor((12, 7), "int8")) -> R.Tensor(
            (5, 7), "int32"
        ):
            with R.dataflow():
                a = R.matmul(x, w, out_dtype="int32")
                b = R.floor_divide(a, R.const(3, "int32"))
                c = R.bitwise_and(
                    R.left_shift(b, R.const(2, "int32")), R.const(0x7FFF, "int32")
                )
                d = R.maximum(c, R.const(5, "int32"))
                R.output(d)
            return d

    return Integers


def casts() -> IRModule:
    """Half floats, bytes and truth values."""

    @I.ir_module
    class Casts:
        @R.function
        def main(x: R.Tensor((3, 5), "float16"), y: R.Tensor((3, 5), "uint8")) -> R.Tuple(
            R.Tensor((3, 5), "float16"), R.Tensor((3, 5), "bool"), R.Tensor((5,), "int64")
        ):
            with R.dataflow():
                a = R.astype(y, "float16")
                b = R.multiply(x, a)
                c = R.greater(R.astype(b, "float32"), R.const(0.5, "float32"))
                d = R.argmax(R.astype(b, "float32"), axis=0)
                e = R.astype(d, "int64")
                R.output(b, c, e)
            return (b, c, e)

    return Casts


def movement() -> IRModule:
    """What only moves data: slices, joins, takes, transposes."""

    @I.ir_module
    class Movement:
        @R.function
        def main(x: R.Tensor(("n", 6), "float32"), i: R.Tensor((4,), "int64")) -> R.Tensor(
            ("n * 2", 4), "float32"
        ):
            n = T.int64()
            with R.dataflow():
                a = R.concat([x, R.negative(x)], axis=0)
                b = R.take(a, i, axis=1)
                c = R.flip(b, axis=1)
                d = R.cumsum(c, axis=1)
                R.output(d)
            return d

    return Movement


# --- control flow and functions -----------------------------------------------------------------


def branch() -> IRModule:
    """One of two branches, as the data says."""

    @I.ir_module
    class Branch:
        @R.function
        def main(c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")) -> R.Tensor(
            ("n",), "float32"
        ):
            if c:
                y = R.add(x, x)
                z = R.multiply(y, x)
            else:
                z = R.negative(x)
            w = R.add(z, R.const(1.0, "float32"))
            return w

    return Branch


def loop() -> IRModule:
    """A while loop as TVM has them: a function that calls itself."""

    @I.ir_module
    class Loop:
        @R.function
        def step(i: R.Tensor((), "int32"), x: R.Tensor(("n",), "float32")) -> R.Tensor(
            ("n",), "float32"
        ):
            n = T.int64()
            more = R.less(i, R.const(10, "int32"))
            if more:
                j = R.add(i, R.const(1, "int32"))
                y = R.add(x, R.multiply(x, R.const(0.5, "float32")))
                out: R.Tensor((n,), "float32") = Loop.step(j, y)
            else:
                out: R.Tensor((n,), "float32") = x
            return out

        @R.function
        def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            y: R.Tensor((n,), "float32") = Loop.step(R.const(0, "int32"), x)
            return y

    return Loop


def calls() -> IRModule:
    """Functions that call functions, private ones and public ones."""

    @I.ir_module
    class Calls:
        @R.function(private=True)
        def twice(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            y = R.add(x, x)
            return y

        @R.function
        def four(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
            n = T.int64()
            y: R.Tensor((n,), "float32") = Calls.twice(x)
            z: R.Tensor((n,), "float32") = Calls.twice(y)
            return z

        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")) -> R.Tuple(
            R.Tensor(("n",), "float32"), R.Tensor(("m",), "float32")
        ):
            n, m = T.int64(), T.int64()
            a: R.Tensor((n,), "float32") = Calls.four(x)
            b: R.Tensor((m,), "float32") = Calls.twice(y)
            return (a, b)

    return Calls


def closures() -> IRModule:
    """A function made inside another, that keeps what it saw."""

    @I.ir_module
    class Closures:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor(
            (4,), "float32"
        ):
            @R.function
            def inner(z: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                w = R.subtract(z, x)
                return w

            a: R.Tensor((4,), "float32") = inner(y)
            b: R.Tensor((4,), "float32") = inner(a)
            return b

        @R.function
        def make(x: R.Tensor((4,), "float32")) -> R.Object:
            @R.function
            def kept(z: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                w = R.multiply(z, x)
                return w

            return kept

    return relax.transform.LambdaLift()(Closures)


def tuples() -> IRModule:
    """Tuples in and out, nested."""

    @I.ir_module
    class Tuples:
        @R.function
        def main(
            t: R.Tuple(
                R.Tensor(("n",), "float32"),
                R.Tuple(R.Tensor((3,), "int32"), R.Tensor(("n",), "float32")),
            ),
        ) -> R.Tuple(
            R.Tuple(R.Tensor(("n",), "float32"), R.Tensor((3,), "int32")),
            R.Tuple(),
            R.Tensor(("n",), "float32"),
        ):
            a = t[0]
            b = t[1]
            c = b[0]
            d = b[1]
            e = R.add(a, d)
            return ((e, c), R.tuple(), a)

    return Tuples


# --- shapes, numbers, strings -------------------------------------------------------------------


def shapes() -> IRModule:
    """Shapes as values: taken from tensors, computed, made from data, checked."""

    @I.ir_module
    class Shapes:
        @R.function
        def product(x: R.Tensor(("n", "m"), "float32")) -> R.Shape(["n * m", "n + 1"]):
            n, m = T.int64(), T.int64()
            return R.shape([n * m, n + 1])

        @R.function
        def main(x: R.Tensor(("n", "m"), "float32"), s: R.Shape(["m", "n"])) -> R.Tensor(
            ("m * n",), "float32"
        ):
            n, m = T.int64(), T.int64()
            y = R.reshape(x, R.shape([m, n]))
            z = R.add(y, y)
            w = R.reshape(z, R.shape([m * n]))
            return w

        @R.function
        def from_data(
            x: R.Tensor(("n",), "float32"), t: R.Tensor((2,), "int64")
        ) -> R.Tensor(ndim=2, dtype="float32"):
            s = R.tensor_to_shape(t)
            y = R.reshape(x, s)
            return y

        @R.function
        def cast(x: R.Tensor(dtype="float32")) -> R.Tensor(dtype="float32", ndim=2):
            k = T.int64()
            y = R.match_cast(x, R.Tensor((3, k), "float32"))
            z = R.exp(y)
            return z

        @R.function
        def any_shape(x: R.Tensor) -> R.Shape:
            s = R.shape_of(x)
            return s

    return Shapes


_NUMBERS = """
@I.ir_module
class Numbers:
    @R.function
    def main(ARG: SIZE, x: R.Tensor(("n",), "float32")) -> R.Tensor(("n * 2",), "float32"):
        n = T.int64()
        y = R.concat([x, x], axis=0)
        return y

    @R.function
    def fill(ARG: SIZE) -> R.Tensor(("n", 3), "float32"):
        n = T.int64()
        y = R.full(R.shape([n, 3]), R.const(2.5, "float32"), dtype="float32")
        return y

    @R.function
    def scaled(f: R.Prim("float64"), b: R.Prim("bool")) -> R.Object:
        y = R.call_pure_packed("tilewright.test.pair", f, b, TYPES=R.Object)
        return y

    @R.function
    def chosen(b: R.Prim("bool"), x: R.Tensor((3,), "float32")) -> R.Tensor((3,), "float32"):
        if b:
            y = R.add(x, x)
        else:
            y = R.negative(x)
        return y
"""


def numbers() -> IRModule:
    """Integers, floats and truth values as arguments."""
    text = _NUMBERS.replace("TYPES", TYPES)
    try:
        return tvm.script.from_source(
            text.replace("SIZE", 'R.Prim(value="n")').replace("ARG", "size")
        )
    except (Exception, SystemExit):  # 0.27 declares the size by the parameter itself
        text = text.replace("        n = T.int64()\n", "")
        return tvm.script.from_source(
            text.replace("SIZE", 'R.Prim("int64")').replace("ARG", "n")
        )


def strings() -> IRModule:
    """Texts, types and numbers as constants of the executable."""

    @I.ir_module
    class Strings:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), s: R.Object) -> R.Object:
            y = packed(
                "tilewright.test.describe", x, R.str("hello, world"), s, result=R.Object
            )
            return y

        @R.function
        def constants() -> R.Object:
            y = packed(
                "tilewright.test.join",
                R.prim_value(T.int64(-(2**40))),
                R.prim_value(T.float32(0.25)),
                R.dtype("float16"),
                R.shape([3, 4, 5]),
                result=R.Object,
            )
            return y

    return Strings


def large_constants() -> IRModule:
    """Constants of many types, some of them large."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((512,), "float32"))
    kinds = [
        np.float32,
        np.float64,
        np.float16,
        np.int64,
        np.int32,
        np.int16,
        np.int8,
        np.uint8,
        np.bool_,
    ]
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit(relax.op.matmul(x, relax.const(f32(512, 512))))
            for number, kind in enumerate(kinds):
                constant = relax.const((f32(512) * 5).astype(kind))
                cast = builder.emit(relax.op.astype(constant, "float32"))
                value = builder.emit(
                    relax.op.add(value, relax.op.multiply(cast, relax.const(0.5 + number)))
                )
            out = builder.emit_output(value)
        builder.emit_func_output(
            relax.Tuple([out, relax.const(f32(0, 3)), relax.const(np.int64(7))])
        )
    return builder.finalize()


# --- functions from elsewhere, schedules --------------------------------------------------------


def extern() -> IRModule:
    """A registered function fills a tensor that the module gives it."""

    @I.ir_module
    class Extern:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 8), "float32"):
            n = T.int64()
            with R.dataflow():
                a = R.add(x, x)
                b = R.call_dps_packed(
                    "tilewright.test.tile", (a,), R.Tensor((n, 8), "float32")
                )
                c = R.negative(b)
                R.output(c)
            return c

    return Extern


def several() -> IRModule:
    """Several functions of one library."""

    @I.ir_module
    class Several:
        @R.function
        def add(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")) -> R.Tensor(
            (3,), "float32"
        ):
            z = R.add(x, y)
            return z

        @R.function
        def sub(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")) -> R.Tensor(
            (3,), "float32"
        ):
            z = R.subtract(x, y)
            return z

        @R.function
        def same(x: R.Object) -> R.Object:
            return x

    return Several


def parallel() -> IRModule:
    """A kernel with a parallel loop and one with a buffer that is too large for the stack."""
    rows, columns = 64, 96

    def work(a: te.Tensor) -> te.Tensor:
        kept = te.compute((rows, columns), lambda i, j: a[i, j] * 2.0 + 1.0, name="kept")
        return te.compute(
            (rows, columns), lambda i, j: kept[i, columns - 1 - j], name="out"
        )

    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((rows, columns), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            value = builder.emit_te(work, x, primfunc_name_hint="turned")
            value = builder.emit_te(
                lambda a: te.compute(
                    (rows, columns), lambda i, j: te.exp(a[i, j]), name="out"
                ),
                value,
                primfunc_name_hint="risen",
            )
            out = builder.emit_output(value)
        builder.emit_func_output(out)
    module = builder.finalize()
    schedule = tvm.s_tir.Schedule(module)
    get = schedule.get_sblock if hasattr(schedule, "get_sblock") else schedule.get_block
    loop, _ = schedule.get_loops(get("out", func_name="risen"))
    schedule.parallel(loop)
    return schedule.mod


def in_place() -> IRModule:
    """A kernel that writes into its operand."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", R.Tensor((6,), "int32"))
    a = te.placeholder((6,), "int32", name="a")
    out = te.compute((6,), lambda i: a[i] + 3, name="out")
    kernel = te.create_prim_func([a, out]).with_attr("global_symbol", "add_three")
    with builder.function("main", [x]):
        name = builder.add_func(kernel, "add_three")
        copied = builder.emit(relax.op.call_tir(name, (x,), R.Tensor((6,), "int32")))
        builder.emit_func_output(copied)
    return builder.finalize()
