"""Small bytecode programs: each an export without arguments that returns one i64.

What it is: everything of the instruction set that is not arithmetic, a few opcodes per program, so
that a program's one number tells whether they did what they should.  Shared by the tests and by the
script that records what IREE's interpreter answers.
What it is not: anything an emitter of ours would make.
"""

from __future__ import annotations

from collections.abc import Callable

from fakes.vm_modules import bits, to_bits
from tilewright.formats.bytecode.assembler import FunctionBuilder
from tilewright.formats.bytecode.drafts import Edge, Register
from tilewright.formats.vmfb import ModuleBuilder, ModuleDef

Program = Callable[[ModuleBuilder, FunctionBuilder], Register]
PROGRAMS: dict[str, Program] = {}
OURS_ALONE = ("break", "trace", "yield")
"""Programs that need a debugger, a tracer or a scheduler, which `iree.runtime` does not bring."""

SAMPLES = {
    "i32": (-5, 77),
    "i64": (-(1 << 40), 12),
    "f32": (1.5, -0.25),
    "f64": (1e300, -0.1),
}
BANKS = tuple(SAMPLES)


def program(name: str) -> Callable[[Program], Program]:
    def enter(function: Program) -> Program:
        assert name not in PROGRAMS
        PROGRAMS[name] = function
        return function

    return enter


def program_module(name: str = "programs", *, without: tuple[str, ...] = ()) -> ModuleDef:
    """All programs, but for some."""
    module = ModuleBuilder(name)
    for label, fill in PROGRAMS.items():
        if label in without:
            continue
        build = module.function("0v_I", export=label)
        build.return_(fill(module, build))
    return module.finish()


def failing_module() -> ModuleDef:
    """One function, which fails with the status it is given."""
    module = ModuleBuilder("failures")
    build = module.function("0i_v", export="fail")
    build.fail(build.arguments[0], "not ready")
    return module.finish()


def i32(build: FunctionBuilder, value: int) -> Register:
    return build.constant("i32", value)


def i64(build: FunctionBuilder, value: int) -> Register:
    return build.constant("i64", value)


def combine(build: FunctionBuilder, *values: tuple[Register, str] | Register) -> Register:
    """One number that every value goes into: total = total * 31 + bits."""
    total = i64(build, 17)
    for value in values:
        register, bank = value if isinstance(value, tuple) else (value, "i64")
        scaled = build.emit("mul.i64", total, i64(build, 31))
        total = build.emit("add.i64", scaled, to_bits(build, register, bank))
    return total


# --- constants, globals -----------------------------------------------------------------------------


@program("constants")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    values = [(build.constant(b, v), b) for b in BANKS for v in (0, *SAMPLES[b])]
    return combine(build, *values)


def _globals(bank: str, *, indirect: bool) -> Program:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> Register:
        places = [module.global_word(bank) for _ in range(2)]
        mark = ".indirect" if indirect else ""
        at = [i32(build, place) if indirect else place for place in places]
        for place, value in zip(at, SAMPLES[bank], strict=True):
            build.emit(f"global.store{mark}.{bank}", place, build.constant(bank, value))
        loaded = [(build.emit(f"global.load{mark}.{bank}", place), bank) for place in at]
        return combine(build, *loaded)

    return fill


for _bank in BANKS:
    program(f"globals.{_bank}")(_globals(_bank, indirect=False))
    program(f"globals.indirect.{_bank}")(_globals(_bank, indirect=True))


@program("globals.ref")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    type_, place, other = (
        module.type("!vm.buffer"),
        module.global_ref(),
        module.global_ref(),
    )
    empty = build.emit("cmp.nz.ref", build.emit("global.load.ref", place, type_))
    build.emit("global.store.ref", place, type_, rodata(module, build, b"abc"))
    index = i32(build, other)
    build.emit("global.store.indirect.ref", index, type_, rodata(module, build, b"defgh"))
    first = build.emit("buffer.length", build.emit("global.load.ref", place, type_))
    second = build.emit(
        "buffer.length", build.emit("global.load.indirect.ref", index, type_)
    )
    return combine(build, (empty, "i32"), first, second)


def rodata(module: ModuleBuilder, build: FunctionBuilder, data: bytes) -> Register:
    return build.emit("const.ref.rodata", module.rodata(data))


# --- choices ----------------------------------------------------------------------------------------


def _choices(bank: str) -> Program:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> Register:
        first, second = (build.constant(bank, v) for v in SAMPLES[bank])
        third = build.constant(bank, 3)
        chosen = [
            (build.emit(f"select.{bank}", i32(build, c), first, second), bank)
            for c in (0, 1, -1)
        ]
        if bank == "i64":
            first = build.constant(
                bank, -9
            )  # IREE's switch.i64 reads 32 bits of its operands
        switched = [
            (build.emit(f"switch.{bank}", i32(build, i), third, (first, second)), bank)
            for i in (0, 1, 2, -1)
        ]
        return combine(build, *chosen, *switched)

    return fill


