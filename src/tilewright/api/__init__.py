"""The few functions that join the two roofs for a user; `tilewright` re-exports them.

`model` compiles (and imports the compiler); `load` loads an artifact (and does not).
"""
