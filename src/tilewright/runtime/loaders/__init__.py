"""Loaders: from the bytes of an executable to callable kernels, one file per format; module files."""
