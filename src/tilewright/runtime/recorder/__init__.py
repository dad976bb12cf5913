"""The one command list that everything which replays is built from.

`Recorder` takes slots, ranges and commands and packs them; `recorder.build()` has them checked once and
gives a `native.CommandList`, which the C core replays.  Not here: what to record.  Called by plan binding,
the command buffers of local devices, recorded calls and `hal_loader`, which only translate.

`Recorder`
    slot(size_bytes, writable=False, alignment=1) -> int      (slots are numbered in order of creation)
    dispatch(function, bindings, workgroup_count, *, constants=(), environment=0,
             workgroup_size=(1, 1, 1), local_memory_bytes=0, barrier=True,
             flushes_denormals=False, name="") -> int   (the command's ordinal)
    copy(target, source, barrier=True); fill(target, pattern: bytes of 1, 2, 4 or 8, barrier=True)
    host_call(function, bindings, writable=(bool per binding), barrier=True): calls
             `function(*memoryviews)` with the GIL held, one byte view per binding
    on_finding(function, findings): calls `function(memoryview)` if some record of 64 bytes in the range
             `findings` does not begin with the least i64; nothing of Python runs otherwise
    keep(obj): the list holds a reference (code images, environments)
  A binding is (slot, offset, length) in bytes. `barrier=True`: the command waits for all earlier ones;
  commands without a barrier between them may run at the same time.
"""

from tilewright.runtime.recorder.recorder import Range, Recorder

__all__ = ["Range", "Recorder"]
