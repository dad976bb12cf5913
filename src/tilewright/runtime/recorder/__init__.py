"""The one command list that everything which replays is built from.

`Recorder` takes slots, ranges and commands; `recorder.build()` packs them, has them checked once and gives a
`native.CommandList`, which the C core replays.  `CallRecorder` makes a call with arrays of it, and
`raise_failure` says in a device's words what went wrong in a replay.  Not here: what to record.  Called by
plan binding, the command buffers of local devices, recorded calls and `hal_loader`, which only
translate.

`Recorder`
    slot(size_bytes, writable=False, alignment=1) -> int      (slots are numbered in order of creation)
    widen(slot, size_bytes, writable=...): as much as a later command needs
    dispatch(function, bindings, workgroup_count, *, constants=(), environment=0,
             workgroup_size=(1, 1, 1), local_memory_bytes=0, barrier=True,
             flushes_denormals=False, name="") -> int   (the command's ordinal)
    kernel(code, export, bindings, workgroup_count, constants=()): the same for a kernel of an executable
             library, which the list keeps
    copy(target, source, barrier=True); fill(target, pattern: bytes of 1, 2, 4 or 8, barrier=True)
    host_call(function, bindings, writable=(bool per binding), barrier=True): calls
             `function(*memoryviews)` with the GIL held, one byte view per binding
    on_finding(function, findings): calls `function(memoryview)` if some record of 64 bytes in the range
             `findings` does not begin with the least i64; nothing of Python runs otherwise
    keep(obj): the list holds a reference (code images, environments)
    append(other, places): what another recorder has, once more, behind what is here
    build(commands=None): a list of all commands, or of some
  A binding is (slot, offset, length) in bytes; a negative length reaches to the end of the slot.
  `barrier=True`: the command waits for all earlier ones; commands without a barrier between them may
  run at the same time.
"""

from tilewright.runtime.recorder.call_recorder import CallRecorder, ReplayedCall
from tilewright.runtime.recorder.failures import raise_failure
from tilewright.runtime.recorder.recorder import Command, Grid, Range, Recorder

__all__ = [
    "CallRecorder",
    "Command",
    "Grid",
    "Range",
    "Recorder",
    "ReplayedCall",
    "raise_failure",
]
