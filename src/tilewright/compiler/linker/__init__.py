"""The linker of kernels: relocatable objects of a code generator in, one shared object out.

`link_shared` makes position-independent images without imports, which IREE's embedded loader and
`dlopen` accept.  Not a general linker: no imports, no thread-local data, no constructors, no debug
information.  Objects and images are read by `formats.elf`.  Called by `compiler.backends.cpu`.
"""

from tilewright.compiler.linker.link import link_shared
from tilewright.compiler.linker.machines import MACHINES, Machine

__all__ = ["MACHINES", "Machine", "link_shared"]
