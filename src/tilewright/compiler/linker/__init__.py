"""The linker of kernels: relocatable objects of a code generator in, one shared object out.

`link_shared` makes position-independent images without imports, which IREE's embedded loader and
`dlopen` accept.  Not a general linker: no imports, no thread-local data, no constructors, no debug
information.  Objects and images are read by `formats.elf`.  Called by `compiler.backends.cpu`.
"""

from tilewright.compiler.linker.architectures import ARCHITECTURES, Architecture
from tilewright.compiler.linker.link import link_shared

__all__ = ["ARCHITECTURES", "Architecture", "link_shared"]