for _bank in BANKS:
    program(f"choices.{_bank}")(_choices(_bank))


@program("choices.ref")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    type_ = module.type("!vm.buffer")
    short, long = rodata(module, build, b"a"), rodata(module, build, b"abcde")
    none = build.emit("const.ref.zero")
    chosen = [
        build.emit(
            "buffer.length", build.emit("select.ref", i32(build, c), type_, short, long)
        )
        for c in (1, 0)
    ]
    switched = [
        build.emit("switch.ref", i32(build, i), type_, none, (short, long)) for i in (1, 5)
    ]
    same = build.emit("cmp.eq.ref", short, switched[0])
    other = build.emit("cmp.ne.ref", short, long)
    is_null = build.emit("cmp.nz.ref", switched[1])
    return combine(build, *chosen, (same, "i32"), (other, "i32"), (is_null, "i32"))


@program("references")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    type_ = module.type("!vm.buffer")
    data = rodata(module, build, b"abcd")
    copy = build.emit("assign.ref", data)
    cast = build.emit("cast.any.ref", copy, type_)
    equal = build.emit("cmp.eq.ref", cast, data)
    length = build.emit("buffer.length", cast)
    build.emit("discard.refs", (copy,))
    return combine(build, (equal, "i32"), length)


# --- lists ------------------------------------------------------------------------------------------


def _lists(bank: str) -> Program:
    def fill(module: ModuleBuilder, build: FunctionBuilder) -> Register:
        made = build.emit("list.alloc", module.type(bank), i32(build, 1))
        build.emit("list.reserve", made, i32(build, 9))
        before = build.emit("list.size", made)
        build.emit("list.resize", made, i32(build, 3))
        for index, value in enumerate(SAMPLES[bank]):
            build.emit(
                f"list.set.{bank}", made, i32(build, index), build.constant(bank, value)
            )
        found = [
            (build.emit(f"list.get.{bank}", made, i32(build, index)), bank)
            for index in range(3)
        ]
        build.emit("list.resize", made, i32(build, 2))
        after = build.emit("list.size", made)
        return combine(build, (before, "i32"), *found, (after, "i32"))

    return fill


for _bank in BANKS:
    program(f"lists.{_bank}")(_lists(_bank))


@program("lists.ref")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    type_ = module.type("!vm.buffer")
    made = build.emit("list.alloc", type_, i32(build, 0))
    build.emit("list.resize", made, i32(build, 2))
    build.emit("list.set.ref", made, i32(build, 1), rodata(module, build, b"xyz"))
    nothing = build.emit("list.get.ref", made, i32(build, 0), type_)
    empty = build.emit("cmp.nz.ref", nothing)
    something = build.emit("list.get.ref", made, i32(build, 1), type_)
    return combine(build, (empty, "i32"), build.emit("buffer.length", something))


# --- buffers ----------------------------------------------------------------------------------------

_LOADS = {
    "i8": ("buffer.load.i8.u", "buffer.load.i8.s"),
    "i16": ("buffer.load.i16.u", "buffer.load.i16.s"),
    **{bank: (f"buffer.load.{bank}",) for bank in BANKS},
}


def _buffers(kind: str) -> Program:
    bank = kind if kind in BANKS else "i32"

    def fill(module: ModuleBuilder, build: FunctionBuilder) -> Register:
        made = build.emit("buffer.alloc", i64(build, 64), i32(build, 16))
        first, second = (build.constant(bank, v) for v in SAMPLES[bank])
        build.emit(f"buffer.fill.{kind}", made, i64(build, 1), i64(build, 3), first)
        build.emit(f"buffer.store.{kind}", made, i64(build, 2), second)
        found = [
            (build.emit(load, made, i64(build, index)), bank)
            for load in _LOADS[kind]
            for index in range(5)
        ]
        return combine(build, *found)

    return fill


for _kind in _LOADS:
    program(f"buffers.{_kind}")(_buffers(_kind))


@program("buffers.ranges")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    source = rodata(module, build, bytes(range(40)))
    clone = build.emit("buffer.clone", source, i64(build, 4), i64(build, 20), i32(build, 8))
    length = build.emit("buffer.length", clone)
    build.emit("buffer.copy", source, i64(build, 30), clone, i64(build, 2), i64(build, 5))
    byte = [build.emit("buffer.load.i8.u", clone, i64(build, i)) for i in (1, 2, 6, 7)]
    equal = [
        build.emit(
            "buffer.compare", source, i64(build, 4), clone, i64(build, at), i64(build, size)
        )
        for at, size in ((0, 2), (0, 3), (0, 0), (7, 2))
    ]
    return combine(build, length, *((v, "i32") for v in (*byte, *equal)))


