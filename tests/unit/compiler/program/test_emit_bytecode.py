"""Programs as bytecode: verified modules, floor arithmetic, one submission between host calls."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings

from fakes.dimension_trees import SYMBOLS, Tree, environments, trees
from fakes.programs import planned
from fakes.random_graphs import Case, graphs
from tilewright.base import dtypes
from tilewright.base.errors import DeviceError, InputError
from tilewright.base.symbolic import symbol, symbols
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.program.emit_bytecode import emit_module
from tilewright.compiler.program.emit_bytecode.function import HalFunction
from tilewright.compiler.program.emit_bytecode.module import IMPORTS, ModuleTables
from tilewright.compiler.program.ir import Program
from tilewright.formats.calling_convention import parse_calling_convention
from tilewright.formats.vmfb import (
    Export,
    FunctionDescriptor,
    ModuleDef,
    Rodata,
    Signature,
    archive_bytes,
    read_archive,
    verify_module,
)
from tilewright.formats.vmfb.text import disassemble_module
from tilewright.runtime.virtual_machine import VirtualMachine

FORMAT = "embedded-elf-x86_64"


def f32(*shape: object) -> TensorType:
    return TensorType(dtypes.f32, shape)  # type: ignore[arg-type]


def emitted(program: Program) -> ModuleDef:
    arrays = [s.array for s in program.storages if s.array is not None]
    rodata = [Rodata(data=b"\x7fELF"), *(Rodata(data=a.tobytes()) for a in arrays)]
    return emit_module(
        program, rodata, executable=0, executable_format=FORMAT, first_constant=1
    )


def text_of(b: GraphBuilder) -> str:
    module = emitted(planned(b.graph))
    verify_module(module)
    return disassemble_module(module)


def calls(text: str) -> list[str]:
    """The imports that `main` calls, in order."""
    main = text[text.index("@main(") : text.index("@__init")]
    found = re.findall(r"call(?:\.variadic)? @(?:hal\.([\w.]+)|(tilewright[\w.]+))", main)
    return [hal or other for hal, other in found]


@given(graphs(dynamic=False))
@settings(max_examples=30)
def test_every_static_program_gives_a_module_that_verifies(case: Case) -> None:
    module = emitted(planned(case.graph))
    verify_module(module)
    verify_module(read_archive(archive_bytes(module), "m"))


@given(graphs(dynamic=True))
@settings(max_examples=30)
def test_every_dynamic_program_gives_a_module_that_verifies(case: Case) -> None:
    module = emitted(planned(case.graph))
    verify_module(module)
    assert archive_bytes(module) == archive_bytes(emitted(planned(case.graph)))


def test_every_signature_of_an_import_parses() -> None:
    for name, convention in IMPORTS.items():
        assert parse_calling_convention(convention), name


def test_a_static_program_is_one_submission_with_barriers_between_dispatches() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(2, 3))
    b.output("y", b.transpose(b.relu(x), perm=(1, 0)))
    b.output("x", x)
    recorded = [
        c for c in calls(text_of(b)) if c.startswith(("command_buffer", "device.queue"))
    ]
    assert recorded == [
        "command_buffer.create",
        "command_buffer.dispatch",
        "command_buffer.execution_barrier",
        "command_buffer.dispatch",
        "command_buffer.execution_barrier",
        "command_buffer.copy_buffer",
        "command_buffer.finalize",
        "device.queue.execute",
    ]


def test_host_calls_stand_between_submissions() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(2, 3))
    values, _ = b.op("top_k", [b.relu(x)], {"k": (1,), "axis": -1})
    b.output("y", b.neg(values))
    text = text_of(b)
    steps = [
        c
        for c in calls(text)
        if c in ("device.queue.execute", "fence.await", "tilewright.host_call")
    ]
    assert steps == [
        "device.queue.execute", "fence.await", "tilewright.host_call",
        "device.queue.execute", "fence.await",
    ]  # fmt: skip
    assert "vm.import optional @tilewright.host_call" in text


def test_programs_without_host_calls_import_hal_alone() -> None:
    b = GraphBuilder()
    b.output("y", b.relu(b.input("x", f32(2, 3))))
    module = emitted(planned(b.graph))
    assert {i.name.split(".")[0] for i in module.imports} == {"hal"}
    assert [d.name for d in module.dependencies] == ["hal"]
    assert len({i.name for i in module.imports}) == len(module.imports)


def test_the_interface_is_declared_in_words() -> None:
    n = symbol("n", 1)
    b = GraphBuilder()
    x = b.input("x", f32(n, 3))
    ids = b.input("ids", TensorType(dtypes.i64, ()))
    b.output("y", b.relu(x))
    b.output("i", ids)
    module = emitted(planned(b.graph))
    (declaration,) = module.signatures[0].attributes.values()
    assert declaration == (
        "sync func @main(%x: tensor<?x3xf32>, %ids: tensor<i64>) -> "
        "(%y: tensor<?x3xf32>, %i: tensor<i64>)"
    )
    assert module.signatures[0].calling_convention == "0rr_rr"


def test_a_program_without_inputs_or_kernels_has_a_function_all_the_same() -> None:
    b = GraphBuilder()
    b.output("y", b.constant(np.arange(3, dtype=np.float32)))
    module = emitted(planned(b.graph))
    verify_module(module)
    assert module.signatures[0].calling_convention == "0v_r"
    assert "hal.executable.create" not in {i.name for i in module.imports}


def test_inputs_are_checked_with_signless_integers_as_iree_writes_them() -> None:
    b = GraphBuilder()
    x = b.input("ids", TensorType(dtypes.i64, (2,)))
    b.output("y", b.neg(x))
    text = text_of(b)
    assert f"vm.const.i32 {0x10000040}" in text
    assert b"input 'ids'".hex().upper() in text


def test_equal_texts_are_one_segment() -> None:
    tables = ModuleTables(planned(GraphBuilder().graph), [], 0, FORMAT, 1)
    assert tables.text("a") == tables.text("a") != tables.text("b")


# --- arithmetic, run by the virtual machine ---------------------------------------------------

NAMES = sorted(SYMBOLS)


def sizes_module(tree: Tree) -> ModuleDef:
    """One function: the value of every symbol in, the value of the expression out."""
    tables = ModuleTables(Program("sizes", (), (), (), (), ()), [], 0, FORMAT, 1)
    convention = f"0{'I' * len(NAMES)}_I"
    function = HalFunction(tables, convention)
    for name, register in zip(NAMES, function.build.arguments, strict=True):
        function.bind(name, register)
    function.build.return_(function.size(tree.dim()))
    code = function.build.finish()
    descriptor = FunctionDescriptor(
        offset=0,
        length=len(code.code),
        block_count=code.block_count,
        word_registers=code.word_registers,
        ref_registers=code.ref_registers,
        requirements=code.requirements,
    )
    return ModuleDef(
        name="sizes",
        exports=(Export(name="size", function=0),),
        signatures=(Signature(calling_convention=convention),),
        functions=(descriptor,),
        bytecode=code.code,
        requirements=code.requirements,
    )


@given(trees, environments())
def test_sizes_have_the_value_of_their_expression(
    tree: Tree, env: Mapping[str, int]
) -> None:
    module = sizes_module(tree)
    verify_module(module)
    machine = VirtualMachine("local-sync")
    machine.load_module(module)
    (value,) = machine.invoke("size", *(env[name] for name in NAMES))
    assert value == tree.number(env)


@pytest.mark.parametrize(("size", "message"), [(1, "at least 2"), (9, "at most 8")])
def test_a_dimension_outside_its_bounds_fails_before_any_work(
    size: int, message: str
) -> None:
    n = symbol("n", 2, 8)
    b = GraphBuilder()
    x = b.input("x", f32(n, 3))
    b.output("y", x)
    assert symbols(n)
    machine = VirtualMachine("local-sync")
    machine.load_module(emitted(planned(b.graph)))
    good = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(machine.invoke("main", good)[0], good)
    with pytest.raises(DeviceError, match=f"dimension 'n' must be {message}"):
        machine.invoke("main", np.ones((size, 3), np.float32))


def test_an_input_of_another_shape_is_named() -> None:
    b = GraphBuilder()
    b.output("y", b.input("data", f32(2, 3)))
    machine = VirtualMachine("local-sync")
    machine.load_module(emitted(planned(b.graph)))
    with pytest.raises(InputError, match="input 'data'"):
        machine.invoke("main", np.ones((2, 4), np.float32))
    with pytest.raises(InputError, match="input 'data'"):
        machine.invoke("main", np.ones((2, 3), np.float64))


def test_constants_reach_the_outputs() -> None:
    b = GraphBuilder()
    array = np.arange(100, dtype=np.float32)
    b.output("y", b.constant(array))
    machine = VirtualMachine("local-sync")
    machine.load_module(emitted(planned(b.graph)))
    np.testing.assert_array_equal(machine.invoke("main")[0], array)
