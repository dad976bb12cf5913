"""Collectives over MPI: what a rank sends and receives, step by step.

Every operation is a generator: it starts requests, yields them, and goes on when they are done.  Ranks
first *agree*: small messages say who wants what, so ranks that differ all get an error instead of
waiting for each other, and whoever has given up can be told so until then.  What is agreed is carried
out with MPI's own collectives, which only move bytes; the arithmetic is `arithmetic.reduce_arrays` in
the order of the ranks, so all types reduce as they do in one process.  Called by `mpi_channels`.

Source: MPI 4.1, chapters 3 (messages) and 6 (collectives).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias, final

import numpy as np

from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import view_bytes
from tilewright.runtime.collectives.agreement import disagreement
from tilewright.runtime.collectives.arithmetic import Array, read_array, reduce_arrays
from tilewright.runtime.collectives.mpi_library import Communicator, Library, Request
from tilewright.runtime.hal.collective import (
    CollectiveKind,
    CollectiveOp,
    Contribution,
    send_recv_peers,
)

NOTICE_TAG: Final = 1
_PROPOSAL_TAG, _VERDICT_TAG = 2, 3
_SEND_TAG, _ANSWER_TAG, _DATA_TAG, _SHIFT_TAG = 4, 5, 6, 7
_VERDICT_BYTES: Final = 1024

Memory: TypeAlias = "memoryview | bytes | bytearray | Array"


Requests: TypeAlias = Sequence[Request]
Steps: TypeAlias = Generator[Requests, None, None]
Agreement: TypeAlias = Generator[Requests, None, bytes]


# --- agreement ----------------------------------------------------------------------------------


_PROPOSAL: Final = struct.Struct("<qqq")
SPLIT, SHARE = 1 << 32, 1 << 33  # beyond all collectives, which are u32
_WORDS: Final = {SPLIT: "split the channel", SHARE: "share an identifier"}


@final
class Proposal(NamedTuple):
    """What a rank wants all to do.

    Attributes:
        operation: a packed collective, `SPLIT` or `SHARE`.
        parameter: the collective's; the color of a split.
        amount: the collective's elements; the key of a split.
    """

    operation: int
    parameter: int
    amount: int

    @staticmethod
    def of(contribution: Contribution) -> Proposal:
        """That of a collective."""
        c = contribution
        return Proposal(c.op.packed, c.parameter, c.element_count)

    @property
    def contribution(self) -> Contribution:
        """A collective's, without its memory."""
        op = CollectiveOp.unpack(self.operation)
        return Contribution(op, self.parameter, self.amount, None, None)

    def __str__(self) -> str:
        return _WORDS.get(self.operation) or f"run {CollectiveOp.unpack(self.operation)}"


def _problem(proposals: Sequence[Proposal]) -> str:
    """Why the ranks cannot do what they want; empty where they can."""
    first = proposals[0]
    if all(proposal.operation < SPLIT for proposal in proposals):
        return disagreement([proposal.contribution for proposal in proposals])
    for rank, proposal in enumerate(proposals):
        if proposal.operation != first.operation:
            return f"rank {rank} wants to {proposal}, rank 0 to {first}"
    return ""


def agree(mpi: Library, world: Communicator, proposal: Proposal) -> Agreement:
    """Ask rank 0 whether all want the same.

    Returns: a digest of what all want, the same on all ranks.
    Raises: DeviceError (INVALID_ARGUMENT) where they do not, the same on all ranks.
    """
    own = _PROPOSAL.pack(*proposal)
    if world.rank != 0:
        verdict = bytearray(_VERDICT_BYTES)
        yield [
            world.Isend([own, mpi.BYTE], dest=0, tag=_PROPOSAL_TAG),
            world.Irecv([verdict, mpi.BYTE], source=0, tag=_VERDICT_TAG),
        ]
        return _read_verdict(verdict)
    others = [bytearray(_PROPOSAL.size) for _ in range(1, world.size)]
    yield [
        world.Irecv([memory, mpi.BYTE], source=rank, tag=_PROPOSAL_TAG)
        for rank, memory in enumerate(others, 1)
    ]
    everything = own + b"".join(others)
    proposals = [Proposal(*fields) for fields in _PROPOSAL.iter_unpack(everything)]
    verdict = _verdict(_problem(proposals), everything)
    yield [
        world.Isend([verdict, mpi.BYTE], dest=rank, tag=_VERDICT_TAG)
        for rank in range(1, world.size)
    ]
    return _read_verdict(verdict)


