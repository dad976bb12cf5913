"""Rows for what processes do together: collective operations, messages, infeed and outfeed.

Processes are walks over one graph (`world`), so that a collective operation is arithmetic on what its
members bring.  A module on its own runs in one process.

Source: StableHLO specification, "Collective ops", "all_gather", "all_reduce", "all_to_all",
"collective_broadcast", "collective_permute", "reduce_scatter", "send", "recv", "infeed", "outfeed".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.attribute_demands import channel
from tilewright.compiler.frontends.stablehlo.call import Call, integer_of, real
from tilewright.compiler.frontends.stablehlo.demands import (
    each_is_same,
    each_kept,
    takes_some,
)
from tilewright.compiler.frontends.stablehlo.held import (
    Held,
    Token,
    dims_of,
    joined,
    on_parts,
    shape_of,
)
from tilewright.compiler.frontends.stablehlo.reduction import promoted
from tilewright.compiler.frontends.stablehlo.region_demands import (
    combined,
)
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import Dense, Fields, Symbol
from tilewright.compiler.frontends.stablehlo.world import (
    MAX_PROCESSES,
    Process,
    Walks,
    World,
)

Group = tuple[Process, ...]
Brought = Mapping[Process, Sequence[Held]]

# --- who takes part ----------------------------------------------------------------------------


def _table(call: Call, name: str) -> list[list[int]]:
    """Rows of numbers; -1 fills rows that are shorter."""
    found = call.attribute(name)
    if found is None:
        return []
    if isinstance(found, Fields):
        raise UnsupportedError(f"'{name}' by the axes of a mesh is not supported")
    if not isinstance(found, Dense) or found.array.ndim != 2:
        raise ModelError(f"attribute '{name}' is no table of numbers")
    rows = np.asarray(found.array, np.int64).tolist()
    return [[int(n) for n in line if n != -1] for line in rows]


def _channel(call: Call) -> int:
    found = call.fields("channel_handle").get("handle")
    return 0 if found is None else integer_of("channel_handle", found)


def _each_once(groups: Sequence[Sequence[int]]) -> None:
    """Raise ModelError where a process is in two groups, or twice in one."""
    members = [n for line in groups for n in line]
    if len(set(members)) != len(members):
        raise ModelError(f"replica_groups {groups} name a process twice")


def _group(call: Call, *, by_partition: bool) -> Group:
    """The group of this process: of replicas, of partitions, of both, or of flat numbers.

    Args:
        call: the operation.
        by_partition: a channel says that groups are of partitions, not of both.
    """
    world, me = call.services.world, call.services.world.current
    channel, flat = _channel(call), call.attribute("use_global_device_ids") is not None
    groups = _table(call, "replica_groups")
    _each_once(groups)
    if flat:
        count = world.partitions
        found = [[Process(n // count, n % count) for n in line] for line in groups]
    elif channel > 0 and by_partition:
        every = groups or [list(range(world.partitions))]
        found = [[Process(me.replica, n) for n in line] for line in every]
    elif channel > 0:
        every = groups or [list(range(world.replicas))]
        found = [
            [Process(r, p) for p in range(world.partitions) for r in line] for line in every
        ]
    else:
        every = groups or [list(range(world.replicas))]
        found = [[Process(n, me.partition) for n in line] for line in every]
    return _with_me(world, found)


def _with_me(world: World, groups: Sequence[Sequence[Process]]) -> Group:
    """The group that this process is in; none is empty.  Raises: UnsupportedError for others' grids."""
    for group in groups:
        for member in group:
            inside = 0 <= member.replica < world.replicas
            if not inside or not 0 <= member.partition < world.partitions:
                raise UnsupportedError(
                    f"a group names process ({member.replica}, {member.partition}), the module runs in"
                    f" {world.replicas} x {world.partitions}"
                )
    return next((tuple(g) for g in groups if world.current in g), ())


def _met(call: Call, group: Group) -> Brought:
    key = (call.operation.name, _channel(call))
    return call.services.world.meet(key, group, call.operands)


def _own_group(call: Call, *, by_partition: bool = False) -> Group:
    group = _group(call, by_partition=by_partition)
    if not group:
        raise ModelError("this process is in no group")
    return group


# --- collective operations ---------------------------------------------------------------------


def _split(call: Call, held: Held, axis: int, count: int) -> list[Held]:
    sizes = shape_of(held)
    if not 0 <= axis < len(sizes) or count < 1 or sizes[axis] % count:
        raise ModelError(f"dimension {axis} of {list(sizes)} is not {count} equal parts")
    each, e = sizes[axis] // count, call.maker
    return [
        on_parts(lambda x, i=i: e.slice(x, axis, i * each, each), held)
        for i in range(count)
    ]


