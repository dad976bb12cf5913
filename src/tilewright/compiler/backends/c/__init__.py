"""Portable C: kernels as sources for any C compiler.  `backend` is the door."""
