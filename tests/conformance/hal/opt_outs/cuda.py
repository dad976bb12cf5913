"""What `cuda` does not support."""

REASONS: dict[str, str] = {
    "test_reductions_of_every_type[i16]": "NCCL does not reduce integers of 16 bits",
    "test_reductions_of_every_type[u16]": "NCCL does not reduce integers of 16 bits",
    "test_kernels_see_lengths_and_all_constants": "kernels of a GPU get addresses without lengths",
}
