"""A tensor compiler from nothing: expression → loops → tiling → LLVM text → machine code.

    python examples/from_scratch.py

Read from top to bottom.  It compiles one thing, `relu(a @ b + bias)`, for sizes known in advance,
and does it in the way the house does: naive loops that anybody can check, rewrites that refuse
what they cannot do, an evaluator that compares before and after, decisions that are data, text for
LLVM, and an image that no linker of the system has touched.  Each chapter ends with where the grown-up version lives.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import llvmlite.binding as llvm
import numpy as np
from rich.console import Console

from tilewright.base.dtypes import f32
from tilewright.base.target import Target
from tilewright.compiler.linker import link_shared
from tilewright.formats.elf import parse_image
from tilewright.runtime import native

# --- 1. What there is to say ---------------------------------------------------------------------
# A program is loops around stores of expressions.  An index is a sum of factor * loop variable; that
# is all tensors need, and little enough to reason about: from an index we can read which iterations
# touch the same element.

Index = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Buffer:
    """A dense row-major tensor."""

    name: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Load:
    """An element of a buffer."""

    buffer: Buffer
    index: tuple[Index, ...]


@dataclass(frozen=True)
class Apply:
    """A function of two operands."""

    op: str  # add mul max
    left: Load | Apply | float
    right: Load | Apply | float


Expression = Load | Apply | float


@dataclass(frozen=True)
class Store:
    """Writes one element."""

    buffer: Buffer
    index: tuple[Index, ...]
    value: Expression


@dataclass(frozen=True)
class Loop:
    """`for variable in range(extent)`."""

    variable: str
    extent: int
    body: tuple[Loop | Store, ...]
    kind: str = "serial"  # serial unroll vector


Body = tuple[Loop | Store, ...]


def at(*variables: str) -> tuple[Index, ...]:
    """The index `[i, j]`."""
    return tuple(((v, 1),) for v in variables)


def nest(extents: Mapping[str, int], body: Body) -> Loop:
    """Loops around `body`, the first one outermost."""
    for variable, extent in reversed(extents.items()):
        body = (Loop(variable, extent, body),)
    (loop,) = body
    assert isinstance(loop, Loop)
    return loop


def layer(m: int, n: int, k: int) -> tuple[tuple[Buffer, ...], Body]:
    """relu(a @ b + bias) as three naive nests: clear, sum up, finish."""
    a, b, bias, c = (Buffer(*row) for row in
                     (("a", (m, k)), ("b", (k, n)), ("bias", (n,)), ("c", (m, n))))  # fmt: skip
    old = Load(c, at("i", "j"))
    product = Apply("mul", Load(a, at("i", "k")), Load(b, at("k", "j")))
    rectified = Apply("max", Apply("add", old, Load(bias, at("j"))), 0.0)
    return (a, b, bias, c), (
        nest({"i": m, "j": n}, (Store(c, at("i", "j"), 0.0),)),
        nest(
            {"i": m, "j": n, "k": k}, (Store(c, at("i", "j"), Apply("add", old, product)),)
        ),
        nest({"i": m, "j": n}, (Store(c, at("i", "j"), rectified),)),
    )


# House: compiler/kernel/ir.py; bodies of ops: compiler/ops.

# --- 2. What it means ----------------------------------------------------------------------------
# An evaluator that is too simple to be wrong.  Every rewrite below is tested against it.

MEANING: Final[Mapping[str, Callable[[float, float], float]]] = {
    "add": lambda x, y: x + y, "mul": lambda x, y: x * y, "max": max,
}  # fmt: skip


def evaluate(body: Body, arrays: dict[str, np.ndarray], env: Mapping[str, int]) -> None:
    """Run `body` on arrays, in place."""

    def place(index: tuple[Index, ...]) -> tuple[int, ...]:
        return tuple(sum(factor * env[v] for v, factor in axis) for axis in index)

    def value(e: Expression) -> float:
        if isinstance(e, Load):
            return arrays[e.buffer.name][place(e.index)]
        return e if isinstance(e, float) else MEANING[e.op](value(e.left), value(e.right))

    for item in body:
        if isinstance(item, Store):
            known = arrays.setdefault(item.buffer.name, np.zeros(item.buffer.shape))
            known[place(item.index)] = value(item.value)
            continue
        for step in range(item.extent):
            evaluate(item.body, arrays, {**env, item.variable: step})


# House: compiler/kernel/evaluator.py, for the kernel IR; compiler/graph/evaluator.py, for graphs.

# --- 3. The same in another order ----------------------------------------------------------------
# A primitive is a function from a program to one that computes the same, or an error.  Why bother?
# The naive nest loads two numbers per multiplication.  A tile of 6 x 32 results loads 38 numbers for
# 192 multiplications, and if it stays in registers, the arithmetic units are what is waited for.


class ScheduleError(Exception):
    """A primitive does not apply."""


def rewrite(
    item: Loop | Store, change: Callable[[Load | Store], Load | Store]
) -> Loop | Store:
    """`item` with every load and store replaced."""

    def visit(e: Expression) -> Expression:
        if isinstance(e, Apply):
            return Apply(e.op, visit(e.left), visit(e.right))
        return change(e) if isinstance(e, Load) else e

    if isinstance(item, Loop):
        return replace(item, body=tuple(rewrite(inner, change) for inner in item.body))
    return change(replace(item, value=visit(item.value)))


def split(item: Loop | Store, variable: str, factor: int) -> Loop | Store:
    """`for v in range(n)` → `for v_o in range(n / factor): for v_i in range(factor)`."""
    outer, inner = f"{variable}_o", f"{variable}_i"

    def change(access: Load | Store) -> Load | Store:
        def parts(v: str, f: int) -> Index:
            return ((outer, f * factor), (inner, f)) if v == variable else ((v, f),)

        index = tuple(
            tuple(p for v, f in axis for p in parts(v, f)) for axis in access.index
        )
        return replace(access, index=index)

    def visit(found: Loop | Store) -> Loop | Store:
        if isinstance(found, Store):
            return found
        body = tuple(visit(x) for x in found.body)
        if found.variable != variable:
            return replace(found, body=body)
        if found.extent % factor:
            raise ScheduleError(
                f"'{variable}' runs {found.extent} times, no multiple of {factor}"
            )
        return nest({outer: found.extent // factor, inner: factor}, body)

    return rewrite(visit(item), change)


def reorder(item: Loop | Store, order: Sequence[str]) -> Loop:
    """Nest the loops in another order.

    Right for our nests: each element of the result sums its own terms, and `k` stays in order.
    """
    extents: dict[str, int] = {}
    body: Body = (item,)
    while len(body) == 1 and isinstance(body[0], Loop):
        extents[body[0].variable] = body[0].extent
        body = body[0].body
    if sorted(order) != sorted(extents):
        raise ScheduleError(f"the loops are {sorted(extents)}, got {sorted(order)}")
    return nest({v: extents[v] for v in order}, body)


def fuse(nests: Sequence[Loop], depth: int) -> Loop:
    """Nests with equal outer loops → one nest of those loops around the rest of each.

    Right when what iteration t of one nest reads of another was written in its iteration t.
    """
    if len({(n.variable, n.extent) for n in nests}) > 1:
        raise ScheduleError(
            "the outer loops differ: " + ", ".join(n.variable for n in nests)
        )
    inside = [inner for n in nests for inner in n.body]
    if depth > 1:
        inside = [fuse([x for x in inside if isinstance(x, Loop)], depth - 1)]
    return replace(nests[0], body=tuple(inside))


def keep_in_registers(loop: Loop, name: str, outer: Sequence[str]) -> Loop:
    """Below the loops `outer` a small buffer stands for `name`; the last nest stores to memory."""
    if loop.variable != outer[0]:
        raise ScheduleError(f"the outer loop is '{loop.variable}', got '{outer[0]}'")
    if len(outer) > 1:
        (inner,) = (x for x in loop.body if isinstance(x, Loop))
        return replace(loop, body=(keep_in_registers(inner, name, outer[1:]),))
    extents = {x.variable: x.extent for x in walk(loop.body) if isinstance(x, Loop)}

    def tile(access: Load | Store) -> Load | Store:
        if access.buffer.name != name:
            return access
        index = tuple(tuple(p for p in axis if p[0] in extents) for axis in access.index)
        shape = tuple(1 + sum((extents[v] - 1) * f for v, f in axis) for axis in index)
        return replace(access, buffer=Buffer(f"{name}_tile", shape), index=index)

    *first, last = loop.body
    changed = [rewrite(x, tile) for x in first]
    changed.append(rewrite(last, lambda x: tile(x) if isinstance(x, Load) else x))
    return replace(loop, body=tuple(changed))


def mark(item: Loop | Store, kinds: Mapping[str, str]) -> Loop | Store:
    """Say how loops run; `vector` loops must move along the last axis by single steps."""
    if isinstance(item, Store):
        return item
    body = tuple(mark(inner, kinds) for inner in item.body)
    return replace(item, body=body, kind=kinds.get(item.variable, item.kind))


def walk(body: Body) -> Iterator[Loop | Store]:
    """Everything in it, outside in."""
    for item in body:
        yield item
        if isinstance(item, Loop):
            yield from walk(item.body)


@dataclass(frozen=True)
class Decisions:
    """What is chosen for the layer: a tile of `rows` by `vectors` vectors of results."""

    rows: int
    vectors: int


def schedule(body: Body, chosen: Decisions, lanes: int) -> Body:
    """The three nests as one, a tile at a time, as was decided."""
    tiled: list[Loop] = []
    for item in body:
        has_sum = any(isinstance(x, Loop) and x.variable == "k" for x in walk((item,)))
        item = split(split(item, "i", chosen.rows), "j", chosen.vectors * lanes)
        item = split(item, "j_i", lanes)
        order = ["i_o", "j_o", *["k"] * has_sum, "i_i", "j_i_o", "j_i_i"]
        tiled.append(reorder(item, order))
    fused = keep_in_registers(fuse(tiled, 2), "c", ["i_o", "j_o"])
    return (mark(fused, {"i_i": "unroll", "j_i_o": "unroll", "j_i_i": "vector"}),)


# House: compiler/schedule (primitives that check themselves, handles, a trace).

# --- 4. What there is to choose ------------------------------------------------------------------
# How large a tile is, is not written into the schedule: it is data.  All points of the space are right,
# some are fast.  A formula over a few numbers of the machine picks one in no time; who has time measures.


def space(m: int, n: int, target: Target) -> list[Decisions]:
    """Every tile that divides the layer and stays in registers."""
    registers, lanes = target.vector_registers, target.vector_lanes(f32)
    return [
        Decisions(rows, vectors)
        for rows in range(1, m + 1)
        for vectors in range(1, n // lanes + 1)
        if m % rows == n % (vectors * lanes) == 0
        and rows * vectors + vectors + 1 <= registers
    ]


def cost(chosen: Decisions) -> tuple[float, float]:
    """Cycles per product and vector; of equal ones, loads per product.

    Units of arithmetic, units of loads, and waiting for sums: the slowest counts.  Two of each start in a cycle,
    and a sum is there after four.
    """
    products = chosen.rows * chosen.vectors
    loads = chosen.rows + chosen.vectors
    return max(products / 2, loads / 2, 4) / products, loads / products


def best_of(points: Sequence[Decisions]) -> Decisions:
    """What is compiled when nobody measures."""
    return min(points, key=cost)


# House: compiler/schedule/rules (match, space, decisions, apply), compiler/schedule/cost.py.

# --- 5. Text for LLVM ----------------------------------------------------------------------------
# LLVM does what it does well: registers, instructions, their order.  We decide what it cannot know.


BARE: Final = (
    'nounwind "no-builtins"'  # or loops become calls of memset, which nobody provides
)
Env = Mapping[str, "int | str"]  # loop variable → a number, or an LLVM value


class Emitter:
    """Writes one function."""

    def __init__(self, parameters: Sequence[Buffer], lanes: int) -> None:
        self.lines: list[str] = []
        self.parameters: Sequence[Buffer] = parameters
        self.lanes: int = lanes
        self.vector: str | None = None  # the vector loop we are in

    @property
    def type(self) -> str:
        return f"<{self.lanes} x float>" if self.vector else "float"

    def new(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def call(self, function: str, *values: str) -> str:
        suffix = f"v{self.lanes}f32" if self.vector else "f32"
        arguments = ", ".join(f"{self.type} {value}" for value in values)
        return self.new(f"call {self.type} @llvm.{function}.{suffix}({arguments})")

    def address(self, access: Load | Store, env: Env) -> str:
        """Where an element is: base + sum of stride * index."""
        offset, constant, stride = "", 0, 1
        rows = zip(reversed(access.index), reversed(access.buffer.shape), strict=True)
        for axis, extent in rows:
            for variable, factor in axis:
                where = env.get(variable, 0)  # of a vector loop, the first lane
                if isinstance(where, int):
                    constant += where * factor * stride
                    continue
                scaled = self.new(f"mul i64 {where}, {factor * stride}")
                offset = self.new(f"add i64 {offset}, {scaled}") if offset else scaled
            stride *= extent
        place = self.new(f"add i64 {offset}, {constant}") if offset else str(constant)
        return self.new(f"getelementptr float, ptr %{access.buffer.name}, i64 {place}")

    def splat(self, scalar: str) -> str:
        first = self.new(f"insertelement {self.type} poison, float {scalar}, i64 0")
        zeros = f"<{self.lanes} x i32> zeroinitializer"
        return self.new(f"shufflevector {self.type} {first}, {self.type} poison, {zeros}")

    def load(self, e: Load, env: Env) -> str:
        address = self.address(e, env)
        if any(v == self.vector for axis in e.index for v, _ in axis):
            return self.new(f"load {self.type}, ptr {address}, align 4")
        scalar = self.new(f"load float, ptr {address}, align 4")
        return self.splat(scalar) if self.vector else scalar

    def value(self, e: Expression, env: Env) -> str:
        if isinstance(e, Load):
            return self.load(e, env)
        if isinstance(e, float):
            return self.splat(str(e)) if self.vector else str(e)
        if e.op == "add" and isinstance(e.right, Apply) and e.right.op == "mul":
            # One rounding instead of two: what the machine does fastest.
            factors = self.value(e.right.left, env), self.value(e.right.right, env)
            return self.call("fma", *factors, self.value(e.left, env))
        left, right = self.value(e.left, env), self.value(e.right, env)
        if e.op == "max":
            return self.call("maximum", left, right)
        return self.new(f"f{e.op} {self.type} {left}, {right}")

    def body(self, items: Body, env: Env) -> None:
        for item in items:
            if isinstance(item, Store):
                value, place = self.value(item.value, env), self.address(item, env)
                self.lines.append(f"  store {self.type} {value}, ptr {place}, align 4")
            elif item.kind == "vector":
                self.vector = item.variable
                self.body(item.body, env)
                self.vector = None
            elif item.kind == "unroll":
                for step in range(item.extent):
                    self.body(item.body, {**env, item.variable: step})
            else:
                self.loop(item, env)

    def loop(self, item: Loop, env: Env) -> None:
        name = f"{item.variable}{len(self.lines)}"
        self.lines.append(
            f"""  br label %{name}.enter
{name}.enter:
  br label %{name}.loop
{name}.loop:
  %{name} = phi i64 [ 0, %{name}.enter ], [ %{name}.next, %{name}.end ]"""
        )
        self.body(item.body, {**env, item.variable: f"%{name}"})
        self.lines.append(
            f"""  br label %{name}.end
{name}.end:
  %{name}.next = add i64 %{name}, 1
  %{name}.more = icmp ult i64 %{name}.next, {item.extent}
  br i1 %{name}.more, label %{name}.loop, label %{name}.exit
{name}.exit:"""
        )

    def function(self, name: str, items: Body) -> str:
        """The whole module; buffers that are no parameters live on the stack: in registers."""
        stores = [s for s in walk(items) if isinstance(s, Store)]
        for tile in {s.buffer for s in stores} - set(self.parameters):
            size = int(np.prod(tile.shape))
            self.lines.append(f"  %{tile.name} = alloca [{size} x float], align 64")
        self.body(items, {})
        declared = "".join(
            f"declare {t} @llvm.{op}.{s}({', '.join([t] * count)})\n"
            for t, s in (("float", "f32"), (f"<{self.lanes} x float>", f"v{self.lanes}f32"))
            for op, count in (("fma", 3), ("maximum", 2))
        )
        head = ", ".join(f"ptr noalias %{b.name}" for b in self.parameters)
        body = "\n".join(["entry:", *self.lines, "  ret void"])
        return f"{declared}define void @{name}({head}) {BARE} {{\n{body}\n}}\n"


# House: compiler/printers/llvm_text; loops are rewritten to vectors before, in compiler/lowering.

# --- 6. Machine code -----------------------------------------------------------------------------
# LLVM makes a relocatable object; our own step makes it an image, our own loader puts that into
# memory that is never writable and executable at once.  No compiler, linker or file takes part.


def machine_code(text: str, target: Target) -> bytes:
    """The object of a module."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    chosen = llvm.Target.from_triple(f"{target.arch}-unknown-unknown-elf")
    maker = chosen.create_target_machine(target.cpu, target.llvm_features, 3, "pic")
    module = llvm.parse_assembly(text, llvm.create_context())
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    passes = llvm.create_pass_builder(maker, options)
    passes.getModulePassManager().run(module, passes)
    return bytes(maker.emit_object(module))


