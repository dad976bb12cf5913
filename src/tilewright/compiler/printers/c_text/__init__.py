"""Kernels as C that a person can read.  `function` is the door; see README.md."""
