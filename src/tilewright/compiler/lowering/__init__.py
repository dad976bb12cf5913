"""Between the IRs: graph nodes to kernels, scheduled kernels to machine kernels."""
