"""The virtual machine: modules, contexts and the interpreter of bytecode; knows no device.

Functions of modules call each other through contexts; native modules bring functions written in
Python.  Not here: the `hal` module (`runtime.modules`) and devices (`runtime.hal`).
"""
