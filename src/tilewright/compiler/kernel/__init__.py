"""The kernel IR.  See `ir.py` for the data and its semantics."""
