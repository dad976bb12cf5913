"""The host side of a compiled model: storages with lifetimes, dispatches, copies, host calls.

One small IR (`ir.py`), built from the fused graph (`build.py`), laid out in memory (`memory.py`)
and emitted as a plan (`emit_plan.py`) or as VM bytecode (`emit_bytecode`).
"""
