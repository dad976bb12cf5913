from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from fakes.language_models import Form
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.gguf import read_hyperparameters
from tilewright.compiler.frontends.gguf.hyperparameters import Hyperparameters, Latent
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
    assert (form.rope_scaling.type, form.rope_scaling.factor) == ("linear", 1.0)


def test_layers_of_gemma_see_windows_in_turn() -> None:
    form = read_hyperparameters(
        read_gguf(
            Form("gemma2", layers=4, metadata={"gemma2.attention.sliding_window": 7}).data()
        )
    )
    assert form.windows == (7, 0, 7, 0)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (0, (7, 7, 7, 7)),
        (1, (0, 0, 0, 0)),
        (2, (7, 0, 7, 0)),
        (3, (7, 7, 0, 7)),
        (5, (7, 7, 7, 7)),
        ([0, 1, 1, 0], (0, 7, 7, 0)),
        ([True, False, True, True], (7, 0, 7, 7)),
    ],
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
    for pattern in (
        "odd",
        True,
        -1,
        0.5,
        [1, 0],
        [1.0, 0.5, 0.0, 1.0],
        ["a", "", "b", "c"],
    ):
        metadata = {
            "gemma3.attention.sliding_window": 7,
            "gemma3.attention.sliding_window_pattern": pattern,
        }
        with pytest.raises(ModelError, match="or one for each of 4 layers"):
            read_hyperparameters(
                read_gguf(Form("gemma3", layers=4, metadata=metadata).data())
            )


def test_every_layer_of_phi3_sees_a_window_where_a_file_does_not_say_which() -> None:
    assert _read("phi3", attention__sliding_window=7).windows == (7, 7)
    said = {"attention__sliding_window": 7, "attention__sliding_window_pattern": 2}
    assert _read("phi3", **said).windows == (7, 0)


@pytest.mark.parametrize("architecture", ["phi3", "gemma2", "gemma3"])
def test_a_window_of_no_keys_is_none(architecture: str) -> None:
    assert _read(architecture, attention__sliding_window=0).windows == (0, 0)


def test_a_file_may_say_how_layers_with_windows_are_turned() -> None:
    assert _read("gemma3").local_rope_base == 10000.0
    assert _read("gemma3", rope__freq_base_swa=500.0).local_rope_base == 500.0
    with pytest.raises(ModelError, match=r"'gemma3\.rope\.freq_base_swa' is '1\.0'"):
        _read("gemma3", rope__freq_base_swa=1.0)
    assert _read("llama", rope__freq_base=500.0, rope__freq_base_swa=500.0)


def test_a_file_may_say_which_columns_yarn_stretches() -> None:
    form = _read(
        rope__scaling__type="yarn", rope__scaling__yarn_beta_fast=20.0,
        rope__scaling__yarn_beta_slow=2.0,
    )  # fmt: skip
    assert (form.rope_scaling.fast_turns, form.rope_scaling.slow_turns) == (20.0, 2.0)


def test_what_changes_nothing_may_be_said_in_any_way() -> None:
    said = _read(
        logit_scale=[1.0, 1.0], attention__causal=[1, 1], attention__key_length_swa=16,
        attention__value_length_swa=16, rope__dimension_count_swa=16,
        rope__scaling__yarn_attn_factor=1.0, rope__scaling__yarn_ext_factor=-1.0,
    )  # fmt: skip
    assert said == _read() == _read(rope__scaling__yarn_ext_factor=0.0)
    stretched = _read(rope__scaling__type="yarn", rope__scaling__yarn_ext_factor=1.0)
    assert stretched == _read(rope__scaling__type="yarn")


CHANGED = {
    "logit_scale": [1.0, 2.0],
    "residual_scale": ["a", "b"],
    "attention__output_scale": 2.0,
    "attention__shared_kv_layers": 1,
    "attention__temperature_scale": 0.1,
    "attention__key_length_swa": 8,
    "attention__value_length_swa": [16, 8],
    "rope__dimension_count_swa": 8,
    "rope__freq_base_swa": 500.0,
    "rope__scaling__alpha": 1000.0,
    "rope__scaling__yarn_attn_factor": 2.0,
    "rope__scaling__yarn_ext_factor": 1.0,
    "rope__scaling__yarn_log_multiplier": 1.0,
}


