"""The structures that functions of the driver library take.

Source: CUDA Driver API reference, version 11.3 (`CUDA_KERNEL_NODE_PARAMS`, `CUDA_MEMCPY3D`,
`CUDA_MEMSET_NODE_PARAMS`, `CUmemPoolProps`).
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import final


@final
class KernelNodeParams(ctypes.Structure):
    """A kernel of a graph."""

    _fields_ = (
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("parameters", c_void_p),
        ("extra", c_void_p),
    )


class _Place(ctypes.Structure):
    _fields_ = (
        ("x_bytes", c_size_t),
        ("y", c_size_t),
        ("z", c_size_t),
        ("level", c_size_t),
        ("memory_type", c_int),
        ("host", c_void_p),
        ("device", c_uint64),
        ("array", c_void_p),
        ("reserved", c_void_p),
        ("pitch", c_size_t),
        ("height", c_size_t),
    )


@final
class CopyParams(ctypes.Structure):
    """A copy of a graph: of `width` bytes where `height` and `depth` are 1."""

    _fields_ = (
        ("source", _Place),
        ("target", _Place),
        ("width", c_size_t),
        ("height", c_size_t),
        ("depth", c_size_t),
    )


@final
class FillParams(ctypes.Structure):
    """A fill of a graph: `height` rows of `width` elements."""

    _fields_ = (
        ("target", c_uint64),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("element_bytes", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
    )


@final
class PoolProps(ctypes.Structure):
    """What a memory pool is made of."""

    _fields_ = (
        ("allocation_type", c_int),
        ("handle_types", c_int),
        ("location_type", c_int),
        ("location_id", c_int),
        ("security_attributes", c_void_p),
        ("maximum_bytes", c_size_t),
        ("reserved", c_ubyte * 56),
    )