def _verdict(problem: str, everything: bytes) -> bytes:
    if problem:
        text = problem.encode()[: _VERDICT_BYTES - 1]
        return (b"\1" + text).ljust(_VERDICT_BYTES, b"\0")
    digest = hashlib.blake2b(everything, digest_size=16).digest()
    return (b"\0" + digest).ljust(_VERDICT_BYTES, b"\0")


def _read_verdict(verdict: bytes | bytearray) -> bytes:
    if verdict[0]:
        text = bytes(verdict[1:]).rstrip(b"\0").decode("utf-8", "replace")
        raise failure(StatusCode.INVALID_ARGUMENT, text)
    return bytes(verdict[1:17])


def offer(mpi: Library, world: Communicator, contribution: Contribution) -> Agreement:
    """The sender's side of an agreement between two."""
    peer = contribution.parameter
    own = _PROPOSAL.pack(*Proposal.of(contribution))
    verdict = bytearray(_VERDICT_BYTES)
    yield [
        world.Isend([own, mpi.BYTE], dest=peer, tag=_SEND_TAG),
        world.Irecv([verdict, mpi.BYTE], source=peer, tag=_ANSWER_TAG),
    ]
    return _read_verdict(verdict)


def answer(mpi: Library, world: Communicator, contribution: Contribution) -> Agreement:
    """The receiver's side of an agreement between two."""
    peer = contribution.parameter
    offered = bytearray(_PROPOSAL.size)
    yield [world.Irecv([offered, mpi.BYTE], source=peer, tag=_SEND_TAG)]
    sender, receiver = Proposal(*_PROPOSAL.unpack(offered)), Proposal.of(contribution)
    problem = disagreement([sender.contribution, receiver.contribution])
    verdict = _verdict(problem, bytes(offered))
    yield [world.Isend([verdict, mpi.BYTE], dest=peer, tag=_ANSWER_TAG)]
    return _read_verdict(verdict)


# --- moving ---------------------------------------------------------------------------------------


@final
class _Move:
    """One rank's part in an operation that is agreed."""

    def __init__(
        self, mpi: Library, world: Communicator, contribution: Contribution
    ) -> None:
        self.world: Communicator = world
        self.op: CollectiveOp = contribution.op
        self.parameter: int = contribution.parameter
        self._mpi: Library = mpi
        # A copy: MPI refuses memory that overlaps what it writes.
        self.sent: Array = read_array(contribution.op, contribution.send)
        self.received: memoryview = contribution.receive or memoryview(bytearray())

    def plain(self, memory: Memory) -> list[object]:
        """Memory as MPI takes it."""
        return [memory, self._mpi.BYTE]

    def parts(self, memory: Memory, sizes: Sequence[int]) -> list[object]:
        """Memory in parts, one for each rank.  Units: bytes."""
        offsets = [0, *np.cumsum(sizes).tolist()[:-1]]
        return [memory, list(sizes), offsets, self._mpi.BYTE]

    def take(self, array: Array) -> None:
        """Let an array be what this rank receives."""
        self.received[:] = view_bytes(np.ascontiguousarray(array).view(np.uint8))

    def exchange(
        self, sizes: Sequence[int], incoming: Array, own: int
    ) -> Generator[Requests, None, None]:
        """Send a part to each rank, and get as many parts of one size.  Units: bytes."""
        source = self.parts(self.sent.view(np.uint8), sizes)
        target = self.parts(incoming.view(np.uint8), [own] * self.world.size)
        yield [self.world.Ialltoallv(source, target)]

    def reduce_part(self, elements: Sequence[int]) -> Generator[Requests, None, Array]:
        """Cut what all send into a part for each rank; this rank's, reduced."""
        width = self.op.dtype.bits // 8
        own = elements[self.world.rank]
        incoming = np.empty(own * self.world.size, self.op.dtype.numpy)
        yield from self.exchange([n * width for n in elements], incoming, own * width)
        return reduce_arrays(self.op, np.split(incoming, self.world.size))

    def even_parts(self) -> list[int]:
        """The elements that each rank reduces for all."""
        whole, rest = divmod(len(self.sent), self.world.size)
        return [whole + (rank < rest) for rank in range(self.world.size)]