@pytest.mark.parametrize("key", CHANGED)
def test_what_would_change_a_result_is_refused_by_its_name(key: str) -> None:
    name = f"metadata 'llama.{key.replace('__', '.')}' is"
    with pytest.raises(UnsupportedError, match=f"{name} .* not supported"):
        _read(**{key: CHANGED[key]})


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
        {"expert_count": 2, "expert_used_count": 1, "expert_gating_func": 4},
        "chosen by rule 4 are not supported",
    ),
    "groups": (
        {"expert_count": 6, "expert_used_count": 1, "expert_group_count": 4},
        "6 experts are not 4 groups",
    ),
    "small groups": (
        {"expert_count": 4, "expert_used_count": 1, "expert_group_count": 4},
        "4 experts are not 4 groups of two or more",
    ),
    "further layers": (
        {"nextn_predict_layers": 2, "block_count": 2},
        "'llama.block_count' is '2', expected a whole number from 3",
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
    "turns": (
        {"rope__scaling__yarn_beta_slow": 0.0},
        "yarn_beta_slow' is '0.0', expected at least 0.0009",
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


@pytest.mark.parametrize(
    "said",
    [
        {"expert_group_count": 0, "expert_group_used_count": 0},
        {"expert_group_count": 8, "expert_group_used_count": 4},
        {"expert_count": 4, "expert_used_count": 2, "expert_group_count": 0, "expert_group_used_count": 0},
        {"expert_count": 4, "expert_used_count": 2, "expert_group_count": 1, "expert_group_used_count": 1},
    ],
)  # fmt: skip
def test_where_all_experts_are_one_group_it_is_not_asked_how_many_are_used(
    said: dict[str, int],
) -> None:
    form = _read(**said)
    assert (form.expert_groups, form.chosen_groups) == (1, 1)


@pytest.mark.parametrize("name", ["dots1", "minimax-m2", "glm4moe"])
def test_routers_that_files_do_not_name_are_those_of_the_models(name: str) -> None:
    assert _read(name).router == "sigmoid"
    assert _read(name, expert_gating_func=1).router == "softmax"


def test_an_unknown_architecture_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedError, match="supported are: llama apertus arcee"):
        _read(general__architecture="rwkv7")


def test_layers_turn_columns_as_their_architecture_does() -> None:
    assert read_hyperparameters(read_gguf(Form("gpt2").data())).turns == (False, False)
    found = read_hyperparameters(read_gguf(Form("smollm3", layers=5).data()))
    assert found.turns == (True, True, True, False, True)
    windows = {"cohere2.attention.sliding_window": 4}
    found = read_hyperparameters(
        read_gguf(Form("cohere2", layers=5, metadata=windows).data())
    )
    assert found.turns == (True, True, True, False, True)
    assert found.windows == (4, 4, 4, 0, 4)
    assert _read("granite", rope__scaling__finetuned=False).turns == (False, False)
    assert _read("llama", rope__scaling__finetuned=False).turns == (True, True)


def test_scales_are_those_of_the_architecture() -> None:
    said = {"embedding_scale": 12.0, "residual_scale": 0.25, "logit_scale": 8.0}
    form = _read("granite", **said)
    assert (form.embedding_scale, form.residual_scale, form.final_scale) == (
        12,
        0.25,
        1 / 8,
    )
    assert _read("command-r", logit_scale=8.0).final_scale == 8
    assert _read("gemma").embedding_scale == 8
    with pytest.raises(UnsupportedError, match="embedding_scale"):
        _read("command-r", **said)
    for scale in (1e-40, 1e38):
        with pytest.raises(ModelError, match="leaves no numbers of them"):
            _read("granite", logit_scale=scale)


def test_what_a_factor_scales_is_the_kind_of_scaling_or_positions() -> None:
    for said in (
        {"rope__scaling__factor": 4.0},
        {"rope__scale_linear": 4.0},
        {"rope__scale_linear": 2.0, "rope__scaling__factor": 4.0},
        {"rope__scale_linear": 4.0, "rope__scaling__type": "linear"},
    ):
        scaling = _read(**said).rope_scaling
        assert (scaling.type, scaling.factor) == ("linear", 4.0)
    for said in ({"rope__scaling__factor": 4.0}, {"rope__scale_linear": 4.0}):
        scaling = _read(rope__scaling__type="none", **said).rope_scaling
        assert (scaling.type, scaling.factor) == ("none", 1.0)
    older = _read(rope__scaling__type="yarn", rope__scale_linear=4.0).rope_scaling
    assert (older.type, older.factor) == ("yarn", 4.0)


def test_files_of_gptneox_alone_say_what_a_network_reads() -> None:
    assert _read("gptneox", use_parallel_residual=True).is_parallel
    assert not _read("gptneox", use_parallel_residual=False).is_parallel
    with pytest.raises(ModelError, match="use_parallel_residual' is missing"):
        _read("gptneox")
    assert not _read("stablelm", use_parallel_residual=True).is_parallel


def test_what_gemma2_has_where_its_file_does_not_say_it() -> None:
    form = _read("gemma2")
    assert (form.attention_cap, form.final_cap, form.windows) == (50, 30, (4096, 0))
    said = {"attn_logit_softcapping": 0.0, "final_logit_softcapping": 2.0}
    form = _read("gemma2", attention__sliding_window=7, **said)
    assert (form.attention_cap, form.final_cap, form.windows) == (0, 2, (7, 0))
    form = _read("gemma3")
    assert (form.attention_cap, form.final_cap, form.windows) == (0, 0, (0, 0))


@pytest.mark.parametrize(
    ("layers", "windows"), [(64, (4096, 4096, 4096, 0)), (8, (0,) * 4)]
)
def test_exaone4_of_64_layers_sees_windows(layers: int, windows: tuple[int, ...]) -> None:
    data = Form("exaone4", layers=layers, width=8, inner=8, size=2).data()
    assert read_hyperparameters(read_gguf(data)).windows == windows * (layers // 4)


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ([4, 2, 2, 0], False), (2, False), ([0, 0, 0, 0], True), ([4, 0, 0, 0], True), ([4], True), (0, True),
    ],
)  # fmt: skip
def test_positions_of_parts_say_which_columns_glm4_turns(
    sections: object, expected: bool
) -> None:
    assert _read("glm4", rope__dimension_sections=sections).turns_neighbours == expected
    assert _read("llama", rope__dimension_sections=sections).turns_neighbours
    assert not _read("qwen2vl", rope__dimension_sections=sections).turns_neighbours


