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

from fakes.language_models import Form, Reference

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
