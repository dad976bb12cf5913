"""Where lanes that are not in order read or write, as far as that is known now.

What it is: places of each lane as numbers or indices, and which lanes ask for one element.
What it is not: code; `memory` emits it, and is the only caller.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Opaque
from tilewright.compiler.kernel.ir import Index
from tilewright.compiler.kernel.lanes import has_lanes


def _places(dim: Dim, lanes: int, stride: int) -> Iterator[Dim]:
    """Where each lane reads or writes."""
    for lane in range(lanes):
        here = symbolic.map_opaque(dim, lambda atom, lane=lane: _in_lane(atom, lane))
        yield here + lane * stride


def places_near(dim: Dim, lanes: int, stride: int) -> tuple[Dim, list[int]] | None:
    """The lowest place that lanes read and how far above each reads, where one vector holds it all.

    That is where places differ by numbers known now, as in `x[i + lane // 2]`.
    """
    places: list[Dim] = []
    known: list[int] = []
    for place in _places(dim, lanes, stride):
        places.append(place)
        apart = place - places[0]
        if not isinstance(apart, int):
            return None
        known.append(apart)
    low = min(known)
    if max(known) - low >= lanes or any(has_lanes(d) for d in places):
        return None
    return places[0] + low, [d - low for d in known]


def places_far_apart(dim: Dim, lanes: int, stride: int) -> list[Dim] | None:
    """Where each lane reads, where lanes are a distance apart that only a call knows, the same from each to the next."""
    places = list(_places(dim, lanes, stride))
    apart = places[1] - places[0]
    if isinstance(apart, int) or has_lanes(places[0]):
        return None
    same = all(places[n + 1] - places[n] == apart for n in range(lanes - 1))
    return places if same else None


def _in_lane(atom: Opaque, lane: int) -> Dim:
    """What the numbers of the lanes are in one of them; anything else stays."""
    payload = atom.payload
    if isinstance(payload, Index) and payload.lanes > 1:
        return payload.dim + lane * payload.stride
    return symbolic.Expr.of_atom(atom)


def asking(places: list[int], count: int) -> list[list[int]]:
    """Orders of the lanes of a mask in which every element meets each lane that reads it.

    An element that fewer lanes read meets a lane beyond the mask, where a second one is false.
    """
    lanes = len(places)
    readers = [[lane for lane in range(lanes) if places[lane] == n] for n in range(count)]
    most = max(len(found) for found in readers)
    return [
        [found[k] if k < len(found) else lanes for found in readers] for k in range(most)
    ]