class Code:
    """A function in memory, called with numpy arrays."""

    def __init__(self, image: bytes, name: str, count: int) -> None:
        parsed = parse_image(image)
        start, size = parsed.span
        protections = [
            (s.address - start, s.memory_bytes, 1 | 2 * s.writable | 4 * s.executable)
            for s in parsed.segments
        ]
        segments = [(s.address - start, parsed.contents(s)) for s in parsed.segments]
        self.memory: native.CodeImage = native.CodeImage(size, segments, [], protections)
        address = self.memory.address(parsed.symbols[name] - start)
        self.function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)(address)

    def __call__(self, *arrays: np.ndarray) -> None:
        self.function(*(array.ctypes.data for array in arrays))


def build(parameters: Sequence[Buffer], body: Body, target: Target) -> Code:
    """A program, ready to be called."""
    text = Emitter(parameters, target.vector_lanes(f32)).function("layer", body)
    image = link_shared([machine_code(text, target)], exported=("layer",))
    return Code(image, "layer", len(parameters))


# House: compiler/backends/cpu/llvm_binding.py, compiler/linker/link.py, runtime/loaders/embedded_elf.py.

# --- 7. All of it --------------------------------------------------------------------------------

M, N, K = 96, 256, 256
MEASURED = 12


def lines_of(body: Body, indent: str = "") -> Iterator[str]:
    """A program as text."""

    def place(e: Load | Store) -> str:
        axes = [" + ".join(f"{f}*{v}" if f > 1 else v for v, f in axis) for axis in e.index]
        return f"{e.buffer.name}[{', '.join(axes)}]"

    def text(e: Expression) -> str:
        if isinstance(e, Apply):
            return f"{e.op}({text(e.left)}, {text(e.right)})"
        return place(e) if isinstance(e, Load) else str(e)

    for item in body:
        if isinstance(item, Store):
            yield f"{indent}{place(item)} = {text(item.value)}"
        else:
            yield f"{indent}for {item.variable} in range({item.extent}):  # {item.kind}"
            yield from lines_of(item.body, indent + "    ")


