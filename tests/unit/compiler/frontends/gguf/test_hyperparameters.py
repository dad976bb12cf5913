from __future__ import annotations

from typing import Any

import pytest

from fakes.language_models import Form
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.gguf import read_hyperparameters
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.formats.gguf import read_gguf


def _read(architecture: str = "llama", **metadata: Any) -> Any:
    keys = {key.replace("__", "."): value for key, value in metadata.items()}
    prefixed = {
        k if k.startswith("general.") else f"{architecture}.{k}": v for k, v in keys.items()
    }
    return read_hyperparameters(read_gguf(Form(architecture, metadata=prefixed).data()))


def test_what_metadata_does_not_say_follows_from_the_rest() -> None:
    form = read_hyperparameters(read_gguf(Form().data()))
    assert (form.rope_size, form.rope_base, form.attention_scale) == (16, 10000.0, 0.25)
    assert form.windows == (0, 0)
    assert form.rope_scaling.type == "none"


def test_layers_of_gemma_see_windows_in_turn() -> None:
    form = read_hyperparameters(
        read_gguf(
            Form("gemma2", layers=4, metadata={"gemma2.attention.sliding_window": 7}).data()
        )
    )
    assert form.windows == (7, 0, 7, 0)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [(2, (7, 0, 7, 0)), (3, (7, 7, 0, 7)), (1, (7, 7, 7, 7)), ([0, 1, 1, 0], (0, 7, 7, 0))],
)
def test_a_file_may_say_which_layers_see_windows(pattern: object, expected: object) -> None:
    metadata = {
        "gemma3.attention.sliding_window": 7,
        "gemma3.attention.sliding_window_pattern": pattern,
    }
    form = read_hyperparameters(
        read_gguf(Form("gemma3", layers=4, metadata=metadata).data())
    )
    assert form.windows == expected


def test_patterns_of_windows_are_checked() -> None:
    for pattern in (0, "odd", [1, 0]):
        metadata = {
            "gemma3.attention.sliding_window": 7,
            "gemma3.attention.sliding_window_pattern": pattern,
        }
        with pytest.raises(ModelError, match="or one for each of 4 layers"):
            read_hyperparameters(
                read_gguf(Form("gemma3", layers=4, metadata=metadata).data())
            )


def test_what_a_file_says_of_scores_and_shares_goes_first() -> None:
    form = _read(
        attention__scale=0.5, expert_count=4, expert_used_count=2, expert_weights_norm=False,
        logit_scale=1.0, residual_scale=0.0, attention__causal=True,
    )  # fmt: skip
    assert (form.attention_scale, form.shares_add_up) == (0.5, False)


def test_sizes_that_all_layers_agree_on_are_one_size() -> None:
    assert _read(attention__head_count_kv=[2, 2]).shared_heads == 2


WRONG = {
    "architecture": (
        {"general__architecture": "lama"},
        "architecture 'lama' is not supported",
    ),
    "experts": ({"expert_count": 8}, "expert_used_count' is missing"),
    "too many": ({"expert_count": 2, "expert_used_count": 3}, "a whole number from 1 to 2"),
    "gating": (
        {"expert_count": 2, "expert_used_count": 1, "expert_gating_func": 2},
        "not chosen by softmax",
    ),
    "scales": (
        {"residual_scale": 0.25},
        "'llama.residual_scale' is '0.25', which is not supported",
    ),
    "both sides": (
        {"attention__causal": False},
        "'llama.attention.causal' is 'False', which is not",
    ),
    "shares": (
        {"expert_weights_norm": 1},
        "'llama.expert_weights_norm' is '1', expected true or false",
    ),
    "no layers": (
        {"block_count": 0},
        "'llama.block_count' is '0', expected a whole number from 1",
    ),
    "many layers": ({"block_count": 1 << 30}, "to 1024"),
    "text": ({"embedding_length": "wide"}, "'llama.embedding_length' is 'wide'"),
    "truth": ({"embedding_length": True}, "'llama.embedding_length' is 'True'"),
    "epsilon": (
        {"attention__layer_norm_rms_epsilon": float("nan")},
        "expected a finite number",
    ),
    "heads": ({"attention__head_count_kv": 3}, "4 heads of queries do not share 3 heads"),
    "turned": ({"rope__dimension_count": 18}, "18 columns of heads of 16"),
    "odd": ({"rope__dimension_count": 7}, "7 columns of heads of 16"),
    "layers differ": ({"attention__head_count_kv": [2, 4]}, "differs from layer to layer"),
    "scaling": ({"rope__scaling__type": "magic"}, "scaled as 'magic'"),
    "base": (
        {"rope__freq_base": 0.0},
        "'llama.rope.freq_base' is '0.0', expected at least 2",
    ),
    "base of one": ({"rope__freq_base": 1.0}, "expected at least 2"),
    "factor": (
        {"rope__scaling__type": "yarn", "rope__scaling__factor": -2.0},
        "'llama.rope.scaling.factor' is '-2.0', expected at least 0",
    ),
    "below zero": ({"attention__layer_norm_rms_epsilon": -1.0}, "expected at least 0"),
    "cap": ({"attn_logit_softcapping": -3.0}, "expected at least 0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_senseless_metadata_is_an_error_that_names_the_key(case: str) -> None:
    metadata, message = WRONG[case]
    with pytest.raises(ModelError, match=message) as caught:
        _read(**metadata)
    assert caught.value.location is not None


def test_an_unknown_architecture_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match="supported are: llama qwen2"):
        _read(general__architecture="rwkv7")
