"""C compilers of the system: which there are, how they are run, what they made before.  `toolchain` is the door.

Needed by exports of libraries and by the back end that writes C; nothing else in this house needs one.
"""
