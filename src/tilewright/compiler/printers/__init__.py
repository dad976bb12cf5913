"""Kernels as text of a language that several back ends share.  Printers never meet; back ends call them."""
