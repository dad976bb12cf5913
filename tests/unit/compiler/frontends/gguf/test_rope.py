from __future__ import annotations

import numpy as np
import pytest

from fakes.language_models import Form
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.gguf import read_hyperparameters
from tilewright.compiler.frontends.gguf.rope import frequencies, neighbours_apart
from tilewright.formats.gguf import read_gguf


def test_yarn_keeps_fast_columns_and_stretches_slow_ones() -> None:
    metadata = {
        "qwen3.rope.scaling.type": "yarn",
        "qwen3.rope.scaling.factor": 4.0,
        "qwen3.rope.scaling.original_context_length": 32768,
        "qwen3.rope.freq_base": 1e6,
    }
    form = read_hyperparameters(
        read_gguf(Form("qwen3", size=128, heads=2, shared=2, metadata=metadata).data())
    )
    plain = 1e6 ** -(np.arange(64) / 64)
    found = frequencies(form)
    ratio = plain / found.angles
    assert np.allclose(ratio[:23], 1, rtol=1e-6)
    assert np.allclose(ratio[40:], 4, rtol=1e-6)
    assert (np.diff(ratio) > -1e-5).all()
    assert found.factor == pytest.approx(1 + 0.1 * np.log(4))


def test_yarn_of_no_longer_contexts_leaves_cosines_as_they_are() -> None:
    metadata = {"qwen3.rope.scaling.type": "yarn", "qwen3.rope.scaling.factor": 0.5}
    form = read_hyperparameters(read_gguf(Form("qwen3", metadata=metadata).data()))
    assert frequencies(form).factor == 1.0


def test_what_yarn_leaves_of_its_factor_is_said_by_files_of_mistral3() -> None:
    for rest, expected in ((0.0, 1 + 0.1 * np.log(4)), (1.0, 1.0)):
        metadata = {
            "mistral3.rope.scaling.type": "yarn",
            "mistral3.rope.scaling.factor": 4.0,
            "mistral3.rope.scaling.yarn_log_multiplier": rest,
        }
        form = read_hyperparameters(read_gguf(Form("mistral3", metadata=metadata).data()))
        assert frequencies(form).factor == pytest.approx(expected)


def test_positions_are_scaled_where_a_file_names_no_kind_but_not_where_it_names_none() -> (
    None
):
    found = [
        frequencies(read_hyperparameters(read_gguf(Form(metadata=metadata).data()))).angles
        for metadata in (
            {},
            {"llama.rope.scaling.factor": 4.0},
            {"llama.rope.scaling.factor": 4.0, "llama.rope.scaling.type": "none"},
        )
    ]
    assert np.allclose(found[0], 4 * found[1])
    assert (found[0] == found[2]).all()


@pytest.mark.needs_torch
@pytest.mark.parametrize("turns", [(32.0, 1.0), (12.0, 3.0)])
def test_yarn_is_that_of_transformers(turns: tuple[float, float]) -> None:
    pytest.importorskip("torch")
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    configuration = pytest.importorskip("transformers").Qwen3Config(
        head_dim=128,
        max_position_embeddings=131072,
        rope_parameters={
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768,
            "rope_theta": 1e6, "beta_fast": turns[0], "beta_slow": turns[1],
        },
    )  # fmt: skip
    expected, factor = rope.ROPE_INIT_FUNCTIONS["yarn"](configuration, "cpu")
    metadata = {
        "qwen3.rope.scaling.type": "yarn",
        "qwen3.rope.scaling.factor": 4.0,
        "qwen3.rope.scaling.original_context_length": 32768,
        "qwen3.rope.freq_base": 1e6,
        "qwen3.rope.scaling.yarn_beta_fast": turns[0],
        "qwen3.rope.scaling.yarn_beta_slow": turns[1],
    }
    form = read_hyperparameters(
        read_gguf(Form("qwen3", size=128, heads=2, shared=2, metadata=metadata).data())
    )
    found = frequencies(form)
    assert np.allclose(found.angles, expected.numpy(), rtol=1e-5)
    assert found.factor == pytest.approx(factor)


@pytest.mark.needs_torch
def test_ends_of_the_ramp_of_gpt_oss_lie_between_columns() -> None:
    pytest.importorskip("torch")
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    configuration = pytest.importorskip("transformers").GptOssConfig()
    assert configuration.rope_parameters["truncate"] is False
    expected, factor = rope.ROPE_INIT_FUNCTIONS["yarn"](configuration, "cpu")
    metadata = {
        "gpt-oss.rope.scaling.type": "yarn",
        "gpt-oss.rope.scaling.factor": 32.0,
        "gpt-oss.rope.scaling.original_context_length": 4096,
        "gpt-oss.rope.freq_base": 150000.0,
    }
    form = read_hyperparameters(
        read_gguf(Form("gpt-oss", size=64, heads=2, shared=2, metadata=metadata).data())
    )
    found = frequencies(form)
    assert np.allclose(found.angles, expected.numpy(), rtol=1e-5)
    assert found.factor == pytest.approx(factor)


def test_neighbours_stand_half_a_head_apart() -> None:
    assert neighbours_apart(2, 6, 4).tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]


@pytest.mark.parametrize("kind", ["linear", "yarn"])
def test_frequencies_that_are_no_numbers_are_an_error(kind: str) -> None:
    metadata = {"qwen3.rope.scaling.type": kind, "qwen3.rope.scaling.factor": 1e-42}
    form = read_hyperparameters(read_gguf(Form("qwen3", metadata=metadata).data()))
    with pytest.raises(ModelError, match="no finite numbers"):
        frequencies(form)


@pytest.mark.parametrize("divisor", [0.0, np.nan])
def test_divisors_that_make_no_numbers_are_an_error(divisor: float) -> None:
    form = read_hyperparameters(read_gguf(Form("llama").data()))
    divisors = np.full(form.rope_size // 2, divisor, np.float32)
    with pytest.raises(ModelError, match="no finite numbers"):
        frequencies(form, divisors)
