"""What drivers of the host CPU share: heap memory, recorded plans, queues, the device made of them.

Not here: drivers, which choose a worker pool and how deferred work runs, and loaders of machine
code, which drivers bring along.
"""
