"""The hash of `buffer.hash`: stable over runs and machines.

Not for dictionaries of ours; called by the handler of that opcode alone.
"""

from __future__ import annotations

from typing import Final

KEY: Final = (0x0706050403020100, 0x0F0E0D0C0B0A0908)
"""What IREE's interpreter uses."""

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


def sip_hash(data: bytes, key: tuple[int, int] = KEY) -> int:
    """SipHash-2-4.

    Source: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012, section 2.
    """
    first, second = key
    v = [
        first ^ 0x736F6D6570736575,
        second ^ 0x646F72616E646F6D,
        first ^ 0x6C7967656E657261,
        second ^ 0x7465646279746573,
    ]
    padded = data + bytes(7 - len(data) % 8) + bytes((len(data) & 0xFF,))
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v[3] ^= word
        _sip_round(v)
        _sip_round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        _sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]
