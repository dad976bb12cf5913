"""Tuning: which decisions make the kernels of a model fastest on this machine, found by running them.

`workload` gives a kernel tensors and runs points of its space, `comparison` says which of two is faster, `search` picks what
to try next, `tuner` shares out the time between the kernels of a model and checks the end with the whole model.  What is
found goes into a store (`compiler.backends.tuning_store`) which compilations consult.  Never a change of the graph, and never
of a result: every point of a space computes the same.
"""

from tilewright.tuning.comparison import Comparison, compare
from tilewright.tuning.search import KernelSearch
from tilewright.tuning.tuner import Tuned, Tuner, keep_what_helps

__all__ = ["Comparison", "KernelSearch", "Tuned", "Tuner", "compare", "keep_what_helps"]
