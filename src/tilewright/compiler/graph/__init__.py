"""The graph IR.  See `ir.py` for the data, `schema.py` for what it knows about ops."""
