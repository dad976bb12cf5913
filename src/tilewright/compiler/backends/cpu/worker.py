"""A process that turns IR text into object code, one request after the other, until its input ends.

    request: u32 length, JSON [product, {triple, cpu, features, opt}], u32 length, IR text
    reply:   u8 status, f64 seconds, u32 length, bytes
    status:  0 = the product, 1 = text of an InternalError, 2 = text of a TargetError

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

from tilewright.base.errors import TargetError, TilewrightError
from tilewright.compiler.backends.cpu.llvm_binding import Product, Settings, generate

LENGTH: Final = struct.Struct("<I")
REPLY: Final = struct.Struct("<BdI")
INTERNAL_ERROR: Final = 1
TARGET_ERROR: Final = 2


def request(product: Product, settings: Settings, text: str) -> bytes:
    """The bytes that ask for one product."""
    head, body = json.dumps([product, dict(settings)]).encode(), text.encode()
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
        product, settings = json.loads(read_exactly(source, length))
        (length,) = LENGTH.unpack(read_exactly(source, LENGTH.size))
        text = read_exactly(source, length).decode()
        started = time.perf_counter()
        try:
            status, payload = 0, generate(product, text, settings)
        except TilewrightError as error:
            status = TARGET_ERROR if isinstance(error, TargetError) else INTERNAL_ERROR
            payload = error.message.encode()
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
