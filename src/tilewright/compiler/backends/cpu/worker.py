"""A process that turns IR text or kernels into object code, one request after the other, until its input ends.

    request: u32 length, JSON [product, {triple, cpu, features, opt}], u32 length, IR text or kernel
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
from typing import IO, BinaryIO, Final, Literal

from tilewright.base.errors import TargetError, TilewrightError
from tilewright.compiler.backends.cpu.llvm_binding import Settings, generate

LENGTH: Final = struct.Struct("<I")
REPLY: Final = struct.Struct("<BdI")
INTERNAL_ERROR: Final = 1
TARGET_ERROR: Final = 2

Product = Literal["kernel", "object", "assembly", "module"]
"""What is asked for: of a kernel its IR and object, or one of what LLVM makes of a text."""


def request(product: Product, settings: Settings, content: str | bytes) -> bytes:
    """The bytes that ask for one product."""
    head = json.dumps([product, dict(settings)]).encode()
    body = content.encode() if isinstance(content, str) else content
    return LENGTH.pack(len(head)) + head + LENGTH.pack(len(body)) + body


def read_exactly(stream: IO[bytes], count: int) -> bytes:
    """`count` bytes.  Raises: EOFError when the stream ends before."""
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def answer(product: Product, settings: Settings, content: str | bytes) -> bytes:
    """One product.  Raises: as `llvm_binding.generate`."""
    body = content.encode() if isinstance(content, str) else content
    if product == "kernel":
        # Most workers only ever get texts: forty modules belong to it, and numpy.
        from tilewright.compiler.backends.cpu import handover  # noqa: PLC0415

        return handover.answer(body, settings)
    return generate(product, body.decode(), settings)


def _serve(source: BinaryIO, sink: BinaryIO) -> None:
    while True:
        (length,) = LENGTH.unpack(read_exactly(source, LENGTH.size))
        product, settings = json.loads(read_exactly(source, length))
        (length,) = LENGTH.unpack(read_exactly(source, LENGTH.size))
        content = read_exactly(source, length)
        started = time.perf_counter()
        try:
            status, payload = 0, answer(product, settings, content)
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
