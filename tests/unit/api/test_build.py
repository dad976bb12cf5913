"""`build`: plan, kernels and weights of a model, apart and as a factory of executors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from fakes import small_models
from tilewright.api.factory import Factory
from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.formats.elf.objects import parse_object
from tilewright.formats.plan import from_json
from tilewright.runtime import FunctionTable
from tilewright.runtime.graph_executor import GraphModule, create
from tilewright.runtime.library.code_module import CodeModule


@pytest.fixture(scope="module")
def factory() -> Factory:
    return tw.build(small_models.mlp())


@pytest.fixture(scope="module")
def expected() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(1).standard_normal((5, 20), np.float32)
    return x, tw.compile(small_models.mlp())(x)


def test_a_factory_unpacks_into_graph_kernels_and_weights(factory: Factory) -> None:
    graph_json, lib, params = factory
    assert graph_json == factory.graph_json == factory["get_graph_json"]()
    assert {"nodes", "arg_nodes", "heads"} <= json.loads(graph_json).keys()
    assert lib is factory.lib
    assert params.keys() == factory.params.keys()


def test_its_executor_gives_the_bits_of_a_session(factory: Factory, expected) -> None:
    x, y = expected
    net = tw.graph_executor.GraphModule(factory["default"](tw.cpu(0)))
    net.set_input("x", x)
    net.run()
    np.testing.assert_array_equal(net.get_output(0), y)


def test_its_three_parts_make_an_executor_too(factory: Factory, expected) -> None:
    x, y = expected
    graph_json, lib, params = factory
    net = tw.graph_executor.GraphModule(
        tw.graph_executor.create(graph_json, lib, tw.cpu(0))
    )
    for name, value in params.items():
        net.set_input(name, value)
    net.run(x=x)
    np.testing.assert_array_equal(net.get_output(0), y)


def test_weights_come_as_views_and_as_tensors(factory: Factory) -> None:
    tensors = factory["get_graph_params"]()
    for name, array in factory.params.items():
        assert array.base is not None
        np.testing.assert_array_equal(np.from_dlpack(tensors[name]), array)


def test_kernels_are_functions_of_their_tensors(factory: Factory, expected) -> None:
    """Run node after node through packed functions: the bits are those of the model."""
    x, y = expected
    plan = factory.module.plan
    arrays = {
        index: np.zeros(entry.shape, entry.dtype.numpy)
        for index, entry in enumerate(plan.entries)
    }
    storages: dict[int, np.ndarray] = {}
    weights = iter(factory.params.values())
    for index, storage in enumerate(plan.storages):
        if storage.kind == "constant":
            storages[index] = np.array(next(weights)).reshape(-1).view(np.uint8)
        else:
            storages[index] = np.zeros(storage.size_bytes, np.uint8)
    for index, entry in enumerate(plan.entries):
        view = storages[entry.storage][entry.offset_bytes :][: arrays[index].nbytes]
        arrays[index] = view.view(entry.dtype.numpy).reshape(entry.shape)
    arrays[plan.inputs[0][1]][...] = x
    assert set(factory.lib.function_names()) == {step.target for step in plan.steps}
    for step in plan.steps:
        factory.lib[step.target](*(arrays[a] for a in step.arguments))
    np.testing.assert_array_equal(arrays[plan.outputs[0][1]], y)


def test_a_kernel_refuses_tensors_that_do_not_fit(factory: Factory) -> None:
    name = factory.lib.function_names()[0]
    with pytest.raises(InputError, match=rf"kernel '{name}': got 1 tensors, expected"):
        factory.lib[name](np.zeros(3, np.float32))


def test_every_level_can_be_looked_at(factory: Factory) -> None:
    assert factory.inspect_source("json") == factory.graph_json
    assert factory.inspect_source("graph").startswith("graph")
    assert factory.lib.inspect_source().count("define hidden i32 @tw_") == len(
        set(factory.lib.function_names())
    )
    assert ".globl\ttw_" in factory.lib.inspect_source("asm")
    assert "for " in factory.lib.inspect_source("kernel")
    assert "const tw_workgroup_state_t *workgroup) {" in factory.lib.inspect_source("c")
    with pytest.raises(InputError, match="kernels have no text 'x'"):
        factory.lib.inspect_source("x")
    with pytest.raises(InputError, match="a model has no text 'x'"):
        factory.inspect_source("x")


def test_the_model_is_a_function_of_the_factory_as_of_what_is_exported(
    factory: Factory, expected: tuple[np.ndarray, np.ndarray]
) -> None:
    x, y = expected
    np.testing.assert_array_equal(np.from_dlpack(factory["main"](x)), y)
    with pytest.raises(InputError, match="'x'"):
        factory["main"](x.astype(np.float64))


def test_a_function_that_there_is_not_is_said_with_those_there_are(
    factory: Factory,
) -> None:
    with pytest.raises(InputError, match="has no function 'defualt'") as caught:
        factory["defualt"]
    assert "get_graph_json" in str(caught.value)


@pytest.mark.slow
def test_one_module_of_two_levels_has_a_function_for_each() -> None:
    text = tw.build(
        small_models.mlp(), target="x86_64", levels=("v2", "v3")
    ).lib.inspect_source()
    assert '"target-cpu"="x86-64-v2"' in text
    assert '"target-cpu"="x86-64-v3"' in text


@pytest.mark.parametrize(
    ("words", "cpu"),
    [
        ("llvm -mcpu=skylake", "skylake"),
        ("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v2", "x86-64-v2"),
        ("x86_64 -mcpu=znver3", "znver3"),
    ],
)
def test_targets_may_be_written_as_tvm_writes_them(words: str, cpu: str) -> None:
    if words.startswith("llvm -mcpu") and tw.Target.host().arch != "x86_64":
        pytest.skip("a processor of x86-64")
    text = tw.build(small_models.mlp(), words).lib.inspect_source()
    assert f'"target-cpu"="{cpu}"' in text


def test_llvm_alone_is_this_machine(factory: Factory) -> None:
    assert tw.build(small_models.mlp(), "llvm", None).graph_json == factory.graph_json


def test_weights_beside_a_model_are_refused() -> None:
    weights = {"w": np.zeros(3, np.float32)}
    with pytest.raises(UserError, match="got 1 weights beside the model"):
        tw.build(small_models.mlp(), "llvm", params=weights)


def test_an_archive_does_not_lose_a_module_that_was_imported(tmp_path: Path) -> None:
    factory = tw.build(small_models.mlp())
    factory.export_library(tmp_path / "net.vmfb")
    factory.module.import_module(FunctionTable({"mine": lambda: 1}))
    with pytest.raises(UserError, match="not a module of kind") as caught:
        factory.export_library(tmp_path / "other.vmfb")
    assert "export a library" in str(caught.value)
    assert not (tmp_path / "other.vmfb").exists()


def test_kernels_are_written_for_a_linker_and_as_text(
    factory: Factory, tmp_path: Path
) -> None:
    for fmt in ("o", "ll", "s"):
        factory.lib.write_to_file(tmp_path / f"net.{fmt}")
    found = parse_object((tmp_path / "net.o").read_bytes())
    sections = {section.name for section in found.sections}
    assert any(name.startswith(".text") for name in sections)
    declared = factory.lib.inspect_source("ll").count("define hidden i32 @tw_")
    assert sum(one.name.startswith("tw_") for one in found.symbols) == declared
    assert (tmp_path / "net.ll").read_text() == factory.lib.inspect_source("ll")
    assert (tmp_path / "net.s").read_text() == factory.lib.inspect_source("s")
    with pytest.raises(InputError, match="kernels are not written as 'cu'"):
        factory.lib.write_to_file(tmp_path / "net.cu")


def depthwise() -> onnx.ModelProto:
    """A convolution that is cut into other pieces for AVX2 than without."""
    w = np.random.default_rng(0).standard_normal((48, 1, 3, 3), np.float32)
    sizes = (1, 48, 56, 56)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4, group=48)],
        "depthwise",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)],
        [numpy_helper.from_array(w, "w")],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )


@pytest.mark.slow
def test_graph_and_kernels_of_several_levels_fit_together() -> None:
    """The graph has the grids of the first level; those of this machine's code are others."""
    factory = tw.build(depthwise(), target="x86_64", levels=("v2", "v3"), threads=2)
    x = np.random.default_rng(1).standard_normal((1, 48, 56, 56), np.float32)
    expected = np.from_dlpack(factory["main"](x))
    plan = from_json(factory.graph_json.encode())
    own = cast("CodeModule", factory.lib).plan_of(plan)
    assert [step.grid for step in own.steps] != [step.grid for step in plan.steps]
    alone = from_json(tw.build(depthwise(), target="v3", threads=2).graph_json.encode())
    assert [step.grid for step in own.steps] == [step.grid for step in alone.steps]
    net = GraphModule(create(factory.graph_json, factory.lib, tw.cpu(0)))
    net.set_input(**factory.params)
    net.run(x=x)
    np.testing.assert_array_equal(net.get_output(0), expected)


