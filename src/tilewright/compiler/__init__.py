"""The compiler: from a model to an artifact.  Never imports `tilewright.runtime`."""
