"""Language models of a few thousand random weights as .gguf, and what they compute, in numpy.

The reference is written from the papers, position by position, on dequantised weights: it shares no code with
the front end.  Used by tests of the front end, of generation and of the server.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fakes import parameter_files
from tilewright.formats.gguf import BLOCK_TYPES, dequantize, read_gguf

KINDS = ("gate", "up", "down")
CODES = {row.name: code for code, row in BLOCK_TYPES.items()}
HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,),
    "IQ4_NL": (0,), "IQ4_XS": (0,), "MXFP4": (), "NVFP4": (), "TQ2_0": (64,),
    "IQ1_S": (0,), "IQ1_M": (), "IQ2_XXS": (0,), "IQ2_XS": (0,), "IQ2_S": (0,), "IQ3_XXS": (0,), "IQ3_S": (0,),
    "Q1_0": (0,), "Q2_0": (0,), "TQ1_0": (52,),
}  # fmt: skip
"""Where the f16 of a block stand."""
_SIZES = {
    "Q8_0": 0.002,
    "Q6_K": 0.00006,
    "Q3_K": 0.0008,
    "Q4_K": 0.0006,
    "Q5_K": 0.0003,
    "Q2_K": 0.002,
    "IQ4_NL": 0.002,
    "IQ4_XS": 0.00006,
    "TQ2_0": 0.1,
    "TQ1_0": 0.1,
    "Q1_0": 0.1,
    "Q2_0": 0.1,
    "IQ1_S": 0.014,
    "IQ2_XXS": 0.002,
    "IQ2_XS": 0.002,
    "IQ2_S": 0.002,
    "IQ3_XXS": 0.0007,
    "IQ3_S": 0.0007,
}


def pair(key: str, value: Any) -> bytes:
    """A key with its value, encoded."""
    return parameter_files.gguf_text(key) + _value(value)


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value) if value >= 0 else struct.pack("<Ii", 5, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + parameter_files.gguf_text(value)
    if isinstance(value[0], str):
        texts = b"".join(map(parameter_files.gguf_text, value))
        return struct.pack("<IIQ", 9, 8, len(value)) + texts
    if isinstance(value[0], bool):
        return struct.pack(f"<IIQ{len(value)}?", 9, 7, len(value), *value)
    if isinstance(value[0], float):
        return struct.pack(f"<IIQ{len(value)}f", 9, 6, len(value), *value)
    return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)


def random_blocks(random: np.random.Generator, shape: Sequence[int], kind: str) -> bytes:
    """Bytes of a tensor of any type, whose numbers are small."""
    row = BLOCK_TYPES[CODES[kind]]
    if kind not in HALVES:
        numbers = (random.standard_normal(shape) * 0.1).astype(np.float32)
        if kind == "BF16":
            return (numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        return numbers.astype({"F32": np.float32, "F16": np.float16}[kind]).tobytes()
    count = int(np.prod(shape)) // row.elements
    raw = random.integers(0, 256, (count, row.size_bytes), np.uint8)
    for index, at in enumerate(HALVES[kind]):
        sizes = random.uniform(0.5, 1.5, count) * _SIZES.get(kind, 0.02)
        # Minima pull the numbers to both sides of zero.
        sizes = -sizes * 7 if index and kind.endswith("1") else sizes
        raw[:, at : at + 2] = sizes.astype(np.float16).view(np.uint8).reshape(-1, 2)
    if kind == "MXFP4":
        raw[:, 0] = random.integers(122, 125, count)
    if kind == "NVFP4":
        raw[:, :4] = random.integers(16, 25, (count, 4))
    if kind == "IQ1_M":
        # The f16 of the block, about 0.014, four bits at a time.
        whole = random.uniform(0.01, 0.02, count).astype(np.float16).view(np.uint16)
        for place, at in enumerate((49, 51, 53, 55)):
            raw[:, at] = raw[:, at] & 0xF | (whole >> 4 * place & 0xF).astype(np.uint8) << 4
    return raw.tobytes()


@dataclass
class Form:
    """What a model is like; `kinds` are types of tensors by the end of their name, "" of all others.

    Tensors of layers that are named in `without` are left out, those in `extra` are there besides; `norm_biases` and
    `dense_biases` give biases to norms and to products of layers.
    """

    architecture: str = "llama"
    layers: int = 2
    width: int = 64
    heads: int = 4
    shared: int = 2
    size: int = 16
    inner: int = 96
    vocabulary: int = 80
    seed: int = 0
    kinds: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    biases: bool = False
    head_norms: bool = False
    post_norms: bool = False
    fused: bool = False
    tied: bool = True
    experts: int = 0
    chosen: int = 2
    shared_inner: int = 0
    apart: bool = False
    gated: bool = True
    norm_biases: bool = False
    dense_biases: bool = False
    without: Sequence[str] = ()
    extra: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    more: Mapping[str, np.ndarray] = field(default_factory=dict)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor with its shape."""
        q, k, w = self.heads * self.size, self.shared * self.size, self.width
        found: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.vocabulary, w)}
        for i in range(self.layers):
            b = f"blk.{i}"
            rows = {"attn_q": q, "attn_k": k, "attn_v": k}
            if self.fused:
                rows = {"attn_qkv": q + 2 * k}
            for name, count in rows.items():
                found[f"{b}.{name}.weight"] = (count, w)
                if self.biases:
                    found[f"{b}.{name}.bias"] = (count,)
            found |= {
                f"{b}.{name}.weight": (count, w) for name, count in self._first().items()
            }
            found[f"{b}.attn_output.weight"] = (w, q)
            found[f"{b}.ffn_down.weight"] = (w, self.inner)
            if self.experts:
                found |= self._experts(b, [found.pop(f"{b}.ffn_{n}.weight") for n in KINDS])
            found |= {f"{b}.{name}.weight": (size,) for name, size in self._norms().items()}
            for name in self.without:
                found.pop(f"{b}.{name}.weight", None)
            found |= {f"{b}.{name}": shape for name, shape in self.extra.items()}
        found["output_norm.weight"] = (w,)
        if "output_norm" in self.without:
            del found["output_norm.weight"]
        if not self.tied:
            found["output.weight"] = (self.vocabulary, w)
        return found | self._biases(found)

    def _first(self) -> dict[str, int]:
        """The rows of the products that a network begins with."""
        if not self.gated:
            return {"ffn_up": self.inner}
        if self.fused:
            return {"ffn_up": 2 * self.inner}
        return {"ffn_gate": self.inner, "ffn_up": self.inner}

    def _norms(self) -> dict[str, int]:
        """The norms of a layer."""
        found = {"attn_norm": self.width, "ffn_norm": self.width}
        if self.head_norms:
            found |= {"attn_q_norm": self.size, "attn_k_norm": self.size}
        if self.post_norms:
            found |= {"post_attention_norm": self.width, "post_ffw_norm": self.width}
        return found

    def _biases(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """Those of norms and of products of layers, where they are wanted."""
        found: dict[str, tuple[int, ...]] = {}
        for name, shape in shapes.items():
            wanted = (
                self.norm_biases if "norm" in name else self.dense_biases and "blk." in name
            )
            if wanted and name.endswith(".weight"):
                found[name.replace(".weight", ".bias")] = shape[:1]
        return found

    def _experts(
        self, block: str, shapes: Sequence[tuple[int, ...]]
    ) -> dict[str, tuple[int, ...]]:
        """The tensors of a mixture, of which every network has these shapes."""
        found: dict[str, tuple[int, ...]] = {
            f"{block}.ffn_gate_inp.weight": (self.experts, self.width)
        }
        for name, shape in zip(KINDS, shapes, strict=True):
            if self.apart:
                found |= {
                    f"{block}.ffn_{name}.{i}.weight": shape for i in range(self.experts)
                }
            else:
                found[f"{block}.ffn_{name}_exps.weight"] = (self.experts, *shape)
            if self.shared_inner:
                inner = tuple(self.shared_inner if n == self.inner else n for n in shape)
                found[f"{block}.ffn_{name}_shexp.weight"] = inner
        if self.shared_inner:
            found[f"{block}.ffn_gate_inp_shexp.weight"] = (self.width,)
        return found

    def kind_of(self, name: str, shape: tuple[int, ...]) -> str:
        """The type of a tensor."""
        if len(shape) == 1:
            return "F32"
        ends = [end for end in self.kinds if name.endswith(end)]
        return self.kinds[max(ends, key=len)] if ends else "F32"

    def keys(self) -> dict[str, Any]:
        """The metadata."""
        a = self.architecture
        return {
            "general.architecture": a,
            "general.name": "tiny",
            f"{a}.block_count": self.layers,
            f"{a}.context_length": 64,
            f"{a}.embedding_length": self.width,
            f"{a}.feed_forward_length": self.inner,
            f"{a}.attention.head_count": self.heads,
            f"{a}.attention.head_count_kv": self.shared,
            f"{a}.attention.key_length": self.size,
            f"{a}.attention.value_length": self.size,
            f"{a}.attention.layer_norm_rms_epsilon": 1e-5,
            f"{a}.attention.layer_norm_epsilon": 1e-5,
            **(
                {f"{a}.expert_count": self.experts, f"{a}.expert_used_count": self.chosen}
                if self.experts
                else {}
            ),
            **self.metadata,
        }

    def data(self) -> bytes:
        """The file."""
        random = np.random.default_rng(self.seed)
        tensors: list[tuple[str, tuple[int, ...], int, bytes]] = []
        for name, shape in self.shapes().items():
            kind = self.kind_of(name, shape)
            content = random_blocks(random, shape, kind)
            if "norm" in name and name.endswith(".weight"):
                content = random.uniform(0.5, 1.5, shape).astype(np.float32).tobytes()
            tensors.append((name, shape, CODES[kind], content))
        for name, array in self.more.items():
            tensors.append((name, array.shape, 0, array.astype(np.float32).tobytes()))
        return parameter_files.gguf(
            tensors, metadata=[pair(k, v) for k, v in self.keys().items()]
        )


def _norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def _turn(
    x: np.ndarray, position: int, angles: np.ndarray, neighbours: bool, scale: float = 1.0
) -> np.ndarray:
    """One head's vector as complex numbers that are turned."""
    half = len(angles)
    body = x[: 2 * half]
    pairs = body.reshape(half, 2).T if neighbours else body.reshape(2, half)
    whole = (pairs[0] + 1j * pairs[1]) * (scale * np.exp(1j * position * angles))
    found = np.stack([whole.real, whole.imag])
    return np.concatenate([(found.T if neighbours else found).reshape(-1), x[2 * half :]])


@dataclass
class Reference:
    """What a model computes, in f64.  Options say what metadata of its architecture means."""

    form: Form
    neighbours: bool = True
    gelu: bool = False
    embedding_scale: float = 1.0
    base: float = 10000.0
    local_base: float = 0.0
    windows: Sequence[int] = ()
    attention_cap: float = 0.0
    final_cap: float = 0.0
    divisors: np.ndarray | None = None
    turned_scale: float = 1.0
    shares_add_up: bool = True

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """The scores behind the last token."""
        form = self.form
        file = read_gguf(form.data())
        w = {n: dequantize(file, t).astype(np.float64) for n, t in file.tensors.items()}
        x = w["token_embd.weight"][list(tokens)] * self.embedding_scale
        for i in range(form.layers):
            x = self._layer(x, i, {k.removeprefix(f"blk.{i}."): v for k, v in w.items()})
        last = _norm(x[-1], w["output_norm.weight"])
        scores = w.get("output.weight", w["token_embd.weight"]) @ last
        return (
            self.final_cap * np.tanh(scores / self.final_cap) if self.final_cap else scores
        )

    def _layer(self, x: np.ndarray, layer: int, w: Mapping[str, np.ndarray]) -> np.ndarray:
        seen = _norm(x, w["attn_norm.weight"])
        mixed = self._attention(seen, layer, w) @ w["attn_output.weight"].T
        if self.form.post_norms:
            mixed = _norm(mixed, w["post_attention_norm.weight"])
        x = x + mixed
        seen = _norm(x, w["ffn_norm.weight"])
        if self.form.experts:
            out = self._mixture(seen, w)
            return x + out
        if self.form.fused:
            gate, up = np.split(seen @ w["ffn_up.weight"].T, 2, axis=1)
        else:
            gate, up = seen @ w["ffn_gate.weight"].T, seen @ w["ffn_up.weight"].T
        out = self._gated(gate, up) @ w["ffn_down.weight"].T
        return x + (_norm(out, w["post_ffw_norm.weight"]) if self.form.post_norms else out)

    def _gated(self, gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        if self.gelu:
            inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
            gate = 0.5 * gate * (1 + np.tanh(inner))
        else:
            gate = gate / (1 + np.exp(-gate))
        return gate * up

    def _mixture(self, x: np.ndarray, w: Mapping[str, np.ndarray]) -> np.ndarray:
        """Token by token, expert by expert."""
        form, out = self.form, np.zeros_like(x)
        for place, row in enumerate(x):
            scores = w["ffn_gate_inp.weight"] @ row
            shares = np.exp(scores - scores.max())
            shares /= shares.sum()
            best = np.argsort(-shares, kind="stable")[: form.chosen]
            total = shares[best].sum() if self.shares_add_up else 1.0
            for number in best:
                names = [
                    f"ffn_{k}.{number}" if form.apart else f"ffn_{k}_exps" for k in KINDS
                ]
                held = [w[f"{name}.weight"] for name in names]
                gate, up, down = held if form.apart else [each[number] for each in held]
                share = shares[number] / total
                out[place] += share * (down @ self._gated(gate @ row, up @ row))
            if form.shared_inner:
                gate, up, down = (w[f"ffn_{k}_shexp.weight"] for k in KINDS)
                share = 1 / (1 + np.exp(-(w["ffn_gate_inp_shexp.weight"] @ row)))
                out[place] += share * (down @ self._gated(gate @ row, up @ row))
        return out

    def _attention(
        self, x: np.ndarray, layer: int, w: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        form = self.form
        window = self.windows[layer] if self.windows else 0
        base = self.local_base if window and self.local_base else self.base
        angles = base ** -(np.arange(0, form.size, 2) / form.size)
        if self.divisors is not None:
            angles = angles / self.divisors
        projected = [self._projected(x, letter, w) for letter in "qkv"]
        for index, letter in enumerate("qk"):
            if form.head_norms:
                projected[index] = _norm(projected[index], w[f"attn_{letter}_norm.weight"])
            for p, h in np.ndindex(projected[index].shape[:2]):
                projected[index][p, h] = _turn(
                    projected[index][p, h], p, angles, self.neighbours, self.turned_scale
                )
        q, k, v = projected
        out = np.zeros_like(q)
        for p, h in np.ndindex(q.shape[:2]):
            first = max(0, p - window + 1) if window else 0
            shared = h // (form.heads // form.shared)
            scores = k[first : p + 1, shared] @ q[p, h] / np.sqrt(form.size)
            if self.attention_cap:
                scores = self.attention_cap * np.tanh(scores / self.attention_cap)
            powers = np.exp(scores - scores.max())
            out[p, h] = powers / powers.sum() @ v[first : p + 1, shared]
        return out.reshape(len(x), -1)

    def _projected(
        self, x: np.ndarray, letter: str, w: Mapping[str, np.ndarray]
    ) -> np.ndarray:
        form = self.form
        sizes = [n * form.size for n in (form.heads, form.shared, form.shared)]
        index = "qkv".index(letter)
        if form.fused:
            rows = np.split(w["attn_qkv.weight"], np.cumsum(sizes)[:2])[index]
            bias = (
                np.split(w["attn_qkv.bias"], np.cumsum(sizes)[:2])[index]
                if form.biases
                else 0
            )
        else:
            rows = w[f"attn_{letter}.weight"]
            bias = w[f"attn_{letter}.bias"] if form.biases else 0
        return (x @ rows.T + bias).reshape(len(x), -1, form.size)


SPECIAL = ("<|end|>", "<|user|>", "<|assistant|>")
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def byte_tokens() -> dict[str, Any]:
    """Metadata of a vocabulary of 3 special tokens, every byte, and a few pairs: 272 tokens."""
    from tilewright.api.language.byte_pairs import BYTE_CHARACTERS

    merges = [
        "t h",
        "th e",
        "Ġ the",
        "i n",
        "a n",
        "an d",
        "Ġ and",
        "e r",
        "o n",
        "Ġ a",
        "l l",
        "h e",
        "Ġ t",
    ]
    tokens = [*SPECIAL, *BYTE_CHARACTERS, *(merge.replace(" ", "") for merge in merges)]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * 3 + [1] * (len(tokens) - 3),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.chat_template": TEMPLATE,
    }


def speaking_form(**options: Any) -> Form:
    """A model of 272 tokens that can be spoken to; what it says is nonsense."""
    metadata = {**byte_tokens(), "llama.context_length": options.pop("context", 64)}
    options.setdefault("kinds", {"weight": "Q4_1"})
    return Form(vocabulary=272, metadata=metadata, **options)
