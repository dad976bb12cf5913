"""The driver `local-task`: the host CPU with a pool of workers."""
