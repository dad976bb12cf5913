"""The benchmark harness: machine limits, contenders in processes of their own, rows with bars.

What it is: what stands behind ``benchmarks/bench.py``.
What it is not: a profiler (``tilewright bench`` shows the kernels of one model).
Who calls it: ``bench.py`` and the tests of the harness.
"""
