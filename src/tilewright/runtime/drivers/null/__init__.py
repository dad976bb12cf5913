"""The driver `null`: a device that refuses everything; clone it to begin a new driver."""