def _has_axis(call: Call, name: str, axis: int) -> None:
    """Raise ModelError unless every operand has a dimension."""
    least = min((len(dims_of(held)) for held in call.operands), default=0)
    if not 0 <= axis < least:
        raise ModelError(f"{name} is {axis}, operands have {least} dimensions")


def _all_gather(call: Call) -> list[Held]:
    group, axis = _own_group(call), call.integer("all_gather_dim")
    _has_axis(call, "all_gather_dim", axis)
    brought = _met(call, group)
    return [
        joined(call.maker, [brought[member][i] for member in group], axis)
        for i in range(len(call.operands))
    ]


def _reduced(call: Call, group: Group, count: int) -> list[Held]:
    """What the region makes of the first operands of all members, in their order."""
    brought = _met(call, group)
    found: list[Held] = []
    for index in range(count):
        each = [brought[member][index] for member in group]
        first, *rest = (promoted(call, [held], call.region(0))[0] for held in each)
        for other in rest:
            (first,) = call.lift(call.region(0), [first, other])
        found.append(first)
    return found


def _all_reduce(call: Call) -> list[Held]:
    return _reduced(call, _own_group(call), len(call.operands))


def _reduce_scatter(call: Call) -> list[Held]:
    group, axis = _own_group(call), call.integer("scatter_dimension")
    place = group.index(call.services.world.current)
    whole = _reduced(call, group, len(call.operands))
    return [_split(call, held, axis, len(group))[place] for held in whole]


def _all_to_all(call: Call) -> list[Held]:
    group = _own_group(call, by_partition=True)
    count, axis = call.integer("split_count"), call.integer("split_dimension")
    target = call.integer("concat_dimension")
    _has_axis(call, "concat_dimension", target)
    if count != len(group):
        raise ModelError(f"split_count is {count}, the group has {len(group)} members")
    brought, place = _met(call, group), group.index(call.services.world.current)
    found: list[Held] = []
    for index in range(len(call.operands)):
        parts = [_split(call, brought[m][index], axis, count)[place] for m in group]
        found.append(joined(call.maker, parts, target))
    return found


def _zeros(call: Call) -> list[Held]:
    e = call.maker
    return [on_parts(lambda x: e.full(0, x.dtype, x.shape), held) for held in call.operands]


def _roots(call: Call, group: Group) -> tuple[int, list[Process]]:
    """How many operands are data, and the member of the group that each is about."""
    count = len(call.operands)
    if not call.flag("has_dynamic_root") and call.attribute("has_dynamic_root") is None:
        return count, [group[0]] * count if group else []
    roots = call.numbers(count - 1) if count else ()
    if len(roots) != count - 1 or any(not 0 <= r < len(group or [0]) for r in roots):
        raise ModelError(f"roots {list(roots)} do not fit a group of {len(group)}")
    return count - 1, [group[r] for r in roots] if group else []


def _collective_broadcast(call: Call) -> list[Held]:
    group = _group(call, by_partition=True)
    count, roots = _roots(call, group)
    if not group:
        return _zeros(call)[:count]
    brought = _met(call, group)
    return [brought[root][index] for index, root in enumerate(roots)]


def _collective_reduce(call: Call) -> list[Held]:
    """The sum, or what the region makes of it, at the root; zeros elsewhere."""
    group = _group(call, by_partition=True)
    count, roots = _roots(call, group)
    if not group:
        return _zeros(call)[:count]
    whole, me = _reduced(call, group, count), call.services.world.current
    pairs = zip(whole, roots, _zeros(call), strict=False)
    return [held if root == me else zero for held, root, zero in pairs]


def _collective_permute(call: Call) -> list[Held]:
    world, me = call.services.world, call.services.world.current
    pairs = _table(call, "source_target_pairs")
    if any(len(pair) != 2 for pair in pairs):
        raise ModelError("source_target_pairs are no pairs")
    if any(len(set(side)) != len(pairs) for side in zip(*pairs, strict=True)):
        raise ModelError(f"source_target_pairs {pairs} name a source or a target twice")
    make = partial(Process, me.replica) if _channel(call) > 0 else (
        lambda n: Process(n, me.partition))  # fmt: skip
    moves = [(make(source), make(target)) for source, target in pairs]
    members = tuple(sorted({process for pair in moves for process in pair}))
    if me not in _with_me(world, [members]):
        return _zeros(call)
    brought = _met(call, members)
    sources = [source for source, target in moves if target == me]
    return list(brought[sources[0]]) if sources else _zeros(call)


def _cross_replica_sum(call: Call) -> Tensor:
    group = _own_group(call)
    brought = _met(call, group)
    first, *rest = (real(brought[member][0]) for member in group)
    for other in rest:
        first = call.maker.op("add", first, other)
    return first


