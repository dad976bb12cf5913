"""`__init` and its helpers: load the executable and every constant into globals, once.

Where there is code for several CPUs, the device is asked for their features, and the executable is
the one that needs most among those that can run.  Constants that it does not read are not loaded.

Source: category `hal.cpu` of IREE's local devices; keys are LLVM's names of features, and one that
a runtime does not know is no reason against code (`docs/formats/vmfb.md`).
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping

from tilewright.compiler.program.emit_bytecode.function import (
    ANY_QUEUE,
    CPU_CATEGORY,
    IMMUTABLE,
    MEMORY_DEVICE_LOCAL,
    READ,
    STATUS_INCOMPATIBLE,
    USAGE,
    HalFunction,
)
from tilewright.compiler.program.emit_bytecode.module import (
    BODY_GLOBAL,
    BUFFER_TYPE,
    EXECUTABLE_GLOBAL,
    EXECUTABLE_TYPE,
    IS_LACKING,
    LOAD_CONSTANT,
    ModuleTables,
    VariantCode,
)
from tilewright.formats.bytecode.assembler import AssembledFunction
from tilewright.formats.bytecode.drafts import Register


def emit_load_constant(module: ModuleTables) -> AssembledFunction:
    """(rodata, length) -> device buffer: imported in place, or read into a new buffer."""
    function = HalFunction(module, "0rI_r")
    build = function.build
    data, length = build.arguments
    device = function.device()
    allocator = function.call("hal.device.allocator", device)
    source = (data, 0, length)
    place = (1, ANY_QUEUE, MEMORY_DEVICE_LOCAL, USAGE | IMMUTABLE)
    mapped = function.call("hal.allocator.import", allocator, *place, *source)
    in_place, copied = build.block("ref"), build.block()
    build.branch_if(build.emit("cmp.nz.ref", mapped), in_place, copied, [mapped])
    build.place(copied)
    buffer = function.allocate(allocator, length)
    fence = function.call("hal.fence.create", device, 0)
    queue = (device, ANY_QUEUE)
    file = function.call("hal.ex.file.from_memory", *queue, READ, *source, 0)
    target = (buffer, 0, length)
    function.call("hal.device.queue.read", *queue, None, fence, file, 0, *target, 0)
    function.wait(fence, "loading a constant")
    build.return_(buffer)
    (result,) = build.place(in_place)
    build.return_(result)
    return build.finish()


def emit_is_lacking(module: ModuleTables) -> AssembledFunction:
    """(feature) -> 1 where the device knows the feature and its CPU has it not, else 0."""
    function = HalFunction(module, "0r_i")
    build = function.build
    (feature,) = build.arguments
    known, value = build.call(
        module.import_("hal.device.query.i64"),
        [function.device(), function.text(CPU_CATEGORY), feature],
        ["i32", "i64"],
    )
    absent = build.emit("cmp.eq.i64", value, function.i64(0))
    build.return_(build.emit("and.i32", known, absent))
    return build.finish()


def emit_init(module: ModuleTables) -> AssembledFunction:
    """Load the executable and every constant into globals."""
    function = HalFunction(module, "0v_v")
    build = function.build
    if module.is_choosing:
        _load_best(function)
    elif module.program.kernels:
        _load_executable(function, module.codes[0])
    common = module.common_constants()
    sizes = _constant_sizes(module, module.codes[0])
    _load_constants(function, {g: n for g, n in sizes.items() if g in common})
    build.return_()
    return build.finish()


def _constant_sizes(module: ModuleTables, code: VariantCode) -> dict[int, int]:
    """The bytes of each constant of a code, by its global."""
    sizes: dict[int, int] = {}
    for storage, index in module.constants(code).items():
        assert isinstance(storage.size_bytes, int)
        sizes[index] = max(storage.size_bytes, sizes.get(index, 0))
    return sizes


def _load_constants(function: HalFunction, sizes: Mapping[int, int]) -> None:
    """Fill globals with constants of these sizes."""
    module, build = function.module, function.build
    if module.weights:
        _load_weights(function, sizes)
        return
    for index, size_bytes in sizes.items():
        data = function.rodata(module.segment(index))
        (buffer,) = build.call(LOAD_CONSTANT, [data, function.i64(size_bytes)], ["ref"])
        build.emit("global.store.ref", index, module.type_(BUFFER_TYPE), buffer)


def _load_weights(function: HalFunction, sizes: Mapping[int, int]) -> None:
    """Fill globals from a file that whoever runs the module gives, in place where it can be.

    Source: IREE `io_parameters.imports.mlir`, `load`.
    """
    if not sizes:
        return
    module, build = function.module, function.build
    keys, table, spans = bytearray(), bytearray(), bytearray()
    for index, size_bytes in sizes.items():
        text = module.weights[index - 1].encode()
        table += struct.pack("<II", len(keys), len(text))
        spans += struct.pack("<QQQ", 0, 0, size_bytes)
        keys += text
    device = function.device()
    fence = function.call("hal.fence.create", device, 0)
    kind = (ANY_QUEUE, MEMORY_DEVICE_LOCAL, USAGE | IMMUTABLE)
    texts = (function.rodata(module.data(bytes(part))) for part in (table, keys, spans))
    queue = (device, ANY_QUEUE, None, fence, None)
    loaded = function.call("io_parameters.load", *queue, *kind, *texts)
    function.wait(fence, "loading the weights")
    type_ = module.type_(BUFFER_TYPE)
    for position, index in enumerate(sizes):
        buffer = build.emit("list.get.ref", loaded, function.i32(position), type_)
        build.emit("global.store.ref", index, type_, buffer)


def _load_best(function: HalFunction) -> None:
    """Load the code that needs most among those whose features are there.

    IREE's devices look at their CPU when they load their first executable and deny every feature
    before.  So where nothing fits, the code that needs least is loaded, and they are asked again.
    """
    module, build = function.module, function.build
    common = module.common_constants()
    codes = sorted(
        zip(module.codes, module.bodies, strict=True),
        key=lambda pair: len(pair[0].features),
        reverse=True,  # stable: of equals the first, as sessions choose
    )
    ask, loaded = build.block("i32"), build.block()
    build.branch(ask, function.i32(0))
    (is_second_time,) = build.place(ask)
    lacking = _ask(function)
    is_first_time = build.emit("xor.i32", is_second_time, function.i32(1))
    for code, body in codes:
        here, next_ = build.block(), build.block()
        reasons = [lacking[feature] for feature in sorted(code.features)]
        is_lacking = functools.reduce(
            functools.partial(build.emit, "or.i32"), reasons or [is_first_time]
        )
        build.branch_if(is_lacking, next_, here)
        build.place(here)
        _load_executable(function, code)
        if module.has_switch:
            build.emit("global.store.i32", BODY_GLOBAL, function.i32(body))
        sizes = _constant_sizes(module, code)
        _load_constants(function, {g: n for g, n in sizes.items() if g not in common})
        build.branch(loaded)
        build.place(next_)
    again, fail = build.block(), build.block()
    build.branch_if(is_first_time, again, fail)
    build.place(again)
    _load_executable(function, codes[-1][0])
    build.branch(ask, function.i32(1))
    build.place(fail)
    names = ", ".join(f"'{code.target}'" for code, _ in codes)
    message = f"no code for this CPU; the module has {names}"
    build.fail(function.i32(STATUS_INCOMPATIBLE), message)
    build.place(loaded)


def _ask(function: HalFunction) -> dict[str, Register]:
    """Of every feature that some code needs, whether the CPU lacks it."""
    features = sorted({name for code in function.module.codes for name in code.features})
    return {
        name: function.build.call(IS_LACKING, [function.text(name)], ["i32"])[0]
        for name in features
    }


def _load_executable(function: HalFunction, code: VariantCode) -> None:
    device, format_ = function.device(), function.text(code.format)
    image = function.rodata(code.executable)
    executable = function.call(
        "hal.executable.create", device, ANY_QUEUE, format_, image, None
    )
    type_ = function.module.type_(EXECUTABLE_TYPE)
    function.build.emit("global.store.ref", EXECUTABLE_GLOBAL, type_, executable)
