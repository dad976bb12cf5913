"""From virtual registers to real ones: lifetimes, handing references over, sharing registers.

    liveness → release references → allocate → order moves

The VM does not release the references of a frame that returns normally, so every reference must
be handed over (move bit) or discarded on every path; this is where that happens, so emitters
need not think of it.  Works on drafts, knows no opcode beyond `discard.refs`.

Source: IREE `vm/bytecode/dispatch.c` (moves on branches run one after the other).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, final

from tilewright.base.errors import InternalError
from tilewright.base.record import field, record
from tilewright.formats.bytecode.drafts import Block, Draft, Edge, Register
from tilewright.formats.bytecode.isa import MOVE_BIT, REF_BIT, opcode_by_name
from tilewright.formats.bytecode.limits import MAX_REF_REGISTERS, MAX_WORD_REGISTERS
from tilewright.formats.calling_convention import WIDE_BANKS

DISCARD: Final = opcode_by_name("discard.refs")

# --- liveness ----------------------------------------------------------------------------------


def live_at_entry(blocks: Sequence[Block]) -> dict[Block, int]:
    """For each block the set (as a bit mask over register numbers) of values it still needs."""
    live = dict.fromkeys(blocks, 0)
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            before = _live_before(block, live)
            if before != live[block]:
                live[block] = before
                changed = True
    return live


def _live_before(block: Block, live: Mapping[Block, int]) -> int:
    needed = 0
    for draft in reversed(block.drafts):
        for edge in draft.edges():
            needed |= live_over(edge, live)
        needed &= ~mask(draft.results())
        needed |= mask(edge_sources(draft)) | mask(
            register for register, _ in draft.operands()
        )
    return needed


def live_over(edge: Edge, live: Mapping[Block, int]) -> int:
    """What the target needs and the edge itself does not bring."""
    return live[edge.block] & ~mask(edge.block.parameters)


def edge_sources(draft: Draft) -> Iterator[Register]:
    """Registers read by the moves of an instruction's edges."""
    for edge in draft.edges():
        yield from edge.arguments


def mask(registers: Iterable[Register]) -> int:
    """A bit mask over register numbers."""
    bits = 0
    for register in registers:
        bits |= 1 << register.number
    return bits


# --- references --------------------------------------------------------------------------------


@final
@record(frozen=False)
class Releases:
    """Which readings hand a reference over.

    `operands` holds (draft, position among its operands), `moves` (edge, position).
    """

    operands: set[tuple[int, int]] = field(default_factory=set)
    moves: set[tuple[int, int]] = field(default_factory=set)


def release_references(
    blocks: Sequence[Block], arguments: Sequence[Register], registers: Sequence[Register]
) -> Releases:
    """Hand every reference over at its last reading; add `discard.refs` where there is none."""
    refs = mask(register for register in registers if register.is_ref)
    live = live_at_entry(blocks)
    releases = Releases()
    held = dict.fromkeys(blocks, 0)
    held[blocks[0]] = mask(arguments) & refs
    for block in blocks:
        _release_in_block(block, live, refs, releases, held)
    for block in blocks:
        useless = held[block] & ~live[block]
        if useless:
            block.drafts.insert(1, _discard(useless, registers))
    return releases


def _release_in_block(
    block: Block,
    live: Mapping[Block, int],
    refs: int,
    releases: Releases,
    held: dict[Block, int],
) -> None:
    after = 0
    rewritten: list[Draft] = []
    for draft in reversed(block.drafts):
        for edge in draft.edges():
            after |= live_over(edge, live)
        _release_on_edges(draft, live, refs, after, releases, held)
        sources = mask(edge_sources(draft))
        results = mask(draft.results())
        needed = (after & ~results) | sources
        kept = _hand_over(draft, needed, refs, releases)
        useless = kept | (0 if draft.opcode.terminator else results & refs & ~after)
        if draft.opcode.terminator and kept:
            raise InternalError(
                f"'{draft.opcode.name}' reads a reference it cannot take over"
            )
        if useless:
            rewritten.append(_discard_numbers(useless))
        rewritten.append(draft)
        after = needed | mask(register for register, _ in draft.operands())
    block.drafts[:] = reversed(rewritten)


