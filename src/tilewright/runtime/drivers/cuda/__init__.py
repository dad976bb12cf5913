"""The driver `cuda`: NVIDIA GPUs, through the driver library of the system, opened at run time."""
