"""Subgraphs for code generators: taken whole, joined where they meet, never in a circle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.graphs import assert_same_results, assert_stays, copy_of
from fakes.grown_graphs import graphs
from fakes.standard_passes import standard_passes
from tilewright.base.errors import UserError
from tilewright.compiler.graph.compare import same
from tilewright.compiler.graph.copy import copy_graph
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.ops import catalogue
from tilewright.compiler.passes import run_passes
from tilewright.compiler.readers.graph_text import parse_graph
from tilewright.compiler.transforms.external_codegen import Codegen, NamedPattern
from tilewright.compiler.transforms.graph_pattern import Pattern, is_const, is_op, wildcard
from tilewright.compiler.transforms.partition_graph import PartitionGraph, _Partition


def codegen(*patterns: Pattern, name: str = "ext", **options: bool) -> Codegen:
    def generate(*_: object) -> None:
        raise AssertionError("partitioning generates nothing")

    rows = tuple(NamedPattern(name=f"p{i}", pattern=p) for i, p in enumerate(patterns))
    return Codegen(name=name, patterns=rows, generate=generate, **options)  # type: ignore[arg-type]


UNARY = codegen(is_op("relu"), is_op("exp"))


def partitioned(text: str, *codegens: Codegen) -> Graph:
    """The graph after the pass, verified, computing what it computed."""
    graph = parse_graph(text, catalogue.schema)
    before = copy_graph(graph)
    run_passes(graph, [PartitionGraph(codegens=codegens)])
    verify(graph)
    generator = np.random.default_rng(0)
    inputs = [
        generator.random([d if isinstance(d, int) else 3 for d in v.type.shape], np.float32)
        for v in graph.inputs
    ]
    for got, want in zip(evaluate(graph, inputs), evaluate(before, inputs), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    return graph


def shape_of(graph: Graph) -> list[str]:
    """The ops in order; of subgraphs their own."""
    return [
        f"{node.attributes['codegen']}[{' '.join(n.op for n in node.regions[0])}]"
        if node.op == "external"
        else node.op
        for node in graph
    ]


def g(body: str, inputs: str = "%x: f32[2]") -> str:
    return f"graph @g({inputs}) {{ {body} }}"


def test_a_match_becomes_one_node() -> None:
    graph = partitioned(
        g("%a: f32[2] = neg(%x) %b: f32[2] = relu(%a) %y: f32[2] = neg(%b) return %y"),
        UNARY,
    )
    assert shape_of(graph) == ["neg", "ext[relu]", "neg"]
    (node,) = (n for n in graph if n.op == "external")
    assert node.attributes["symbol"] == node.regions[0].name == "ext_relu"


def test_matches_that_meet_are_joined() -> None:
    body = "%a: f32[2] = relu(%x) %b: f32[2] = exp(%a) %y: f32[2] = relu(%b) return %y"
    assert shape_of(partitioned(g(body), UNARY)) == ["ext[relu exp relu]"]
    apart = codegen(is_op("relu"), is_op("exp"), merge=False)
    assert shape_of(partitioned(g(body), apart)) == ["ext[relu]", "ext[exp]", "ext[relu]"]


def test_nothing_is_joined_into_a_circle() -> None:
    # relu -> neg -> add and relu -> exp -> add: joining relu with what follows neg would need itself.
    body = (
        "%a: f32[2] = relu(%x) %n: f32[2] = neg(%a) %e: f32[2] = exp(%n)"
        " %s: f32[2] = add(%a, %e) return %s"
    )
    both = codegen(is_op("relu"), is_op("exp"), is_op("add"))
    graph = partitioned(g(body), both)
    assert shape_of(graph) == ["ext[relu]", "neg", "ext[exp add]"]


def test_subgraphs_of_two_generators_make_no_circle_together() -> None:
    # a -> n1 -> b and c -> n2 -> d where a, d could be one subgraph and c, b the other.
    body = (
        "%a: f32[2] = relu(%x) %b: f32[2] = exp(%a) %c: f32[2] = exp(%x) %d: f32[2] = relu(%c)"
        " %p: f32[2] = add(%a, %d) %q: f32[2] = mul(%c, %b) %r: f32[2] = sub(%p, %q) return %r"
    )
    first = codegen(is_op("relu"), is_op("add"), name="one")
    second = codegen(is_op("exp"), is_op("mul"), name="two")
    graph = partitioned(g(body), first, second)
    found = [s for s in shape_of(graph) if "[" in s]
    assert sum(s.count("relu") + s.count("exp") for s in found) == 4


def test_a_pattern_whose_middle_leaves_and_returns_is_not_taken() -> None:
    body = "%a: f32[2] = relu(%x) %n: f32[2] = neg(%a) %y: f32[2] = add(%a, %n) return %y"
    pattern = is_op("add")(is_op("relu")(wildcard()), wildcard())
    assert shape_of(partitioned(g(body), codegen(pattern))) == ["relu", "neg", "add"]


def test_what_others_need_is_a_further_result() -> None:
    body = (
        "%a: f32[2] = relu(%x) %b: f32[2] = exp(%a) %c: f32[2] = neg(%a)"
        " %y: f32[2] = add(%b, %c) return %y, %a"
    )
    graph = partitioned(g(body), UNARY)
    assert shape_of(graph) == ["ext[relu exp]", "neg", "add"]
    (node,) = (n for n in graph if n.op == "external")
    assert len(node.results) == 2


CONSTANT = (
    "%w: f32[2, 2] = constant {value = f32[2, 2] [1.0, 2.0, 3.0, 4.0]}"
    " %y: f32[N, 2] = matmul(%x, %w) return %y"
)


@pytest.mark.parametrize("bound", [True, False])
def test_constants_are_bound_or_passed(bound: bool) -> None:
    text = f"graph @g<N: 1..>(%x: f32[N, 2]) {{ {CONSTANT} }}"
    pattern = is_op("matmul")(wildcard(), is_const())
    graph = partitioned(text, codegen(pattern, bind_constants=bound))
    (node,) = (n for n in graph if n.op == "external")
    assert [n.op for n in node.regions[0]] == (
        ["constant", "matmul"] if bound else ["matmul"]
    )
    assert len(node.operands) == (1 if bound else 2)


def test_equal_subgraphs_have_one_symbol() -> None:
    body = "%a: f32[2] = relu(%x) %n: f32[2] = neg(%a) %y: f32[2] = relu(%n) return %y"
    graph = partitioned(g(body), UNARY)
    assert {n.attributes["symbol"] for n in graph if n.op == "external"} == {"ext_relu"}


def test_a_check_may_say_no() -> None:
    text = g("%y: f32[2] = relu(%x) return %y")
    row = NamedPattern(name="r", pattern=is_op("relu"), check=lambda match: False)
    graph = partitioned(text, Codegen(name="no", patterns=(row,), generate=UNARY.generate))
    assert shape_of(graph) == ["relu"]


def test_a_check_sees_every_way_in_which_a_pattern_fits() -> None:
    body = "%a: f32[2] = neg(%x) %y: f32[2] = mul(%a, %x) return %y"
    left, right = wildcard(), wildcard()
    row = NamedPattern(
        name="scaled",
        pattern=is_op("mul")(left, right),
        check=lambda match: match[left].node is None,
    )
    graph = partitioned(
        g(body), Codegen(name="ext", patterns=(row,), generate=UNARY.generate)
    )
    assert shape_of(graph) == ["neg", "ext[mul]"]


def test_what_a_check_raises_names_the_generator_and_the_pattern() -> None:
    row = NamedPattern(name="r", pattern=is_op("relu"), check=lambda match: 1 // 0 == 0)
    with pytest.raises(UserError) as caught:
        partitioned(
            g("%y: f32[2] = relu(%x) return %y"),
            Codegen(name="no", patterns=(row,), generate=UNARY.generate),
        )
    assert "code generator 'no': check of pattern 'r' failed: Zero" in str(caught.value)


def test_what_needs_a_size_that_it_does_not_read_is_not_taken() -> None:
    text = (
        "graph @g<N: 1..>(%x: f32[N]) { %i: f32[N] = iota() {axis = 0, dtype = f32, shape = [N]}"
        " %y: f32[N] = add(%x, %i) return %y }"
    )
    assert shape_of(partitioned(text, codegen(is_op("iota")))) == ["iota", "add"]
    taken = codegen(is_op("add")(wildcard(), is_op("iota")))
    assert shape_of(partitioned(text, taken)) == ["ext[iota add]"]


def test_a_node_belongs_to_one_match() -> None:
    body = (
        "%a: f32[2] = relu(%x) %b: f32[2] = exp(%a) %c: f32[2] = neg(%a)"
        " %y: f32[2] = add(%b, %c) return %y"
    )
    both = [is_op(op)(is_op("relu")(wildcard())) for op in ("exp", "neg")]
    graph = partitioned(g(body), codegen(*both, merge=False))
    assert sorted(shape_of(graph)) == ["add", "exp", "ext[relu neg]"]


def test_what_matches_no_op_is_no_subgraph() -> None:
    graph = partitioned(g("%y: f32[2] = relu(%x) return %y"), codegen(wildcard()))
    assert shape_of(graph) == ["relu"]


def test_what_does_more_than_compute_is_not_taken() -> None:
    text = g(
        '%y: f32[2] = external(%x) {symbol = "s", codegen = "c"}'
        " graph @s(%a: f32[2]) { %b: f32[2] = relu(%a) return %b } return %y"
    )
    graph = parse_graph(text, catalogue.schema)
    run_passes(graph, [PartitionGraph(codegens=(codegen(is_op("external")),))])
    assert [n.attributes["codegen"] for n in graph] == ["c"]


def test_the_first_generator_takes_first() -> None:
    text = g("%y: f32[2] = relu(%x) return %y")
    one, two = (codegen(is_op("relu"), name=n) for n in ("one", "two"))
    assert shape_of(partitioned(text, two, one)) == ["two[relu]"]


def test_other_passes_leave_a_subgraph_alone() -> None:
    text = g("%a: f32[2] = relu(%x) %b: f32[2] = relu(%a) %y: f32[2] = neg(%b) return %y")
    graph = parse_graph(text, catalogue.schema)
    keep = codegen(is_op("relu")(is_op("relu")))
    run_passes(graph, [PartitionGraph(codegens=(keep,))])
    run_passes(graph, standard_passes(choose_panel=lambda *_: 0, choose_tile=lambda *_: 0))
    assert shape_of(graph) == ["ext[relu relu]", "neg"]


@pytest.mark.slow
@settings(max_examples=80)
@given(graphs(most_steps=16), st.data())
def test_any_graph_in_parts_computes_what_it_computed(
    graph: Graph, data: st.DataObject
) -> None:
    ops = sorted({node.op for node in graph if node.op != "constant"})
    some = st.lists(st.sampled_from(ops), min_size=1, unique=True) if ops else st.nothing()
    generators = tuple(
        codegen(
            is_op(*data.draw(some)),
            name=name,
            merge=data.draw(st.booleans()),
            bind_constants=data.draw(st.booleans()),
        )
        for name in (("one", "two") if ops else ())
    )
    before = copy_of(graph)
    run_passes(graph, [PartitionGraph(codegens=generators)])
    verify(graph)
    assert_same_results(before, graph)
    symbols = {n.attributes["symbol"]: n.regions[0] for n in graph if n.op == "external"}
    for node in graph:
        if node.op == "external":
            assert same(node.regions[0], symbols[node.attributes["symbol"]])
            assert all(inner.op != "external" for inner in node.regions[0])


def test_without_generators_nothing_happens() -> None:
    assert_stays([PartitionGraph()], g("%y: f32[2] = relu(%x) return %y"))


@pytest.mark.slow
@given(graphs(most_steps=16), st.data())
def test_ways_that_cannot_lead_back_are_not_followed(
    graph: Graph, data: st.DataObject
) -> None:
    ops = sorted({node.op for node in graph if node.op != "constant"})
    some = st.lists(st.sampled_from(ops), min_size=1, unique=True) if ops else st.nothing()
    generators = tuple(
        codegen(is_op(*data.draw(some)), name=name)
        for name in (("one", "two") if ops else ())
    )
    following_all = copy_of(graph)
    run_passes(graph, [PartitionGraph(codegens=generators)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Partition, "_end_of_ways_back", lambda self, place: len(self.place))
        run_passes(following_all, [PartitionGraph(codegens=generators)])
    assert same(graph, following_all)


def test_a_way_leads_back_through_a_subgraph_that_begins_before() -> None:
    """`%c` reads `%a`, and with `%b` makes one subgraph, which `%d` may not be in with `%a`."""
    body = (
        "%a: f32[2] = relu(%x) %b: f32[2] = neg(%x) %c: f32[2] = neg(%a)"
        " %d: f32[2] = exp(%b) %y: f32[2] = add(%c, %d) return %y"
    )
    first = codegen(is_op("add")(is_op("neg")(wildcard()), is_op("exp")(is_op("neg")(wildcard()))),
                    name="first", merge=False)  # fmt: skip
    graph = partitioned(g(body), first, codegen(is_op("relu"), name="second"))
    assert shape_of(graph) == ["second[relu]", "first[neg neg exp add]"]
