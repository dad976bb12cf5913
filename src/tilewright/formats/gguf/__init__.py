"""GGUF files: what a model says about itself, its vocabulary, and tensors in blocks of integers.

`read_gguf` gives a frozen description whose tensors are ranges of the file; `decode` takes blocks apart into
integers, scales and minima, `dequantize` makes numbers of them.  Not here: graphs (`compiler.frontends.gguf`).
"""

from __future__ import annotations

from tilewright.formats.gguf.block_form import Blocks
from tilewright.formats.gguf.block_types import BLOCK_TYPES, BlockType
from tilewright.formats.gguf.blocks import DECODERS, decode, dequantize
from tilewright.formats.gguf.reader import (
    MAGIC,
    GgufFile,
    GgufTensor,
    MetadataValue,
    read_gguf,
)
from tilewright.formats.gguf.split_files import file_count, file_names, joined

__all__ = [
    "BLOCK_TYPES",
    "DECODERS",
    "MAGIC",
    "BlockType",
    "Blocks",
    "GgufFile",
    "GgufTensor",
    "MetadataValue",
    "decode",
    "dequantize",
    "file_count",
    "file_names",
    "joined",
    "read_gguf",
]
