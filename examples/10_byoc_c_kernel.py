"""Hand a part of a model to a kernel written in C: compiled on the spot, and linked into what is exported.

python examples/10_byoc_c_kernel.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright import byoc
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

# x / (1 + exp(-beta * x)): a packed function gets the tensors x and y, and fills y.
SOURCE = """
#include <dlpack/dlpack.h>
#include <math.h>
#include <tvm/ffi/c_api.h>

static const DLTensor* tensor(const TVMFFIAny* value) {
  if (value->type_index == kTVMFFIDLTensorPtr) return value->v_ptr;
  return (const DLTensor*)((const char*)value->v_obj + sizeof(TVMFFIObject));
}

__attribute__((visibility("default")))
int __tvm_ffi_NAME(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {
  (void)self, (void)count, (void)result;
  const DLTensor *x = tensor(&args[0]), *y = tensor(&args[1]);
  const float* from = x->data;
  float* to = y->data;
  int64_t size = 1;
  for (int32_t axis = 0; axis < x->ndim; ++axis) size *= x->shape[axis];
  for (int64_t i = 0; i < size; ++i) to[i] = from[i] / (1.0f + expf(-BETAf * from[i]));
  return 0;
}
"""

x = byoc.wildcard()
beta = byoc.is_const()
scaled = byoc.is_op("mul")(x, beta)
swish = byoc.is_op("mul")(x, byoc.is_op("sigmoid")(scaled)).has_dtype("f32")


def is_one_number(match: byoc.Match) -> bool:
    """Whether beta is one element: the kernel knows no other."""
    array = byoc.constant_of(match[beta])
    return array is not None and array.size == 1


@byoc.register_codegen("c_swish", patterns=[("swish", swish, is_one_number)])
def generate(graph: byoc.Graph, name: str, options: Mapping[str, object]) -> byoc.Module:
    """The module of a subgraph."""
    (number,) = (a for a in map(byoc.constant_of, graph.values()) if a is not None)
    text = SOURCE.replace("NAME", name).replace("BETA", f"{number.item():.9e}")
    return byoc.CSourceModule(text, [name], [f"-O{options.get('level', 2)}"])


def network() -> byoc.Graph:
    """swish(x @ w, beta=1.5) @ v over any number of rows."""
    random, b = np.random.default_rng(0), GraphBuilder()
    value = b.input("x", TensorType(f32, (symbol("rows", 1), 32)))
    hidden = b.matmul(value, b.constant(random.standard_normal((32, 48), np.float32)))
    gate = b.sigmoid(b.mul(hidden, b.constant(np.float32(1.5))))
    last = b.constant(random.standard_normal((48, 8), np.float32))
    b.output("y", b.matmul(b.mul(hidden, gate), last))
    return b.graph


def main() -> None:
    """Every engine, from memory and from files."""
    model = tw.compile(network(), byoc={"c_swish": {"level": 3}})
    steps = model.compiled.parts[0].plan.steps
    print("steps:", ", ".join(f"{step.kind} {step.target}" for step in steps))
    rows = np.random.default_rng(1).random((5, 32), np.float32)
    expected = np.asarray(tw.compile(network())(rows))

    def same(y: object) -> bool:
        return np.allclose(np.asarray(y), expected, rtol=1e-4, atol=1e-5)

    print("the same numbers:", same(model(rows)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.vmfb")
        model.save(path)
        for engine in ("plan", "vm"):
            print(
                f"from a file, engine {engine}:", same(tw.load(path, engine=engine)(rows))
            )
        built = model.build()
        net = tw.graph_executor.GraphModule(built["default"](tw.cpu(0)))
        net.run(x=rows)
        print("graph executor:", same(np.from_dlpack(net.get_output(0))))
        built.export_library(Path(folder, "model.so"))
        library = tw.runtime.load_module(Path(folder, "model.so"))
        print("exported library:", same(np.from_dlpack(library["main"](rows))))


if __name__ == "__main__":
    main()
