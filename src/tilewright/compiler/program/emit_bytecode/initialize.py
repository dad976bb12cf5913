"""`__init` and its helper: load the executable and every constant into globals, once."""

from __future__ import annotations

from tilewright.compiler.program.emit_bytecode.function import (
    ANY_QUEUE,
    IMMUTABLE,
    MEMORY_DEVICE_LOCAL,
    READ,
    USAGE,
    HalFunction,
)
from tilewright.compiler.program.emit_bytecode.module import (
    BUFFER_TYPE,
    EXECUTABLE_GLOBAL,
    EXECUTABLE_TYPE,
    LOAD_CONSTANT,
    ModuleTables,
)
from tilewright.formats.bytecode.assembler import AssembledFunction


def emit_load_constant(module: ModuleTables) -> AssembledFunction:
    """(rodata, length) -> device buffer: imported in place, or read into a new buffer."""
    function = HalFunction(module, "0rI_r")
    build = function.build
    data, length = build.arguments
    device = function.device()
    allocator = function.call("hal.device.allocator", [device], "ref")
    kind = [function.i32(MEMORY_DEVICE_LOCAL), function.i32(USAGE | IMMUTABLE)]
    arguments = [
        allocator,
        function.i32(1),
        function.i64(ANY_QUEUE),
        *kind,
        data,
        function.i64(0),
        length,
    ]
    mapped = function.call("hal.allocator.import", arguments, "ref")
    in_place, copied = build.block("ref"), build.block()
    build.branch_if(build.emit("cmp.nz.ref", mapped), in_place, copied, [mapped])
    build.place(copied)
    buffer = function.allocate(allocator, length)
    fence = function.call("hal.fence.create", [device, function.i64(0)], "ref")
    file = function.call(
        "hal.ex.file.from_memory",
        [
            device,
            function.i64(ANY_QUEUE),
            function.i32(READ),
            data,
            function.i64(0),
            length,
            function.i32(0),
        ],
        "ref",
    )
    zero = function.i64(0)
    queue = [device, function.i64(ANY_QUEUE), function.null(), fence]
    function.call("hal.device.queue.read", [*queue, file, zero, buffer, zero, length, zero])
    function.wait(fence, "loading a constant")
    build.return_(buffer)
    (result,) = build.place(in_place)
    build.return_(result)
    return build.finish()


def emit_init(module: ModuleTables) -> AssembledFunction:
    """Load the executable and every constant into globals."""
    function = HalFunction(module, "0v_v")
    build = function.build
    if module.program.kernels:
        executable = function.call(
            "hal.executable.create",
            [
                function.device(),
                function.i64(ANY_QUEUE),
                function.text(module.executable_format),
                function.rodata(module.executable),
                function.null(),
            ],
            "ref",
        )
        type_ = module.type_(EXECUTABLE_TYPE)
        build.emit("global.store.ref", EXECUTABLE_GLOBAL, type_, executable)
    for storage, segment in module.constants.items():
        assert isinstance(storage.size_bytes, int)
        arguments = [function.rodata(segment), function.i64(storage.size_bytes)]
        (buffer,) = build.call(LOAD_CONSTANT, arguments, ["ref"])
        type_ = module.type_(BUFFER_TYPE)
        build.emit("global.store.ref", module.globals[storage], type_, buffer)
    build.return_()
    return build.finish()
