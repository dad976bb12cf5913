"""Bytes ↔ frozen dataclasses, shared by both roofs.

File formats as data: the executable library ABI, ELF images, `.vmfb` archives, VM bytecode.
Nothing here compiles or runs anything, and everything read is checked before it is handed out:
corrupt input ends in an `ArchiveError` with its place.  Imports `base` and numpy, nothing else.
"""
