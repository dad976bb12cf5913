"""Schedules: how a kernel runs on a target, without changing what it computes.

`rules.schedule` chooses and applies primitives by the structure of a kernel; `trace.Schedule`
records them.  Called by the pipeline and by tuning.
"""
