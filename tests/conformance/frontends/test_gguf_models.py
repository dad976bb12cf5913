"""Language models of a few thousand random weights: the reference of our tests computes what transformers does.

The front end is held against that reference (`tests/unit/compiler/frontends/gguf`); here the reference is held against
transformers, which reads the same file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes.language_models import KINDS, Form, Reference
from tilewright.formats.gguf import dequantize, read_gguf

pytestmark = [pytest.mark.needs_torch, pytest.mark.slow]
TOKENS = [3, 17, 0, 79, 5, 44, 44, 8, 61, 20, 33]
GEMMA = {"neighbours": False, "gelu": True, "embedding_scale": 8.0}
MODELS: dict[str, tuple[Form, dict[str, Any]]] = {
    "llama": (Form(kinds={"weight": "Q4_0"}, tied=False), {}),
    "qwen2": (Form("qwen2", biases=True, kinds={"weight": "Q8_0"}), {"neighbours": False}),
    "qwen3": (Form("qwen3", head_norms=True), {"neighbours": False}),
    "qwen2moe": (
        Form("qwen2moe", biases=True, experts=5, chosen=3, shared_inner=32, kinds={"exps.weight": "Q8_0"}),
        {"neighbours": False, "shares_add_up": False},
    ),
    "qwen3moe": (Form("qwen3moe", head_norms=True, experts=4), {"neighbours": False}),
    "gemma2": (
        Form("gemma2", post_norms=True, layers=3,
             metadata={"gemma2.attention.sliding_window": 4, "gemma2.attn_logit_softcapping": 0.5,
                       "gemma2.final_logit_softcapping": 0.3}),
        {**GEMMA, "windows": (4, 0, 4), "attention_cap": 0.5, "final_cap": 0.3},
    ),
    "gemma3": (
        Form("gemma3", post_norms=True, head_norms=True, layers=7,
             metadata={"gemma3.attention.sliding_window": 3, "gemma3.rope.freq_base": 1e6}),
        {**GEMMA, "base": 1e6, "local_base": 1e4, "windows": (3, 3, 3, 3, 3, 0, 3)},
    ),
}  # fmt: skip


def config_of(folder: Path, form: Form, options: dict[str, Any]) -> Any:
    """What transformers reads of a file's metadata, and what it leaves at the defaults of its classes."""
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.from_pretrained(folder, gguf_file="model.gguf")
    more = {
        "moe_intermediate_size": form.inner,
        "shared_expert_intermediate_size": form.shared_inner,
        "num_experts": form.experts,
        "num_experts_per_tok": form.chosen,
        "norm_topk_prob": options.get("shares_add_up", True),
        "query_pre_attn_scalar": form.size,
        "head_dim": form.size,
        "attn_logit_softcapping": options.get("attention_cap"),
        "final_logit_softcapping": options.get("final_cap"),
    }
    for name, value in more.items():
        if hasattr(config, name):
            setattr(config, name, value)
    return config


@pytest.mark.parametrize("name", MODELS)
def test_the_reference_computes_what_transformers_does(name: str, tmp_path: Path) -> None:
    torch, transformers = (pytest.importorskip(m) for m in ("torch", "transformers"))
    form, options = MODELS[name]
    a = form.architecture
    metadata = {
        f"{a}.vocab_size": form.vocabulary,
        f"{a}.rope.freq_base": 1e4,
        f"{a}.rope.dimension_count": form.size,
        "tokenizer.ggml.eos_token_id": 1,
        **form.metadata,
    }
    form = replace(form, metadata=metadata)
    (tmp_path / "model.gguf").write_bytes(form.data())
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", dtype=torch.float32,
        config=config_of(tmp_path, form, options), attn_implementation="eager",
    )  # fmt: skip
    with torch.no_grad():
        found = model.eval()(torch.tensor([TOKENS])).logits[0, -1].numpy()
    expected = Reference(form, **options).logits(TOKENS)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()


# --- what transformers does not read of such files: its own classes, given the same weights

PLACES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj", "attn_output": "self_attn.o_proj", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
}  # fmt: skip
CONFIG: dict[str, Any] = {
    "vocab_size": 80, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "head_dim": 16, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
    "tie_word_embeddings": True, "attn_implementation": "eager", "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip
BUILT: dict[str, tuple[Form, dict[str, Any], str, dict[str, Any]]] = {
    "gemma": (
        Form("gemma", size=24),
        {**GEMMA},
        "Gemma",
        {"head_dim": 24, "hidden_activation": "gelu_pytorch_tanh"},
    ),
    "phi3": (
        Form("phi3", fused=True, metadata={"phi3.attention.sliding_window": 5}),
        {"neighbours": False, "windows": (5, 5)},
        "Phi3",
        {"sliding_window": 5},
    ),
    "mixtral": (
        Form(experts=4),
        {},
        "Mixtral",
        {"num_local_experts": 4, "num_experts_per_tok": 2},
    ),
}


def weights_of(form: Form) -> dict[str, np.ndarray]:
    """The tensors of a file under the names of transformers, in the order of columns and as it means them."""
    file = read_gguf(form.data())
    stored = {n: dequantize(file, t).astype(np.float32) for n, t in file.tensors.items()}
    shift = 1 if form.architecture.startswith("gemma") else 0
    found = {
        "model.embed_tokens.weight": stored.pop("token_embd.weight"),
        "model.norm.weight": stored.pop("output_norm.weight") - shift,
    }
    found["lm_head.weight"] = found["model.embed_tokens.weight"]
    for name, array in stored.items():
        _, layer, kind, _ = name.split(".")
        if kind in ("attn_q", "attn_k") and form.architecture == "llama":
            pairs = array.reshape(-1, form.size // 2, 2, form.width)
            array = pairs.swapaxes(1, 2).reshape(array.shape)
        place = PLACES.get(kind)
        if form.fused and kind == "ffn_up":
            place = "mlp.gate_up_proj"
        if place is not None:
            own = array - shift if kind.endswith("_norm") else array
            found[f"model.layers.{layer}.{place}.weight"] = own
    for layer in range(form.layers if form.experts else 0):
        gate, up, down = (stored[f"blk.{layer}.ffn_{kind}_exps.weight"] for kind in KINDS)
        place = f"model.layers.{layer}.mlp.experts"
        found[f"{place}.gate_up_proj"] = np.concatenate([gate, up], 1)
        found[f"{place}.down_proj"] = down
    return found


@pytest.mark.parametrize("name", BUILT)
def test_the_reference_computes_what_the_classes_of_transformers_do(name: str) -> None:
    torch, transformers = (pytest.importorskip(m) for m in ("torch", "transformers"))
    form, options, family, more = BUILT[name]
    config = getattr(transformers, f"{family}Config")(**{**CONFIG, **more})
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    given = {n: torch.tensor(a) for n, a in weights_of(form).items()}
    loaded = model.load_state_dict(given, strict=False)
    assert not loaded.missing_keys
    assert not loaded.unexpected_keys
    with torch.no_grad():
        found = model.eval()(torch.tensor([TOKENS])).logits[0, -1].numpy()
    expected = Reference(form, **options).logits(TOKENS)
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
