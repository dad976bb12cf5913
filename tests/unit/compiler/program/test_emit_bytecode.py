"""Programs as bytecode: verified modules, floor arithmetic, one submission between host calls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.dimension_trees import SYMBOLS, Tree, environments, trees
from fakes.programs import planned
from fakes.random_graphs import Case, graphs
from tilewright.base import dtypes
from tilewright.base.errors import DeviceError, InputError
from tilewright.base.symbolic import symbol, symbols
from tilewright.base.target import LEVELS, Target
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.program.emit_bytecode import VariantCode, emit_module
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
from tilewright.runtime import native
from tilewright.runtime.bytecode_machine import BytecodeMachine
from tilewright.runtime.hal.executable import Executable, ExecutableParams
from tilewright.runtime.hal.executable_loaders import ExecutableLoader
from tilewright.runtime.hal.local.executable import LocalExecutable
from tilewright.runtime.hal.local.local_device import LocalDevice

FORMAT = "embedded-elf-x86_64"


def f32(*shape: object) -> TensorType:
    return TensorType(dtypes.f32, shape)  # type: ignore[arg-type]


def emitted(program: Program) -> ModuleDef:
    arrays = [s.array for s in program.storages if s.array is not None]
    rodata = [Rodata(data=b"\x7fELF"), *(Rodata(data=a.tobytes()) for a in arrays)]
    return emit_module([code_of(program)], rodata, first_constant=1)


def code_of(program: Program, index: int = 0, *features: str) -> VariantCode:
    return VariantCode(
        program=program,
        target=f"cpu{index}",
        features=frozenset(features),
        executable=index,
        format=FORMAT,
        constants=tuple(range(sum(s.is_constant for s in program.storages))),
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
@settings(max_examples=15)
def test_every_static_program_gives_a_module_that_verifies(case: Case) -> None:
    module = emitted(planned(case.graph))
    verify_module(module)
    again = read_archive(archive_bytes(module), "m")
    verify_module(again)
    assert disassemble_module(again) == disassemble_module(module)


@given(graphs(dynamic=True))
@settings(max_examples=15)
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
    x = b.input("x", f32(2, 3, 1))
    parts = b.op("dft", [b.relu(x)], {"axis": 1})
    b.output("y", b.neg(parts))
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
    tables = ModuleTables([code_of(planned(GraphBuilder().graph))], [], 1)
    assert tables.text("a") == tables.text("a") != tables.text("b")


# --- code for several CPUs -------------------------------------------------------------------------

FEATURES = ("avx", "avx2", "bmi2", "fma", "avx512f", "no-such-feature")
feature_sets = st.frozensets(st.sampled_from(FEATURES))


class Loader(ExecutableLoader):
    """Takes everything and remembers it."""

    def __init__(self) -> None:
        self.loaded: list[int] = []

    def query_support(self, format_name: str) -> bool:
        return format_name == FORMAT

    def infer_format(self, data: object) -> str | None:
        return FORMAT

    def load(self, params: ExecutableParams) -> Executable:
        self.loaded.append(bytes(params.data)[0])
        return LocalExecutable((), native.create_environment(), None)


def doubling(b: GraphBuilder) -> Program:
    x = b.input("x", f32(3))
    b.output("y", b.add(x, x))
    return planned(b.graph)


def load_on(
    needs: Sequence[frozenset[str]], present: frozenset[str], *, looks_late: bool
) -> list[int]:
    """Which executables a device with these features is made to load, in order.

    Args:
        looks_late: deny every feature until the first executable is loaded, as IREE's devices do.
    """
    codes = [code_of(doubling(GraphBuilder()), i, *n) for i, n in enumerate(needs)]
    images = [Rodata(data=bytes([i])) for i in range(len(codes))]
    module = emit_module(codes, images, first_constant=len(codes))
    verify_module(module)
    loader = Loader()
    machine = Target(features=present)
    device = LocalDevice("test", None, [loader], has_thread=False, machine=machine)
    if looks_late:
        query = device.query_i64
        device.query_i64 = lambda category, key: (  # type: ignore[method-assign]
            query(category, key)
            if loader.loaded or category != "hal.cpu"
            else 0 * (query(category, key) or 0)
        )
    virtual = BytecodeMachine(device)
    virtual.load_module(read_archive(archive_bytes(module), "m"))
    return loader.loaded


@pytest.mark.slow
@given(st.lists(feature_sets, min_size=2, max_size=4), feature_sets, st.booleans())
@settings(max_examples=12)
def test_the_code_is_loaded_that_needs_most_of_what_can_run(
    needs: list[frozenset[str]], present: frozenset[str], looks_late: bool
) -> None:
    # What no device knows is no reason against code.
    known = [n - {"no-such-feature"} for n in needs]
    fitting = [i for i, n in enumerate(known) if n <= present]
    least = min(range(len(needs)), key=lambda i: (len(needs[i]), -i))
    if not fitting:
        with pytest.raises(DeviceError, match=r"no code for this CPU; the module has 'cpu"):
            load_on(needs, present, looks_late=looks_late)
        return
    best = max(fitting, key=lambda i: (len(needs[i]), -i))
    loaded = load_on(needs, present, looks_late=looks_late)
    assert loaded[-1] == best
    assert set(loaded) <= {best, least}


def test_a_device_that_knows_its_cpu_loads_one_executable() -> None:
    levels = [LEVELS[level] - LEVELS["v1"] for level in ("v2", "v3", "v4")]
    for index, level in enumerate(("v2", "v3", "v4")):
        assert load_on(levels, LEVELS[level], looks_late=False) == [index]
        assert load_on(levels, LEVELS[level], looks_late=True) == [0, index]


def test_programs_that_differ_in_kernels_alone_share_their_code() -> None:
    same = [code_of(doubling(GraphBuilder()), i, *"ab"[:i]) for i in range(2)]
    b = GraphBuilder()
    other = b.input("x", f32(3))
    b.output("y", b.relu(b.add(b.relu(other), other)))
    images = [Rodata(data=bytes([i])) for i in range(2)]
    shared = emit_module(same, images, first_constant=2)
    apart = emit_module(
        [same[0], code_of(planned(b.graph), 1, "a")], images, first_constant=2
    )
    assert (len(shared.functions), shared.state.global_bytes) == (4, 0)
    assert (len(apart.functions), apart.state.global_bytes) == (6, 4)
    for module in (shared, apart):
        verify_module(module)
        assert [e.name for e in module.exports] == ["main", "__init"]


def test_one_cpu_or_no_kernel_means_no_question() -> None:
    b = GraphBuilder()
    b.output("x", b.input("x", f32(3)))
    images = [Rodata(data=b"a"), Rodata(data=b"b")]
    copies = [code_of(planned(b.graph), i, "avx") for i in range(2)]
    for codes in ([code_of(doubling(GraphBuilder()), 0, "avx2")], copies):
        module = emit_module(codes, images, first_constant=2)
        verify_module(module)
        assert "hal.device.query.i64" not in {i.name for i in module.imports}
        assert len(module.functions) == 3


# --- arithmetic, run by the virtual machine ---------------------------------------------------

NAMES = sorted(SYMBOLS)


def sizes_module(tree: Tree) -> ModuleDef:
    """One function: the value of every symbol in, the value of the expression out."""
    tables = ModuleTables([code_of(Program("sizes", (), (), (), (), ()))], [], 1)
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
    machine = BytecodeMachine("local-sync")
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
    machine = BytecodeMachine("local-sync")
    machine.load_module(emitted(planned(b.graph)))
    good = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(machine.invoke("main", good)[0], good)
    with pytest.raises(DeviceError, match=f"dimension 'n' must be {message}"):
        machine.invoke("main", np.ones((size, 3), np.float32))


def test_an_input_of_another_shape_is_named() -> None:
    b = GraphBuilder()
    b.output("y", b.input("data", f32(2, 3)))
    machine = BytecodeMachine("local-sync")
    machine.load_module(emitted(planned(b.graph)))
    with pytest.raises(InputError, match="input 'data'"):
        machine.invoke("main", np.ones((2, 4), np.float32))
    with pytest.raises(InputError, match="input 'data'"):
        machine.invoke("main", np.ones((2, 3), np.float64))


def test_constants_reach_the_outputs() -> None:
    b = GraphBuilder()
    array = np.arange(100, dtype=np.float32)
    b.output("y", b.constant(array))
    machine = BytecodeMachine("local-sync")
    machine.load_module(emitted(planned(b.graph)))
    np.testing.assert_array_equal(machine.invoke("main")[0], array)
