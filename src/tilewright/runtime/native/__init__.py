"""The one binding to the C core: worker pool, replay of commands, code images, aligned memory.

Not here: any policy, any file format, any device noun. Called by `loaders`, `hal`, `drivers`,
`plan_executor` and `session`. Every class exists twice: in C (`_native`, built from `native/`) and in
Python over ctypes and mmap (`fallback`; slower, one thread), used when the extension was not built.
`IS_NATIVE` says which one the names below are bound to; `EXTENSION` is the C module, or None.

Memory
------
`Memory(size_bytes)`: zeroed, 64-byte aligned block (>= 128 KiB: pages of its own; >= 2 MiB: 2 MiB aligned, huge
    pages advised).
    `.address: int`, `.size_bytes: int`, `.readonly: bool`; buffer protocol (format "B"), so
    `memoryview(m)`, `np.frombuffer(m, dtype)` work and keep it alive.
`map_file(path, offset=0, length=None) -> Memory`: read-only shared mapping of a file range (any offset).
`tensor_capsule(owner, address, shape, code, bits, lanes)`: a DLPack capsule of dense memory at an address, which keeps
    `owner` alive as long as somebody has the tensor.  Nobody can check the address.
`import_thunk() -> int`: address of the function that kernels call their imports through.
`processor_data() -> tuple[int, ...]`: the eight 64-bit words of the executable environment (IREE layout).
`give_back_freed_memory()`: pages of freed memory go back to the system.
`denormals_flushed()`: a context in which this thread takes denormal floats as zero, for kernels in Python.
`create_environment(constants=b"") -> Memory`: an executable environment block; `.address` goes to
    `dispatch(environment=...)` and `CodeImage.call_query`. Address 0 means "the default environment".

Heap
----
`Heap(capacity_bytes=None, kept_bytes=None)`: the memory of a device: blocks that are leased and, when they come
    back, kept for the next lease.  Leased and kept blocks together take at most an eighth (and 1 MiB) more than
    the most that was ever leased at the same time, and never more than the capacity.
    `.lease(size_bytes, use=MemoryUse.TRANSIENT) -> Memory`: a block with undefined contents that goes back when
        the Memory goes.  DeviceError (RESOURCE_EXHAUSTED) for more than the capacity or the system has.
    `.trim()`: gives back what is kept; `.close()`: also keeps nothing from here on.  `.capacity_bytes`.
    `.report()`: plain numbers; `MemoryReport.of(heap)` names them.

CodeImage
---------
`CodeImage(size_bytes, segments, relocations, protections)`: reserves one address range, copies, relocates,
protects, flushes the instruction cache. Never writable and executable at once. Unmapped with the last
reference.
    segments:    sequence of (offset, bytes-like)
    relocations: sequence of (offset, value, is_base_relative): 8 bytes written at `offset`:
                 `value`, plus the image base if is_base_relative
    protections: sequence of (offset, length, PROTECT_* bits), applied in order (so RELRO = a later
                 PROTECT_READ over an earlier READ|WRITE range); ranges grow to whole pages; pages never
                 named become inaccessible. WRITE|EXECUTE is refused (ValueError).
    `.base: int`, `.size_bytes: int`, `.address(offset) -> int` (IndexError when outside),
    `.read(address, length) -> bytes` (bounds-checked, IndexError),
    `.holds_code(address) -> bool`: whether the address lies in executable pages of the image.
    `.call_query(offset, version, environment_address) -> int`: calls the library query function and
    returns the address of the library header pointer, or 0 for NULL.
`read_library(memory, library_address) -> Library`: the tables of an executable library v0, each
    pointer checked by the memory, which is an image or a `ProcessMemory` (for dlopen-ed libraries): `Library(name, version, features, constant_count, imports, exports)`,
    `Export(name, function, flags, local_memory_bytes, constant_count, binding_count, workgroup_size,
    parameter_count)`.

Pool
----
`Pool(thread_count, cpu_ids=None, spin_us=100)`: `thread_count` counts the caller, who always takes part.
    `.thread_count`, `.close()`, context manager. Workers start at first use, sleep when idle, and are
    started again in a forked child. May be used from several Python threads at once.

CommandList
-----------
`CommandList(commands, bindings, slots, constants, host_calls=(), owners=(), names=())`: recorded commands in
    packed form (`runtime.recorder` makes it), see `native/include/tw_command_list.h`; everything but the function addresses is range-checked (ValueError).
    `.run(pool, buffers, heap=None) -> None`: `pool` may be None (caller only). Workgroup memory of the threads is
        leased from `heap` for the time of the run; None is one without bound. `buffers`: one entry per slot, an
        object with the buffer protocol (C-contiguous, >= the slot's size, writable when the slot is), or
        an int address (unchecked). ValueError names the slot. KernelError (a RuntimeError) with the
        command's ordinal and name when a kernel returns non-zero or a thread gets no workgroup memory
        for it. On the main thread KeyboardInterrupt is noticed between commands and workgroups.
    `.run_timed(pool, buffers, heap=None)`: run one command at a time; per command (begin, end, threads) on the clock of
        `time.perf_counter_ns`, where threads are (index, begin of its first, end of its last workgroup) of
        those that ran some of it, 0 being the caller.
    `.command_count`, `.slot_count`.

RecordedCall
------------
`RecordedCall(commands, pool, inputs, outputs, constants=(), heap=None, counted_bytes=0, tensors=None)`: the fast path for a whole
static model.
    inputs:    per input (name, formats, shape): `formats` = accepted buffer-protocol format strings
               separated by "|" ("f", "l|q", "?"), shape = tuple of int
    outputs:   per output a callable without arguments returning a fresh writable buffer
               (`functools.partial(np.empty, shape, dtype)`)
    constants: buffers for the slots after inputs and outputs; the remaining slots are the arena, leased
               from the heap (None: one without bound) while a call is in flight.
    counted_bytes: what a call takes beside that, such as its outputs: a heap with a capacity counts it as
               transient until the call returns.
    tensors:   a type with the table of C functions of DLPack 1.3 (`__dlpack_c_exchange_api__`): inputs of just this
               type are looked at by it, and the callables of outputs may return some; marks of a tensor's that
               its memory does not show (negated, conjugated) are the caller's to ask. TypeError for a type without
               the table, and always in the Python core.
    `invocation(*arrays)` returns the output, or a tuple if there is not exactly one. TypeError/ValueError
    name the input. Calls from several threads are independent. Inputs not aligned as the slot asks are
    copied to aligned memory first.

FlowProgram
-----------
Only in the extension: without it, plans are walked in Python.
`FlowProgram(tables, texts, constants, owners, heap=None)`: a plan whose sizes data decides; `plan_executor` makes the tables
    (`native/src/program/tables.h`), whose places and counts are checked (ArchiveError).
    `.run(pool, dims, inputs, allocate) -> None`: one call. `dims`: the values of the dynamic dimensions; `inputs`: a dense
        buffer each; `allocate(output, shape)` gives a writable buffer for a result whose shape is known now. InputError,
        DeviceError and ArchiveError as calls of sessions raise them; what `allocate` raises.

PackedCall
----------
`PackedCall(function, tensors, owner, fail)`: a packed function of tvm-ffi whose arguments are
    tensors on the CPU, dense and in row-major order, of types that are known before. Made by `runtime.packed`.
    function:  the address of its object, which `owner` keeps
    tensors:   per argument (type code, bits, itemsize, shape) of DLPack
    fail:      called without arguments when the function failed; raises
    `call(*buffers) -> None`: one buffer per tensor, of exactly its bytes; runs without the GIL. Whether a buffer
        may be written is not looked at: functions write their results only. A tensor that the function keeps
        keeps its buffer.
    `PackedCall.fail_again() -> int`: the address of a packed function that fails as the thread's last call did.
"""

