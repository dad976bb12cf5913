"""Attention whose scores and masks are functions of the user (`flex_attention`), taken apart.

The functions stand in the program as graphs of one score at one place.  Torch's own vectorization runs them over all
places; where scores stay what they are, attention stays whole, under a mask of all places: blocks that a mask leaves
out only save time.  Called by `export` and by who compiles graphs of torch's own compiler, before a graph is read.

Source: `torch.nn.attention.flex_attention`, the mathematical form in `torch._higher_order_ops.flex_attention`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border

# Torch's tensors, nodes and graphs have no types that we see.
Held = Any
_OPERATOR: Final = "flex_attention"


def has_flexible_attention(graphs: Sequence[Any]) -> bool:
    """Whether some of these graph modules attend so."""
    return any(_is_attention(node) for graph in graphs for node in graph.graph.nodes)


def take_flexible_attention_apart(graphs: Sequence[Any]) -> None:
    """Write operators of ATen in place of each such attention; the graph modules are changed."""
    for module in graphs:
        found = [node for node in module.graph.nodes if _is_attention(node)]
        for node in found:
            _replace(module, node)
        if found:
            module.graph.lint()
            module.recompile()


def _is_attention(node: Any) -> bool:
    is_operator = border.is_instance(node.target, "_ops.HigherOrderOperator")
    return is_operator and node.target.name() == _OPERATOR


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Attention:
    """One attention: its operator's arguments that are no tensors, and which of its results somebody uses."""

    score: Callable[..., Held]
    mask: Callable[..., Held]
    scale: float
    keeps_scores: bool
    masks_nothing: bool
    wanted: frozenset[int]


def _replace(module: Any, node: Any) -> None:
    query, key, value, score, block_mask, scale, _options, *rest = node.args
    of_score, of_mask = (*rest, (), ())[:2]
    inputs = (query, key, value, *of_score, *of_mask)
    scores, masks = (getattr(module, str(x.target)) for x in (score, block_mask[-1]))
    users = [(int(user.args[1]), user) for user in node.users]
    attention = _Attention(
        scores, masks, scale, _gives_first(scores), _gives_ones(masks),
        frozenset(place for place, user in users if user.users),
    )  # fmt: skip

    if not attention.wanted:
        results: Sequence[Any] = ()
    elif attention.keeps_scores and attention.wanted <= {0}:
        results = [_whole(module, node, attention, (query, key, value), of_mask)]
    else:
        results = _inlined(
            module, node, inputs, lambda held: _attended(attention, held, len(of_score))
        )
    made = dict(zip(sorted(attention.wanted), results, strict=True))
    for place, user in users:
        is_wanted = bool(user.users)
        if is_wanted:
            user.replace_all_uses_with(made[place])
        module.graph.erase_node(user)
        if is_wanted:
            made[place].name = user.name  # outputs of a program are known by it
    module.graph.erase_node(node)
    for graph in {score, block_mask[-1]}:
        if not graph.users:
            module.graph.erase_node(graph)


def _gives_first(graph: Any) -> bool:
    """Whether a function of scores gives them as they are."""
    first, *_rest = (node for node in graph.graph.nodes if node.op == "placeholder")
    return _result(graph) is first


def _gives_ones(graph: Any) -> bool:
    return str(getattr(_result(graph), "target", "")) == "aten.new_ones.default"


def _result(graph: Any) -> Any:
    (last,) = (node for node in graph.graph.nodes if node.op == "output")
    found = last.args[0]
    return found[0] if isinstance(found, list | tuple) else found


def _whole(
    module: Any,
    node: Any,
    attention: _Attention,
    operands: Sequence[Any],
    of_mask: Sequence[Any],
) -> Any:
    """Attention under a mask of all places."""
    mask = None
    if not attention.masks_nothing:
        (mask,) = _inlined(
            module, node, (*operands[:2], *of_mask), lambda held: [_mask(attention, held)]
        )
    heads = [operand.meta["val"].shape[1] for operand in operands[:2]]
    attend = border.load().ops.aten.scaled_dot_product_attention.default
    options = {"scale": attention.scale, "enable_gqa": heads[0] != heads[1]}
    with module.graph.inserting_before(node):
        found = module.graph.call_function(attend, (*operands, mask), options)
    found.meta |= {"val": node.meta["val"][0], "stack_trace": node.meta.get("stack_trace")}
    return found


