"""Writers of parameter files for tests, independent of our readers."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.formats.parameters import SplatEntry, write_archive, write_tvm_params


def irpa(
    arrays: Mapping[str, np.ndarray | bytes], splats: Sequence[SplatEntry] = ()
) -> bytes:
    """An archive of ours."""
    file = io.BytesIO()
    write_archive(file, arrays, splats)
    return file.getvalue()


def tvm_params(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A file of ours, whose bytes are TVM's (tests/unit/formats/parameters/test_tvm.py)."""
    file = io.BytesIO()
    write_tvm_params(file, arrays)
    return file.getvalue()


def safetensors(arrays: Mapping[str, np.ndarray], names: Mapping[str, str]) -> bytes:
    """As the `safetensors` package writes it; `names` are the dtypes."""
    header: dict[str, object] = {"__metadata__": {"made": "by a test"}}
    data = b""
    for name, array in arrays.items():
        begin = len(data)
        data += array.tobytes()
        header[name] = {
            "dtype": names[name],
            "shape": list(array.shape),
            "data_offsets": [begin, len(data)],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def gguf_text(text: str) -> bytes:
    """A text with its length."""
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf(
    tensors: Sequence[tuple[str, tuple[int, ...], int, bytes]],
    *,
    metadata: Sequence[bytes] = (),
    alignment: int = 32,
    version: int = 3,
) -> bytes:
    """A file of (name, shape, type code, bytes) and of encoded key/value pairs."""
    infos = b""
    data = b""
    for name, shape, code, content in tensors:
        data += b"\0" * (-len(data) % alignment)
        infos += gguf_text(name) + struct.pack("<I", len(shape))
        infos += struct.pack(f"<{len(shape)}Q", *reversed(shape))
        infos += struct.pack("<IQ", code, len(data))
        data += content
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(metadata) + infos
    return head + b"\0" * (-len(head) % alignment) + data
