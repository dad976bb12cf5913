"""Kernels in bytecode: executables of the format `vmvx-bytecode-fb`, made without IREE.

What it is: one module whose kernels show what they were called with.  Shared by the tests of the
loader, of command buffers and of the modules that dispatch.
What it is not: anything a compiler would make.
"""

from __future__ import annotations

from tilewright.formats.bytecode.assembler import FunctionBuilder
from tilewright.formats.bytecode.drafts import Register
from tilewright.formats.vmfb import ModuleBuilder, archive_bytes

FORMAT = "vmvx-bytecode-fb"
KERNEL = "0rrriiiiiiiii_v"
SCALE = 1000


def executable(*, specialised: bool = False, local_memory: int = 0) -> bytes:
    """An archive with these kernels:

    - `number`: binding 0 [grid] i32 = constant 0 + the workgroup's linear number, plus the
      specialisation constant times `SCALE`;
    - `__copy_first`: binding 1's first i32 = that of binding 0 (compilers use such names);
    - `outside`: writes behind the end of binding 0;
    - `forever`: does not end;
    - `use_local`: writes the length of local memory to binding 0.
    """
    module = ModuleBuilder("kernels")
    type_ = module.type("!vm.buffer")
    place = module.global_word("i32")
    if specialised:
        build = module.function("0r_v", export="__set_constants")
        first = build.emit("buffer.load.i32", build.arguments[0], build.constant("i64", 0))
        build.emit("global.store.i32", place, first)
        build.return_()
    _number(_kernel(module, "number", bindings=1, constants=1), type_, place)
    _copy_first(_kernel(module, "__copy_first", bindings=2), type_)
    _outside(_kernel(module, "outside", bindings=1), type_)
    _forever(_kernel(module, "forever", bindings=0))
    _use_local(_kernel(module, "use_local", bindings=1, local_memory=local_memory), type_)
    return archive_bytes(module.finish())


def _kernel(
    module: ModuleBuilder,
    name: str,
    *,
    bindings: int,
    constants: int = 0,
    local_memory: int = 0,
) -> FunctionBuilder:
    attributes = {"binding_count": str(bindings)}
    attributes |= {"constant_count": str(constants)} if constants else {}
    attributes |= {"local_memory": str(local_memory)} if local_memory else {}
    return module.function(KERNEL, export=name, attributes=attributes)


def _binding(build: FunctionBuilder, index: int, type_: int) -> Register:
    return build.emit(
        "list.get.ref", build.arguments[2], build.constant("i32", index), type_
    )


def _number(build: FunctionBuilder, type_: int, place: int) -> None:
    x, y, z, *_, count_x, count_y, _ = build.arguments[3:]
    row = build.emit("fma.i32", z, count_y, y)
    linear = build.emit("fma.i32", row, count_x, x)
    zero = build.constant("i64", 0)
    value = build.emit(
        "add.i32", build.emit("buffer.load.i32", build.arguments[1], zero), linear
    )
    special = build.emit("global.load.i32", place)
    value = build.emit("fma.i32", special, build.constant("i32", SCALE), value)
    offset = build.emit("ext.i32.i64.s", linear)
    build.emit("buffer.store.i32", _binding(build, 0, type_), offset, value)
    build.return_()


def _copy_first(build: FunctionBuilder, type_: int) -> None:
    zero = build.constant("i64", 0)
    value = build.emit("buffer.load.i32", _binding(build, 0, type_), zero)
    build.emit("buffer.store.i32", _binding(build, 1, type_), zero, value)
    build.return_()


def _outside(build: FunctionBuilder, type_: int) -> None:
    target = _binding(build, 0, type_)
    words = build.emit("buffer.length", target)
    build.emit("buffer.store.i32", target, words, build.constant("i32", 1))
    build.return_()


def _forever(build: FunctionBuilder) -> None:
    again = build.block()
    build.branch(again)
    build.place(again)
    build.branch(again)


def _use_local(build: FunctionBuilder, type_: int) -> None:
    length = build.emit("buffer.length", build.arguments[0])
    zero = build.constant("i64", 0)
    build.emit(
        "buffer.store.i32",
        _binding(build, 0, type_),
        zero,
        build.emit("trunc.i64.i32", length),
    )
    build.return_()
