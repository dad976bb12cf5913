"""CPUs through LLVM: kernels to freestanding ELF executables.  `backend` is the door; see README.md."""
