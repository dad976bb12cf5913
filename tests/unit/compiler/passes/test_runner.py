from dataclasses import dataclass
from typing import ClassVar, final

import pytest

from fakes import tiny_ops
from tilewright.base.errors import InternalError, ModelError
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.passes import (
    DumpIR,
    GraphPass,
    PassContext,
    PassError,
    PassInstrument,
    PassResult,
    PassTimingInstrument,
    VerifyInstrument,
    register_pass,
    run_passes,
)
from tilewright.compiler.readers.graph_text import parse_graph


@register_pass
@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DropNegs(GraphPass):
    """Removes neg nodes (not meaning preserving; a test)."""

    ensures: ClassVar[frozenset[str]] = frozenset({"no-negs"})
    most: int = 100

    def run(self, graph, context):
        count = 0
        with Editor(graph) as edit:
            for node in edit.nodes():
                if node.op == "neg" and count < self.most:
                    edit.replace(node, [node.operands[0]])
                    count += 1
        return PassResult(count > 0, {"dropped": count})


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class NeedsNoNegs(GraphPass):
    """Requires what DropNegs ensures."""

    requires: ClassVar[frozenset[str]] = frozenset({"no-negs"})
    invalidates: ClassVar[frozenset[str]] = frozenset({"no-negs"})
    level: ClassVar[int] = 2

    def run(self, graph, context):
        return PassResult(modified=False)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fails(GraphPass):
    """Raises what it is given."""

    error: Exception | None = None

    def run(self, graph, context):
        raise self.error or ValueError("broken")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Breaks(GraphPass):
    """Leaves an invalid graph."""

    def run(self, graph, context):
        graph.nodes.reverse()
        return PassResult(modified=True)


def two_negs():
    return parse_graph(
        "graph @g(%x: f32[2]) { %a: f32[2] = neg(%x) %b: f32[2] = neg(%a) return %b }",
        tiny_ops.lookup,
    )


def test_passes_run_in_order_and_counts_add_up():
    graph = two_negs()
    result = run_passes(graph, [DropNegs(most=1), DropNegs()])
    assert result == PassResult(True, {"dropped": 2})
    assert graph.nodes == []


def test_configuration_by_name_replaces_options():
    graph = two_negs()
    context = PassContext(config={"drop-negs.most": "1"})
    assert run_passes(graph, [DropNegs()], context).counts == {"dropped": 1}


def test_a_missing_requirement_is_named():
    with pytest.raises(InternalError, match=r"'needs-no-negs' requires \['no-negs'\]"):
        run_passes(two_negs(), [NeedsNoNegs()])
    run_passes(two_negs(), [DropNegs(), NeedsNoNegs()])
    run_passes(two_negs(), [NeedsNoNegs()], held=frozenset({"no-negs"}))
    with pytest.raises(InternalError, match="requires"):
        run_passes(two_negs(), [DropNegs(), NeedsNoNegs(), NeedsNoNegs()])


def test_passes_above_the_level_are_left_out():
    timing = PassTimingInstrument()
    context = PassContext(opt_level=1, instruments=(timing,))
    run_passes(two_negs(), [DropNegs(), NeedsNoNegs()], context)
    assert [name for name, _, _ in timing.rows] == ["drop-negs"]
    assert "drop-negs" in timing.render()
    assert timing.render().splitlines()[-1].startswith("total")


def test_an_error_is_chained_with_the_pass_those_before_and_the_dump(tmp_path):
    context = PassContext(instruments=(DumpIR(tmp_path),))
    with pytest.raises(PassError) as caught:
        run_passes(two_negs(), [DropNegs(), Fails()], context)
    text = str(caught.value)
    assert "in pass 'fails" in text
    assert "after drop-negs" in text
    assert f"last dump: {tmp_path / '001-drop-negs.twir'}" in text
    assert "ValueError: broken" in text
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_user_error_keeps_its_class_and_gets_a_note():
    with pytest.raises(ModelError) as caught:
        run_passes(two_negs(), [Fails(error=ModelError("no such thing"))])
    assert "in pass 'fails" in caught.value.__notes__[0]


@pytest.mark.parametrize("hook", ["run_before_pass", "run_after_pass"])
def test_what_a_watcher_raises_keeps_its_class_and_gets_a_note(hook, monkeypatch):
    class StoppedError(Exception):
        """Of a user."""

    def stop(*_):
        raise StoppedError

    monkeypatch.setattr(PassInstrument, hook, stop)
    context = PassContext(instruments=(PassInstrument(),))
    with pytest.raises(StoppedError) as caught:
        run_passes(two_negs(), [DropNegs()], context)
    assert caught.value.__notes__ == ["in pass 'drop-negs'"]


def test_dumps_hold_the_input_and_every_change(tmp_path):
    folder = tmp_path / "deep" / "dumps"
    context = PassContext(instruments=(DumpIR(folder),))
    run_passes(two_negs(), [DropNegs(most=0), DropNegs()], context)
    assert sorted(p.name for p in folder.iterdir()) == [
        "000-input.twir",
        "002-drop-negs.twir",
    ]
    assert "neg(%a)" in (folder / "000-input.twir").read_text()
    assert "neg" not in (folder / "002-drop-negs.twir").read_text().replace("drop-negs", "")


def test_verification_finds_the_pass_that_broke_the_graph():
    context = PassContext(instruments=(VerifyInstrument(),))
    with pytest.raises(PassError, match=r"(?s)in pass 'breaks': .*not defined") as caught:
        run_passes(two_negs(), [Breaks()], context)
    assert "graph @g" in str(caught.value)


def test_passes_enter_control_flow_but_not_kernels():
    text = (
        "graph @g(%x: f32[2]) { %y: f32[2] = OP(%x)"
        " graph @k(%a: f32[2]) { %b: f32[2] = neg(%a) return %b } return %y }"
    )
    kernel = parse_graph(text.replace("OP", "fused"), tiny_ops.lookup)
    assert not run_passes(kernel, [DropNegs()]).modified
    flow = parse_graph(text.replace("OP", "branch"), tiny_ops.lookup)
    assert run_passes(flow, [DropNegs()]).counts == {"dropped": 1}