def seconds(code: Callable[..., object], *arrays: np.ndarray) -> float:
    """The best of many calls."""
    times: list[float] = []
    for _ in range(20):
        start = time.perf_counter()
        code(*arrays)
        times.append(time.perf_counter() - start)
    return min(times)


def means_the_same(chosen: Decisions, lanes: int) -> bool:
    """Whether the schedule keeps the meaning, to the last bit, on a case small enough for Python."""
    random = np.random.default_rng(1)
    parameters, naive = layer(2 * chosen.rows, chosen.vectors * lanes, 3)
    inputs = {p.name: random.standard_normal(p.shape) for p in parameters}
    before, after = dict(inputs, c=inputs["c"].copy()), dict(inputs, c=inputs["c"].copy())
    evaluate(naive, before, {})
    evaluate(schedule(naive, chosen, lanes), after, {})
    return np.array_equal(before["c"], after["c"])


def main() -> None:
    """Write, decide, rewrite, compile, check, time, and decide again by measuring."""
    show = Console(highlight=False, soft_wrap=True, markup=False).print
    target = Target.host()
    lanes = target.vector_lanes(f32)
    parameters, naive = layer(M, N, K)
    points = space(M, N, target)
    chosen = best_of(points)
    tiled = schedule(naive, chosen, lanes)
    show("naive:", *lines_of(naive), "", "scheduled:", *lines_of(tiled), "", sep="\n")
    show(f"in the evaluator both mean the same: {means_the_same(chosen, lanes)}")

    random = np.random.default_rng(0)
    a, b, bias = (random.standard_normal(p.shape, np.float32) for p in parameters[:3])
    expected = np.maximum(a @ b + bias, 0)

    def speed(body: Body) -> float:
        code, c = build(parameters, body, target), np.zeros((M, N), np.float32)
        taken = seconds(code, a, b, bias, c)
        np.testing.assert_allclose(c, expected, rtol=1e-4, atol=1e-4)
        return 2 * M * N * K / taken / 1e9

    def report(name: str, reached: float) -> None:
        show(f"{name:45}{reached:7.1f} GFLOP/s")

    report("naive", speed(naive))
    report(f"by the formula: {chosen}", speed(tiled))
    # A search has the same doors: points, a schedule for each, and a clock.
    likely = sorted(points, key=cost)[:MEASURED]
    tried = {point: speed(schedule(naive, point, lanes)) for point in likely}
    found = max(tried, key=lambda point: tried[point])
    report(f"best of {len(tried)} measured of {len(points)}: {found}", tried[found])


if __name__ == "__main__":
    main()
