"""Nouns of the hardware abstraction: what a device is made of, one per file.

Interfaces and the parts that no device does differently.  Not here: drivers (`drivers`), machine
code (`loaders`), the virtual machine (`vm`); `local` holds what drivers of the host CPU share.
Bit sets, status codes and names are those of IREE's HAL, so modules of its compilers fit.
"""