@pytest.mark.parametrize("sections", ["x", True, ["a", "b"], [True, False]])
def test_parts_of_positions_are_numbers(sections: object) -> None:
    with pytest.raises(ModelError, match=r"dimension_sections' is .*, expected numbers"):
        _read("glm4", rope__dimension_sections=sections)


def test_queries_of_mistral3_grow_as_their_file_says() -> None:
    form = _read(
        "mistral3", attention__temperature_scale=0.5, rope__scaling__type="yarn",
        rope__scaling__yarn_log_multiplier=1.0,
    )  # fmt: skip
    assert (form.far_scale, form.rope_scaling.factor_rest) == (0.5, 1.0)
    assert _read("mistral3").far_scale == 0
    with pytest.raises(ModelError, match="expected at least 0"):
        _read("mistral3", rope__scaling__yarn_log_multiplier=-1.0)


LATENT = {
    "deepseek2.attention.kv_lora_rank": 20, "deepseek2.attention.key_length_mla": 24,
    "deepseek2.attention.value_length_mla": 12, "deepseek2.rope.dimension_count": 8,
}  # fmt: skip


def test_rows_of_latent_attention_are_what_caches_hold() -> None:
    data = Form("deepseek2", metadata=LATENT).data()
    found = read_hyperparameters(read_gguf(data))
    assert found.latent == Latent(rank=20, key_size=24, value_size=12)
    assert (found.shared_heads, found.key_size, found.value_size) == (1, 28, 20)
    assert found.attention_scale == pytest.approx(24**-0.5)
    older = {
        "deepseek2.attention.kv_lora_rank": 20, "deepseek2.attention.key_length": 24,
        "deepseek2.attention.value_length": 12, "deepseek2.rope.dimension_count": 8,
    }  # fmt: skip
    again = read_hyperparameters(read_gguf(Form("deepseek2", metadata=older).data()))
    assert again.latent == found.latent
    assert again.key_size == 28
    odd = {**LATENT, "deepseek2.rope.dimension_count": 26}
    with pytest.raises(ModelError, match="26 columns of heads of 24 are turned"):
        read_hyperparameters(read_gguf(Form("deepseek2", metadata=odd).data()))


