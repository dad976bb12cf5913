"""Back ends: kernels in, bytes of a target's executable out.  One folder each.

`backend` says what each of them is, `registry` finds the one that a target asks for.  Siblings never meet: what
two share lies beside these files, in `lowering` and in `printers`.
"""
