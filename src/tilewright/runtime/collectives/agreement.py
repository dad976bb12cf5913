"""Whether ranks that do something together want the same, and who does not.

Called by those that let ranks meet, before any data moves.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.collective import CollectiveKind, Contribution, send_recv_peers


def check_same(ranks: Sequence[Contribution]) -> None:
    """Raise unless all want the same.  Raises: DeviceError (INVALID_ARGUMENT) with both views."""
    problem = disagreement(ranks)
    if problem:
        raise failure(StatusCode.INVALID_ARGUMENT, problem)


def disagreement(ranks: Sequence[Contribution]) -> str:
    """Who wants something else than others; empty where all want the same.

    Args:
        ranks: what each brings; where two make a pair, the sender first.
    """
    first = ranks[0]
    for index, rank in enumerate(ranks):
        problem = difference(0, first, index, rank)
        if problem:
            return problem
    return _unrequited(ranks) if first.op.kind is CollectiveKind.SEND_RECV else ""


def difference(first: int, wanted: Contribution, second: int, other: Contribution) -> str:
    """In what two ranks differ; empty where both want the same, or are a pair."""
    same = (wanted.op.dtype, wanted.op.reduction, wanted.element_count) == (
        other.op.dtype,
        other.op.reduction,
        other.element_count,
    )
    kinds = {wanted.op.kind, other.op.kind}
    paired = kinds == {CollectiveKind.SEND, CollectiveKind.RECV}
    alike = len(kinds) == 1 and (
        CollectiveKind.SEND_RECV in kinds or wanted.parameter == other.parameter
    )
    if same and (paired or alike):
        return ""
    return (
        f"rank {second} wants {other.op}, {other.element_count} elements, parameter "
        f"{other.parameter}; rank {first} {wanted.op}, {wanted.element_count}, "
        f"{wanted.parameter}"
    )


def _unrequited(ranks: Sequence[Contribution]) -> str:
    """Who receives from a rank that sends to another."""
    for index, rank in enumerate(ranks):
        _, source = send_recv_peers(rank.parameter)
        if source is None:
            continue
        actual, _ = send_recv_peers(ranks[source].parameter)
        if actual != index:
            return (
                f"send_recv: rank {index} receives from {source}, which sends to "
                f"{'nobody' if actual is None else actual}"
            )
    return ""
