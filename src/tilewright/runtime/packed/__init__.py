"""Modules and packed functions: what a compiled model is to those who call it.

Not here: kinds of modules and files (`library`).  Called by executors, virtual machines and `library`.
"""
