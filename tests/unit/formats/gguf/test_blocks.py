from __future__ import annotations

import hashlib

import numpy as np
import pytest

from fakes.language_models import CODES, HALVES
from tilewright.base.errors import ArchiveError
from tilewright.formats.gguf import (
    BLOCK_TYPES,
    DECODERS,
    Blocks,
    GgufFile,
    GgufTensor,
    decode,
    dequantize,
)

# What the package gguf 0.19 makes of the bytes of `_random`; Q1_0 and Q2_0: what ggml 0.25.3 makes of them.
DIGESTS = {
    "Q4_0": "57bdabc96d872a36", "Q4_1": "cb78b5fca6efe07f", "Q5_0": "e563064f53f460c5",
    "Q5_1": "04a71813d9f26e83", "Q8_0": "92d4feaefc0be604", "Q2_K": "a7c4fb0602f31ec8",
    "Q3_K": "bea6fb84af88b45f", "Q4_K": "35184d9218c58a10", "Q5_K": "4b0feb35eb3a11d0",
    "Q6_K": "a17bad6dd0aafcd9", "IQ4_NL": "f69c13e9dfe3890a", "IQ4_XS": "cfcf4a851691e44f",
    "MXFP4": "17d1aa73f6f58b4b", "TQ2_0": "b7b9e68498c59eb9",
    "NVFP4": "49ce2cd47363147c", "IQ1_S": "7ef44a4f5f67176b", "IQ1_M": "764c698c2c5daa77",
    "IQ2_XXS": "4eefb40f9b9ebe83", "IQ2_XS": "e322852d17d71084", "IQ2_S": "2a6585bdb4e789ca",
    "IQ3_XXS": "942be02be6e48f07", "IQ3_S": "ecaee03d85218b9e", "Q1_0": "4a92534871d65afe",
    "Q2_0": "32ad2bd2174aad34", "TQ1_0": "c23d468ec836bc3e",
}  # fmt: skip


def _random(kind: str) -> np.ndarray:
    row = BLOCK_TYPES[CODES[kind]]
    raw = np.random.default_rng(7).integers(0, 256, (3, 4, row.size_bytes), dtype=np.uint8)
    for at in HALVES[kind]:
        raw[..., at + 1] &= 0xBF  # finite
    if kind == "MXFP4":
        raw[..., 0] &= 0x7F
    if kind == "IQ1_M":
        raw[..., 55] &= 0xBF  # the upper four bits of its scale
    return raw


def _file(raw: bytes, kind: str, shape: tuple[int, ...]) -> tuple[GgufFile, GgufTensor]:
    tensor = GgufTensor("w", shape, BLOCK_TYPES[CODES[kind]], 0, len(raw))
    return GgufFile(3, {}, {"w": tensor}, memoryview(raw), "x.gguf"), tensor


@pytest.mark.parametrize("kind", sorted(DECODERS))
def test_numbers_are_those_of_ggml_to_the_last_bit(kind: str) -> None:
    raw = _random(kind)
    shape = (3, 4 * BLOCK_TYPES[CODES[kind]].elements)
    found = dequantize(*_file(raw.tobytes(), kind, shape))
    assert found.shape == shape
    assert hashlib.sha256(found.astype("<f4").tobytes()).hexdigest()[:16] == DIGESTS[kind]


@pytest.mark.parametrize("kind", sorted(DECODERS))
def test_numbers_are_those_of_the_package_of_ggml(kind: str) -> None:
    quants = pytest.importorskip("gguf.quants")
    raw = _random(kind)
    try:
        expected = quants.dequantize(raw.reshape(3, -1), CODES[kind])
    except (AttributeError, NotImplementedError):
        pytest.skip("a type that the package does not take apart")
    found = dequantize(*_file(raw.tobytes(), kind, expected.shape))
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("kind", sorted(DECODERS))
def test_integers_of_four_bits_are_bytes_and_wider_ones_have_a_sign(kind: str) -> None:
    row = BLOCK_TYPES[CODES[kind]]
    blocks = decode(*_file(_random(kind).tobytes(), kind, (3, 4 * row.elements)))
    assert isinstance(blocks, Blocks)
    if blocks.values.dtype == np.uint8:
        assert blocks.values.max() < 16
        assert 0 <= blocks.zero <= 8
    else:
        assert blocks.values.dtype == np.int8
        assert blocks.zero == 0
    assert blocks.scale.shape == (3, 4 * row.elements // blocks.group)


@pytest.mark.parametrize(
    ("kind", "dtype"), [("F32", np.float32), ("F16", np.float16), ("I32", np.int32)]
)
def test_elements_that_stand_alone_show_the_memory_of_the_file(
    kind: str, dtype: type
) -> None:
    array = np.arange(12).astype(dtype).reshape(3, 4)
    data = array.tobytes()
    found = decode(*_file(data, kind, (3, 4)))
    assert isinstance(found, np.ndarray)
    assert np.array_equal(found, array)
    assert np.shares_memory(found, np.frombuffer(data, np.uint8))


def test_bfloat16_is_read() -> None:
    found = dequantize(*_file(b"\x80\x3f\x00\xc0", "BF16", (2,)))
    assert found.tolist() == [1.0, -2.0]


def test_no_rows_are_no_numbers() -> None:
    assert dequantize(*_file(b"", "Q4_K", (0, 256))).shape == (0, 256)


def test_infinite_scales_are_passed_on() -> None:
    raw = bytearray(_random("Q8_0").tobytes()[:34])
    raw[:2] = b"\x00\x7c"
    raw[2:4] = b"\x01\xff"
    found = dequantize(*_file(bytes(raw), "Q8_0", (32,)))
    assert found[:2].tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize("kind", sorted(DECODERS))
def test_scales_that_are_no_numbers_are_read_in_silence(kind: str) -> None:
    """Infinity times zero is none; numpy warns of it, and warnings are errors here."""
    row = BLOCK_TYPES[CODES[kind]]
    tensor = GgufTensor("w", (2, row.elements), row, 0, 2 * row.size_bytes)
    for byte in (0xFF, 0x7C, 0x7F, 0x80, 0x00):
        data = memoryview(bytes([byte]) * row.size_bytes * 2)
        file = GgufFile(3, {}, {}, data, location="model.gguf")
        assert dequantize(file, tensor).shape == (2, row.elements), hex(byte)


def test_blocks_that_are_not_known_are_an_error_with_their_name() -> None:
    with pytest.raises(ArchiveError, match="'w': blocks of type Q8_K are not supported"):
        decode(*_file(b"\0" * 292, "Q8_K", (256,)))