def _hand_over(draft: Draft, needed: int, refs: int, releases: Releases) -> int:
    """Mark last readings; return the registers that are read last but cannot be handed over."""
    moved = last = 0
    operands = list(draft.operands())
    for position in range(len(operands) - 1, -1, -1):
        register, movable = operands[position]
        bit = 1 << register.number
        if not bit & refs or bit & needed:
            continue
        last |= bit
        if movable and not bit & moved and _is_last(operands, position):
            releases.operands.add((id(draft), position))
            moved |= bit
    # A result in the same register drops what it held before.
    return last & ~moved & ~mask(draft.results())


def _is_last(operands: Sequence[tuple[Register, bool]], position: int) -> bool:
    register = operands[position][0]
    return all(later != register for later, _ in operands[position + 1 :])


def _release_on_edges(
    draft: Draft,
    live: Mapping[Block, int],
    refs: int,
    after: int,
    releases: Releases,
    held: dict[Block, int],
) -> None:
    sources = mask(edge_sources(draft)) & refs
    for edge in draft.edges():
        kept = live_over(edge, live)
        seen = 0
        for position in range(len(edge.arguments) - 1, -1, -1):
            bit = 1 << edge.arguments[position].number
            if bit & refs & ~kept & ~seen:
                releases.moves.add((id(edge), position))
                seen |= bit
        arriving = mask(edge.block.parameters) | mask(draft.results())
        present = ((after & refs) | sources) & ~seen
        held[edge.block] |= (present | arriving) & refs


def _discard(bits: int, registers: Sequence[Register]) -> Draft:
    return Draft(DISCARD, (tuple(r for r in registers if bits >> r.number & 1),))


def _discard_numbers(bits: int) -> Draft:
    numbers = [n for n in range(bits.bit_length()) if bits >> n & 1]
    return Draft(DISCARD, (tuple(Register(number, "ref") for number in numbers),))


# --- registers ---------------------------------------------------------------------------------


@final
@record
class Assignment:
    """Where each virtual register lives, and how many real ones that takes."""

    places: Mapping[int, int]
    words: int
    refs: int


def allocate(
    blocks: Sequence[Block],
    fixed: Sequence[tuple[Register, int]],
    registers: Sequence[Register],
) -> Assignment:
    """Give virtual registers real ones, sharing those whose lifetimes do not meet.

    Args:
        blocks: in the order they will be encoded.
        fixed: registers with the place they must have (arguments).
        registers: all virtual registers, by number.
    """
    spans = _spans(blocks)
    for register, _ in fixed:
        begin, end = spans.get(register.number, (-1, -1))
        spans[register.number] = (-1, max(begin, end))
    columns = {False: _Column(), True: _Column()}
    places: dict[int, int] = {}
    for register, place in fixed:
        columns[register.is_ref].take(place, _width(register), spans[register.number][1])
        places[register.number] = place
    order = sorted((span, n) for n, span in spans.items() if n not in places)
    for (begin, end), number in order:
        register = registers[number]
        column = columns[register.is_ref]
        column.expire(begin)
        places[number] = column.first_free(_width(register))
        column.take(places[number], _width(register), end)
    words, refs = len(columns[False].used), len(columns[True].used)
    if words > MAX_WORD_REGISTERS - 1 or refs > MAX_REF_REGISTERS - 1:
        raise InternalError(f"a function needs {words} word and {refs} reference registers")
    return Assignment(places, words, refs)


def _width(register: Register) -> int:
    return 2 if register.bank in WIDE_BANKS else 1


