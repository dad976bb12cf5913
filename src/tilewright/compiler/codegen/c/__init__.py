"""Portable C code generator: kernel IR to C that a person can read.  `backend` is the door."""
