"""Channels between GPUs: NCCL's communicators, and what becomes of them when a rank fails.

The provider's group finds the other ranks, carries NCCL's identifier to them, and news of failures.
A communicator begins to meet the others when its channel is made, and is waited for when that is
first used, on the thread that issues work; so one thread of a program may make the channels of all
its GPUs one after the other.  Not here: calls (`nccl_calls`).

Source: IREE `hal/drivers/cuda/nccl_channel.c` (what a channel holds); NCCL user guide, "Fault tolerance".
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

from tilewright.base.errors import DeviceError
from tilewright.base.host_thread import start_thread
from tilewright.runtime.collectives.nccl_calls import NcclCall
from tilewright.runtime.collectives.nccl_library import IN_PROGRESS, NcclLibrary
from tilewright.runtime.drivers.cuda.context import CudaContext, CudaStream, drop
from tilewright.runtime.drivers.cuda.resource import Resource
from tilewright.runtime.hal.channel import Channel, HostChannel, HostGroup
from tilewright.runtime.hal.collective import Contribution

_POLL_S: Final = 0.0005
_WATCH_S: Final = 0.02


@final
class _Communicator:
    """NCCL's side of a channel.

    Args:
        library: NCCL.
        context: the GPU.
        group: where the other ranks are.
        rank: of `count`.
    Ownership: the communicator ends with the first failure, else when nobody refers to this object.
    """

    def __init__(
        self, library: NcclLibrary, context: CudaContext, group: HostGroup, rank: int
    ) -> None:
        self._library: NcclLibrary = library
        self._context: CudaContext = context
        self._group: HostGroup = group
        self._rank: int = rank
        self._lock: threading.Lock = threading.Lock()  # one call for it at a time
        self._handle: int = 0
        self._finalizer: Callable[[], object] = _nothing
        self._running: int = 0  # executions that the GPU is not through with
        self._is_watched: bool = False
        self.error: DeviceError | None = None

    def start(self) -> None:
        """Begin to meet the other ranks.  Raises: DeviceError; then they are told."""
        self._group.watch(weakref.WeakMethod(self.abort))
        try:
            identifier = self._group.identifier(self._rank, self._library.unique_id)
            with self._lock, self._context:
                self._check()
                begin = self._library.start_communicator
                self._handle = begin(identifier, self._rank, self._group.count)
        except DeviceError as error:
            self._break(error)
            raise
        assert self._context.resource is not None
        give_back = partial(_give_back, self._library, self._context, self._handle)
        resource = Resource(give_back, self._context.resource)
        # Not `__del__`, during which the watching thread could still come by a reference.
        finalizer = weakref.finalize(self, drop, resource)
        finalizer.atexit = False  # a process that ends gives all back anyway
        self._finalizer = finalizer

    # --- on the thread that issues work -----------------------------------------------------------

    def issue(self, calls: Sequence[NcclCall], stream: CudaStream) -> None:
        """Put calls into a stream as one.  Raises: DeviceError; then the others are told."""
        try:
            self._settle()  # the first time: until the other ranks are there
            with self._lock:
                self._check()
                self._call_all(calls, stream)
            self._settle()
        except DeviceError as error:
            self._break(error)
            raise

    def _call_all(self, calls: Sequence[NcclCall], stream: CudaStream) -> None:
        call = self._library.call
        call("ncclGroupStart")
        try:
            for function, arguments in calls:
                tail = (self._handle, stream.handle)
                call(function, *arguments, *tail, communicator=self._handle)
        except DeviceError:
            with contextlib.suppress(DeviceError):  # says what has been said
                call("ncclGroupEnd")
            raise
        call("ncclGroupEnd", communicator=self._handle)

    def _settle(self) -> None:
        """Wait until NCCL has done what it was asked for."""
        while self._query() == IN_PROGRESS:
            time.sleep(_POLL_S)

    def _query(self) -> int:
        """0 or `IN_PROGRESS`.  Raises: DeviceError when it or another rank failed."""
        with self._lock:
            self._check()
            state = self._library.query_communicator(self._handle)
            if state not in (0, IN_PROGRESS):
                raise self._library.error("ncclCommGetAsyncError", state, self._handle)
        return state

    def _check(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)  # each raise would add to it

    # --- while the GPU works ----------------------------------------------------------------------

    def begin(self) -> None:
        """An execution is in the stream: look after the other ranks, the GPU waits for them."""
        with self._lock:
            if not self._is_watched:
                watch = partial(_watch, weakref.ref(self))
                start_thread(watch, f"tilewright-nccl-{self._rank}")
                self._is_watched = True
            self._running += 1

    def end(self) -> None:
        """The GPU is through with it.  Raises: DeviceError when it was aborted."""
        with self._lock:
            self._running -= 1
            self._check()

    def look_after(self) -> bool:
        """Whether to look again; a rank that has failed ends what the GPU waits for."""
        try:
            self._query()
        except DeviceError as error:
            self._break(error)
        with self._lock:
            self._is_watched = self._running > 0 and self.error is None
            return self._is_watched

    # --- failures ---------------------------------------------------------------------------------

    def abort(self, error: DeviceError) -> None:
        """End everything under way, with this error."""
        with self._lock:
            if self.error is not None:
                return
            self.error = error
        self._finalizer()

    def _break(self, error: DeviceError) -> None:
        """This rank has failed."""
        if self.error is None:
            self.abort(error)
            self._group.fail(error)


def _watch(reference: weakref.ref[_Communicator]) -> None:
    while (communicator := reference()) is not None and communicator.look_after():
        del communicator
        time.sleep(_WATCH_S)


def _nothing() -> None:
    """There is nothing to give back yet."""


def _give_back(library: NcclLibrary, context: CudaContext, handle: int) -> None:
    # Not ncclCommDestroy, which waits for all other ranks to call it, too.
    with contextlib.suppress(DeviceError), context:
        library.call("ncclCommAbort", handle)


@final
class NcclChannel(Channel):
    """A channel of one GPU.

    Args:
        library: NCCL.
        context: the GPU.
        group: what knows the other ranks.
        rank: of this GPU.
        count: of participants.
    Raises: DeviceError when NCCL does not even begin to meet the others.
    """

    __slots__ = ("_communicator", "_parts", "context", "group", "library")

    def __init__(
        self,
        library: NcclLibrary,
        context: CudaContext,
        group: HostGroup,
        rank: int,
        count: int,
    ) -> None:
        super().__init__(rank, count)
        self.library: NcclLibrary = library
        self.context: CudaContext = context
        self.group: HostGroup = group
        self._communicator: _Communicator = _Communicator(library, context, group, rank)
        self._parts: weakref.WeakKeyDictionary[HostChannel, NcclChannel] = (
            weakref.WeakKeyDictionary()
        )
        self._communicator.start()

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.group} on {self.context.ordinal}>"

    def issue(
        self, contribution: Contribution, calls: Sequence[NcclCall], stream: CudaStream
    ) -> None:
        """Put an operation into a stream.

        Raises: DeviceError when this rank or another has failed, or wants something else.
        """
        self.group.compare(self.rank, contribution)
        if calls:
            self._communicator.issue(calls, stream)

    def begin(self) -> None:
        """An execution with operations of this channel is in the stream."""
        self._communicator.begin()

    def end(self) -> None:
        """The GPU is through with it.  Raises: DeviceError when it was aborted."""
        self._communicator.end()

    def fail(self, error: BaseException) -> None:
        self.group.fail(error)  # which ends what is under way here, too

    def split(self, color: int, key: int) -> Channel | None:
        part = self.group.split(self.rank, color, key)
        if part is None or part.count == 1:
            return part
        channel = self._parts.get(part)
        if channel is None:
            channel = self._parts[part] = NcclChannel(
                self.library, self.context, part.group, part.rank, part.count
            )
        return channel
