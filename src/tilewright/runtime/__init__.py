"""The runtime roof: loads artifacts and runs them on a device.

Not here: anything that compiles. Importing this package loads no llvmlite, onnx or torch; its modules are
imported by name (`tilewright.runtime.native`, `tilewright.runtime.session`, ...), nothing is pulled in
up front. Called by `tilewright.api`, `tilewright.tuning` and the command line.
"""