@final
class _Column:
    """The registers of one kind, in aligned pairs: which are taken, and until when.

    The heaps of free places may hold stale entries; they are checked when taken out.
    """

    __slots__ = ("_ends", "_halves", "_pairs", "used")

    def __init__(self) -> None:
        self.used: list[bool] = []
        self._ends: list[tuple[int, int, int]] = []
        self._halves: list[int] = []
        self._pairs: list[int] = []

    def expire(self, moment: int) -> None:
        """Free what nobody needs from the given moment on."""
        while self._ends and self._ends[0][0] < moment:
            _, place, width = heapq.heappop(self._ends)
            for half in range(place, place + width):
                self.used[half] = False
            self._offer(place)

    def _offer(self, place: int) -> None:
        """Put the free halves of a pair where they can be found."""
        pair = place & ~1
        free = [half for half in (pair, pair + 1) if not self._is_used(half)]
        if len(free) == 2:
            heapq.heappush(self._pairs, pair)
        elif free:
            heapq.heappush(self._halves, free[0])

    def _is_used(self, place: int) -> bool:
        return place < len(self.used) and self.used[place]

    def first_free(self, width: int) -> int:
        """A place for a value of one or two registers."""
        while width == 1 and self._halves:
            half = heapq.heappop(self._halves)
            if not self._is_used(half) and self._is_used(half ^ 1):
                return half
        while self._pairs:
            pair = heapq.heappop(self._pairs)
            if not self._is_used(pair) and not self._is_used(pair + 1):
                return pair
        return len(self.used) + len(self.used) % 2

    def take(self, place: int, width: int, end: int) -> None:
        """Occupy a place up to the given moment."""
        self.used.extend([False] * (place + width - len(self.used)))
        for half in range(place, place + width):
            self.used[half] = True
        heapq.heappush(self._ends, (end, place, width))
        self._offer(place)


def _spans(blocks: Sequence[Block]) -> dict[int, tuple[int, int]]:
    """First and last moment of each register: 2·n when read by instruction n, 2·n + 1 written."""
    live = live_at_entry(blocks)
    spans: dict[int, tuple[int, int]] = {}

    def touch(bits: int, moment: int) -> None:
        while bits:
            number = (bits & -bits).bit_length() - 1
            bits &= bits - 1
            begin, end = spans.get(number, (moment, moment))
            spans[number] = (min(begin, moment), max(end, moment))

    position = 0
    for block in blocks:
        touch(live[block] | mask(block.parameters), 2 * position)
        for draft in block.drafts:
            touch(mask(register for register, _ in draft.operands()), 2 * position)
            touch(mask(edge_sources(draft)), 2 * position)
            touch(mask(draft.results()), 2 * position + 1)
            for edge in draft.edges():
                touch(live[edge.block] | mask(edge.block.parameters), 2 * position + 1)
            position += 1
    return spans


# --- moves -------------------------------------------------------------------------------------


def order_moves(
    moves: Sequence[tuple[int, int]], scratch_word: int, scratch_ref: int
) -> tuple[list[tuple[int, int]], bool]:
    """Turn moves that happen at once into moves that happen one after the other.

    Args:
        moves: encoded (source, target) registers; sources may have the move bit.
        scratch_word: a free word register for breaking cycles.
        scratch_ref: a free reference register likewise.

    Returns:
        The ordered moves, and whether a scratch register was needed.
    """
    stays = {target for source, target in moves if _bare(source) == target}
    empties = {_bare(source) for source, _ in moves if source != _bare(source)} - stays
    pending = [
        (_bare(source), target) for source, target in moves if _bare(source) != target
    ]
    ordered: list[tuple[int, int]] = []
    used_scratch = False
    while pending:
        for index, (source, target) in enumerate(pending):
            others = pending[:index] + pending[index + 1 :]
            if all(other != target for other, _ in others):
                ordered.append((source, target))
                pending = others
                break
        else:
            used_scratch = True
            target = pending[0][1]
            scratch = scratch_ref | REF_BIT if target & REF_BIT else scratch_word
            empties |= {target, scratch} if target & REF_BIT else set()
            ordered.append((target, scratch))
            pending = [(scratch if s == target else s, t) for s, t in pending]
    return _empty_at_last_reading(ordered, empties), used_scratch


def _empty_at_last_reading(
    ordered: Sequence[tuple[int, int]], empties: set[int]
) -> list[tuple[int, int]]:
    """Set the move bit where a register that is to be emptied is read for the last time."""
    left = set(empties)
    result: list[tuple[int, int]] = []
    for source, target in reversed(ordered):
        result.append((source | MOVE_BIT if source in left else source, target))
        left.discard(source)
        if target in empties:
            left.add(target)  # an earlier reading sees the value from before this move
    return result[::-1]


def _bare(register: int) -> int:
    return register & ~MOVE_BIT if register & REF_BIT else register
