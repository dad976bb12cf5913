"""`tilewright.onnx_operators`: operators of ONNX domains of your own.

    from tilewright import onnx_operators

    onnx_operators.register_function(onnx.parser.parse_function('''
        <domain: "com.example", opset_import: ["": 19]>
        Twice (x) => (y) { y = Add(x, x) }'''))

    @onnx_operators.register_operator("com.example", "SoftCap")
    def soft_cap(call):
        e, x, cap = call.maker, call.tensor(0), call.float("cap", 30.0)
        limit = e.scalar(cap, x.dtype)
        return e.op("mul", e.op("tanh", e.op("div", x, limit)), limit)

From then on models with such nodes compile like any other, in this process.  The ops that `e.op` takes stand in
`docs/ops.md`; an operator that is none of them is declared as `docs/how-to/add-an-op.md` says.
"""

from __future__ import annotations

from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.extensions import (
    register_function,
    register_operator,
    unregister,
)

__all__ = ["Call", "register_function", "register_operator", "unregister"]