@program("buffers.hash")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    source = rodata(module, build, bytes(range(40)))
    hashes = [
        build.emit("buffer.hash", source, i64(build, offset), i64(build, length))
        for offset, length in ((0, 0), (0, 1), (0, 8), (3, 15), (0, 40))
    ]
    return combine(build, *hashes)


# --- control ----------------------------------------------------------------------------------------


@program("loop")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    """The sum of 0 … 9, with swapped loop variables to catch moves that are not parallel."""
    head = build.block("i64", "i64", "i64")
    body, done = build.block(), build.block()
    build.branch(head, i64(build, 0), i64(build, 1), i64(build, 2))
    index, first, second = build.place(head)
    build.branch_if(build.emit("cmp.lt.i64.s", index, i64(build, 10)), body, done)
    build.place(body)
    following = build.emit("add.i64", index, i64(build, 1))
    scaled = build.emit("mul.i64", first, i64(build, 3))
    build.branch(head, following, second, scaled)
    build.place(done)
    return combine(build, index, first, second)


@program("branch_table")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    picker = module.function("0i_I")
    default, *cases = (build_block(picker) for _ in range(4))
    picker.branch_table(picker.arguments[0], default, cases)
    for value, block in enumerate((default, *cases)):
        picker.place(block)
        picker.return_(picker.constant("i64", 100 + value))
    ordinal = module.ordinal_of(picker)
    values = [
        build.call(ordinal, [i32(build, i)], ["i64"])[0] for i in (-1, 0, 1, 2, 3, 1 << 30)
    ]
    return combine(build, *values)


@program("fail.zero")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    """A status of zero goes on with the block behind, with the registers as they were."""
    checked = module.function("0iI_I")
    status, value = checked.arguments
    behind = checked.block()
    doubled = checked.emit("add.i64", value, value)
    checked.branch_if(status, behind, failing := checked.block())
    checked.place(failing)
    checked.fail(status, "not reached")
    checked.place(behind)
    checked.return_(checked.emit("add.i64", doubled, checked.constant("i64", 1)))
    ordinal = module.ordinal_of(checked)
    values = [
        build.call(ordinal, [i32(build, n), i64(build, 20 + n)], ["i64"])[0] for n in (0, 1)
    ]
    return combine(build, *values)


def build_block(build: FunctionBuilder) -> object:
    return build.block()


@program("yield")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    after = build.block()
    build.emit("yield", Edge(after, ()))
    build.place(after)
    return i64(build, 5)


@program("break")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    first, second = build.block(), build.block()
    build.emit("break", Edge(first, ()))
    build.place(first)
    build.emit("cond_break", i32(build, 1), Edge(second, ()))
    build.place(second)
    return i64(build, 6)


@program("trace")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    build.emit("trace", b"event", (i32(build, 3), i64(build, 4)))
    build.emit("print", b"hello", (rodata(module, build, b"abc"),))
    return i64(build, 7)


# --- calls ------------------------------------------------------------------------------------------


@program("recursion")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    """Fibonacci numbers, the slow way."""
    function = module.function("0I_I")
    ordinal = module.ordinal_of(function)
    small, large = function.block(), function.block()
    (n,) = function.arguments
    function.branch_if(
        function.emit("cmp.lt.i64.s", n, function.constant("i64", 2)), small, large
    )
    function.place(small)
    function.return_(n)
    function.place(large)
    parts = [
        function.call(
            ordinal, [function.emit("sub.i64", n, function.constant("i64", k))], ["i64"]
        )[0]
        for k in (1, 2)
    ]
    function.return_(function.emit("add.i64", *parts))
    return build.call(ordinal, [i64(build, 12)], ["i64"])[0]


@program("many_results")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    function = module.function("0iIr_rIi")
    word, wide, buffer = function.arguments
    function.return_(buffer, wide, word)
    data = rodata(module, build, b"four")
    buffer, wide, word = build.call(
        module.ordinal_of(function),
        [i32(build, 3), i64(build, 5), data],
        ["ref", "i64", "i32"],
    )
    return combine(build, build.emit("buffer.length", buffer), wide, (word, "i32"))


@program("calls.yieldable")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    function = module.function("0I_I")
    function.return_(
        function.emit("add.i64", function.arguments[0], function.constant("i64", 1))
    )
    (result,) = build.call_yieldable(module.ordinal_of(function), [i64(build, 41)], ["i64"])
    return result


@program("optional_import")
def _(module: ModuleBuilder, build: FunctionBuilder) -> Register:
    missing = module.import_("nowhere.function", "0i_i", optional=True)
    return combine(build, (build.emit("import.resolved", missing), "i32"))


def expected_bits(value: float, bank: str) -> int:
    """The bits of a value as `to_bits` gives them."""
    return bits(value, bank) & (0xFFFFFFFF if bank in ("i32", "f32") else -1)