def test_a_graph_of_another_model_or_level_is_refused(factory: Factory) -> None:
    other = tw.build(depthwise(), target="x86_64")
    with pytest.raises(ArchiveError, match="the graph is of another model or level"):
        create(other.graph_json, factory.lib, tw.cpu(0))
    changed = json.loads(factory.graph_json)
    changed["metadata"]["tilewright"]["name"] = "renamed"
    create(json.dumps(changed), factory.lib, tw.cpu(0))


@pytest.mark.slow
def test_a_function_that_takes_path_and_files_alone_links_too(
    factory: Factory, tmp_path: Path
) -> None:
    """As with TVM; flags of ours are for functions that take some."""
    linked = factory.export_library(tmp_path / "net.img", lambda path, files: (path, files))
    assert linked[0] == str(tmp_path / "net.img")
    assert any(file.endswith(".o") for file in linked[1])
    words = factory.export_library(tmp_path / "net.img", lambda *_, **words: words)
    assert "-pthread" in words["options"]


@pytest.mark.parametrize("weights", ["net.irpa", "net.safetensors"])
def test_weights_appear_with_their_archive_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str
) -> None:
    model = tw.compile(small_models.mlp(), threads=1, jobs=1)

    def fail(*_: object) -> None:
        raise UserError("the disk is full")

    monkeypatch.setattr("tilewright.compiler.packaging.archive.save_archive", fail)
    with pytest.raises(UserError, match="the disk is full"):
        model.save(tmp_path / "net.vmfb", weights=tmp_path / weights)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    model.save(tmp_path / "net.vmfb", weights=tmp_path / weights)
    assert {path.name for path in tmp_path.iterdir()} == {"net.vmfb", weights}


@pytest.mark.slow  # compiles the core for a linker that fails
def test_weights_appear_with_their_library_or_not_at_all(
    factory: Factory, tmp_path: Path
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise UserError("the disk is full")

    weights = tmp_path / "net.irpa"
    with pytest.raises(UserError, match="the disk is full"):
        factory.export_library(tmp_path / "net.so", fail, weights=weights)
    assert list(tmp_path.iterdir()) == []
    factory.export_library(tmp_path / "net.c", weights=weights)
    assert weights.exists()


def test_sources_change_together_or_not_at_all(factory: Factory, tmp_path: Path) -> None:
    factory.export_library(tmp_path / "net.c")
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    assert len(files) > 5
    for path in files:
        path.write_text("before")
    files[-1].unlink()
    files[-1].mkdir()
    with pytest.raises(UserError, match="is a folder"):
        factory.export_library(tmp_path / "net.c")
    assert {path.read_text() for path in files[:-1]} == {"before"}
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == files[:-1]
