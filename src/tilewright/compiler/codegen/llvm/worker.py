"""A process that turns IR text into object code, one request after the other, until its input ends.

    request: u32 length, JSON {triple, cpu, features, opt}, u32 length, IR text
    reply:   u8 status (0 = object, 1 = error text), f64 seconds, u32 length, bytes

Started by `pool`; talks over its standard input and output and to nobody else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import sys
import time
from typing import IO, BinaryIO, Final

from tilewright.base.errors import TilewrightError
from tilewright.compiler.codegen.llvm.machine import object_code

LENGTH: Final = struct.Struct("<I")
REPLY: Final = struct.Struct("<BdI")


def request(settings: dict[str, str | int], text: str) -> bytes:
    """The bytes that ask for one object."""
    head, body = json.dumps(settings).encode(), text.encode()
    return LENGTH.pack(len(head)) + head + LENGTH.pack(len(body)) + body


def read_exactly(stream: IO[bytes], count: int) -> bytes:
    """`count` bytes.  Raises: EOFError when the stream ends before."""
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def _serve(source: BinaryIO, sink: BinaryIO) -> None:
    while True:
        (length,) = LENGTH.unpack(read_exactly(source, LENGTH.size))
        settings = json.loads(read_exactly(source, length))
        (length,) = LENGTH.unpack(read_exactly(source, LENGTH.size))
        text = read_exactly(source, length).decode()
        started = time.perf_counter()
        try:
            status, payload = 0, object_code(text, **settings)
        except TilewrightError as error:
            status, payload = 1, str(error).encode()
        seconds = time.perf_counter() - started
        sink.write(REPLY.pack(status, seconds, len(payload)) + payload)
        sink.flush()


def main() -> None:
    """Serve until the input ends.  Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Nothing else may write into the replies.
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with contextlib.suppress(EOFError, BrokenPipeError):
        _serve(sys.stdin.buffer, replies)


if __name__ == "__main__":
    main()
