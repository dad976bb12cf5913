"""Native modules for the virtual machine: where bytecode meets devices.

Each is a table of functions; `vm` and `hal` know nothing of each other and meet here.
"""
