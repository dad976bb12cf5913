"""Runs passes in the given order, innermost regions first, and says which one failed.

Checks the conditions between passes (`requires`, `ensures`, `invalidates`), calls the instruments
and chains errors with the pass name, the passes before it and the last dump.  Called by the
pipeline with its written-down list, and by tests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import final

from tilewright.base.errors import InternalError, TilewrightError
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.passes.context import PassContext
from tilewright.compiler.passes.graph_pass import GraphPass, PassResult
from tilewright.compiler.passes.instruments import DumpIR


@final
class PassError(InternalError):
    """A pass failed in a way that is not the user's fault; `__cause__` is what happened."""


def run_passes(
    graph: Graph,
    passes: Sequence[GraphPass],
    context: PassContext | None = None,
    *,
    held: frozenset[str] = frozenset(),
) -> PassResult:
    """Run `passes` in order on `graph` and its regions of control flow, in place.

    Args:
        graph: what to transform.
        passes: in the order they run; the context may leave some out.
        context: levels, switches, options, watchers; default: the one that is entered.
        held: properties that hold before the first pass.

    Raises: PassError; the UserError of a pass, and what a watcher raises, with a note that names the pass.
    """
    surroundings = context or PassContext.current()
    done: list[str] = []
    properties = set(held)
    total = PassResult(modified=False)
    for listed in passes:
        if not surroundings.runs(listed.info, graph):
            # Left out on purpose: passes after it do less, the order as written is still right.
            properties |= listed.ensures
            continue
        graph_pass = listed.configured(surroundings.options_of(listed.name))
        missing = sorted(graph_pass.requires - properties)
        if missing:
            raise InternalError(
                f"pass '{graph_pass.name}' requires {missing}, which no pass before it ensures"
            )
        result = _run_one(graph, graph_pass, surroundings, done)
        total |= result
        properties -= graph_pass.invalidates
        properties |= graph_pass.ensures
        done.append(graph_pass.name)
    return total


def _run_one(
    graph: Graph, graph_pass: GraphPass, context: PassContext, done: Sequence[str]
) -> PassResult:
    """Run one pass between its watchers, whose own errors keep their class."""
    info = graph_pass.info
    try:
        for instrument in context.instruments:
            instrument.run_before_pass(graph, info)
        start = time.perf_counter_ns()
        result = _transform(graph, graph_pass, context)
        duration_ns = time.perf_counter_ns() - start
        info = replace(info, modified=result.modified, duration_ns=duration_ns)
        for instrument in context.instruments:
            instrument.run_after_pass(graph, info)
    except InternalError as error:
        story = _story(graph_pass, done, context)
        raise PassError(f"{story}: {error.message}") from (error.__cause__ or error)
    except Exception as error:
        error.add_note(_story(graph_pass, done, context))
        raise
    return result


def _transform(graph: Graph, graph_pass: GraphPass, context: PassContext) -> PassResult:
    """Run one pass.  Raises: InternalError for what no pass raises on purpose."""
    result = PassResult(modified=False)
    try:
        for part in with_regions(graph):
            result |= graph_pass.run(part, context)
    except TilewrightError:
        raise
    except Exception as error:
        raise InternalError(f"{type(error).__name__}: {error}") from error
    return result


def _story(graph_pass: GraphPass, done: Sequence[str], context: PassContext) -> str:
    story = f"in pass '{graph_pass}'"
    if done:
        story += f" after {', '.join(done)}"
    dumps = [i.last for i in context.instruments if isinstance(i, DumpIR) and i.last]
    return story + f" (last dump: {dumps[-1]})" if dumps else story


def with_regions(graph: Graph) -> Iterator[Graph]:
    """The regions of control flow, innermost first, then the graph itself.

    Sealed regions are kernels and code of others, not graphs for passes.
    """
    for node in list(graph.nodes):
        if node.regions and not node.has(Trait.SEALED):
            for region in node.regions:
                yield from with_regions(region)
    yield graph