def _partition_id(call: Call) -> Tensor:
    return call.maker.scalar(call.services.world.current.partition, dtypes.u32)


def _replica_id(call: Call) -> Tensor:
    return call.maker.scalar(call.services.world.current.replica, dtypes.u32)


# --- messages ----------------------------------------------------------------------------------


def _send(call: Call) -> Token:
    for name in ("is_host_transfer", "source_target_pairs"):
        call.attribute(name)
    if not call.operands or not isinstance(call.operands[-1], Token):
        raise ModelError("the last operand is no token")
    call.services.world.send(_channel(call), tuple(call.operands[:-1]))
    return Token()


def _receive(call: Call) -> list[Held]:
    for name in ("is_host_transfer", "source_target_pairs"):
        call.attribute(name)
    return [*call.services.world.receive(_channel(call)), Token()]


def _infeed(call: Call) -> list[Held]:
    call.attribute("infeed_config")
    feed = call.services.world.feed
    if not feed:
        raise UnsupportedError("nothing is fed in")
    return [*feed.popleft()(), Token()]


def _outfeed(call: Call) -> Token:
    """What goes out goes nowhere: a model's results are those of its function."""
    call.attribute("outfeed_config")
    return Token()


def _probe(call: Call) -> Held:
    call.services.probed(call.text("probe_id"), call.held(0))
    return call.held(0)


def _print(call: Call) -> list[Held]:
    """Nothing is printed while a module is compiled."""
    del call
    return []


# --- several processes -------------------------------------------------------------------------


def _programs(call: Call) -> list[list[str]]:
    """The function of every process, by replica and partition."""
    found = call.attribute("programs")
    lines = found if isinstance(found, tuple) else ()
    named = [
        [name.name for name in line if isinstance(name, Symbol)]
        for line in lines
        if isinstance(line, tuple)
    ]
    if not named or not named[0] or len({len(line) for line in named}) != 1:
        raise ModelError("attribute 'programs' is no grid of functions")
    if sum(map(len, named)) > MAX_PROCESSES:
        raise UnsupportedError(f"more than {MAX_PROCESSES} processes are not supported")
    return named


def _run_parallel(call: Call) -> list[Held]:
    """Every process takes as many operands as its function has arguments, in the order of the grid."""
    programs, services = _programs(call), call.services
    feed = call.attribute("infeed")
    rest = list(call.operands)
    works = {}
    for replica, line in enumerate(programs):
        for partition, name in enumerate(line):
            count = len(services.body(name).arguments)
            given, rest = rest[:count], rest[count:]
            works[Process(replica, partition)] = partial(services.function, name, given)
    if rest:
        raise ModelError(f"{len(rest)} operands are left over")
    walks = Walks(works, services.leave, services.enter)
    world = World(len(programs), len(programs[0]), walks.wait)
    for name in feed if isinstance(feed, tuple) else ():
        if isinstance(name, Symbol):
            world.feed.append(partial(services.function, name.name, ()))
    found = services.within(world, lambda: walks.run(world))
    return [held for process in works for held in found[process]]


def _combines_each(call: Call) -> None:
    """The region combines two elements of every operand, and its result has what it makes."""
    each_result = [[value] for value in call.operation.results]
    for value, result in zip(call.operation.operands, each_result, strict=False):
        combined(call, 0, [value.type], result)
    if len(each_result) != len(call.operation.operands):
        raise ModelError(
            f"has {len(each_result)} results, expected {len(call.operation.operands)}"
        )


ROWS: Final[tuple[Row, ...]] = (
    row("all_gather", _all_gather, keeps=True, demands=(takes_some(), each_kept)),
    row("all_reduce", _all_reduce, demands=(takes_some(1, 1), _combines_each)),
    row("all_to_all", _all_to_all, keeps=True, demands=(takes_some(), each_kept)),
    row("collective_broadcast", _collective_broadcast, keeps=True),
    row(
        "collective_permute",
        _collective_permute,
        keeps=True,
        demands=(takes_some(), each_is_same),
    ),
    row("collective_reduce", _collective_reduce),
    row("cross-replica-sum", _cross_replica_sum),
    row("infeed", _infeed, keeps=True, ignores=("layout",)),
    row("interpreter.print", _print, keeps=True),
    row("interpreter.probe", _probe, keeps=True),
    row("interpreter.run_parallel", _run_parallel, keeps=True),
    row("outfeed", _outfeed, keeps=True),
    row("partition_id", _partition_id),
    row("recv", _receive, keeps=True, demands=(channel,)),
    row("reduce_scatter", _reduce_scatter, demands=(takes_some(1, 1), _combines_each)),
    row("replica_id", _replica_id),
    row("send", _send, keeps=True, demands=(channel,)),
)