from __future__ import annotations

from tilewright.runtime.native.core import (
    EXTENSION,
    IS_NATIVE,
    CodeImage,
    CommandList,
    Heap,
    Memory,
    PackedCall,
    Pool,
    RecordedCall,
    import_thunk,
    map_file,
    processor_data,
    tensor_capsule,
)
from tilewright.runtime.native.denormals import denormals_flushed
from tilewright.runtime.native.environment import create_environment
from tilewright.runtime.native.freed_memory import give_back_freed_memory
from tilewright.runtime.native.kernel_error import KernelError
from tilewright.runtime.native.library import Export, Library, read_library
from tilewright.runtime.native.memory_report import MemoryReport, MemoryUse
from tilewright.runtime.native.process_memory import ProcessMemory, read_process_memory
from tilewright.runtime.native.records import PROTECT_EXECUTE, PROTECT_READ, PROTECT_WRITE
from tilewright.runtime.native.timing import ThreadSpan, Timing

__all__ = [
    "EXTENSION",
    "IS_NATIVE",
    "PROTECT_EXECUTE",
    "PROTECT_READ",
    "PROTECT_WRITE",
    "CodeImage",
    "CommandList",
    "Export",
    "Heap",
    "KernelError",
    "Library",
    "Memory",
    "MemoryReport",
    "MemoryUse",
    "PackedCall",
    "Pool",
    "ProcessMemory",
    "RecordedCall",
    "ThreadSpan",
    "Timing",
    "create_environment",
    "denormals_flushed",
    "give_back_freed_memory",
    "import_thunk",
    "map_file",
    "processor_data",
    "read_library",
    "read_process_memory",
    "tensor_capsule",
]