def test_latent_attention_grows_scores_by_yarn_and_turns_by_none() -> None:
    yarn = {
        "deepseek2.rope.scaling.type": "yarn", "deepseek2.rope.scaling.factor": 40.0,
        "deepseek2.rope.scaling.yarn_log_multiplier": 0.1,
    }  # fmt: skip
    found = read_hyperparameters(
        read_gguf(Form("deepseek2", metadata={**LATENT, **yarn}).data())
    )
    assert found.attention_scale == pytest.approx(
        24**-0.5 * (0.1 * math.log(40) + 1) ** 2, rel=1e-6
    )
    assert found.rope_scaling.factor_rest == 1
    del yarn["deepseek2.rope.scaling.yarn_log_multiplier"]
    found = read_hyperparameters(
        read_gguf(Form("deepseek2", metadata={**LATENT, **yarn}).data())
    )
    assert found.attention_scale == pytest.approx(24**-0.5)
    assert found.rope_scaling.factor_rest == 0


def test_a_router_with_preferences_that_no_file_names_has_sigmoids() -> None:
    options = {"experts": 4, "metadata": LATENT}
    plain = Form("deepseek2", **options)
    assert read_hyperparameters(read_gguf(plain.data())).router == "softmax"
    preferring = Form("deepseek2", **options, extra={"exp_probs_b.bias": (4,)})
    assert read_hyperparameters(read_gguf(preferring.data())).router == "sigmoid"
    said = {**LATENT, "deepseek2.expert_gating_func": 1}
    named = Form("deepseek2", experts=4, metadata=said, extra={"exp_probs_b.bias": (4,)})
    assert read_hyperparameters(read_gguf(named.data())).router == "softmax"


def test_layers_without_heads_of_keys_are_convolutions_where_there_are_any() -> None:
    def read(architecture: str, counts: list[int]) -> Hyperparameters:
        key = f"{architecture}.attention.head_count_kv"
        form = Form(architecture, layers=3, metadata={key: counts})
        return read_hyperparameters(read_gguf(form.data()))

    found = read("lfm2", [0, 2, 0])
    assert found.parts.convolved == (True, False, True)
    assert found.shared_heads == 2
    assert read("lfm2", [0, 0, 0]).parts.convolved == (True, True, True)
    for counts in ([1, 2, 0], [0, 2], [0, -2, 0], [0, 3, 0]):
        with pytest.raises(ModelError, match="heads"):
            read("lfm2", counts)
    with pytest.raises(UnsupportedError, match="differs from layer to layer"):
        read("llama", [0, 2, 0])


def test_layers_whose_activation_has_numbers_have_them() -> None:
    keys = {"xielu.alpha_p": 0.0, "xielu.alpha_n": [0.0, 1.0], "xielu.beta": 0.5}
    with pytest.raises(ModelError, match="'xielu' has no numbers for 2 layers"):
        read_hyperparameters(read_gguf(Form("apertus", metadata=keys).data()))
    keys["xielu.eps"] = -1e-6
    found = read_hyperparameters(read_gguf(Form("apertus", metadata=keys).data()))
    assert found.slopes[0].above == pytest.approx(math.log(2))
    assert found.slopes[0].below == pytest.approx(0.5 + math.log(2))
    assert found.slopes[1].below == pytest.approx(0.5 + math.log(1 + math.e))


def test_llama_4_has_parts_of_the_text_where_it_turns_columns() -> None:
    form = read_hyperparameters(
        read_gguf(
            Form("llama4", layers=5, metadata={"llama4.attention.sliding_window": 6}).data()
        )
    )
    assert form.windows == (6, 6, 6, 0, 6)
    assert form.turns == (True, True, True, False, True)
    assert (form.far_scale, form.far_context, form.has_even_heads) == (0.1, 8192, True)
    form = _read("llama4")
    assert form.windows == (8192, 8192)
    # Small models of its form have neither: all layers see all keys, and turn columns.
    form = _read("llama4", attention__sliding_window=0)
    assert (form.windows, form.turns, form.far_scale) == ((0, 0), (True, True), 0.0)
    assert not _read("llama4", expert_count=128, expert_used_count=1).has_even_heads
    assert _read("llama4", expert_count=16, expert_used_count=1).has_even_heads
    with pytest.raises(UnsupportedError, match="temperature_length"):
        _read("llama", attention__temperature_length=1024)


@pytest.mark.parametrize("key", ["attention.clamp_kqv", "rope.freq_base"])
def test_a_number_of_f64_that_f32_has_no_room_for_is_refused(key: str) -> None:
    file = read_gguf(Form().data())
    far = replace(file, metadata={**file.metadata, f"llama.{key}": 1e300})
    with pytest.raises(ModelError, match=rf"{key}' is '1e\+300', expected a finite number"):
        read_hyperparameters(far)
