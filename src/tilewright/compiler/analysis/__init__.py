"""Facts about kernels: what they touch, and which iterations need each other.

Observation only: nothing here rewrites a kernel or decides how one should run.  Answers are one-sided,
True is a proof and False means "not proven".  Called by the primitives and rules of `schedule` and by
`program`.  What the kernel evaluator must know about a loop is `kernel.independence`, in the room below: an
oracle does not ask the analysis that is tested with it.
"""
