"""A group of processes: a thread that carries operations forward over one MPI communicator.

Operations run beside each other where their order does not matter: one of all ranks at a time, and
one in each direction with each peer.  A rank that fails, or leaves, tells the others, and whatever
is not agreed by then fails there; what is agreed is always completed.  Called by `mpi_channels`.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Final, TypeAlias, final

from tilewright.base.errors import DeviceError
from tilewright.base.host_thread import start_thread
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.collectives.mpi_library import Communicator, Library, Request
from tilewright.runtime.collectives.mpi_operations import (
    NOTICE_TAG,
    SHARE,
    SPLIT,
    Agreement,
    Proposal,
    Requests,
    Steps,
    agree,
    answer,
    move,
    offer,
)
from tilewright.runtime.hal.channel import HostChannel, HostGroup, Watcher
from tilewright.runtime.hal.collective import CollectiveKind, Contribution
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.semaphore import Semaphore

_EAGER_ROUNDS: Final = 50
_PAUSE_S, _IDLE_PAUSE_S = 0.0005, 0.005
_FAILED, _LEFT = b"F", b"L"
_CLOSING_S: Final = 5.0
_IDENTIFIER_BYTES: Final = 256

Lane: TypeAlias = "tuple[CollectiveKind | None, int]"
_ALL: Final[Lane] = (None, -1)
CarryOut: TypeAlias = Callable[[bytes], Steps]


@final
class _Operation:
    """One operation on its way.

    Args:
        lane: operations of one lane run one after the other.
        agreement: what comes before all ranks are sure to take part.
        carry_out: the rest, given a digest of what they have agreed on.
    """

    def __init__(self, lane: Lane, agreement: Agreement, carry_out: CarryOut) -> None:
        self.lane: Lane = lane
        self.done: Fence = Fence.at(Semaphore(), 1)
        self.is_agreed: bool = False
        self.has_ended: bool = False
        self._steps: Generator[Requests, None, bytes | None] = agreement
        self._carry_out: CarryOut = carry_out
        self._requests: list[Request] = []

    def advance(self) -> bool:
        """Whether there was something to do.  Raises: what went wrong with it."""
        self._requests = [request for request in self._requests if not request.Test()]
        if self._requests:
            return False
        try:
            self._requests = list(next(self._steps))
        except StopIteration as stop:
            self.has_ended = self.is_agreed
            if not self.is_agreed:
                self.is_agreed = True
                self._steps = self._carry_out(stop.value)
        return True

    def give_up(self, error: BaseException) -> None:
        """Fail, and let go of messages that are not going to come."""
        for request in self._requests:
            with contextlib.suppress(Exception):  # a request may just have ended
                request.Cancel()
                request.Free()
        self._requests = []
        self._steps.close()
        self.done.fail(error)


@final
class MpiGroup(HostGroup):
    """The processes of a communicator.

    Args:
        mpi: the library.
        world: a communicator that nobody else uses.
        name: for messages.
    Raises: DeviceError where the system starts no thread.
    Ownership: its thread ends with `close`, which tells the others that this rank leaves.
    Thread-safety: may be used from any thread.
    """

    def __init__(self, mpi: Library, world: Communicator, name: str) -> None:
        super().__init__(name, world.size)
        self._mpi: Library = mpi
        self._world: Communicator = world
        self._process: int = os.getpid()
        self._inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._lanes: dict[Lane, deque[_Operation]] = {}
        self._left: dict[int, BaseException] = {}
        self._failure: DeviceError | None = None
        self._watchers: list[Watcher] = []
        self._notices: list[Request] = []
        self._splits: dict[bytes, HostChannel | None] = {}
        self._is_closing: bool = False
        self._thread: threading.Thread = start_thread(
            self._serve, f"tilewright-mpi-{name or 'world'}"
        )

    def __str__(self) -> str:
        return f"MPI group '{self.name or 'default'}' of {self.count}"

    # --- what channels ask for --------------------------------------------------------------------

    def join(self, rank: int, contribution: Contribution) -> Fence:
        del rank
        kind = contribution.op.kind
        carry_out = partial(self._move, contribution)
        if kind in (CollectiveKind.SEND, CollectiveKind.RECV):
            talk = offer if kind is CollectiveKind.SEND else answer
            lane = (kind, contribution.parameter)
            agreement = talk(self._mpi, self._world, contribution)
        else:
            lane, agreement = _ALL, self._agree(Proposal.of(contribution))
        return self._enter(_Operation(lane, agreement, carry_out))

    def split(self, rank: int, color: int, key: int) -> HostChannel | None:
        del rank
        found: list[HostChannel | None] = []
        agreement = self._agree(Proposal(SPLIT, color, key))
        carry_out = partial(self._divide, color, key, found)
        self._enter(_Operation(_ALL, agreement, carry_out)).wait()
        return found[0]

    def compare(self, rank: int, contribution: Contribution) -> None:
        """What other processes do is not asked for: they would have to wait for each other."""
        del rank, contribution
        if self._failure is not None:
            raise self._failure

    def identifier(self, rank: int, make: Callable[[], bytes]) -> bytes:
        made = make() if rank == 0 else b""
        memory = bytearray(bytes([len(made)]) + made).ljust(_IDENTIFIER_BYTES, b"\0")
        agreement = self._agree(Proposal(SHARE, 0, 0))
        carry_out = partial(self._spread, memory)
        self._enter(_Operation(_ALL, agreement, carry_out)).wait()
        return bytes(memory[1 : 1 + memory[0]])

    def fail(self, error: BaseException) -> None:
        self._inbox.put(partial(self._give_up, error))

    def watch(self, failed: Watcher) -> None:
        self._inbox.put(partial(self._add_watcher, failed))

    def close(self) -> None:
        """Leave: what is not agreed fails here, and wherever others wait for this rank."""
        self._inbox.put(self._begin_closing)
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSING_S)

    def _enter(self, operation: _Operation) -> Fence:
        if os.getpid() != self._process:
            raise failure(
                StatusCode.UNAVAILABLE,
                "MPI does not reach a process that was forked from one of its ranks",
                location=self,
            )
        error = self._hopeless(operation.lane)
        if error is not None:
            raise error
        self._inbox.put(partial(self._add, operation))
        return operation.done

    # --- what operations do -----------------------------------------------------------------------

    def _agree(self, proposal: Proposal) -> Agreement:
        return agree(self._mpi, self._world, proposal)

    def _move(self, contribution: Contribution, digest: bytes) -> Steps:
        del digest
        return move(self._mpi, self._world, contribution)

    def _spread(self, memory: bytearray, digest: bytes) -> Steps:
        del digest
        yield [self._world.Ibcast([memory, self._mpi.BYTE], root=0)]

    def _divide(
        self, color: int, key: int, found: list[HostChannel | None], digest: bytes
    ) -> Steps:
        """Splits that all ranks have asked for before share their channels: MPI's are scarce."""
        if digest not in self._splits:
            undefined = self._mpi.UNDEFINED
            part = self._world.Split(undefined if color < 0 else color, key)
            channel = None
            if color >= 0:
                group = MpiGroup(self._mpi, part, f"{self.name}/{color}")
                channel = HostChannel(part.rank, part.size, group)
            self._splits[digest] = channel
        found.append(self._splits[digest])
        yield []

    # --- on the group's thread --------------------------------------------------------------------

    def _serve(self) -> None:
        rounds = 0
        while self._lanes or not self._is_closing:
            self._take_requests()
            if self._advance():
                rounds = 0
                continue
            if self._listen():
                self._advance()  # what came before the notice counts
                self._reject()
                continue
            rounds += 1
            pause = _PAUSE_S if self._lanes else _IDLE_PAUSE_S
            time.sleep(0 if rounds < _EAGER_ROUNDS else pause)
        self._tell(_LEFT, "")
        deadline = time.monotonic() + _CLOSING_S / 2
        while self._notices and time.monotonic() < deadline:
            self._notices = [notice for notice in self._notices if not notice.Test()]
            time.sleep(_PAUSE_S)

    def _take_requests(self) -> None:
        """Do what others have asked for; wait for that where nothing is on its way."""
        self._watchers = [failed for failed in self._watchers if failed() is not None]
        waits = not (self._lanes or self._watchers or self._is_closing)
        with contextlib.suppress(queue.Empty):
            self._inbox.get(block=waits)()
            while True:
                self._inbox.get_nowait()()

    def _add(self, operation: _Operation) -> None:
        self._lanes.setdefault(operation.lane, deque()).append(operation)
        self._reject()

    def _advance(self) -> bool:
        """Whether an operation went on."""
        moved = False
        for key, lane in list(self._lanes.items()):
            operation = lane[0]
            try:
                moved |= operation.advance()
                if not operation.has_ended:
                    continue
                operation.done.signal()
            except Exception as error:
                self._stumble(operation, error)
                moved = True
            lane.popleft()
            if not lane:
                del self._lanes[key]
        return moved

    def _stumble(self, operation: _Operation, error: Exception) -> None:
        """An operation went wrong: ranks that disagree know that, of anything else they are told."""
        is_known = isinstance(error, DeviceError) and not operation.is_agreed
        if not isinstance(error, DeviceError):
            error = failure(StatusCode.UNAVAILABLE, f"MPI: {error}", location=self)
        operation.give_up(error)
        if not is_known:
            self._give_up(error)

    def _hopeless(self, lane: Lane) -> BaseException | None:
        """Why an operation that is not agreed will never be."""
        if self._failure is not None:
            return self._failure
        if self._is_closing:
            return failure(StatusCode.CANCELLED, "the group is closed", location=self)
        _, peer = lane
        return self._left.get(peer) or next(
            (error for error in tuple(self._left.values()) if lane is _ALL), None
        )

    def _reject(self) -> None:
        """Fail the operations that others will not agree to any more."""
        for key, lane in list(self._lanes.items()):
            error = self._hopeless(key)
            if error is None:
                continue
            hopeless = [operation for operation in lane if not operation.is_agreed]
            for operation in hopeless:
                lane.remove(operation)
                operation.give_up(error)
            if not lane:
                del self._lanes[key]

    def _begin_closing(self) -> None:
        self._is_closing = True
        self._reject()
        for channel in self._splits.values():
            if channel is not None and isinstance(channel.group, MpiGroup):
                channel.group.close()

    # --- failures ---------------------------------------------------------------------------------

    def _give_up(self, error: BaseException) -> None:
        """This rank has failed."""
        if self._failure is None:
            self._tell(_FAILED, str(error))
            self._break(str(error), error)

    def _break(self, text: str, cause: BaseException | None = None) -> None:
        aborted = failure(
            StatusCode.ABORTED, f"another participant failed: {text}", location=self
        )
        aborted.__cause__ = cause
        self._failure = aborted
        self._reject()
        self._tell_watchers()

    def _add_watcher(self, failed: Watcher) -> None:
        self._watchers.append(failed)
        self._tell_watchers()

    def _tell_watchers(self) -> None:
        if self._failure is not None:
            for failed in self._watchers:
                method = failed()
                if method is not None:
                    method(self._failure)
            self._watchers.clear()

    def _tell(self, kind: bytes, text: str) -> None:
        """Send a notice to all others."""
        message = [kind + text.encode(), self._mpi.BYTE]
        with contextlib.suppress(Exception):  # whoever is gone cannot be told
            for rank in range(self.count):
                if rank != self._world.rank and rank not in self._left:
                    sent = self._world.Isend(message, dest=rank, tag=NOTICE_TAG)
                    self._notices.append(sent)

    def _listen(self) -> bool:
        """Whether another rank has failed or left."""
        any_source, status = self._mpi.ANY_SOURCE, self._mpi.Status()
        heard = False
        while self._world.Iprobe(source=any_source, tag=NOTICE_TAG, status=status):
            memory = bytearray(status.Get_count(self._mpi.BYTE))
            source = status.source
            self._world.Recv([memory, self._mpi.BYTE], source=source, tag=NOTICE_TAG)
            self._hear(source, bytes(memory))
            heard = True
        return heard

    def _hear(self, source: int, notice: bytes) -> None:
        if notice[:1] == _LEFT:
            self._left[source] = failure(
                StatusCode.ABORTED, f"rank {source} has left", location=self
            )
        elif self._failure is None:
            self._break(f"rank {source}: {notice[1:].decode('utf-8', 'replace')}")