def _inlined(
    module: Any,
    node: Any,
    inputs: Sequence[Any],
    run: Callable[[Sequence[Held]], list[Held]],
) -> Sequence[Any]:
    """What a function of tensors and numbers gives, as nodes before `node`."""
    nodes = [x for x in inputs if border.is_instance(x, "fx.Node")]

    def traceable(*values: Held) -> list[Held]:
        given = iter(values)
        is_node = [border.is_instance(x, "fx.Node") for x in inputs]
        return run(
            [next(given) if own else x for own, x in zip(is_node, inputs, strict=True)]
        )

    examples = [x.meta["val"] for x in nodes]
    mode = next(
        (m for x in examples if (m := getattr(x, "fake_mode", None)) is not None), None
    )
    assert mode is not None, "torch traces with tensors that have no elements"
    with mode, border.load().no_grad():
        trace = border.load("torch.fx.experimental.proxy_tensor").make_fx
        traced = trace(traceable)(*examples)
    traced.graph.eliminate_dead_code()
    names = {
        str(inner.target): _kept(module, getattr(traced, str(inner.target)))
        for inner in traced.graph.nodes
        if inner.op == "get_attr"
    }
    own = [inner for inner in traced.graph.nodes if inner.op == "placeholder"]
    for inner in traced.graph.nodes:
        if inner.op == "get_attr":
            inner.target = names[str(inner.target)]
        if "stack_trace" in node.meta:
            inner.meta["stack_trace"] = node.meta["stack_trace"]
    with module.graph.inserting_before(node):
        return module.graph.graph_copy(traced.graph, dict(zip(own, nodes, strict=True)))


def _kept(module: Any, constant: Held) -> str:
    """The name of a constant that a graph has from here on."""
    place = 0
    while hasattr(module, name := f"attention_constant_{place}"):
        place += 1
    module.register_buffer(name, constant)
    return name


# --- the mathematics ----------------------------------------------------------------------------


def _mask(attention: _Attention, held: Sequence[Held]) -> Held:
    """Which scores count: of queries, keys, and what else the mask takes."""
    query, key, *others = held
    places = _places(query, key)
    return _over_places(attention.mask, (), len(others))(*places, *others)


def _attended(attention: _Attention, held: Sequence[Held], of_score: int) -> list[Held]:
    """Those of the result, the logarithms (to base 2) of the sums, and the largest scores that are wanted."""
    torch = border.load()
    query, key, value, *others = held
    mask = None
    if not attention.masks_nothing:
        mask = _mask(attention, (query, key, *others[of_score:]))
    batch, times = query.shape[0], query.shape[1] // key.shape[1]
    key, value = (x.expand(batch, -1, -1, -1) for x in (key, value))
    if times != 1:
        key, value = (torch.repeat_interleave(x, times, dim=1) for x in (key, value))
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = query.to(wide) @ key.to(wide).transpose(-2, -1) * attention.scale
    if not attention.keeps_scores:
        score = _over_places(attention.score, (0,), of_score)
        scores = score(scores, *_places(query, key), *others[:of_score])
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    found = {
        0: lambda: torch.ops.aten._safe_softmax(scores, -1).to(query.dtype) @ value,
        1: lambda: scores.logsumexp(-1) / math.log(2),
        2: lambda: scores.amax(-1) / math.log(2),
    }
    return [found[place]() for place in sorted(attention.wanted)]


def _places(query: Held, key: Held) -> list[Held]:
    torch = border.load()
    sizes = (*query.shape[:3], key.shape[2])
    return [torch.arange(size, dtype=torch.int32, device=query.device) for size in sizes]


def _over_places(
    function: Callable[..., Held], scores: tuple[int, ...], others: int
) -> Callable[..., Held]:
    """A function of one place over all batches, heads, rows and keys; what else it takes is the same everywhere."""
    vectorize = border.load().func.vmap
    for axis in range(4):
        place = tuple(0 if which == 3 - axis else None for which in range(4))
        function = vectorize(function, in_dims=(*scores, *place, *[None] * others))
    return function
