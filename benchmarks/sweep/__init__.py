"""The sweeps: many small ONNX models, our time against onnxruntime's, in one run.

What it is: what stands behind ``benchmarks/op_sweep.py`` and ``benchmarks/block_sweep.py``.
What it is not: the figures with bars of the model set (``figures``).
Who calls it: the two commands and the tests of the harness.
"""
