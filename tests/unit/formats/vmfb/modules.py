"""Modules the tests of archives write and run."""

from __future__ import annotations

from tilewright.compiler.linker import link_shared
from tilewright.formats.executable import ExportDecl, library_tables_ir
from tilewright.formats.vmfb import ModuleBuilder, ModuleDef
from unit.formats.conftest import compile_ir

ADD_KERNEL = """
define hidden i32 @add(ptr %e, ptr %d, ptr %w) nounwind "no-builtins" {
entry:
  %constants_at = getelementptr i8, ptr %d, i64 24
  %constants = load ptr, ptr %constants_at
  %count = load i32, ptr %constants
  %bindings_at = getelementptr i8, ptr %d, i64 32
  %bindings = load ptr, ptr %bindings_at
  %x = load ptr, ptr %bindings
  %y_at = getelementptr i8, ptr %bindings, i64 8
  %y = load ptr, ptr %y_at
  %z_at = getelementptr i8, ptr %bindings, i64 16
  %z = load ptr, ptr %z_at
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %xp = getelementptr float, ptr %x, i32 %i
  %yp = getelementptr float, ptr %y, i32 %i
  %zp = getelementptr float, ptr %z, i32 %i
  %xv = load float, ptr %xp
  %yv = load float, ptr %yp
  %sum = fadd float %xv, %yv
  store float %sum, ptr %zp
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %count
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}
"""


def add_kernel() -> bytes:
    """An embedded ELF with one kernel."""
    export = ExportDecl(name="add_kernel", symbol="add", constant_count=1, binding_count=3)
    return link_shared(
        [compile_ir(ADD_KERNEL), compile_ir(library_tables_ir("kernels", [export]))]
    )


def add_module() -> ModuleDef:
    """Adds two vectors of any length; runs on every CPU driver of IREE."""
    build = ModuleBuilder("own")
    build.dependency("hal", 7)
    executable_type = build.type("!hal.executable")
    executable = build.global_ref()
    kernel = build.global_word("i64")
    _initializer(build, executable, kernel, executable_type)
    _addition(build, executable, kernel, executable_type)
    return build.finish()


def _initializer(build: ModuleBuilder, executable: int, kernel: int, kind: int) -> None:
    get = build.import_("hal.devices.get", "0i_r")
    create = build.import_("hal.executable.create", "0rIrrr_r")
    lookup = build.import_("hal.executable.lookup.function", "0rr_I")
    f = build.function("0v_v", export="__init")

    def data(ordinal: int) -> object:
        return f.emit("const.ref.rodata", ordinal)

    (device,) = f.call(get, [f.constant("i32", 0)], ["ref"])
    image = data(build.rodata(add_kernel()))
    arguments = [
        device,
        f.constant("i64", -1),
        data(build.text("embedded-elf-x86_64")),
        image,
    ]
    (made,) = f.call(create, [*arguments, f.emit("const.ref.zero")], ["ref"])
    (ordinal,) = f.call(lookup, [made, data(build.text("add_kernel"))], ["i64"])
    f.emit("global.store.i64", kernel, ordinal)
    f.emit("global.store.ref", executable, kind, made)
    f.return_()


def _addition(build: ModuleBuilder, executable: int, kernel: int, kind: int) -> None:
    get = build.import_("hal.devices.get", "0i_r")
    dim = build.import_("hal.buffer_view.dim", "0ri_I")
    buffer = build.import_("hal.buffer_view.buffer", "0r_r")
    fence = build.import_("hal.fence.create", "0rI_r")
    alloca = build.import_("hal.device.queue.alloca", "0rIrrIiiII_r")
    commands = build.import_("hal.command_buffer.create", "0riiIi_r")
    dispatch = build.import_("hal.command_buffer.dispatch", "0rrIiiiICiDCiirIID_v")
    finalize = build.import_("hal.command_buffer.finalize", "0r_v")
    execute = build.import_("hal.device.queue.execute", "0rIrrrI_v")
    wait = build.import_("hal.fence.await", "0iICrD_i")
    view = build.import_("hal.buffer_view.create", "0rIIiiCID_r")
    f = build.function("0rr_r", export="add")
    left, right = f.arguments
    zero, one, zero_wide = f.constant("i32", 0), f.constant("i32", 1), f.constant("i64", 0)
    anywhere = f.constant("i64", -1)
    (device,) = f.call(get, [zero], ["ref"])
    loaded = f.emit("global.load.ref", executable, kind)
    ordinal = f.emit("global.load.i64", kernel)
    (count,) = f.call(dim, [left, zero], ["i64"])
    size = f.emit("mul.i64", count, f.constant("i64", 4))
    inputs = [f.call(buffer, [item], ["ref"])[0] for item in (left, right)]
    (allocated,) = f.call(fence, [device, zero_wide], ["ref"])
    memory, usage = f.constant("i32", 48), f.constant("i32", 3075)
    nothing = f.emit("const.ref.zero")
    place = [
        device,
        anywhere,
        nothing,
        allocated,
        zero_wide,
        memory,
        usage,
        size,
        zero_wide,
    ]
    (out,) = f.call(alloca, place, ["ref"])
    (recording,) = f.call(
        commands, [device, one, f.constant("i32", 3), anywhere, zero], ["ref"]
    )
    bindings = [(zero, zero, item, zero_wide, size) for item in (*inputs, out)]
    constants = [f.emit("trunc.i64.i32", count)]
    grid = [one, one, one, zero_wide]
    f.call_variadic(dispatch, [recording, loaded, ordinal, *grid, constants, bindings])
    f.call(finalize, [recording])
    (done,) = f.call(fence, [device, zero_wide], ["ref"])
    f.call(execute, [device, anywhere, allocated, done, recording, zero_wide])
    (status,) = f.call_yieldable(wait, [f.constant("i32", -1), zero_wide, [done]], ["i32"])
    good, bad = f.block(), f.block()
    f.branch_if(status, bad, good)
    f.place(bad)
    f.fail(status, "the addition failed")
    f.place(good)
    shape = [out, zero_wide, size, f.constant("i32", 0x21000020), one, [count]]
    f.return_(*f.call_variadic(view, shape, ["ref"]))
