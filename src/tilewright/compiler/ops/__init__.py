"""The op declarations: every op of the graph IR in exactly one place.

`catalogue` finds a declaration by name, `builder` writes graphs with them, `declaration` says
what a row consists of.  Schemas go down to `graph`; bodies emit `kernel` code.
"""
