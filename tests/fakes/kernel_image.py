"""A small executable for dispatch tests: `scale`, `total`, `grid`, `fail`, `lengths`.

What it is: LLVM IR by hand → object code of this machine → the product's own ELF linker.
What it is not: anything the compiler makes; the HAL's tests need kernels they can read.

    scale    y[i] = x[i] * constant[0], one element per workgroup in x
    total    y[0] = sum of x[0 .. constant[0])
    grid     y[x + cx * (y + cy * z)] = 1 + x + 10 * y + 100 * z
    fail     returns 7
    lengths  y[0] = length of binding 1 in bytes, y[1] = constant[0] + constant[1]
"""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from tilewright.base.host import describe
from tilewright.compiler.linker import link_shared
from tilewright.formats.executable import ExportDecl, library_tables_ir

FORMAT = f"embedded-elf-{describe().arch}"
KERNELS = (
    ExportDecl(name="scale", constant_count=1, binding_count=2),
    ExportDecl(name="total", constant_count=1, binding_count=2),
    ExportDecl(name="grid", binding_count=1),
    ExportDecl(name="fail"),
    ExportDecl(name="lengths", constant_count=2, binding_count=2),
)

_KERNELS_IR = """
define hidden i32 @scale(ptr %e, ptr %d, ptr %w) nounwind "no-builtins" {
  %i = load i32, ptr %w
  %cp = getelementptr i8, ptr %d, i64 24
  %cs = load ptr, ptr %cp
  %k = load i32, ptr %cs
  %bp = getelementptr i8, ptr %d, i64 32
  %bs = load ptr, ptr %bp
  %x = load ptr, ptr %bs
  %yp = getelementptr i8, ptr %bs, i64 8
  %y = load ptr, ptr %yp
  %xi = getelementptr i32, ptr %x, i32 %i
  %v = load i32, ptr %xi
  %p = mul i32 %v, %k
  %yi = getelementptr i32, ptr %y, i32 %i
  store i32 %p, ptr %yi
  ret i32 0
}
define hidden i32 @total(ptr %e, ptr %d, ptr %w) nounwind "no-builtins" {
entry:
  %cp = getelementptr i8, ptr %d, i64 24
  %cs = load ptr, ptr %cp
  %n = load i32, ptr %cs
  %bp = getelementptr i8, ptr %d, i64 32
  %bs = load ptr, ptr %bp
  %x = load ptr, ptr %bs
  %yp = getelementptr i8, ptr %bs, i64 8
  %y = load ptr, ptr %yp
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%j, %body]
  %s = phi i32 [0, %entry], [%t, %body]
  %more = icmp ult i32 %i, %n
  br i1 %more, label %body, label %done
body:
  %xi = getelementptr i32, ptr %x, i32 %i
  %v = load i32, ptr %xi
  %t = add i32 %s, %v
  %j = add i32 %i, 1
  br label %loop
done:
  store i32 %s, ptr %y
  ret i32 0
}
define hidden i32 @grid(ptr %e, ptr %d, ptr %w) nounwind "no-builtins" {
  %x = load i32, ptr %w
  %yp = getelementptr i8, ptr %w, i64 4
  %y = load i32, ptr %yp
  %zp = getelementptr i8, ptr %w, i64 8
  %z16 = load i16, ptr %zp
  %z = zext i16 %z16 to i32
  %cxp = getelementptr i8, ptr %d, i64 12
  %cx = load i32, ptr %cxp
  %cyp = getelementptr i8, ptr %d, i64 16
  %cy = load i32, ptr %cyp
  %bp = getelementptr i8, ptr %d, i64 32
  %bs = load ptr, ptr %bp
  %out = load ptr, ptr %bs
  %a = mul i32 %cy, %z
  %b = add i32 %a, %y
  %c = mul i32 %cx, %b
  %i = add i32 %c, %x
  %z100 = mul i32 %z, 100
  %y10 = mul i32 %y, 10
  %v0 = add i32 %z100, %y10
  %v1 = add i32 %v0, %x
  %v = add i32 %v1, 1
  %oi = getelementptr i32, ptr %out, i32 %i
  store i32 %v, ptr %oi
  ret i32 0
}
define hidden i32 @fail(ptr %e, ptr %d, ptr %w) nounwind "no-builtins" {
  ret i32 7
}
define hidden i32 @lengths(ptr %e, ptr %d, ptr %w) nounwind "no-builtins" {
  %cp = getelementptr i8, ptr %d, i64 24
  %cs = load ptr, ptr %cp
  %a = load i32, ptr %cs
  %bp1 = getelementptr i8, ptr %cs, i64 4
  %b = load i32, ptr %bp1
  %sum = add i32 %a, %b
  %lp = getelementptr i8, ptr %d, i64 40
  %ls = load ptr, ptr %lp
  %l1 = getelementptr i8, ptr %ls, i64 8
  %length = load i64, ptr %l1
  %length32 = trunc i64 %length to i32
  %bp = getelementptr i8, ptr %d, i64 32
  %bs = load ptr, ptr %bp
  %out = load ptr, ptr %bs
  store i32 %length32, ptr %out
  %o1 = getelementptr i8, ptr %out, i64 4
  store i32 %sum, ptr %o1
  ret i32 0
}
"""


@functools.cache
def kernel_image() -> bytes:
    """The linked image."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = f"{describe().arch}-unknown-unknown-eabi-elf"
    machine = llvm.Target.from_triple(triple).create_target_machine(
        reloc="pic", codemodel="small"
    )
    objects = []
    for text in (_KERNELS_IR, library_tables_ir("test kernels", KERNELS)):
        module = llvm.parse_assembly(text)
        module.triple = triple
        objects.append(machine.emit_object(module))
    return link_shared(objects)
