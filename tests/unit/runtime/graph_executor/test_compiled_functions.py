"""Functions that TVM compiled run in a graph, in threads beside each other, over shared parameters."""

from __future__ import annotations

import lzma
import platform
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from fakes.graphs_of_tvm import GraphMaker
from tilewright.runtime.debug_executor import create as create_debug
from tilewright.runtime.graph_executor import GraphModule, create
from tilewright.runtime.native.shared_library import SharedLibrary
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.packed.functions import function_at

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "libraries"
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the library was compiled for linux on x86-64",
)
X = np.random.default_rng(0).standard_normal((2, 8), np.float32)
W = np.random.default_rng(1).standard_normal((8, 4), np.float32)


@pytest.fixture(scope="module")
def library() -> FunctionTable:
    """relu(x @ w), compiled by TVM 0.27; its functions, without the model that it carries for its VM."""
    data = lzma.decompress((GOLDEN / "tvm_0_27_mlp.so.xz").read_bytes())
    opened = SharedLibrary(memoryview(data))
    return FunctionTable(
        {
            name: function_at(opened.address(f"__tvm_ffi_{name}"), keep_alive=opened)
            for name in ("matmul", "relu")
        }
    )


def graph() -> bytes:
    made = GraphMaker()
    x, w = made.input("x", [2, 8]), made.input("p0", [8, 4])
    (product,) = made.call("matmul", [x, w], [[2, 4]], name="product")
    (out,) = made.call("relu", [product], [[2, 4]], name="out")
    return made.file([out, product])


def test_a_graph_of_compiled_functions_runs(library: FunctionTable) -> None:
    net = GraphModule(create(graph(), library))
    net.run(x=X, p0=W)
    assert np.allclose(net.get_output(1), X @ W, rtol=1e-6)
    assert np.array_equal(net.get_output(0), np.maximum(net.get_output(1), 0))


def test_compiled_functions_are_looked_at_one_by_one(library: FunctionTable) -> None:
    net = create_debug(graph(), library)
    net.set_input(x=X, p0=W)
    assert np.allclose(net.debug_get_output("product"), X @ W, rtol=1e-6)
    assert net.run_individual_node("out").mean > 0


@pytest.mark.slow
def test_what_a_compiled_function_refuses_names_the_node(library: FunctionTable) -> None:
    made = GraphMaker()
    x, w = made.input("x", [2, 9]), made.input("w", [8, 4])
    (y,) = made.call("matmul", [x, w], [[2, 4]], name="product")
    with pytest.raises(ValueError, match="matmul") as caught:
        GraphModule(create(made.file([y]), library)).run()
    assert any("'product'" in note for note in caught.value.__notes__)


def test_executors_share_parameters_in_threads(library: FunctionTable) -> None:
    first = GraphModule(create(graph(), library))
    first.set_input("p0", W)
    wrong: list[int] = []

    def work(number: int) -> None:
        net = GraphModule(create(graph(), library))
        net._executor.share_params(first._executor, ["p0"])
        for step in range(200):
            net.run(x=X + number + step)
            if not np.allclose(
                net.get_output(1), (X + number + step) @ W, rtol=1e-5, atol=1e-4
            ):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
