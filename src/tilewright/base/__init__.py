"""The foundation: vocabulary that both roofs share.

Data types, symbolic integers, targets, errors, registries and knobs.  Nothing here knows what a
graph, a kernel or a device is.  Every other package imports from here; this package imports
nothing of Tilewright.
"""
