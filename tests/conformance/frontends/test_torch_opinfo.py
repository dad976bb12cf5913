"""Samples of torch's own operator database: right or refused by name, never wrong.

`tools/torch_operators.py` runs all of them and writes the page; here is a part of them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's database needs it
samples = pytest.importorskip("torch_samples")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
NAMES = (
    "add", "amax", "argmax", "as_strided", "cummax", "lgamma", "nanmedian", "native_layer_norm", "baddbmm", "cat", "clamp", "cumsum", "diagonal", "div.floor_rounding",
    "eq", "floor_divide", "gather", "index_add", "index_put", "index_select", "logsumexp", "masked_fill",
    "matmul", "mean", "nn.functional.adaptive_avg_pool2d",
    "nn.functional.conv2d", "nn.functional.conv_transpose2d",
    "nn.functional.embedding", "nn.functional.gelu", "nn.functional.group_norm",
    "nn.functional.interpolate.bilinear", "nn.functional.layer_norm", "nn.functional.max_pool2d",
    "nn.functional.pad.circular", "nn.functional.pad.reflect", "nn.functional.scaled_dot_product_attention", "pow", "remainder",
    "roll", "scatter_add", "slice_scatter", "softmax", "sort", "split", "sum", "topk", "unfold",
    "var", "where", "linalg.ldl_factor", "linalg.pinv", "linalg.qr", "linalg.solve", "svd", "cdist", "histogram",
    "_segment_reduce.lengths", "masked_scatter", "masked_select", "mode", "nonzero", "put", "tensor_split",
    "unique", "unique_consecutive", "nn.functional.embedding_bag", "igamma",
    "polygamma.polygamma_n_2", "special.airy_ai", "special.hermite_polynomial_h", "special.ndtri", "special.zeta",
    "fft.fftn", "fft.hfft2", "fft.irfft", "stft", "polar", "chalf", "linalg.eig", "nextafter", "frexp", "lcm", "clamp_min", "index_reduce.mean", "scatter_reduce.mean", "scatter_reduce.amin",
    "nn.functional.adaptive_max_pool2d", "nn.functional.avg_pool2d", "nn.functional.prelu", "native_group_norm", "_upsample_bilinear2d_aa",
)  # fmt: skip
COMPILED = (
    "add", "cumsum", "matmul", "nn.functional.gelu", "sort", "var",
    "linalg.solve", "masked_select", "special.bessel_j1", "special.laguerre_polynomial_l", "unique",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Generator[None]:
    with samples.hastened_decompositions():
        yield


def info_of(name: str) -> Any:
    return next(info for info in samples.op_db if samples.full_name(info) == name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_no_sample_is_wrong(name: str) -> None:
    info = info_of(name)
    wanted = (torch.float32, torch.bfloat16, torch.int64, torch.complex64)
    dtypes = [d for d in wanted if d in info.dtypes]
    found = [
        [samples.outcome_of(info, sample) for sample in samples.in_order(info, dtype)[:4]]
        for dtype in dtypes
    ]
    bad = [
        text for rows in found for outcome, text in rows if outcome in ("wrong", "crashed")
    ]
    assert bad == []
    # Its pivots are those of one library.
    assert any(word == "right" for word, _ in found[0]) != (name == "linalg.ldl_factor")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", COMPILED)
def test_machine_code_gives_what_torch_gives(name: str) -> None:
    info = info_of(name)
    found = [
        samples.outcome_of(info, sample, samples.compiled)
        for sample in samples.in_order(info, torch.float32)[:2]
    ]
    assert found == [("right", "")] * 2
