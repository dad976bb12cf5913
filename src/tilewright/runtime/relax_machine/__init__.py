"""TVM's Relax virtual machine, small: runs the executables in libraries that TVM made.

`RelaxExecutableModule` is the module that `load_module` makes of one; `RelaxMachine` runs its functions.
The C core runs the code (`native_program`) and has the frequent built-ins; the others are here (`builtins`,
`caches`, `sampling`), and so is all of it in Python (`interpreter`, `storage`) for where the core was not built.
Not here: the file form (`formats.relax_executable`), and what users hold
(`runtime.virtual_machine`).
"""

from tilewright.runtime.relax_machine.machine import RelaxMachine
from tilewright.runtime.relax_machine.modules import (
    KIND,
    RelaxExecutableModule,
    load_relax_executable,
)

__all__ = ["KIND", "RelaxExecutableModule", "RelaxMachine", "load_relax_executable"]
