"""The hash of `buffer.hash`: stable over runs and machines.

Not for dictionaries of ours; called by the handler of that opcode alone.
"""

from __future__ import annotations

import struct
from typing import Final

from tilewright.base.budget import check_clock

KEY: Final = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
"""What IREE's interpreter uses."""

_WORD: Final = struct.Struct("<Q")
_PIECE_BYTES: Final = 1 << 16
_M64: Final = 0xFFFF_FFFF_FFFF_FFFF


def _sip_round(v: list[int]) -> None:
    def rotate(value: int, count: int) -> int:
        return (value << count | value >> 64 - count) & _M64

    v[0] = v[0] + v[1] & _M64
    v[1] = rotate(v[1], 13) ^ v[0]
    v[0] = rotate(v[0], 32)
    v[2] = v[2] + v[3] & _M64
    v[3] = rotate(v[3], 16) ^ v[2]
    v[0] = v[0] + v[3] & _M64
    v[3] = rotate(v[3], 21) ^ v[0]
    v[2] = v[2] + v[1] & _M64
    v[1] = rotate(v[1], 17) ^ v[2]
    v[2] = rotate(v[2], 32)


def _absorb(v: list[int], word: int) -> None:
    v[3] ^= word
    _sip_round(v)
    _sip_round(v)
    v[0] ^= word


def sip_hash(data: bytes | memoryview, key: tuple[int, int] = KEY) -> int:
    """SipHash-2-4.

    Raises: LimitError when the time of the call is over.

    Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, section 2.
    """
    first, second = key
    v = [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]
    whole = len(data) & ~7
    for begin in range(0, whole, _PIECE_BYTES):
        check_clock()
        for (word,) in _WORD.iter_unpack(data[begin : min(begin + _PIECE_BYTES, whole)]):
            _absorb(v, word)
    rest = bytes(data[whole:]).ljust(7, b"\0") + bytes((len(data) & 0xFF,))
    _absorb(v, int.from_bytes(rest, "little"))
    v[2] ^= 0xFF
    for _ in range(4):
        _sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]
