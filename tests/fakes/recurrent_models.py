"""Language models that sum up a text in states, of random weights, and what they compute, in numpy.

The reference goes from token to token, as the papers define it, on dequantised weights: it shares no code with the front
end, which reads prompts in chunks.  Used by tests of the front end and of generation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fakes.language_models import Form
from tilewright.formats.gguf import dequantize, read_gguf

TAPS, INNER, SIZE, HEADS, GROUPS, RANK = 4, 128, 16, 8, 2, 4
ATTENTION = {
    "attn_q": (64, 64),
    "attn_k": (32, 64),
    "attn_v": (32, 64),
    "attn_output": (64, 64),
}
NETWORK = ("ffn_gate", "ffn_up", "ffn_down")
SPACE = {
    "ssm.conv_kernel": TAPS, "ssm.inner_size": INNER, "ssm.state_size": SIZE, "ssm.time_step_rank": HEADS,
    "ssm.group_count": GROUPS,
}  # fmt: skip


def _tensors(layers: Mapping[int, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {
        f"blk.{i}.{name}": array for i, own in layers.items() for name, array in own.items()
    }


def _space(
    random: np.random.Generator, *, normalised: bool = True
) -> dict[str, np.ndarray]:
    """A layer of heads with a decay each."""
    channels = INNER + 2 * GROUPS * SIZE
    norm = {"ssm_norm.weight": random.uniform(0.5, 1.5, (GROUPS, INNER // GROUPS))}
    return {
        "ssm_in.weight": random.standard_normal((INNER + channels + HEADS, 64)) * 0.2,
        "ssm_conv1d.weight": random.standard_normal((channels, TAPS)) * 0.5,
        "ssm_conv1d.bias": random.standard_normal(channels) * 0.1,
        "ssm_dt.bias": random.uniform(-3, 1, HEADS),
        "ssm_a": -random.uniform(0.02, 8, (HEADS, 1)),
        "ssm_d": random.standard_normal((HEADS, 1)),
        "ssm_out.weight": random.standard_normal((64, INNER)) * 0.1,
        **(norm if normalised else {}),
    }


def _columns(random: np.random.Generator) -> dict[str, np.ndarray]:
    """A layer of columns with decays of their own."""
    return {
        "ssm_in.weight": random.standard_normal((2 * INNER, 64)) * 0.2,
        "ssm_conv1d.weight": random.standard_normal((INNER, TAPS)) * 0.5,
        "ssm_conv1d.bias": random.standard_normal(INNER) * 0.1,
        "ssm_x.weight": random.standard_normal((RANK + 2 * SIZE, INNER)) * 0.2,
        "ssm_dt.weight": random.standard_normal((INNER, RANK)) * 0.3,
        "ssm_dt.bias": random.uniform(-3, 1, INNER),
        "ssm_a": -random.uniform(0.02, 8, (INNER, SIZE)),
        "ssm_d": random.standard_normal(INNER),
        "ssm_out.weight": random.standard_normal((64, INNER)) * 0.1,
    }


def _delta(random: np.random.Generator) -> dict[str, np.ndarray]:
    """A layer whose state answers keys."""
    channels = INNER + 2 * GROUPS * SIZE
    return {
        "attn_qkv.weight": random.standard_normal((channels, 64)) * 0.2,
        "attn_gate.weight": random.standard_normal((INNER, 64)) * 0.2,
        "ssm_ba.weight": random.standard_normal((2 * HEADS, 64)) * 0.2,
        "ssm_conv1d.weight": random.standard_normal((channels, TAPS)) * 0.5,
        "ssm_dt.bias": random.uniform(-3, 1, HEADS),
        "ssm_a": -random.uniform(0.02, 4, HEADS),
        "ssm_norm.weight": random.uniform(0.5, 1.5, INNER // HEADS),
        "ssm_out.weight": random.standard_normal((64, INNER)) * 0.1,
    }


def _gated_attention(random: np.random.Generator) -> dict[str, np.ndarray]:
    norms = {f"attn_{n}_norm.weight": random.uniform(0.5, 1.5, 16) for n in "qk"}
    return {
        **_attention(random),
        "attn_q.weight": random.standard_normal((128, 64)) * 0.2,
        **norms,
    }


def _attention(random: np.random.Generator) -> dict[str, np.ndarray]:
    return {f"{n}.weight": random.standard_normal(s) * 0.1 for n, s in ATTENTION.items()}


def _network(random: np.random.Generator) -> dict[str, np.ndarray]:
    sizes = {"ffn_up": (96, 64), "ffn_down": (64, 96)}
    return {f"{n}.weight": random.standard_normal(s) * 0.1 for n, s in sizes.items()}


def _form(
    architecture: str,
    layers: Mapping[int, Mapping[str, np.ndarray]],
    *,
    without: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
    **options: Any,
) -> Form:
    keys = {
        f"{architecture}.{key}": value for key, value in {**SPACE, **(more or {})}.items()
    }
    return Form(
        architecture, layers=len(layers), metadata=keys, more=_tensors(layers),
        without=(*ATTENTION, *without), **options,
    )  # fmt: skip


def recurrent_forms() -> dict[str, Form]:
    """A model of each architecture."""
    r = np.random.default_rng(7)
    alone = {
        "attention.head_count": 0,
        "attention.head_count_kv": 0,
        "feed_forward_length": 0,
    }
    single = ("ffn_norm", *NETWORK)
    granite = {
        "attention.head_count_kv": [0, 2, 0], "rope.scaling.finetuned": False, "embedding_scale": 3.0,
        "residual_scale": 0.4, "logit_scale": 2.0, "attention.scale": 0.2,
    }  # fmt: skip
    experts = {"expert_feed_forward_length": 96, "expert_shared_feed_forward_length": 48}
    hybrid = {0: _space(r), 1: _attention(r), 2: _space(r)}
    falcon, normed = (
        {i: {**_space(r, normalised=n), **_attention(r), "ffn_norm": r.uniform(0.5, 1.5, 64)} for i in range(2)}
        for n in (False, True)
    )  # fmt: skip
    return {
        "mamba": _form(
            "mamba", {0: _columns(r), 1: _columns(r)}, without=single, more={**alone, "ssm.time_step_rank": RANK},
        ),
        "mamba of falcons": _form(
            "mamba", {0: _columns(r)}, without=single,
            more={**alone, "ssm.time_step_rank": RANK, "ssm.dt_b_c_rms": True},
        ),
        "mamba2": _form("mamba2", {0: _space(r), 1: _space(r)}, without=single, more=alone),
        "granitehybrid": _form("granitehybrid", hybrid, more=granite),
        "granitehybrid of experts": _form(
            "granitehybrid", hybrid, more={**granite, **experts}, experts=4, shared_inner=48, without=("ffn_gate_inp_shexp",),
        ),
        "falcon-h1": _form("falcon-h1", falcon, without=("ffn_norm",), tied=False),
        "falcon-h1 of norms": _form("falcon-h1", normed, without=("ffn_norm",)),
        "nemotron_h": _form(
            "nemotron_h", {0: _space(r), 1: _network(r), 2: _attention(r), 3: _space(r)}, without=single,
            more={"attention.head_count_kv": [0, 0, 2, 0], "feed_forward_length": [0, 96, 0, 0]}, tied=False,
        ),
        "qwen3next": _form(
            "qwen3next", {0: _delta(r), 1: _gated_attention(r), 2: _delta(r)}, experts=4, shared_inner=48, without=("ffn_norm",),
            more={**experts, "full_attention_interval": 2, "rope.dimension_count": 8}, extra={"post_attention_norm.weight": (64,)},
        ),
    }  # fmt: skip


def speaking(form: Form) -> Form:
    """The same with tokens of `byte_tokens`."""
    from fakes.language_models import byte_tokens

    return replace(form, vocabulary=272, metadata={**byte_tokens(), **form.metadata})


def _norm(x: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


class RecurrentReference:
    """What a model computes, in f64."""

    def __init__(self, form: Form) -> None:
        file = read_gguf(form.data())
        self.form = form
        self.w = {
            n: dequantize(file, t).astype(np.float64) for n, t in file.tensors.items()
        }
        a = form.architecture
        self.keys = {
            k.removeprefix(f"{a}."): v
            for k, v in form.keys().items()
            if k.startswith(f"{a}.")
        }

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """The scores behind the last token."""
        x = self.w["token_embd.weight"][list(tokens)] * self.keys.get(
            "embedding_scale", 1.0
        )
        for layer in range(self.form.layers):
            front = f"blk.{layer}."
            x = self._layer(
                x,
                {
                    k.removeprefix(front): v
                    for k, v in self.w.items()
                    if k.startswith(front)
                },
            )
        last = _norm(x[-1]) * self.w["output_norm.weight"]
        rows = self.w.get("output.weight", self.w["token_embd.weight"])
        return rows @ last / self.keys.get("logit_scale", 1.0)

    def _layer(self, x: np.ndarray, w: Mapping[str, np.ndarray]) -> np.ndarray:
        scale = self.keys.get("residual_scale", 1.0)
        seen = _norm(x) * w["attn_norm.weight"]
        mixed = np.zeros_like(x)
        if "ssm_x.weight" in w:
            mixed = mixed + self._columns(seen, w)
        elif "ssm_in.weight" in w:
            mixed = mixed + self._heads(seen, w)
        elif "ssm_ba.weight" in w:
            mixed = mixed + self._differences(seen, w)
        if "attn_q.weight" in w:
            mixed = mixed + self._attention(seen, w)
        names = ("ffn_norm", "ffn_norm.weight", "post_attention_norm.weight")
        norm = next((w[name] for name in names if name in w), None)
        if norm is None:
            if "ffn_up.weight" in w:
                mixed = (
                    np.maximum(seen @ w["ffn_up.weight"].T, 0) ** 2 @ w["ffn_down.weight"].T
                )
            return x + mixed
        x = x + mixed * scale
        seen = _norm(x) * norm
        return x + self._network(seen, w) * scale

    def _network(self, x: np.ndarray, w: Mapping[str, np.ndarray]) -> np.ndarray:
        def gated(
            gate: np.ndarray, up: np.ndarray, down: np.ndarray, x: np.ndarray
        ) -> np.ndarray:
            return (_silu(x @ gate.T) * (x @ up.T)) @ down.T

        if "ffn_gate_inp.weight" not in w:
            return gated(*(w[f"{n}.weight"] for n in NETWORK), x)
        out = gated(*(w[f"{n}_shexp.weight"] for n in NETWORK), x)
        if "ffn_gate_inp_shexp.weight" in w:
            out /= 1 + np.exp(-(x @ w["ffn_gate_inp_shexp.weight"]))[:, None]
        for place, row in enumerate(x):
            scores = w["ffn_gate_inp.weight"] @ row
            best = np.argsort(-scores, kind="stable")[: self.form.chosen]
            shares = np.exp(scores[best] - scores.max())
            for share, number in zip(shares / shares.sum(), best, strict=True):
                held = [w[f"{n}_exps.weight"][number] for n in NETWORK]
                out[place] += share * gated(*held, row)
        return out

    def _convolved(self, rows: np.ndarray, w: Mapping[str, np.ndarray]) -> np.ndarray:
        padded = np.concatenate([np.zeros((TAPS - 1, rows.shape[1])), rows])
        taps = w["ssm_conv1d.weight"]
        found = [(padded[i : i + TAPS] * taps.T).sum(0) for i in range(len(rows))]
        return _silu(np.array(found) + w.get("ssm_conv1d.bias", 0.0))

    def _heads(self, x: np.ndarray, w: Mapping[str, np.ndarray]) -> np.ndarray:
        shared = GROUPS * SIZE
        gate, rows, steps = np.split(
            x @ w["ssm_in.weight"].T, [INNER, 2 * INNER + 2 * shared], axis=1
        )
        read, write, ask = np.split(
            self._convolved(rows, w), [INNER, INNER + shared], axis=1
        )
        steps = np.log1p(np.exp(steps + w["ssm_dt.bias"]))
        state, out = np.zeros((HEADS, INNER // HEADS, SIZE)), np.zeros_like(gate)
        for i in range(len(x)):
            own = read[i].reshape(HEADS, -1)
            b, c = (
                np.repeat(t[i].reshape(GROUPS, SIZE), HEADS // GROUPS, axis=0)
                for t in (write, ask)
            )
            state *= np.exp(steps[i] * w["ssm_a"][:, 0])[:, None, None]
            state += (steps[i][:, None] * own)[:, :, None] * b[:, None]
            out[i] = ((state * c[:, None]).sum(-1) + w["ssm_d"] * own).reshape(-1)
        out *= _silu(gate)
        if "ssm_norm.weight" in w:
            apart = out.reshape(len(x), GROUPS, -1)
            out = (_norm(apart) * w["ssm_norm.weight"]).reshape(out.shape)
        return out @ w["ssm_out.weight"].T

    def _differences(self, x: np.ndarray, w: Mapping[str, np.ndarray]) -> np.ndarray:
        rows, gate = x @ w["attn_qkv.weight"].T, x @ w["attn_gate.weight"].T
        q, k, v = np.split(
            self._convolved(rows, w), [GROUPS * SIZE, 2 * GROUPS * SIZE], axis=1
        )
        ba = (x @ w["ssm_ba.weight"].T).reshape(len(x), GROUPS, 2, -1)
        share = 1 / (1 + np.exp(-ba[:, :, 0].reshape(len(x), HEADS)))
        decay = (
            np.log1p(np.exp(ba[:, :, 1].reshape(len(x), HEADS) + w["ssm_dt.bias"]))
            * w["ssm_a"]
        )
        q, k = (t.reshape(len(x), GROUPS, SIZE) for t in (q, k))
        q, k = (t / np.sqrt((t * t).sum(-1, keepdims=True) + 1e-6) for t in (q, k))
        q, k = (np.repeat(t, HEADS // GROUPS, axis=1) for t in (q, k))
        v = v.reshape(len(x), HEADS, -1)
        state, out = np.zeros((HEADS, SIZE, v.shape[2])), np.zeros_like(v)
        for i in range(len(x)):
            state *= np.exp(decay[i])[:, None, None]
            differs = (v[i] - np.einsum("hkv,hk->hv", state, k[i])) * share[i][:, None]
            state += k[i][:, :, None] * differs[:, None]
            out[i] = np.einsum("hkv,hk->hv", state, q[i]) / np.sqrt(SIZE)
        out = _norm(out) * w["ssm_norm.weight"]
        return (out.reshape(gate.shape) * _silu(gate)) @ w["ssm_out.weight"].T

    def _columns(self, x: np.ndarray, w: Mapping[str, np.ndarray]) -> np.ndarray:
        rows, gate = np.split(x @ w["ssm_in.weight"].T, 2, axis=1)
        read = self._convolved(rows, w)
        steps, write, ask = np.split(
            read @ w["ssm_x.weight"].T, [RANK, RANK + SIZE], axis=1
        )
        if self.keys.get("ssm.dt_b_c_rms"):
            steps, write, ask = (_norm(t, 1e-6) for t in (steps, write, ask))
        steps = np.log1p(np.exp(steps @ w["ssm_dt.weight"].T + w["ssm_dt.bias"]))
        state, out = np.zeros((INNER, SIZE)), np.zeros_like(read)
        for i in range(len(x)):
            state = state * np.exp(steps[i][:, None] * w["ssm_a"])
            state = state + (steps[i] * read[i])[:, None] * write[i]
            out[i] = state @ ask[i] + w["ssm_d"] * read[i]
        return (out * _silu(gate)) @ w["ssm_out.weight"].T

    def _attention(self, x: np.ndarray, w: Mapping[str, np.ndarray]) -> np.ndarray:
        size, heads, shared = self.form.size, self.form.heads, self.form.shared
        q, k, v = (
            (x @ w[f"attn_{n}.weight"].T).reshape(len(x), -1, size) for n in ("q", "k", "v")
        )
        gate = None
        if self.form.architecture == "qwen3next":
            q, gate = np.split(q.reshape(len(x), heads, -1), 2, axis=-1)
            q, k = (_norm(t) * w[f"attn_{n}_norm.weight"] for t, n in ((q, "q"), (k, "k")))
        if self.form.architecture in ("falcon-h1", "qwen3next"):
            turned = self.keys.get("rope.dimension_count", size)
            angles = np.arange(len(x))[:, None] * 1e4 ** -(np.arange(0, turned, 2) / turned)
            q, k = (
                np.concatenate([self._turned(t[..., :turned], angles), t[..., turned:]], -1)
                for t in (q, k)
            )
        scale = self.keys.get("attention.scale", size**-0.5)
        k, v = (np.repeat(t, heads // shared, axis=1) for t in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) * scale
        scores += np.where(np.tri(len(x)) > 0, 0, -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        shares = powers / powers.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jhd->ihd", shares, v)
        if gate is not None:
            mixed = mixed / (1 + np.exp(-gate))
        return mixed.reshape(len(x), -1) @ w["attn_output.weight"].T

    @staticmethod
    def _turned(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
        left, right = np.split(x, 2, axis=-1)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        return np.concatenate([left * cos - right * sin, right * cos + left * sin], -1)
