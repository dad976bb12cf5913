"""Graphs are read to the last key, or refused with the node and the key that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from fakes.graphs_of_tvm import GraphMaker, dense, files, old
from fakes.growth import grows_in_proportion
from tilewright.base.errors import ArchiveError
from tilewright.formats.graph_json import Reference, read_graph

Edit = Callable[[Any], object]


def test_nodes_entries_and_heads_are_read() -> None:
    graph = read_graph(dense())
    assert graph.input_names == ("x", "p0", "p1")
    assert graph.nodes[2].function == "tvmgen_default_fused_nn_dense_nn_relu"
    assert graph.nodes[2].attributes["hash"] == "a2b7e0a88031366c"
    assert graph.nodes[6].flattens
    assert not graph.nodes[2].flattens
    assert graph.entry_count == 7
    assert graph.entries.shape[graph.entry_of(graph.heads[1])] == (1, 64)
    assert graph.entries.device_index == (1,) * 7
    assert graph.entries.storage_scope is None
    assert graph.heads[0] == Reference(6, 0, 0)


def test_old_spellings_are_read() -> None:
    graph = read_graph(old())
    assert graph.nodes[1].attributes_key == "attr"
    assert graph.nodes[2].control_dependencies == (0, 1)
    assert graph.heads[1] == Reference(1, 1, None)
    assert graph.entry_of(graph.heads[1]) == 2
    assert graph.entries.others["size"] == ("size_t", 64)
    assert graph.metadata == {"version": "0.4", "anything": [1]}


@pytest.mark.parametrize("data", files())
def test_text_bytes_and_views_are_read_alike(data: bytes) -> None:
    assert read_graph(data) == read_graph(data.decode()) == read_graph(memoryview(data))


def test_what_follows_the_metadata_is_not_looked_at() -> None:
    tree = json.loads(dense())
    data = json.dumps({**tree, "metadata": {}, "whatever": [None]})
    assert read_graph(data).metadata == {}


def change(data: bytes, edit: Edit) -> bytes:
    tree = json.loads(data)
    edit(tree)
    return json.dumps(tree).encode()


def put(*path: Any) -> Edit:
    """Replace what lies at `path[:-1]` by `path[-1]`."""

    def edit(tree: Any) -> None:
        for key in path[:-2]:
            tree = tree[key]
        tree[path[-2]] = path[-1]

    return edit


def drop(*path: Any) -> Edit:
    def edit(tree: Any) -> None:
        for key in path[:-1]:
            tree = tree[key]
        del tree[path[-1]]

    return edit


NODE = "node 2 'tvmgen_default_fused_nn_dense_nn_relu2'"
WRONG: list[tuple[Edit, str]] = [
    (drop("nodes"), "graph: 'nodes' is missing"),
    (drop("heads"), "graph: 'heads' is missing"),
    (drop("node_row_ptr"), "graph: 'node_row_ptr' is missing"),
    (put("extra", 1), "graph: unknown key 'extra'"),
    (put("nodes", 3), "graph: 'nodes': got 3, expected a list"),
    (put("nodes", 0, []), "graph: node 0: got [], expected an object"),
    (drop("nodes", 0, "name"), "graph: node 0: 'name' is missing"),
    (put("nodes", 0, "name", 7), "graph: node 0: 'name': got 7, expected a string"),
    (put("nodes", 0, "name", "\ud800"), "is no Unicode text"),
    (put("nodes", 0, "color", 7), "graph: node 0 'x': unknown key 'color'"),
    (
        put("nodes", 0, "op", "nul"),
        "node 0 'x': 'op' is 'nul', expected 'null' or 'tvm_op'",
    ),
    (put("nodes", 0, "inputs", [[0, 0]]), "node 0 'x': an input ('null') has inputs"),
    (put("nodes", 2, "attr", {}), f"{NODE}: has 'attr' and 'attrs'"),
    (drop("nodes", 2, "attrs"), f"{NODE}: 'attrs' is missing"),
    (drop("nodes", 2, "attrs", "num_inputs"), f"{NODE}: 'attrs': 'num_inputs' is missing"),
    (
        put("nodes", 2, "attrs", "hash", 3),
        f"{NODE}: 'attrs': 'hash': got 3, expected a str",
    ),
    (
        put("nodes", 2, "attrs", "num_outputs", "-1"),
        f"{NODE}: 'attrs': 'num_outputs' is '-1', expected a number",
    ),
    (
        put("nodes", 2, "attrs", "num_inputs", "3"),
        f"{NODE}: 'num_inputs' is '3', but there are 2 inputs",
    ),
    (put("nodes", 2, "attrs", "func_name", ""), f"{NODE}: 'func_name' is empty"),
    (
        put("nodes", 2, "attrs", "num_outputs", "2"),
        f"{NODE}: 'node_row_ptr' gives it 1 entries, expected 2",
    ),
    (
        put("nodes", 2, "inputs", 0, [2, 0, 0]),
        f"{NODE}: 'inputs'[0]: node 2, expected one bef",
    ),
    (put("nodes", 2, "inputs", 0, [0, 1]), f"{NODE}: 'inputs'[0]: output 1 of node 0 'x'"),
    (put("nodes", 2, "inputs", 0, [0]), f"{NODE}: 'inputs'[0]: has 1 numbers, expected"),
    (put("nodes", 2, "inputs", 0, [0, 0, 0, 0]), "has 4 numbers, expected"),
    (put("nodes", 2, "inputs", 0, [0, -1]), "got -1, expected an integer from 0 on"),
    (put("nodes", 2, "inputs", 0, [0, True]), "got True, expected an integer from 0 on"),
    (
        put("nodes", 2, "control_deps", [2]),
        f"{NODE}: waits for node 2, expected one before it",
    ),
    (put("arg_nodes", [0, 1]), "graph: 'arg_nodes': node 3 is missing"),
    (put("arg_nodes", [0, 1, 3, 2]), "graph: 'arg_nodes': node 2 is no input"),
    (put("arg_nodes", [0, 1, 3, 9]), "graph: 'arg_nodes': node 9 is no input"),
    (put("arg_nodes", [0, 1, 3, 3]), "graph: 'arg_nodes': lists a node twice"),
    (put("nodes", 3, "name", "x"), "graph: 'arg_nodes': nodes 0 and 3 are both called 'x'"),
    (put("heads", 0, [7, 0, 0]), "graph: 'heads'[0]: node 7, expected one before 7"),
    (put("heads", 0, [6, 1, 0]), "graph: 'heads'[0]: output 1 of node 6"),
    (put("node_row_ptr", 0, 1), "graph: 'node_row_ptr': begins with 1, expected 0"),
    (drop("node_row_ptr", 7), "graph: 'node_row_ptr': 7 numbers for 7 nodes"),
    (put("node_row_ptr", 3, 2), f"{NODE}: 'node_row_ptr' gives it 0 entries, expected 1"),
    (put("attrs", []), "graph: 'attrs': got [], expected an object"),
    (drop("attrs", "dltype"), "graph: 'attrs': 'dltype' is missing"),
    (
        put("attrs", "dltype", ["list_int", []]),
        "'dltype': type 'list_int', expected 'list_str'",
    ),
    (put("attrs", "dltype", ["list_str"]), "'dltype': has 1 items, expected [type, list]"),
    (drop("attrs", "shape", 1, 0), "'shape': 6 items, expected 7, one per entry"),
    (put("attrs", "shape", 1, 0, [1] * 65), "'shape'[0]: 65 axes, expected at most 64"),
    (put("attrs", "shape", 1, 0, [-2]), "'shape'[0]: a dimension of -2"),
    (put("attrs", "shape", 1, 0, [1 << 40, 1 << 40]), "is too large"),
    (put("attrs", "shape", 1, 0, [1 << 70]), "expected an integer"),
    (
        put("attrs", "storage_id", 1, 4, -1),
        "'storage_id'[4]: -1, expected a number from 0 on",
    ),
    (put("attrs", "device_index", 1, 6, 2), "storage 2 is on devices 1 and 2"),
    (
        put("attrs", "mine", ["list_str", []]),
        "'attrs': 'mine': unknown, of type 'list_str'",
    ),
    (
        put("attrs", "mine", ["size_t", "x"]),
        "'attrs': 'mine': got 'x', expected an integer",
    ),
]


@pytest.mark.parametrize(("edit", "message"), WRONG, ids=[m[:60] for _, m in WRONG])
def test_what_is_wrong_is_named(edit: Edit, message: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        read_graph(change(dense(), edit))
    assert message in str(caught.value)
    assert str(caught.value).startswith("graph")


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"3", b"\xff", b"[" * 100000, b'{"nodes": NaN}', b'{"a":1,"a":1}']
)
def test_other_files_are_no_graphs(data: bytes) -> None:
    with pytest.raises(ArchiveError, match=r"net\.json: "):
        read_graph(data, "net.json")


def test_a_key_that_stands_twice_is_found_among_many() -> None:
    def find(count: int) -> None:
        with pytest.raises(ArchiveError, match=f"key 'k{count - 1}' stands twice"):
            read_graph(texts[count])

    texts = {count: _last_key_twice(count) for count in (500, 16_000)}
    assert grows_in_proportion(find, *texts)


def _last_key_twice(count: int) -> str:
    keys = ", ".join(f'"k{number}": 0' for number in range(count))
    return f'{{{keys}, "k{count - 1}": 0}}'


def test_a_key_that_stands_twice_is_named() -> None:
    text = dense().decode().replace('"name": "x"', '"name": "x", "name": "y"')
    with pytest.raises(ArchiveError, match="key 'name' stands twice"):
        read_graph(text)


def test_a_copy_has_one_input_and_one_output() -> None:
    made = GraphMaker()
    x = made.input("x", [1])
    (y,) = made.call("__copy", [x, x], [[1]])
    with pytest.raises(ArchiveError, match="'__copy' has one input and one output"):
        read_graph(made.file([y]))


def test_a_file_that_is_cut_off_anywhere_is_refused() -> None:
    data = old()
    for end in range(len(data)):
        with pytest.raises(ArchiveError):
            read_graph(data[:end])
