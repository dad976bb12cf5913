"""Mathematical functions as polynomials over the arithmetic of the kernel IR; `expand` is the door."""
