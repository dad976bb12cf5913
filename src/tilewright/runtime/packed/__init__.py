"""Modules and packed functions: what calls cross the border between Python, compiled code and other runtimes with.

Packed functions, strings, errors, arrays, maps and tensors are those of tvm-ffi, and so is the registry
of global functions: there is one of each in a process, whoever made them.  What is ours is the tree of
modules (`module`), because modules of Python cannot be tvm-ffi's (`genuine`).

Not here: kinds that load or run something (`tilewright.runtime.library`).
"""
