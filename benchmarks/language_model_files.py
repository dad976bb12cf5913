"""Language models larger than those that packages bring, of random weights, in types of blocks that llama.cpp quantizes to.

    python benchmarks/language_model_files.py small.gguf /tmp/models --peer /path/to/python-with-llama-cpp

What they say is noise, but each token takes the arithmetic and the memory of a model of their size (a Llama of 0.35 billion
weights by default), with the vocabulary of the small one.  `language_model.py speed` times them.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

HEAD_SIZE: Final = 64
SHARED: Final = 4
"""Heads of queries that share one of keys."""
KINDS: Final = ("Q4_0", "Q4_K_M", "Q6_K", "Q8_0")
QUANTIZE: Final = """
import sys, llama_cpp
source, target, kind = sys.argv[1:]
options = llama_cpp.llama_model_quantize_default_params()
options.ftype = getattr(llama_cpp, 'LLAMA_FTYPE_MOSTLY_' + kind)
sys.exit(llama_cpp.llama_model_quantize(source.encode(), target.encode(), options))
"""


def shapes(layers: int, width: int, inner: int, tokens: int) -> dict[str, tuple[int, ...]]:
    """Every tensor of a Llama, with its shape."""
    keys = width // SHARED
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (tokens, width)}
    for layer in range(layers):
        rows = {
            "attn_norm": (width,), "attn_q": (width, width), "attn_k": (keys, width), "attn_v": (keys, width),
            "attn_output": (width, width), "ffn_norm": (width,), "ffn_gate": (inner, width), "ffn_up": (inner, width),
            "ffn_down": (width, inner),
        }  # fmt: skip
        found |= {f"blk.{layer}.{name}.weight": shape for name, shape in rows.items()}
    return found | {"output_norm.weight": (width,)}


def make(vocabulary: Path, target: Path, layers: int, width: int, inner: int) -> None:
    """A model in f16 with the vocabulary of another."""
    gguf: Any = importlib.import_module("gguf")
    own = gguf.GGUFReader(str(vocabulary)).fields
    writer = gguf.GGUFWriter(str(target), "llama", use_temp_file=True)
    heads = width // HEAD_SIZE
    writer.add_block_count(layers)
    writer.add_context_length(8192)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads // SHARED)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_SIZE)
    tokens = own["tokenizer.ggml.tokens"].contents()
    for name, field in own.items():
        if name.startswith("tokenizer.") and name != "tokenizer.chat_template":
            sub = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=sub)
    random = np.random.default_rng(0)
    for name, shape in shapes(layers, width, inner, len(tokens)).items():
        if len(shape) == 1:
            writer.add_tensor(name, np.ones(shape, np.float32))
            continue
        weights = random.standard_normal(shape, np.float32) * np.float32(0.02)
        writer.add_tensor(name, weights.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(arguments: Sequence[str]) -> None:
    """Make one model and its quantized forms."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("vocabulary", type=Path, help="a model whose vocabulary is taken")
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--peer", default=sys.executable, help="a Python that has llama-cpp-python"
    )
    parser.add_argument("--kinds", nargs="+", default=KINDS)
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--inner", type=int, default=4096)
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    whole = options.folder / "made-up-F16.gguf"
    make(options.vocabulary, whole, options.layers, options.width, options.inner)
    for kind in options.kinds:
        target = options.folder / f"made-up-{kind}.gguf"
        words = [options.peer, "-c", QUANTIZE, str(whole), str(target), kind]
        subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
        print(target, flush=True)
    whole.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
