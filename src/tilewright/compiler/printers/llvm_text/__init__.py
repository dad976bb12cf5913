"""Kernels as LLVM IR, in the form the instruction selector wants.  `function` is the door; see README.md."""
