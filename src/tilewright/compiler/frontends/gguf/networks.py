"""Networks of layers: one for all tokens, or a mixture of experts beside one that is shared.

Called by `transformer`.

Source: Shazeer, GLU Variants Improve Transformer, 2020; Fedus et al., Switch Transformers, 2021.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.gguf.activations import Xielu, activated
from tilewright.compiler.frontends.gguf.parts import Parts
from tilewright.compiler.frontends.gguf.routers import routed
from tilewright.compiler.frontends.gguf.weights import Projection
from tilewright.compiler.frontends.kit.mixtures import mixture
from tilewright.compiler.frontends.kit.tensor import Tensor


def feed_forward(
    parts: Parts, x: Tensor, block: str, slopes: Xielu | None = None
) -> Tensor:
    """What the network of a layer makes of `x: [1, n, width]`, of the same shape.

    Args:
        parts: writes the model.
        x: what it reads.
        block: the name of the layer.
        slopes: of its activation, where layers have their own.
    """
    if not parts.weights.has(f"{block}.ffn_gate_inp.weight"):
        return _gated(parts, x, block, "", slopes)
    mixed = _experts(parts, x, block)
    if not parts.weights.has(f"{block}.ffn_up_shexp.weight"):
        return mixed
    shared = _gated(parts, x, block, "_shexp")
    name = f"{block}.ffn_gate_inp_shexp"
    with parts.part("SharedExpert", name):
        e = parts.maker
        if parts.weights.has(f"{name}.weight"):
            gate = e.op("mul", x, parts.weights.vector(f"{name}.weight", parts.form.width))
            gate = e.op("reduce_sum", gate, axes=(2,), keepdims=True)
            shared = e.op("mul", shared, e.op("sigmoid", gate))
        return e.op("add", mixed, shared)


def _gated(
    parts: Parts, x: Tensor, block: str, ending: str, slopes: Xielu | None = None
) -> Tensor:
    """One network, whose tensors' names have an ending."""
    name, width = f"{block}.ffn_down{ending}", parts.form.width
    inner = parts.weights.tensor(f"{name}.weight", (width, None)).shape[1]
    up = f"{block}.ffn_up{ending}"
    if parts.weights.has(f"{block}.ffn_gate{ending}.weight"):
        first = [Projection(f"{block}.ffn_gate{ending}", inner), Projection(up, inner)]
    else:
        both = parts.weights.tensor(f"{up}.weight", (None, width)).shape[0] != inner
        first = [Projection(up, inner * 2 if both else inner)]
    act = f"{block}.ffn_act{ending}"
    return _network(parts, x, act, inner, first, Projection(name, width), slopes)


def _network(  # two products and what stands between them
    parts: Parts,
    x: Tensor,
    name: str,
    inner: int,
    first: list[Projection],
    second: Projection,
    slopes: Xielu | None = None,
) -> Tensor:
    """A first product of `inner` rows, or of twice as many: gate and values; and a second of what comes through."""
    e, both = parts.maker, parts.product(x, first)
    is_gated = sum(part.rows for part in first) != inner
    with parts.part("GatedActivation" if is_gated else "Activation", name):
        values = e.slice(both, 2, inner, inner) if is_gated else None
        gate = e.slice(both, 2, 0, inner)
        kind = parts.form.architecture.activation
        mixed = activated(e, kind, gate, values, slopes)
    return parts.product(mixed, [second])


def _experts(parts: Parts, x: Tensor, block: str) -> Tensor:
    """Every token through the experts that its router prefers."""
    e, form = parts.maker, parts.form
    if not form.experts:
        raise ModelError(f"'{block}' has a router, the metadata no experts")
    scores = parts.product(x, [Projection(f"{block}.ffn_gate_inp", form.experts)])
    rows = (x.shape[1], form.width)
    with parts.part("Router", f"{block}.ffn_router"):
        scores = e.reshape(scores, (rows[0], form.experts))
        preference = f"{block}.exp_probs_b.bias"
        has_one = parts.weights.has(preference)
        more = parts.weights.vector(preference, form.experts) if has_one else None
        weights, chosen = routed(e, form, scores, more)

    def expert(own: Tensor, number: int) -> Tensor:
        gate, up, down = parts.weights.expert(block, number, form.experts, form.width)
        name = f"{block}.ffn_act.{number}"
        row = e.unsqueeze(own, (0,))
        found = _network(parts, row, name, up.rows, [gate, up], down)
        return e.squeeze(found, (0,))

    with parts.part("MixtureOfExperts", f"{block}.ffn_experts"):
        mixed = mixture(
            e, e.reshape(x, rows), chosen, weights, form.experts, expert,
            shares_first=form.architecture.shares_come_first,
        )  # fmt: skip
        return e.reshape(mixed, x.shape)
