"""Matrix products in all their forms: plain, batched, transposed, other types, quantized, einsum.

What it is: rows of the op sweep.
What it is not: convolutions (``convolutions.py``) or attention (``heads.py``).
Who calls it: ``catalogue.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from sweep.case import Case, single, word
from sweep.network import scalar, w, x

# (left, right, whether the right operand is constant)
MATMULS = (
    ((1, 784), (784, 256), True),
    ((1, 768), (768, 3072), True),
    ((1, 1280), (1280, 1000), True),
    ((1, 2048), (2048, 1000), True),
    ((1, 512), (512, 8000), True),
    ((4, 512), (512, 512), True),
    ((8, 768), (768, 768), True),
    ((16, 768), (768, 768), True),
    ((41, 384), (384, 1536), True),
    ((128, 768), (768, 768), True),
    ((128, 768), (768, 3072), True),
    ((197, 192), (192, 576), True),
    ((1000, 64), (64, 64), True),
    ((3136, 96), (96, 384), True),
    ((5000, 8), (8, 8), True),
    ((1, 128, 384), (384, 384), True),
    ((2, 7, 7, 96), (96, 33), True),
    ((37, 53), (53, 71), True),
    ((1, 17), (17, 1), True),
    ((1000, 300), (300, 1), True),
    ((256, 256), (256, 256), False),
    ((31, 257), (257, 129), False),
    ((1, 512), (512, 512), False),
    ((512, 512), (512, 1), False),
    ((512,), (512, 256), False),
    ((256, 512), (512,), False),
    ((512,), (512,), False),
    ((12, 128, 64), (12, 64, 128), False),
    ((12, 128, 128), (12, 128, 64), False),
    ((1, 12, 1, 64), (1, 12, 64, 128), False),
    ((1, 12, 1, 128), (1, 12, 128, 64), False),
    ((1, 3, 197, 64), (1, 3, 64, 197), False),
    ((64, 3, 49, 32), (64, 3, 32, 49), False),
    ((100, 8, 8), (100, 8, 8), False),
    ((1000, 3, 3), (1000, 3, 3), False),
    ((1000, 4, 4), (1000, 4, 1), False),
    ((8, 1, 64, 32), (1, 4, 32, 48), False),
    ((1, 64, 32), (16, 32, 64), False),
    ((2, 8, 33, 65), (2, 8, 65, 31), False),
    ((16, 64, 128), (16, 128, 96), True),
)
OTHER_TYPES = (
    ((1, 768), (768, 768)),
    ((16, 512), (512, 512)),
    ((128, 768), (768, 768)),
    ((128, 768), (768, 3072)),
    ((64, 64), (64, 64)),
    ((37, 53), (53, 71)),
    ((1, 4096), (4096, 1024)),
)
# (m, k, n, transA, transB, rank of the addend)
GEMMS = (
    (1, 784, 256, 0, 1, 1),
    (64, 784, 256, 0, 1, 1),
    (1, 9216, 1024, 0, 1, 1),
    (32, 512, 1000, 0, 1, 1),
    (128, 768, 768, 0, 0, 2),
    (100, 300, 50, 1, 0, 1),
    (100, 300, 50, 1, 1, 2),
    (33, 65, 17, 0, 1, 0),
    (7, 2048, 4, 0, 1, 1),
)
QUANTIZED = ((1, 512, 512), (16, 768, 768), (128, 768, 768), (37, 53, 71), (196, 256, 64))
# (equation, shapes of the operands)
EINSUMS = (
    ("bhqd,bhkd->bhqk", ((1, 12, 128, 64), (1, 12, 128, 64))),
    ("bhqk,bhkd->bhqd", ((1, 12, 128, 128), (1, 12, 128, 64))),
    ("bqhd,bkhd->bhqk", ((1, 128, 8, 40), (1, 128, 8, 40))),
    ("ij,jk->ik", ((128, 256), (256, 64))),
    ("bij,bjk->bik", ((8, 32, 64), (8, 64, 48))),
    ("bchw,nc->bnhw", ((1, 64, 28, 28), (32, 64))),
    ("bhwc,hkc->bhwk", ((1, 14, 14, 64), (14, 14, 64))),
    ("nchw,nc->nhw", ((2, 64, 28, 28), (2, 64))),
    ("i,j->ij", ((512,), (300,))),
    ("ii->i", ((256, 256),)),
    ("bij->bji", ((4, 128, 65),)),
    ("bsd,d->bs", ((1, 512, 256), (256,))),
    ("abc,abc->a", ((16, 32, 64), (16, 32, 64))),
    ("bte,et,bt->b", ((2, 64, 32), (32, 64), (2, 64))),
)


def matmuls() -> Iterator[Case]:
    """Yield products of two operands in several types."""
    for left, right, constant in MATMULS:
        second = w(*right) if constant else x(*right)
        kind = "weights" if constant else "computed"
        yield single(
            f"matmul/matmul {kind} {word(left, right)}", "MatMul", x(*left), second
        )
    for t in ("f16", "bf16", "f64"):
        for left, right in OTHER_TYPES:
            first, name = x(*left, t=t), word(left, right)
            yield single(f"matmul/{t} weights {name}", "MatMul", first, w(*right, t=t))
        left, right = (12, 128, 64), (12, 64, 128)
        second = x(*right, t=t)
        yield single(
            f"matmul/{t} computed {word(left, right)}", "MatMul", x(*left, t=t), second
        )
    for t in ("i32", "i64"):
        yield single(
            f"matmul/{t} 64x64 by 64x64", "MatMul", x(64, 64, t=t, high=9), x(64, 64, t=t)
        )


def gemms() -> Iterator[Case]:
    """Yield products with transpositions and an addend."""
    for m, k, n, first, second, rank in GEMMS:
        left = x(*((k, m) if first else (m, k)))
        right = w(*((n, k) if second else (k, n)))
        addend = (scalar(0.5), w(n), w(m, n))[rank]
        yield single(
            f"matmul/gemm {m}x{k}x{n} transposed {first}{second} addend {rank}",
            "Gemm",
            left,
            right,
            addend,
            transA=first,
            transB=second,
            alpha=1.0 if rank else 0.5,
        )
    yield single(
        "matmul/fused_matmul transposed 12x128x64",
        "FusedMatMul",
        x(12, 128, 64),
        x(12, 128, 64),
        domain="com.microsoft",
        transB=1,
        alpha=0.125,
    )


def quantized() -> Iterator[Case]:
    """Yield products of bytes."""
    for m, k, n in QUANTIZED:
        left, right = x(m, k, t="u8", high=255), w(k, n, t="i8", low=-127, high=127)
        name = f"{m}x{k}x{n}"
        yield single(f"quantized/matmul_integer {name}", "MatMulInteger", left, right)
        yield single(
            f"quantized/qlinear_matmul {name}",
            "QLinearMatMul",
            left,
            scalar(0.02),
            scalar(128, "u8"),
            right,
            scalar(0.01),
            scalar(0, "i8"),
            scalar(0.5),
            scalar(128, "u8"),
            tolerance=0.02,
        )
        yield single(
            f"quantized/dynamic_quantize_matmul {name}",
            "DynamicQuantizeMatMul",
            x(m, k),
            right,
            w(1, low=0.01, high=0.02),
            domain="com.microsoft",
            tolerance=0.02,
        )
        yield single(
            f"quantized/matmul_integer_to_float {name}",
            "MatMulIntegerToFloat",
            left,
            right,
            scalar(0.02),
            scalar(0.01),
            domain="com.microsoft",
        )
        yield single(
            f"quantized/matmul_nbits {name}",
            "MatMulNBits",
            x(m, k),
            w(n, -(-k // 32), 16, t="u8", low=0, high=255),
            w(n * -(-k // 32), low=0.01, high=0.02),
            domain="com.microsoft",
            K=k,
            N=n,
            bits=4,
            block_size=32,
        )


def quantized_convolutions() -> Iterator[Case]:
    """Yield convolutions of bytes."""
    for cin, cout, size, kernel, groups in (
        (3, 32, 112, 3, 1),
        (64, 64, 56, 3, 1),
        (256, 64, 28, 1, 1),
        (144, 144, 28, 3, 144),
    ):
        yield single(
            f"quantized/qlinear_conv {cin}>{cout} {size} k{kernel} g{groups}",
            "QLinearConv",
            x(1, cin, size, size, t="u8", high=255),
            scalar(0.02),
            scalar(128, "u8"),
            w(cout, cin // groups, kernel, kernel, t="i8", low=-127, high=127),
            w(cout, low=0.001, high=0.01),
            w(cout, t="i8", low=0, high=1),
            scalar(0.1),
            scalar(128, "u8"),
            w(cout, t="i32", low=-1000, high=1000),
            pads=[kernel // 2] * 4,
            group=groups,
            tolerance=0.02,
        )


def quantizers() -> Iterator[Case]:
    """Yield what makes bytes of floats and floats of bytes."""
    for shape in ((128, 768), (1, 64, 56, 56)):
        zero, scale = scalar(3, "u8"), scalar(0.02)
        name = word(shape)
        yield single(
            f"quantized/quantize {name}",
            "QuantizeLinear",
            x(*shape),
            scale,
            zero,
            tolerance=0.02,
        )
        yield single(
            f"quantized/dequantize {name}",
            "DequantizeLinear",
            x(*shape, t="u8", high=255),
            scale,
            zero,
        )
        yield single(
            f"quantized/dynamic_quantize {name}",
            "DynamicQuantizeLinear",
            x(*shape),
            outputs=3,
            tolerance=0.02,
        )
    yield single(
        "quantized/quantize per channel 64x56x56",
        "QuantizeLinear",
        x(1, 64, 56, 56),
        w(64, low=0.01, high=0.02),
        w(64, t="i8", low=0, high=1),
        axis=1,
        tolerance=0.02,
    )


def einsums() -> Iterator[Case]:
    """Yield contractions by equation."""
    for equation, shapes in EINSUMS:
        operands = [x(*shape) for shape in shapes]
        yield single(f"einsum/{equation}", "Einsum", *operands, equation=equation)


def cases() -> Iterator[Case]:
    """Yield all of them."""
    yield from matmuls()
    yield from gemms()
    yield from quantized()
    yield from quantized_convolutions()
    yield from quantizers()
    yield from einsums()
