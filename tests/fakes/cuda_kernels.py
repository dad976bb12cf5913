"""A small executable for GPUs: the kernels of `kernel_image` that a GPU can have, and three more.

What it is: LLVM IR by hand → PTX that a real driver compiles → the container that the driver reads.
What it is not: anything the compiler makes.

    scale   y[i] = x[i] * constant[0], one element per workgroup in x
    total   y[0] = sum of x[0 .. constant[0])
    grid    y[x + cx * (y + cy * z)] = 1 + x + 10 * y + 100 * z
    fail    stops the GPU's work with an error
    add     z[i] = x[i] + y[i] of constant[0] floats
    mul     z[i] = x[i] * y[i]
    matmul  c [m, n] = a [m, k] b [k, n], floats; constants m, n, k; one element per workgroup
"""

from __future__ import annotations

import functools

import llvmlite.binding as llvm

from tilewright.formats.cuda_executable import (
    FORMAT,
    CudaExecutableDef,
    CudaExport,
    write_cuda_executable,
)

__all__ = ["FORMAT", "KERNELS", "cuda_image", "cuda_ptx"]

KERNELS = {  # name: constants, bindings
    "scale": (1, 2),
    "total": (1, 2),
    "grid": (0, 1),
    "fail": (0, 0),
    "add": (1, 3),
    "mul": (1, 3),
    "matmul": (3, 3),
}

_REGISTERS = ("ctaid.x", "ctaid.y", "ctaid.z", "nctaid.x", "nctaid.y")
_DECLARATIONS = "\n".join(
    f"declare i32 @llvm.nvvm.read.ptx.sreg.{name}()" for name in _REGISTERS
)
_P = "ptr addrspace(1)"


def _elementwise(name: str, op: str) -> str:
    return f"""
define ptx_kernel void @{name}({_P} %x, {_P} %y, {_P} %z, i32 %n) {{
  %i = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %in = icmp ult i32 %i, %n
  br i1 %in, label %body, label %done
body:
  %xi = getelementptr float, {_P} %x, i32 %i
  %yi = getelementptr float, {_P} %y, i32 %i
  %zi = getelementptr float, {_P} %z, i32 %i
  %a = load float, {_P} %xi
  %b = load float, {_P} %yi
  %c = {op} float %a, %b
  store float %c, {_P} %zi
  br label %done
done:
  ret void
}}
"""


_KERNELS_IR = f"""
{_DECLARATIONS}
declare void @llvm.trap()
define ptx_kernel void @scale({_P} %x, {_P} %y, i32 %k) {{
  %i = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %xi = getelementptr i32, {_P} %x, i32 %i
  %v = load i32, {_P} %xi
  %p = mul i32 %v, %k
  %yi = getelementptr i32, {_P} %y, i32 %i
  store i32 %p, {_P} %yi
  ret void
}}
define ptx_kernel void @total({_P} %x, {_P} %y, i32 %n) {{
entry:
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%j, %body]
  %s = phi i32 [0, %entry], [%t, %body]
  %more = icmp ult i32 %i, %n
  br i1 %more, label %body, label %done
body:
  %xi = getelementptr i32, {_P} %x, i32 %i
  %v = load i32, {_P} %xi
  %t = add i32 %s, %v
  %j = add i32 %i, 1
  br label %loop
done:
  store i32 %s, {_P} %y
  ret void
}}
define ptx_kernel void @grid({_P} %out) {{
  %x = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %y = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()
  %z = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.z()
  %cx = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %cy = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.y()
  %a = mul i32 %cy, %z
  %b = add i32 %a, %y
  %c = mul i32 %cx, %b
  %i = add i32 %c, %x
  %z100 = mul i32 %z, 100
  %y10 = mul i32 %y, 10
  %v0 = add i32 %z100, %y10
  %v1 = add i32 %v0, %x
  %v = add i32 %v1, 1
  %oi = getelementptr i32, {_P} %out, i32 %i
  store i32 %v, {_P} %oi
  ret void
}}
define ptx_kernel void @fail() {{
  call void @llvm.trap()
  ret void
}}
{_elementwise("add", "fadd")}
{_elementwise("mul", "fmul")}
define ptx_kernel void @matmul({_P} %a, {_P} %b, {_P} %c, i32 %m, i32 %n, i32 %k) {{
entry:
  %w = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %row = udiv i32 %w, %n
  %column = urem i32 %w, %n
  %start = mul i32 %row, %k
  br label %loop
loop:
  %j = phi i32 [0, %entry], [%next, %body]
  %s = phi float [0.0, %entry], [%t, %body]
  %more = icmp ult i32 %j, %k
  br i1 %more, label %body, label %done
body:
  %i0 = add i32 %start, %j
  %i1p = mul i32 %j, %n
  %i1 = add i32 %i1p, %column
  %ap = getelementptr float, {_P} %a, i32 %i0
  %bp = getelementptr float, {_P} %b, i32 %i1
  %x = load float, {_P} %ap
  %y = load float, {_P} %bp
  %p = fmul float %x, %y
  %t = fadd float %s, %p
  %next = add i32 %j, 1
  br label %loop
done:
  %cp = getelementptr float, {_P} %c, i32 %w
  store float %s, {_P} %cp
  ret void
}}
"""


@functools.cache
def cuda_ptx(cpu: str = "sm_52") -> bytes:
    """The kernels as PTX."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("nvptx64-nvidia-cuda").create_target_machine(
        cpu=cpu, features="+ptx60", opt=2
    )
    module = llvm.parse_assembly(_KERNELS_IR)
    module.triple = "nvptx64-nvidia-cuda"
    return machine.emit_assembly(module).encode()


@functools.cache
def cuda_image() -> bytes:
    """The executable."""
    exports = tuple(
        CudaExport(
            name=name,
            kernel_name=name,
            constant_count=constants,
            binding_flags=(0,) * bindings,
        )
        for name, (constants, bindings) in KERNELS.items()
    )
    return write_cuda_executable(CudaExecutableDef(exports=exports, images=(cuda_ptx(),)))
