"""The driver `local-sync`: the host CPU, everything on the calling thread."""
