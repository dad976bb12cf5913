"""Drivers: what makes devices, one folder each; `registry` knows them all.

A new driver is a clone of `null` plus one file of the conformance suite that names what it does not
support and why.
"""

from typing import Final

DEFAULT_DEVICE: Final = "local-task"