def _all_gather(move: _Move) -> Steps:
    sizes = [move.sent.nbytes] * move.world.size
    source = move.plain(move.sent.view(np.uint8))
    yield [move.world.Iallgatherv(source, move.parts(move.received, sizes))]


def _all_reduce(move: _Move) -> Steps:
    elements = move.even_parts()
    part = yield from move.reduce_part(elements)
    sizes = [n * part.itemsize for n in elements]
    source = move.plain(part.view(np.uint8))
    yield [move.world.Iallgatherv(source, move.parts(move.received, sizes))]


def _reduce(move: _Move) -> Steps:
    elements = move.even_parts()
    part = yield from move.reduce_part(elements)
    sizes = [n * part.itemsize for n in elements]
    is_root = move.world.rank == move.parameter
    target = move.parts(move.received, sizes) if is_root else None
    source = move.plain(part.view(np.uint8))
    yield [move.world.Igatherv(source, target, root=move.parameter)]


def _reduce_scatter(move: _Move) -> Steps:
    count = move.world.size
    part = yield from move.reduce_part([len(move.sent) // count] * count)
    move.take(part)


def _all_to_all(move: _Move) -> Steps:
    size = move.sent.nbytes // move.world.size
    incoming = np.empty_like(move.sent)
    yield from move.exchange([size] * move.world.size, incoming, size)
    move.take(incoming)


def _broadcast(move: _Move) -> Steps:
    is_root = move.world.rank == move.parameter
    memory = move.sent.view(np.uint8) if is_root else move.received
    yield [move.world.Ibcast(move.plain(memory), root=move.parameter)]


def _send(move: _Move) -> Steps:
    memory = move.plain(move.sent.view(np.uint8))
    yield [move.world.Isend(memory, dest=move.parameter, tag=_DATA_TAG)]


def _recv(move: _Move) -> Steps:
    memory = move.plain(move.received)
    yield [move.world.Irecv(memory, source=move.parameter, tag=_DATA_TAG)]


def _send_recv(move: _Move) -> Steps:
    target, source = send_recv_peers(move.parameter)
    requests: list[Request] = []
    if source is None:
        move.received[:] = bytes(len(move.received))
    else:
        memory = move.plain(move.received)
        requests.append(move.world.Irecv(memory, source=source, tag=_SHIFT_TAG))
    if target is not None:
        memory = move.plain(move.sent.view(np.uint8))
        requests.append(move.world.Isend(memory, dest=target, tag=_SHIFT_TAG))
    yield requests


_MOVES: Final[Mapping[CollectiveKind, Callable[[_Move], Steps]]] = {
    CollectiveKind.ALL_GATHER: _all_gather,
    CollectiveKind.ALL_REDUCE: _all_reduce,
    CollectiveKind.ALL_TO_ALL: _all_to_all,
    CollectiveKind.BROADCAST: _broadcast,
    CollectiveKind.REDUCE: _reduce,
    CollectiveKind.REDUCE_SCATTER: _reduce_scatter,
    CollectiveKind.SEND: _send,
    CollectiveKind.RECV: _recv,
    CollectiveKind.SEND_RECV: _send_recv,
}


def move(mpi: Library, world: Communicator, contribution: Contribution) -> Steps:
    """Carry out what is agreed."""
    yield from _MOVES[contribution.op.kind](_Move(mpi, world, contribution))
