"""Packaging: from a compiled program to files."""
